"""The data of `bench spark` and `bench tpch`: TPC-H at a scale, and changes of a given size.

As in the specification, but for two things: text stands where it has char(n), and foreign keys are
all enforced.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from psycopg import Connection

from headwater.bench.shop import execute
from headwater.errors import InvalidArgument, MissingComponent, bug

SCHEMA = "headwater_bench"
GENERATOR = "tpchgen-cli"
LINES_PER_SCALE, LINES_PER_ORDER = 6_000_000, 4
LEAST_SCALE = 0.01  # below it the generator repeats keys of partsupp
_CHUNK_BYTES = 1 << 20

# Name, columns, keys; in the order in which foreign keys can be made.
_TABLES = (
    ("region", "r_regionkey int, r_name text, r_comment text",
     "PRIMARY KEY (r_regionkey)"),
    ("nation", "n_nationkey int, n_name text, n_regionkey int, n_comment text",
     "PRIMARY KEY (n_nationkey), FOREIGN KEY (n_regionkey) REFERENCES region"),
    ("supplier", """s_suppkey int, s_name text, s_address text, s_nationkey int, s_phone text,
      s_acctbal numeric(15, 2), s_comment text""",
     "PRIMARY KEY (s_suppkey), FOREIGN KEY (s_nationkey) REFERENCES nation"),
    ("customer", """c_custkey int, c_name text, c_address text, c_nationkey int, c_phone text,
      c_acctbal numeric(15, 2), c_mktsegment text, c_comment text""",
     "PRIMARY KEY (c_custkey), FOREIGN KEY (c_nationkey) REFERENCES nation"),
    ("part", """p_partkey int, p_name text, p_mfgr text, p_brand text, p_type text, p_size int,
      p_container text, p_retailprice numeric(15, 2), p_comment text""",
     "PRIMARY KEY (p_partkey)"),
    ("partsupp", """ps_partkey int, ps_suppkey int, ps_availqty int,
      ps_supplycost numeric(15, 2), ps_comment text""",
     """PRIMARY KEY (ps_partkey, ps_suppkey), FOREIGN KEY (ps_partkey) REFERENCES part,
      FOREIGN KEY (ps_suppkey) REFERENCES supplier"""),
    ("orders", """o_orderkey bigint, o_custkey int, o_orderstatus text,
      o_totalprice numeric(15, 2), o_orderdate date, o_orderpriority text, o_clerk text,
      o_shippriority int, o_comment text""",
     "PRIMARY KEY (o_orderkey), FOREIGN KEY (o_custkey) REFERENCES customer"),
    ("lineitem", """l_orderkey bigint, l_partkey int, l_suppkey int, l_linenumber int,
      l_quantity numeric(15, 2), l_extendedprice numeric(15, 2), l_discount numeric(15, 2),
      l_tax numeric(15, 2), l_returnflag text, l_linestatus text, l_shipdate date,
      l_commitdate date, l_receiptdate date, l_shipinstruct text, l_shipmode text,
      l_comment text""",
     """PRIMARY KEY (l_orderkey, l_linenumber), FOREIGN KEY (l_orderkey) REFERENCES orders,
      FOREIGN KEY (l_partkey, l_suppkey) REFERENCES partsupp"""),
)  # fmt: skip

# What is indexed beside the primary keys, as the rules of the benchmark allow.
_FOREIGN_KEYS = (
    ("supplier", "s_nationkey"),
    ("customer", "c_nationkey"),
    ("partsupp", "ps_suppkey"),
    ("orders", "o_custkey"),
    ("lineitem", "l_partkey, l_suppkey"),
    ("lineitem", "l_suppkey"),
)

# Orders to delete and orders to copy under a new key, lines to update: all at random.
_PICK = """
CREATE TEMP TABLE picked_orders AS
SELECT o_orderkey, row_number() OVER () AS position
  FROM (SELECT o_orderkey FROM orders ORDER BY random() LIMIT 2 * {orders}) AS o;
