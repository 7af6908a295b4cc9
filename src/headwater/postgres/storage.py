"""The stored stream table: the table itself, its index, its guard, and its private state."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from psycopg import Connection, errors, sql

from headwater.algebra.codec import decode_columns, decode_op, encode
from headwater.algebra.schema import Column, Schema
from headwater.catalog.model import StreamTable
from headwater.catalog.names import qualified_name
from headwater.errors import InvalidArgument
from headwater.postgres.apply import hash_of
from headwater.postgres.maintenance import Maintenance, over_state, plan_maintenance
from headwater.postgres.quote import identifier, listed
from headwater.postgres.render import Renderer
from headwater.postgres.target import Target
from headwater.sql.analyse import describe

_INDEX_LIMIT = 32  # columns of an index in PostgreSQL
GUARD = "pgt_guard"
_ROOM = "WITH (fillfactor = 90)"  # room for updates that leave the key alone: no index is touched


def state_name(pgt_id: int) -> str:
    """Return the qualified name of a stream table's private state."""
    return f"pgtrickle_state.state_{pgt_id}"


def stored_plan(
    plan: Maintenance | None, columns: Schema, hashed: tuple[str, ...]
) -> dict[str, object]:
    """Return what the catalog keeps: the tree as text, none for FULL; columns; a bag's hash."""
    text = json.dumps(encode(plan.view)) if plan else None
    return {"text": text, "columns": encode(columns), "hashed": list(hashed)}


def load_plan(st: StreamTable) -> tuple[Maintenance | None, Target]:
    """Return how a stream table is maintained, None for FULL; no SQL is parsed."""
    stored = st.plan
    plan = decoded(stored["text"]) if stored["text"] is not None else None
    has_state = plan is not None and plan.root is not None and st.publish
    state = state_name(st.pgt_id) if has_state else None
    columns: Schema = plan.columns if plan else decode_columns(stored["columns"])
    hashed = tuple(stored["hashed"])
    return plan, Target(st.qualified_name, columns, st.key_columns, hashed, state)


@lru_cache(maxsize=256)
def decoded(plan: str) -> Maintenance:
    """Return the plan from its stored text; a long-lived process decodes each once."""
    return plan_maintenance(decode_op(json.loads(plan)))


def create_table(conn: Connection[Any], schema: str, name: str, query: str) -> int:
    """Create the empty table with the query's exact columns and return its oid."""
    shown = qualified_name(schema, name)
    conn.execute(f"CREATE TABLE {shown} {_ROOM} AS {query} WITH NO DATA")
    return _oid(conn, shown)


def adopt_table(conn: Connection[Any], schema: str, name: str, columns: tuple[Column, ...]) -> int:
    """Empty a table that has the query's exact columns, and return its oid."""
    shown = qualified_name(schema, name)
    row = conn.execute(
        "SELECT c.oid::int8 FROM pg_class c WHERE c.oid = to_regclass(%s) AND c.relkind = 'r'",
        (shown,),
    ).fetchone()
    wanted = [(c.name, c.type) for c in columns]
    if row is None or [(c.name, c.type) for c in describe(conn, f"TABLE {shown}")] != wanted:
        raise InvalidArgument(
            f"{shown} cannot become a stream table",
            "it is no table, or its columns are not those of the query: "
            + ", ".join(f"{c.name} {c.type.name}" for c in columns),
            "alter the table or the query, or create the stream table anew",
        )
    conn.execute(f"DROP TRIGGER IF EXISTS {GUARD} ON {shown}")
    conn.execute(f"DELETE FROM {shown}")
    return int(row[0])


def create_unpublished(
    conn: Connection[Any], schema: str, name: str, columns: tuple[Column, ...]
) -> int:
    """Create, in place of a table, a view that says where the result is, and return its oid."""
    shown = qualified_name(schema, name)
    outputs = listed(
        f"CAST(NULL AS {c.type.name}){f' COLLATE {c.type.collation}' if c.type.collation else ''}"
        f" AS {identifier(c.name)}"
        for c in columns
    )
    test = sql.SQL("pgtrickle.not_published({})").format(sql.Literal(shown)).as_string(conn)
    conn.execute(f"CREATE VIEW {shown} AS SELECT {outputs} WHERE {test}")
    return _oid(conn, shown)


