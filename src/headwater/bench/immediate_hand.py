"""Triggers for the two views of `bench immediate` as one would write them by hand.

They bound what generated ones can reach: they keep a hidden count in the table of groups, lock join
values by advisory locks, and have no guard, no owner's rights, no TRUNCATE, no care for statements
that change both tables, and no isolation level but READ COMMITTED.
"""

from __future__ import annotations

from typing import Any

from psycopg import Connection

_TABLES = """
CREATE TABLE groups (g int, n bigint, s bigint, a numeric, n_v bigint);
CREATE UNIQUE INDEX ON groups (g) NULLS NOT DISTINCT;
INSERT INTO groups SELECT g, count(*), sum(v), avg(v), count(v) FROM t GROUP BY g;
CREATE TABLE joined (id bigint PRIMARY KEY, amount int, customer_id int, name text);
CREATE INDEX ON joined (customer_id);
INSERT INTO joined SELECT o.id, o.amount, o.customer_id, c.name
  FROM orders o JOIN customers c ON c.id = o.customer_id;
ANALYZE groups, joined
"""
_REFERENCING = {
    "insert": "NEW TABLE AS new_rows",
    "update": "OLD TABLE AS old_rows NEW TABLE AS new_rows",
    "delete": "OLD TABLE AS old_rows",
}
_GROUPS_FROM = {
    "new_rows": "SELECT g, 1 AS c, v::bigint AS s, (v IS NOT NULL)::int AS n FROM new_rows",
    "old_rows": "SELECT g, -1 AS c, -v::bigint AS s, -(v IS NOT NULL)::int AS n FROM old_rows",
}
_GROUPS = """
WITH u AS (
  INSERT INTO groups AS m (g, n, s, a, n_v)
  SELECT g, sum(c), sum(s), sum(s)::numeric / nullif(sum(n), 0), sum(n) FROM ({rows}) AS x
   GROUP BY g HAVING sum(c) <> 0 OR sum(s) <> 0 OR sum(n) <> 0 ORDER BY g
  ON CONFLICT (g) DO UPDATE SET n = m.n + excluded.n, n_v = m.n_v + excluded.n_v,
    s = CASE WHEN m.n_v + excluded.n_v <> 0 THEN coalesce(m.s, 0) + coalesce(excluded.s, 0) END,
    a = CASE WHEN m.n_v + excluded.n_v <> 0
             THEN (coalesce(m.s, 0) + coalesce(excluded.s, 0))::numeric / (m.n_v + excluded.n_v) END
  RETURNING m.n)
SELECT bool_or(u.n = 0) FROM u"""
_CAME = "SELECT {columns} FROM new_rows o JOIN customers c ON c.id = o.customer_id"
_INSERT = f"INSERT INTO joined {_CAME.format(columns='o.id, o.amount, o.customer_id, c.name')}"
_UPSERT = f"""{_INSERT} ON CONFLICT (id) DO UPDATE
SET amount = excluded.amount, customer_id = excluded.customer_id, name = excluded.name"""
_GONE = f"SELECT id FROM old_rows EXCEPT {_CAME.format(columns='o.id')}"
_JOINED = {
    ("orders", "insert"): (_INSERT,),
    ("orders", "update"): (f"DELETE FROM joined WHERE id = ANY (ARRAY({_GONE}))", _UPSERT),
    ("orders", "delete"): ("DELETE FROM joined WHERE id = ANY (ARRAY(SELECT id FROM old_rows))",),
    ("customers", "update"): (
        "UPDATE joined AS j SET name = n.name FROM new_rows AS n"
        " WHERE j.customer_id = n.id AND j.name IS DISTINCT FROM n.name",
    ),
}
_LOCK_ALL = "PERFORM pg_advisory_xact_lock(7423);"


def install(conn: Connection[Any]) -> None:
    """Make both tables in the schema that comes first, and the triggers that maintain them."""
    conn.execute(_TABLES.encode())
    for event in _REFERENCING:
        _create(conn, "t", event, _follow_groups(event))
    for (table, event), statements in _JOINED.items():
        _create(conn, table, event, _follow_joined(table, event, statements))


def _create(conn: Connection[Any], table: str, event: str, body: str) -> None:
    name = f"hand_{table}_{event}"
    conn.execute(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $function$"
        f" DECLARE emptied boolean; BEGIN {body} RETURN NULL; END $function$".encode()
    )
    conn.execute(
        f"CREATE TRIGGER {name} AFTER {event} ON {table} REFERENCING {_REFERENCING[event]}"
        f" FOR EACH STATEMENT EXECUTE FUNCTION {name}()".encode()
    )


def _follow_groups(event: str) -> str:
    read = {"insert": ["new_rows"], "delete": ["old_rows"], "update": ["new_rows", "old_rows"]}
    statement = _GROUPS.format(rows=" UNION ALL ".join(_GROUPS_FROM[t] for t in read[event]))
    return (
        f"{_few(read[event][0])} {statement} INTO emptied;"
        f" ELSE EXECUTE $code${statement}$code$ INTO emptied; END IF;"
        " IF emptied THEN DELETE FROM groups WHERE n = 0; END IF;"
    )


def _follow_joined(table: str, event: str, statements: tuple[str, ...]) -> str:
    """Whoever reads a join value locks it with others, who writes what is read locks it alone."""
    column, lock = ("customer_id", "_shared") if table == "orders" else ("id", "")
    tables = [t for t in ("old_rows", "new_rows") if t in _REFERENCING[event]]
    values = " UNION ".join(f"SELECT {column} AS v FROM {t}" for t in tables)
    locks = (
        "PERFORM pg_advisory_xact_lock_shared(7423);"
        f" PERFORM pg_advisory_xact_lock{lock}(7423, v) FROM ({values} ORDER BY 1) AS q;"
    )
    kept = " ".join(f"{s};" for s in statements)
    anew = " ".join(f"EXECUTE $code${s}$code$;" for s in statements)
    return f"{_few(tables[-1])} {locks} {kept} ELSE {_LOCK_ALL} {anew} END IF;"


def _few(table: str) -> str:
    return f"PERFORM FROM {table} OFFSET 50 LIMIT 1; IF NOT FOUND THEN"