CREATE TEMP TABLE picked_lines AS
SELECT l_orderkey, l_linenumber FROM lineitem l
 WHERE NOT EXISTS (SELECT FROM picked_orders p WHERE p.o_orderkey = l.l_orderkey)
 ORDER BY random() LIMIT {lines};
ALTER TABLE picked_orders ADD PRIMARY KEY (o_orderkey);
ALTER TABLE picked_lines ADD PRIMARY KEY (l_orderkey, l_linenumber);
ANALYZE picked_orders, picked_lines"""
_INSERT = """
INSERT INTO orders
SELECT {top} + p.position, o_custkey, o_orderstatus, o_totalprice, o_orderdate, o_orderpriority,
       o_clerk, o_shippriority, o_comment
  FROM orders o JOIN picked_orders p USING (o_orderkey) WHERE p.position <= {orders};
INSERT INTO lineitem
SELECT {top} + p.position, l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice,
       l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate,
       l_shipinstruct, l_shipmode, l_comment
  FROM lineitem l JOIN picked_orders p ON p.o_orderkey = l.l_orderkey
 WHERE p.position <= {orders}"""
_DELETE = """
DELETE FROM lineitem l USING picked_orders p
 WHERE p.o_orderkey = l.l_orderkey AND p.position > {orders};
DELETE FROM orders o USING picked_orders p
 WHERE p.o_orderkey = o.o_orderkey AND p.position > {orders}"""
_UPDATE = """
UPDATE lineitem l
   SET l_quantity = 1 + floor(random() * 50), l_discount = floor(random() * 11) / 100,
       l_extendedprice = round((900 + random() * 90000)::numeric, 2)
  FROM picked_lines p
 WHERE (p.l_orderkey, p.l_linenumber) = (l.l_orderkey, l.l_linenumber)"""

# What changes beside orders and lines, in each table its share: balances, offers, new parts.
_UPDATED = {
    "customer": ("c_custkey", "c_acctbal = round((random() * 11000 - 1000)::numeric, 2)"),
    "supplier": ("s_suppkey", "s_acctbal = round((random() * 11000 - 1000)::numeric, 2)"),
    "partsupp": ("ps_partkey, ps_suppkey",
                 "ps_supplycost = round((1 + random() * 999)::numeric, 2),"
                 " ps_availqty = 1 + floor(random() * 9999)"),
}  # fmt: skip
_PICKED_ROWS = """
UPDATE {table} SET {sets} WHERE ({key}) IN (SELECT {key} FROM {table} ORDER BY random() LIMIT
  greatest(1, round({share} * (SELECT count(*) FROM {table}))::bigint))"""
_NEW_PARTS = """
INSERT INTO part
SELECT {top} + row_number() OVER (), p_name, p_mfgr, p_brand, p_type, p_size, p_container,
       p_retailprice, p_comment
  FROM (SELECT * FROM part ORDER BY random() LIMIT
        greatest(1, round({share} * (SELECT count(*) FROM part))::bigint)) AS p;
