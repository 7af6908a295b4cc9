"""The demonstration as a sequence of scenes: a shop, five stream tables, writes, a refresh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from headwater.api import Headwater
from headwater.results import Created

SCHEMA = "headwater_demo"
SHOP = f"""
CREATE SCHEMA {SCHEMA};
SET search_path TO {SCHEMA};
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, region text NOT NULL);
CREATE TABLE products (id int PRIMARY KEY, category text NOT NULL, price numeric(10, 2) NOT NULL);
CREATE TABLE orders (id int PRIMARY KEY, customer_id int NOT NULL REFERENCES customers,
                     product_id int NOT NULL REFERENCES products, quantity int NOT NULL);
CREATE INDEX ON orders (customer_id);
CREATE INDEX ON orders (product_id);
INSERT INTO customers
SELECT n, 'customer ' || n, (ARRAY['north', 'east', 'south', 'west'])[1 + n % 4]
  FROM generate_series(1, 400) AS n;
INSERT INTO products
SELECT n, (ARRAY['books', 'games', 'tools'])[1 + n % 3], 5 + n % 17 + 0.5
  FROM generate_series(1, 40) AS n;
INSERT INTO orders
SELECT n, 1 + n * 7919 % 396, 1 + n * 31 % 40, 1 + n % 5 FROM generate_series(1, 6000) AS n;
"""
TABLES = {
    "revenue": f"""\
SELECT initcap(c.region) AS region, p.category,
       count(*) AS orders, sum(o.quantity * p.price) AS revenue
  FROM {SCHEMA}.orders o
  JOIN {SCHEMA}.customers c ON c.id = o.customer_id
  JOIN {SCHEMA}.products p ON p.id = o.product_id
 GROUP BY initcap(c.region), p.category""",
    "customer_orders": f"""\
SELECT c.id AS customer_id, c.region, o.id AS order_id, o.quantity
  FROM {SCHEMA}.customers c
  LEFT JOIN {SCHEMA}.orders o ON o.customer_id = c.id""",
    "region_totals": f"""\
SELECT region, sum(orders) AS orders, sum(revenue) AS revenue
  FROM {SCHEMA}.revenue
 GROUP BY region""",
    "largest_order": f"""\