def _oid(conn: Connection[Any], shown: str) -> int:
    row = conn.execute("SELECT %s::regclass::oid::int8", (shown,)).fetchone()
    assert row is not None
    return int(row[0])


def choose_hashed(conn: Connection[Any], columns: tuple[Column, ...]) -> tuple[str, ...]:
    """Return the columns whose types can be hashed, for the index of a bag."""
    return tuple(c.name for c in columns[:_INDEX_LIMIT] if _is_hashable(conn, c))


def _is_hashable(conn: Connection[Any], column: Column) -> bool:
    if column.type.equality is None:
        return False
    try:
        with conn.transaction():
            probe = f"SELECT hash_array_extended(ARRAY[]::{column.type.name}[], 0)"
            conn.execute(probe)
    except errors.UndefinedFunction:
        return False
    return True


def index_name(pgt_id: int) -> str:
    """Return the name of the index that a refresh finds rows by."""
    return f"pgt_{pgt_id}_key"


def create_index(conn: Connection[Any], pgt_id: int, target: Target) -> None:
    """Create the index that a refresh finds rows by."""
    name = index_name(pgt_id)
    if target.key:
        columns = listed(identifier(column) for column in target.key)
        conn.execute(f"CREATE UNIQUE INDEX {name} ON {target.name} ({columns}) NULLS NOT DISTINCT")
    elif target.key is None and target.hashed:
        conn.execute(f"CREATE INDEX {name} ON {target.name} (({hash_of('', target.hashed)}))")


def drop_index(conn: Connection[Any], st: StreamTable) -> None:
    """Drop that index, before the key changes."""
    conn.execute(f"DROP INDEX IF EXISTS {qualified_name(st.pgt_schema, index_name(st.pgt_id))}")


def create_guard(conn: Connection[Any], table: str) -> None:
    """Refuse writes by anyone but a refresh."""
    conn.execute(
        f"CREATE TRIGGER {GUARD} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table}"
        " FOR EACH STATEMENT EXECUTE FUNCTION pgtrickle.guard_stream_table()"
    )


def create_state(conn: Connection[Any], plan: Maintenance, state: str) -> None:
    """Create the empty private state of a root aggregate."""
    assert plan.root is not None
    select = Renderer().render(plan.root).sql
    conn.execute(f"CREATE TABLE {state} {_ROOM} AS {select} WITH NO DATA")
    if 0 < len(plan.root.keys) <= _INDEX_LIMIT:
        keys = listed(identifier(key) for key in plan.root.keys)
        conn.execute(f"CREATE UNIQUE INDEX ON {state} ({keys}) NULLS NOT DISTINCT")


def fill_state(conn: Connection[Any], plan: Maintenance, state: str) -> None:
    """Compute the state of all groups anew."""
    assert plan.root is not None
    conn.execute(f"TRUNCATE {state}")
    conn.execute(f"INSERT INTO {state} {Renderer().render(plan.root).sql}")
    conn.execute(f"ANALYZE {state}")


def current_query(plan: Maintenance | None, target: Target, canonical: str) -> str:
    """Return the query of the whole content: from the state where there is one."""
    if plan is None or plan.root is None or target.state is None:
        return canonical
    return Renderer().render(over_state(plan.view, plan.root, target.state)).sql


def drop_storage(conn: Connection[Any], st: StreamTable) -> None:
    """Drop the table and its state; a table that is gone already is no error."""
    conn.execute(f"DROP TABLE IF EXISTS {state_name(st.pgt_id)}")
    row = conn.execute("SELECT %s::oid::regclass::text", (st.pgt_relid,)).fetchone()
    if row is not None and not row[0].isdigit():
        conn.execute(f"DROP {'TABLE' if st.publish else 'VIEW'} {st.qualified_name}")
