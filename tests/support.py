"""What of SELECT is supported, as the compiler says: the data of docs/reference/sql-support.md.

`CONSTRUCTS` and `REFUSED` are queries over the tables of the battery. `python -m tests.support`
compiles each, and calls of each aggregate, on the embedded server, and writes down what came out; a
test compiles them again and compares.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import psycopg

import headwater
from headwater.algebra.calls import Kind
from headwater.algebra.ops import Aggregate, AntiJoin, Join, Loop, Op, SemiJoin, Whole, Window
from headwater.algebra.walk import walk
from headwater.errors import UnsupportedQuery
from headwater.postgres.compile import Compiled, compile_query
from headwater.postgres.maintenance import root_aggregate
from headwater.postgres.tops import find_top
from headwater.spark.landing import landed_rows
from headwater.spark.place import place
from headwater.spark.wires import NotOnSpark
from tests import aggregate_cases
from tests.battery import schema
from tests.servers import Embedded

Connection = psycopg.Connection[Any]
DATA = Path(__file__).parent / "support.json"

_ORDERS = "FROM shop.orders o"
_BOTH = "FROM shop.customers c JOIN shop.orders o ON o.customer_id = c.id"

# section -> construct -> a query that uses it
CONSTRUCTS: dict[str, dict[str, str]] = {
    "Rows": {
        "expressions, WHERE": f"SELECT o.id, upper(o.note) AS n {_ORDERS} WHERE o.units > 1",
        "UNION ALL": f"SELECT o.id {_ORDERS} UNION ALL SELECT c.id FROM shop.customers c",
        "VALUES": "SELECT v.a FROM (VALUES (1), (2)) AS v (a)",
        "views, WITH": "WITH w AS (SELECT * FROM shop.vips) SELECT w.key FROM w",
        "set-returning function in SELECT": "SELECT c.id, unnest(c.tags) AS tag"
        " FROM shop.customers c",
        "function in FROM, WITH ORDINALITY": "SELECT c.id, t.tag, t.n FROM shop.customers c,"
        " unnest(c.tags) WITH ORDINALITY AS t (tag, n)",
        "JSON_TABLE": "SELECT c.id, j.a FROM shop.customers c,"
        " JSON_TABLE(c.profile, '$' COLUMNS (a int PATH '$.a')) AS j",
        "a condition on now()": f"SELECT o.id {_ORDERS} WHERE o.at > now() - interval '1 day'",
    },
    "Joins": {
        "inner, cross, any condition": f"SELECT c.id, o.price {_BOTH} AND o.units < c.id",
        "LEFT, RIGHT, FULL": "SELECT c.id, o.price FROM shop.customers c"
        " LEFT JOIN shop.orders o ON o.customer_id = c.id",
        "NATURAL, USING": "SELECT id FROM shop.customers JOIN shop.orders USING (id)",
        "LATERAL": "SELECT c.id, q.n FROM shop.customers c CROSS JOIN LATERAL"
        " (SELECT count(*) AS n FROM shop.orders o WHERE o.customer_id = c.id) q",
        "LEFT JOIN LATERAL": "SELECT c.id, q.price FROM shop.customers c LEFT JOIN LATERAL"
        " (SELECT o.price FROM shop.orders o WHERE o.units > c.id) q ON true",
    },
    "Groups and sets": {
        "GROUP BY, sums and counts": f"SELECT o.note, sum(o.units) AS s {_ORDERS} GROUP BY o.note",
        "GROUP BY, min and max": f"SELECT o.note, max(o.units) AS m {_ORDERS} GROUP BY o.note",
        "GROUP BY, other aggregates": "SELECT o.note, array_agg(o.id ORDER BY o.id) AS ids"
        f" {_ORDERS} GROUP BY o.note",
        "aggregates over all rows": f"SELECT sum(o.units) AS s, count(*) AS n {_ORDERS}",
        "HAVING": f"SELECT o.note {_ORDERS} GROUP BY o.note HAVING count(*) > 1",
        "GROUPING SETS, ROLLUP, CUBE": "SELECT o.note, o.qty, count(*) AS n"
        f" {_ORDERS} GROUP BY ROLLUP (o.note, o.qty)",
        "DISTINCT": f"SELECT DISTINCT o.note {_ORDERS}",
        "count(DISTINCT …)": f"SELECT o.note, count(DISTINCT o.qty) AS n {_ORDERS} GROUP BY o.note",
        "UNION": f"SELECT o.id {_ORDERS} UNION SELECT c.id FROM shop.customers c",
        "INTERSECT [ALL], EXCEPT [ALL]": f"SELECT o.id {_ORDERS}"
        " EXCEPT ALL SELECT c.id FROM shop.customers c",
    },
    "Subqueries": {
        "EXISTS, IN": "SELECT c.id FROM shop.customers c WHERE EXISTS"
        " (SELECT FROM shop.orders o WHERE o.customer_id = c.id)",
        "NOT EXISTS": "SELECT c.id FROM shop.customers c WHERE NOT EXISTS"
        " (SELECT FROM shop.orders o WHERE o.customer_id = c.id)",
        "NOT IN, with its NULLs": "SELECT c.id FROM shop.customers c"
        " WHERE c.id NOT IN (SELECT o.customer_id FROM shop.orders o)",
        "ANY, ALL": "SELECT c.id FROM shop.customers c"
        " WHERE c.credit > ALL (SELECT o.price FROM shop.orders o WHERE o.customer_id = c.id)",
        "under OR": "SELECT c.id FROM shop.customers c WHERE c.vip OR EXISTS"
        " (SELECT FROM shop.orders o WHERE o.customer_id = c.id)",
        "a value, correlated": "SELECT c.id, (SELECT sum(o.units) FROM shop.orders o"
        " WHERE o.customer_id = c.id) AS s FROM shop.customers c",
        "a value, for all rows": "SELECT o.id, o.units - (SELECT min(i.units) FROM shop.orders i)"
        f" AS d {_ORDERS}",
        "ARRAY(…)": "SELECT c.id, ARRAY(SELECT o.id FROM shop.orders o WHERE o.customer_id = c.id"
        " ORDER BY o.id) AS ids FROM shop.customers c",
    },
    "Windows and limits": {
        "window with PARTITION BY": "SELECT o.id,"
        f" rank() OVER (PARTITION BY o.note ORDER BY o.units) AS r {_ORDERS}",
        "window over all rows": f"SELECT o.id, sum(o.units) OVER (ORDER BY o.id) AS s {_ORDERS}",
        "DISTINCT ON": f"SELECT DISTINCT ON (o.note) o.note, o.id {_ORDERS} ORDER BY o.note, o.id",
        "ORDER BY … LIMIT, FETCH FIRST": f"SELECT o.id, o.units {_ORDERS}"
        " ORDER BY o.units, o.id LIMIT 3",
        "ORDER BY alone": f"SELECT o.id {_ORDERS} ORDER BY o.id",
    },
    "Recursion": {
        "WITH RECURSIVE, by UNION": "WITH RECURSIVE r AS (SELECT o.id FROM shop.orders o"
        " WHERE o.qty = 1 UNION SELECT o.id FROM shop.orders o JOIN r ON o.units = r.id)"
        " SELECT r.id FROM r",
        "the same below a filter, join or aggregate": "WITH RECURSIVE r AS (SELECT o.id FROM"
        " shop.orders o WHERE o.qty = 1 UNION SELECT o.id FROM shop.orders o"
        " JOIN r ON o.units = r.id) SELECT count(*) AS n FROM r WHERE r.id > 1",
        "by UNION ALL, with SEARCH or CYCLE": "WITH RECURSIVE r AS (SELECT o.id, 1 AS n"
        " FROM shop.orders o WHERE o.qty = 1 UNION ALL SELECT o.id, r.n + 1 FROM shop.orders o"
        " JOIN r ON o.units = r.id WHERE r.n < 3) SELECT r.id FROM r",
    },
}

REFUSED: dict[str, str] = {
    "LIMIT without ORDER BY": f"SELECT o.id {_ORDERS} LIMIT 3",
    "TABLESAMPLE": "SELECT id FROM shop.orders TABLESAMPLE bernoulli (10)",
    "FOR UPDATE": "SELECT id FROM shop.orders FOR UPDATE",
    "volatile functions": "SELECT id, random() AS r FROM shop.orders",
    "now() as a value": "SELECT id, now() - at AS age FROM shop.orders",
    "system columns": "SELECT ctid, id FROM shop.orders",
    "ONLY": "SELECT sensor FROM ONLY shop.readings",
    "system catalogs": "SELECT relname FROM pg_class",
    "a single partition": "SELECT sensor FROM shop.readings_low",
    "min and max of a record": "SELECT max(ROW(id, note))::text AS m FROM shop.orders",
}


def collected(conn: Connection, hw: headwater.Headwater) -> dict[str, Any]:
    """Compile everything, in a database that is prepared for it; IMMEDIATE tables are created."""
    return {
        "constructs": {
            section: {
                title: _construct(conn, query) | {"immediate": _immediate(hw, query)}
                for title, query in rows.items()
            }
            for section, rows in CONSTRUCTS.items()
        },
        "refused": {title: _refusal(conn, query) for title, query in REFUSED.items()},
        "aggregates": _aggregates(conn),
    }


def prepare(conn: Connection) -> None:
    """Make the tables that the queries read."""
    for text in (schema.SETUP, schema.deep_views(), aggregate_cases.SETUP):
        conn.execute(text.encode())


def _compiled(conn: Connection, query: str) -> Compiled:
    with conn.transaction():
        return compile_query(conn, query)


def _construct(conn: Connection, query: str) -> dict[str, str]:
    view = _compiled(conn, query).incremental.view
    return {"strategy": strategy(view), "spark": _spark(view)}


def _immediate(hw: headwater.Headwater, query: str) -> str:
    try:
        hw.create_stream_table("st.probe", query, refresh_mode="IMMEDIATE")
    except UnsupportedQuery as refusal:
        return f"no: {refusal.why}"
    hw.drop_stream_table("st.probe")
    return "yes"


def _spark(view: Op) -> str:
    try:
        place(view, landed_rows)
    except NotOnSpark as fault:
        return f"no: {fault}"
    return "yes"


_TOP = "more rows are stored than are shown; the sources are read when those are spent"


def strategy(view: Op) -> str:
    """Say in words how the operators of a view follow a change, the outermost first."""
    root = root_aggregate(view)
    top = find_top(view)
    words = (
        _TOP if top and op in top.windows else _group_word(op) if op is root else _word(op)
        for op in walk(view)
    )
    return "; ".join(dict.fromkeys(filter(None, words))) or "linear"


def _word(op: Op) -> str | None:  # noqa: PLR0911 - one line per operator
    match op:
        case Join():
            return "bilinear"
        case Aggregate() if op.keys:
            return "keyed by the group"
        case Window() if op.keys:
            return "keyed by the partition"
        case Aggregate() | Window():
            return "all rows are one group: computed before and after"
        case SemiJoin() | AntiJoin():
            return "keyed by what the condition compares"
        case Whole(loop=Loop()):
            return "insertions lead on, deletions are rederived"
        case Whole():
            return "computed as a whole, before and after"
    return None


def _group_word(op: Aggregate) -> str:
    """Say how the outermost aggregate follows, whose groups are stored."""
    kinds = {call.kind for call in op.calls}
    if Kind.OPAQUE in kinds:
        return "stored groups: those touched are recomputed"
    if kinds & {Kind.MIN, Kind.MAX}:
        return "stored groups: adds while the extremum survives"
    if Kind.DISTINCT in kinds:
        return "stored groups: adds, with a count of rows for each value"
    return "stored groups: adds"


def _refusal(conn: Connection, query: str) -> dict[str, str]:
    try:
        _compiled(conn, query).incremental  # noqa: B018 - raises what refuses it
    except UnsupportedQuery as refusal:
        return {"what": refusal.what, "why": refusal.why}
    raise AssertionError(f"not refused: {query}")


# --- aggregates ---

_STRATEGIES = {
    frozenset({Kind.SUM}): "adds",
    frozenset[Kind](): "adds",  # the count of rows, which every group has
    frozenset({Kind.MIN}): "adds while the extremum survives",
    frozenset({Kind.MAX}): "adds while the extremum survives",
}
_NAME = re.compile(r"(?<![\w.])(\w+)\(")
_WRAPPERS = frozenset({"round", "nullif"})
_MIXED = frozenset({"distinct", "expressions", "own"})
_TYPES = """
SELECT attname, CASE typtype WHEN 'e' THEN 'enum' WHEN 'c' THEN 'composite'
                             ELSE format_type(atttypid, NULL) END
  FROM pg_attribute JOIN pg_type t ON t.oid = atttypid
 WHERE attrelid = 't'::regclass AND attnum > 0