INSERT INTO partsupp
SELECT p_partkey, s_suppkey, 1 + floor(random() * 9999), round((1 + random() * 999)::numeric, 2), ''
  FROM part CROSS JOIN (SELECT s_suppkey FROM supplier ORDER BY random() LIMIT 4) AS s
 WHERE p_partkey > {top}"""


def build(conn: Connection[Any], scale: float) -> int:
    """Make the schema anew with all tables at a scale, keys and statistics; return the lines."""
    if scale < LEAST_SCALE:
        raise InvalidArgument(
            f"there is no TPC-H at scale {scale:g}",
            "its generator makes keys twice where there are few suppliers",
            f"take {LEAST_SCALE:g} or more",
        )
    generator = _find_generator()
    execute(conn, f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    execute(conn, f"CREATE SCHEMA {SCHEMA}")
    execute(conn, f"SET search_path = {SCHEMA}")
    with tempfile.TemporaryDirectory(prefix="headwater-tpch-") as directory:
        _generate(generator, scale, directory)
        for table, columns, _ in _TABLES:
            required = ", ".join(f"{column.strip()} NOT NULL" for column in _split(columns))
            execute(conn, f"CREATE TABLE {table} ({required})")
            _load(conn, table, Path(directory) / f"{table}.csv")
    for table, _, keys in _TABLES:
        added = ", ".join(f"ADD {key.strip()}" for key in _split(keys))
        execute(conn, f"ALTER TABLE {table} {added}")
    for table, columns in _FOREIGN_KEYS:
        execute(conn, f"CREATE INDEX ON {table} ({columns})")
    execute(conn, f"VACUUM ANALYZE {', '.join(table for table, _, _ in _TABLES)}")
    return _number(conn, "SELECT count(*) FROM lineitem")


def change(conn: Connection[Any], lines: int, seed: int) -> None:
    """Change about so many lines in one transaction, on random keys.

    A third comes with new orders, a third goes with their orders, a third is updated.
    """
    orders = max(1, round(lines / 3 / LINES_PER_ORDER))
    top = _number(conn, "SELECT max(o_orderkey) FROM orders")
    execute(conn, "DROP TABLE IF EXISTS picked_orders, picked_lines")
    execute(conn, f"SELECT setseed({seed % 1000 / 1000})")
    execute(conn, _PICK.format(orders=orders, lines=max(1, round(lines / 3))))
    with conn.transaction():
        execute(conn, _INSERT.format(orders=orders, top=top))
        execute(conn, _DELETE.format(orders=orders))
        execute(conn, _UPDATE)


def change_dimensions(conn: Connection[Any], share: float, seed: int) -> None:
    """Change a share of customers, suppliers and offers, and bring as many new parts."""
    execute(conn, f"SELECT setseed({seed % 1000 / 1000})")
    top = _number(conn, "SELECT max(p_partkey) FROM part")
    with conn.transaction():
        for table, (key, sets) in _UPDATED.items():
            execute(conn, _PICKED_ROWS.format(table=table, key=key, sets=sets, share=share))
        execute(conn, _NEW_PARTS.format(top=top, share=share))


def change_one(conn: Connection[Any], table: str, seed: int) -> None:
    """Change a value of one row of `lineitem` or `orders`, which the plain join shows."""
    execute(conn, f"SELECT setseed({seed % 1000 / 1000})")
    key, column = {
        "lineitem": ("l_orderkey, l_linenumber", "l_quantity"),
        "orders": ("o_orderkey", "o_orderdate"),
    }[table]
    execute(conn, f"UPDATE {table} SET {column} = {column} + 1 WHERE ({key}) ="
                  f" (SELECT {key} FROM {table} ORDER BY random() LIMIT 1)")  # fmt: skip


def _split(definitions: str) -> list[str]:
    """Split at the commas that stand outside parentheses."""
    parts, depth = [""], 0
    for character in definitions:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _generate(generator: str, scale: float, directory: str) -> None:
    """Write all tables in one go: the generator needs a second to start."""
    command = [generator, "csv", "-q", "-s", f"{scale:g}", "-o", directory]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise bug(f"{GENERATOR} ended with code {done.returncode}", done.stderr.strip())


def _load(conn: Connection[Any], table: str, path: Path) -> None:
    statement = f"COPY {table} FROM STDIN (FORMAT csv, HEADER)"
    with (
        path.open("rb") as file,
        conn.cursor() as cursor,
        cursor.copy(statement.encode()) as copy,
    ):
        while chunk := file.read(_CHUNK_BYTES):
            copy.write(chunk)


def _find_generator() -> str:
    """Return the program, which pip puts beside the interpreter."""
    found = shutil.which(GENERATOR, path=sysconfig.get_path("scripts")) or shutil.which(GENERATOR)
    if found is None:
        raise MissingComponent(
            f"{GENERATOR} is not installed",
            "it makes the data of TPC-H",
            "pip install 'headwater[bench]'",
        )
    return found


def _number(conn: Connection[Any], query: str) -> int:
    row = conn.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])