SELECT max(o.quantity * p.price) AS amount
  FROM {SCHEMA}.orders o
  JOIN {SCHEMA}.products p ON p.id = o.product_id""",
}
LIVE = f"""\
SELECT c.region, count(*) AS orders, sum(o.quantity) AS pieces
  FROM {SCHEMA}.orders o
  JOIN {SCHEMA}.customers c ON c.id = o.customer_id
 GROUP BY c.region"""
RUSH = "INSERT INTO orders SELECT n, 396, 1, 5 FROM generate_series(7001, 7100) n"
WRITES = (
    ("20 new orders",
     "INSERT INTO orders SELECT n, 1 + n % 396, 1 + n % 40, 2 FROM generate_series(6001, 6020) n"),
    ("15 orders grow", "UPDATE orders SET quantity = quantity + 1 WHERE id <= 15"),
    ("10 orders are cancelled", "DELETE FROM orders WHERE id BETWEEN 101 AND 110"),
)  # fmt: skip
# Both sides of every join in one transaction: customer 400 is new to ordering.
TOGETHER = (
    ("customer 400 moves to the south …", "UPDATE customers SET region = 'south' WHERE id = 400"),
    ("… and orders for the first time", "INSERT INTO orders VALUES (6021, 400, 1, 3)"),
)
NORTH = f"SELECT orders, pieces FROM {SCHEMA}.live WHERE region = 'north'"
TOTALS = f"SELECT region, orders, revenue FROM {SCHEMA}.region_totals ORDER BY region"
NEWCOMER = f"""\
SELECT customer_id, region, order_id FROM {SCHEMA}.customer_orders WHERE customer_id = 400"""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a table to show."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Scene:
    """One thing that happened: its name, what to say of it, the SQL, and the result to show.

    `then` says what goes on until the next scene, where that takes long.
    """

    key: str
    title: str
    text: str
    shown: object
    sql: str = ""
    then: str = ""


def play(hw: Headwater) -> Iterator[Scene]:
    """Act out the demonstration; each scene has happened by the time that it is yielded."""
    with psycopg.connect(hw.dsn, autocommit=True) as conn:
        yield _build_shop(hw, conn)
        created = tuple(_create(hw, name, query) for name, query in TABLES.items())
        yield _present_tables(created)
        totals, newcomer = _fetch(conn, TOTALS), _fetch(conn, NEWCOMER)
        yield Scene("before", "The totals", "Read like any other table.", totals, TOTALS)
        yield _write(conn)
        yield _refresh(hw)
        yield _compare(totals, _fetch(conn, TOTALS))
        yield _follow_newcomer(newcomer, _fetch(conn, NEWCOMER))
        yield _follow_at_once(hw, conn)
    yield _verify(hw)
    yield _refresh_again(hw)
    yield _explain(hw)


def _build_shop(hw: Headwater, conn: psycopg.Connection[Any]) -> Scene:
    """Make the tables, in place of those that an earlier demonstration left."""
    for status in hw.pgt_status():
        if status.name.startswith(f"{SCHEMA}."):
            hw.drop_stream_table(status.name, cascade=True)
    conn.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
    conn.execute(SHOP.encode())
    rows = tuple(
        (table, _fetch(conn, f"SELECT count(*) FROM {SCHEMA}.{table}").rows[0][0])
        for table in ("customers", "products", "orders")
    )
    text = "Three ordinary tables. Nothing is installed in the server."
    on_spark = hw.explain_query(TABLES["revenue"]).engine == "spark"
    then = "creating the stream tables; Spark starts, which takes a while" if on_spark else ""
    return Scene("shop", "A shop", text, Rows(("table", "rows"), rows), then=then)


def _present_tables(created: tuple[Created, ...]) -> Scene:
    text = (
        "Tables that stay equal to a query: an aggregate over a join of three tables, a left\n"
        "join, an aggregate over the first, and the largest order. This is `revenue`:"
    )
    return Scene("created", "Four stream tables", text, created, TABLES["revenue"])


def _create(hw: Headwater, name: str, query: str) -> Created:
    """Create a stream table on the engine that fits."""
    return hw.create_stream_table(f"{SCHEMA}.{name}", query, refresh_mode="DIFFERENTIAL")


def _write(conn: psycopg.Connection[Any]) -> Scene:
    rows = [(what, _execute(conn, statement)) for what, statement in WRITES]
    with conn.transaction():
        rows += [(what, _execute(conn, statement)) for what, statement in TOGETHER]
    text = "Inserts, updates and deletes, and one transaction that changes both sides of the joins."
    shown = Rows(("write", "rows"), tuple(rows))
    sql = "\n".join(statement for _, statement in TOGETHER)
    return Scene("written", "Business goes on", text, shown, sql, then="refreshing")


def _refresh(hw: Headwater) -> Scene:
    results = tuple(hw.refresh_stream_table(f"{SCHEMA}.{name}") for name in TABLES)
    text = (
        "DIFFERENTIAL is what really ran: from the rows that changed, with an update as two (the\n"
        "old row and the new), to the rows of the stream table that are inserted, updated, deleted."
    )
    if any("spark_jobs" in result.timings for result in results):
        text += "\nA job of Spark has its price however few rows there are, and these are few."
    return Scene("refreshed", "The refresh", text, results)


def _refresh_again(hw: Headwater) -> Scene:
    results = tuple(hw.refresh_stream_table(f"{SCHEMA}.{name}") for name in TABLES)
    text = "Nothing was written since. PostgreSQL knows that by itself, and Spark is not asked."
    return Scene("unchanged", "A refresh for nothing", text, results)


def _compare(before: Rows, after: Rows) -> Scene:
    headings = ("region", "orders before", "after", "revenue before", "after")
    rows = tuple(
        (old[0], old[1], new[1], old[2], new[2])
        for old, new in zip(before.rows, after.rows, strict=True)
    )
    text = "Two levels up from the orders, and exact."
    return Scene("after", "The totals, before and after", text, Rows(headings, rows))


def _follow_newcomer(before: Rows, after: Rows) -> Scene:
    rows = tuple(
        (when, *("NULL" if value is None else str(value) for value in row))
        for when, found in (("before", before), ("after", after))
        for row in found.rows
    )
    text = "In the left join a customer without orders has one row of NULLs. Not any more:"
    return Scene("newcomer", "Customer 400", text, Rows(("", *after.headings), rows), NEWCOMER)


def _follow_at_once(hw: Headwater, conn: psycopg.Connection[Any]) -> Scene:
    """Write under an IMMEDIATE table, look inside the transaction, and take it back."""
    hw.create_stream_table(f"{SCHEMA}.live", LIVE, refresh_mode="IMMEDIATE")
    found = [("before", _fetch(conn, NORTH))]
    with conn.transaction(force_rollback=True):
        _execute(conn, RUSH)
        found.append(("after INSERT, before COMMIT", _fetch(conn, NORTH)))
    found.append(("after ROLLBACK", _fetch(conn, NORTH)))
    rows = tuple((when, *rows.rows[0]) for when, rows in found)
    text = (
        "A fifth table, `live`, in mode IMMEDIATE: no refresh, triggers keep it equal to its\n"
        "query inside the writing transaction. The north, while 100 orders come and go again:"
    )
    shown = Rows(("", "orders", "pieces"), rows)
    return Scene("live", "At once", text, shown, f"BEGIN;\n{RUSH};\nROLLBACK;")


def _verify(hw: Headwater) -> Scene:
    results = tuple(hw.verify(f"{SCHEMA}.{name}") for name in (*TABLES, "live"))
    text = (
        "Each stream table against its query, run in full: EXCEPT ALL both ways, so that a row\n"
        "too few, too many or repeated would show."
    )
    return Scene("verified", "The proof", text, results)


def _explain(hw: Headwater) -> Scene:
    explanation = hw.explain_st(f"{SCHEMA}.revenue")
    text = (
        "Who computes `revenue`. Spark joins and sums, over copies of the sources in files. It\n"
        "does only what is certain to mean the same there; the rest, initcap here, PostgreSQL does."
    )
    if explanation.spark is None:
        explanation = hw.explain_st(f"{SCHEMA}.customer_orders")
        text = "The left join as operators, and what a change of its tables does to it:"
    return Scene("explained", "How", text, explanation)


def _execute(conn: psycopg.Connection[Any], statement: str) -> int:
    conn.execute(f"SET search_path TO {SCHEMA}".encode())
    return conn.execute(statement.encode()).rowcount


def _fetch(conn: psycopg.Connection[Any], query: str) -> Rows:
    cursor = conn.execute(query.encode())
    names: Sequence[Any] = cursor.description or ()
    return Rows(tuple(column.name for column in names), tuple(cursor.fetchall()))