"""


def _aggregates(conn: Connection) -> dict[str, dict[str, list[str]]]:
    """For each aggregate, the types of arguments that are followed in one way or the other."""
    found: dict[str, dict[str, list[str]]] = {}
    for (name, type), call in sorted(_plain_calls(conn).items()):
        view = _compiled(conn, aggregate_cases.query([call])).incremental.view
        [grouped] = [op for op in walk(view) if isinstance(op, Aggregate)]
        kinds = frozenset(call.kind for call in grouped.calls)
        how = _STRATEGIES.get(kinds, "recomputes the group")
        found.setdefault(name, {}).setdefault(how, []).append(type)
    return found


def _plain_calls(conn: Connection) -> dict[tuple[str, str], str]:
    """Return a call of each aggregate for each type of argument: not filtered, not DISTINCT."""
    found: dict[tuple[str, str], str] = {}
    types = dict(conn.execute(_TYPES).fetchall())
    for family, calls in aggregate_cases.families(conn.info.server_version // 10000).items():
        for call in calls:
            if family not in _MIXED and "DISTINCT" not in call and "i > 0)" not in call:
                name = next(n for n in map(str.lower, _NAME.findall(call)) if n not in _WRAPPERS)
                found.setdefault((name, _argument_type(call, types)), call)
    return found


def _argument_type(call: str, types: dict[str, str]) -> str:
    """Return the type of the column that a call reads first."""
    arguments = call.partition("ORDER BY " if "WITHIN" in call else "(")[2]
    return next((types[word] for word in re.findall(r"\w+", arguments) if word in types), "any")


def main() -> None:
    """Compile on the embedded server and write down what came out."""
    server = Embedded()
    try:
        dsn = server.create_database()
        with psycopg.connect(dsn, autocommit=True) as conn, headwater.connect(dsn) as hw:
            prepare(conn)
            text = json.dumps(collected(conn, hw), indent=1, ensure_ascii=False)
        DATA.write_text(text + "\n", encoding="utf-8")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
