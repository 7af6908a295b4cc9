"""The stored stream table: the table itself, its index, its guard, and its private state."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

from psycopg import Connection, errors, sql

from headwater.algebra.codec import decode_columns, decode_op, encode
from headwater.algebra.ops import Aggregate, Whole
from headwater.algebra.schema import FIXED_SIZE, Column, Schema
from headwater.catalog.model import StreamTable
from headwater.catalog.names import qualified_name
from headwater.delta.recursion import step_columns
from headwater.delta.stored import shown_keys
from headwater.errors import InvalidArgument
from headwater.postgres.different import Different, different_values, index_on, stored_values
from headwater.postgres.kept import (
    Keeps,
    keeping,
    keeps_of,
    reading_kept,
    reserving,
    states,
    ways_to,
)
from headwater.postgres.maintenance import Kept, Maintenance, over_state, plan_maintenance
from headwater.postgres.quote import identifier, listed
from headwater.postgres.recursions import index_statements
from headwater.postgres.render import Renderer
from headwater.postgres.reserve import reserve_queries
from headwater.postgres.state import keys_of
from headwater.postgres.target import Target
from headwater.postgres.writes import hash_of
from headwater.sql.analyse import describe

_INDEX_LIMIT = 32  # columns of an index in PostgreSQL
_STATES = "pgtrickle_state."
_KEY_INDEX = re.compile(r"pgt_(\d+)_key|(?:state|kept)_(\d+)(?:_\d+)*_key")
LONG_KEYS = "long_keys"  # in the stored plan
KEPT, RECURSIONS, RESERVE = "kept", "recursions", "reserve"  # likewise
GUARD = "pgt_guard"
_ROOM = "WITH (fillfactor = 90)"  # room for updates that leave the key alone: no index is touched


def state_name(pgt_id: int) -> str:
    """Return the qualified name of a stream table's private state."""
    return f"{_STATES}state_{pgt_id}"


def state_names(pgt_id: int, plan: Maintenance | None) -> tuple[str | None, tuple[str, ...]]:
    """Return the state of the root aggregate, if there is one, and those of aggregates inside; the
    last may be a reserve of the first rows."""
    if plan is None:
        return None, ()
    count = len(plan.kept) + (plan.top is not None)
    kept = tuple(f"{_STATES}kept_{pgt_id}_{n + 1}" for n in range(count))
    return state_name(pgt_id) if plan.root is not None else None, kept


def stored_plan(
    plan: Maintenance | None,
    columns: Schema,
    hashed: tuple[str, ...],
    *,
    has_long_keys: bool = False,
) -> dict[str, object]:
    """Return what the catalog keeps: the tree as text, none for FULL; columns; a bag's hash."""
    text = json.dumps(encode(plan.view)) if plan else None
    stored = {"text": text, "columns": encode(columns), "hashed": list(hashed)}
    if plan and plan.is_timed:
        stored["timed"] = True
    if plan and plan.kept:
        stored[KEPT if keeps_of(plan) is Keeps.ALL else RECURSIONS] = len(plan.kept)
    if plan and plan.top:
        stored[RESERVE] = plan.top.kept
    if has_long_keys:
        stored[LONG_KEYS] = True
    return stored


def load_plan(st: StreamTable) -> tuple[Maintenance | None, Target]:
    """Return how a stream table is maintained, None for FULL; no SQL is parsed."""
    stored = st.plan
    plan = decoded(stored["text"], what_is_kept(st)) if stored["text"] is not None else None
    columns: Schema = plan.columns if plan else decode_columns(stored["columns"])
    state, kept = state_names(st.pgt_id, plan) if st.publish else (None, ())
    target = Target(st.qualified_name, columns, st.key_columns, tuple(stored["hashed"]))
    has_long_keys = bool(stored.get(LONG_KEYS))
    return plan, replace(target, state=state, kept=kept, has_long_keys=has_long_keys)


def what_is_kept(st: StreamTable) -> frozenset[str]:
    """Return what a stream table keeps beside its root: parts inside, a reserve of rows."""
    return frozenset({KEPT, RECURSIONS, RESERVE} & st.plan.keys())


@lru_cache(maxsize=256)
def decoded(text: str, kept: frozenset[str]) -> Maintenance:
    """Return the plan from its stored text; a long-lived process decodes each once."""
    plan = plan_maintenance(decode_op(json.loads(text)))
    if kept & {KEPT, RECURSIONS}:
        plan = keeping(plan, Keeps.ALL if KEPT in kept else Keeps.RECURSIONS)
    return reserving(plan) if RESERVE in kept else plan


def create_table(conn: Connection[Any], schema: str, name: str, query: str) -> int:
    """Create the empty table with the query's exact columns and return its oid."""
    shown = qualified_name(schema, name)
    conn.execute("SELECT set_config('pg_trickle.installing', 'on', true)")  # no tview of its own
    conn.execute(f"CREATE TABLE {shown} {_ROOM} AS {query} WITH NO DATA")
    conn.execute("SELECT set_config('pg_trickle.installing', 'off', true)")
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


def partition_of(plan: Maintenance | None) -> tuple[str, ...]:
    """Return the columns by which a refresh finds the rows of a touched partition."""
    if plan is None or plan.root is not None:
        return ()
    return shown_keys(plan.view) or step_columns(plan.view)


def with_partition(plan: Maintenance | None, target: Target) -> Target:
    """Return a stored target with those columns."""
    return replace(target, partition=partition_of(plan))


def index_name(pgt_id: int) -> str:
    """Return the name of the index that a refresh finds rows by."""
    return f"pgt_{pgt_id}_key"


def create_index(conn: Connection[Any], pgt_id: int, target: Target) -> None:
    """Create the indexes that a refresh finds rows by; values of any length fit none but a hash."""
    name = index_name(pgt_id)
    if target.key:
        _index_key(conn, name, target.name, target.key_columns, target.has_long_keys)
    elif target.key is None and target.hashed:
        conn.execute(
            f"CREATE INDEX IF NOT EXISTS {name} ON {target.name} (({hash_of('', target.hashed)}))"
        )
    of = {c.name: c.type for c in target.columns}
    is_leading = target.key is not None and target.key[: len(target.partition)] == target.partition
    if (
        target.partition
        and not is_leading
        and all(of[k].name in FIXED_SIZE for k in target.partition)
    ):
        columns = listed(identifier(column) for column in target.partition)
        conn.execute(f"CREATE INDEX {partition_index(pgt_id)} ON {target.name} ({columns})")


def _index_key(
    conn: Connection[Any], name: str, table: str, keys: Schema, has_long_keys: bool
) -> None:
    """Index a key: all of it, or, where values are too long for that, the hash of one column."""
    if not has_long_keys:
        columns = listed(identifier(key.name) for key in keys)
        conn.execute(
            f"CREATE UNIQUE INDEX IF NOT EXISTS {name} ON {table} ({columns}) NULLS NOT DISTINCT"
        )
        return
    long = (k for k in keys if k.type.name not in FIXED_SIZE and _is_hashable(conn, k))
    column = next(long, None)
    if column is not None:
        conn.execute(
            f"CREATE INDEX IF NOT EXISTS {name} ON {table} USING hash ({identifier(column.name)})"
        )


def is_too_long(error: Exception, pgt_id: int | None = None) -> bool:
    """Tell whether a value did not fit into the index of a key of ours."""
    if not isinstance(error, errors.ProgramLimitExceeded):
        return False
    if error.diag.constraint_name is None:  # beyond a whole page the server does not name the index
        return error.diag.source_file == "indextuple.c"
    own = _KEY_INDEX.fullmatch(error.diag.constraint_name)
    return own is not None and pgt_id in (None, int(own[1] or own[2]))


def allow_long_keys(conn: Connection[Any], st: StreamTable) -> None:
    """Index the keys of a stream table and of its states by hashes from now on."""
    plan, target = load_plan(st)
    target = replace(target, has_long_keys=True, partition=partition_of(plan))
    drop_index(conn, st)
    create_index(conn, st.pgt_id, target)
    for aggregate, state in _groups(plan, target) if plan is not None else ():
        conn.execute(f"DROP INDEX IF EXISTS {state}_key")
        _index_state(conn, aggregate, state, has_long_keys=True)


def partition_index(pgt_id: int) -> str:
    """Return the name of the index that a refresh finds the rows of a partition by."""
    return f"pgt_{pgt_id}_partition"


def drop_index(conn: Connection[Any], st: StreamTable, *, but_key: bool = False) -> None:
    """Drop those indexes, before the key changes; that of the key stays if it does not."""
    for name in (partition_index(st.pgt_id), *(() if but_key else (index_name(st.pgt_id),))):
        conn.execute(f"DROP INDEX IF EXISTS {qualified_name(st.pgt_schema, name)}")


def create_guard(conn: Connection[Any], table: str) -> None:
    """Refuse writes by anyone but a refresh."""
    conn.execute(
        f"CREATE TRIGGER {GUARD} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table}"
        " FOR EACH STATEMENT EXECUTE FUNCTION pgtrickle.guard_stream_table()"
    )


def create_states(conn: Connection[Any], plan: Maintenance, target: Target) -> None:
    """Create the empty private states: of parts inside, and of the root aggregate."""
    for table, select in state_queries(plan, target).items():
        conn.execute(f"CREATE TABLE {table} {_ROOM} AS {select} WITH NO DATA")
    for aggregate, state in _groups(plan, target):
        _index_state(conn, aggregate, state, has_long_keys=target.has_long_keys)
        for values in different_values(aggregate, state):
            _index_values(conn, values, has_long_keys=target.has_long_keys)
    ways = ways_to(plan)
    for kept, state in zip(plan.kept, target.kept, strict=False):  # a reserve comes last
        if isinstance(kept, Whole):
            for statement in index_statements(state, kept, ways[kept]):
                conn.execute(statement)


def _index_values(conn: Connection[Any], kept: Different, *, has_long_keys: bool) -> None:
    if len(kept.keys) < _INDEX_LIMIT:
        name = f"{kept.table.removeprefix(_STATES)}_key"
        on = index_on(kept, has_long_keys=has_long_keys)
        conn.execute(f"CREATE INDEX {name} ON {kept.table} ({on})")


def _index_state(
    conn: Connection[Any], aggregate: Aggregate, state: str, *, has_long_keys: bool
) -> None:
    if 0 < len(aggregate.keys) <= _INDEX_LIMIT:
        name = f"{state.removeprefix(_STATES)}_key"
        _index_key(conn, name, state, keys_of(aggregate), has_long_keys)


def fill_states(conn: Connection[Any], plan: Maintenance, target: Target) -> None:
    """Compute all groups of all states anew, each from those that it reads."""
    for table, select in state_queries(plan, target).items():
        conn.execute(f"TRUNCATE {table}")
        conn.execute(f"INSERT INTO {table} {select}")
        conn.execute(f"ANALYZE {table}")


def state_queries(plan: Maintenance, target: Target) -> dict[str, str]:
    """Return the private tables with the query of all that each holds, inner ones first."""
    found: dict[str, str] = {}
    for kept, state in _states(plan, target):
        found[state] = Renderer().render(kept).sql
        if isinstance(kept, Aggregate):
            rows = Renderer().render(kept.input).sql
            values = different_values(kept, state)
            found |= {one.table: stored_values(one, rows) for one in values}
    return found | _reserves(plan, target)


def _reserves(plan: Maintenance, target: Target) -> dict[str, str]:
    top = reading_kept(plan, target.kept).top
    return reserve_queries(top, target.kept[-1]) if top is not None else {}


def _states(plan: Maintenance, target: Target) -> list[tuple[Kept, str]]:
    found = list(states(plan, target.kept))
    root = reading_kept(plan, target.kept).root
    if root is not None and target.state is not None:
        found.append((root, target.state))
    return found


def _groups(plan: Maintenance, target: Target) -> list[tuple[Aggregate, str]]:
    return [(k, state) for k, state in _states(plan, target) if isinstance(k, Aggregate)]


def drop_states(conn: Connection[Any], pgt_id: int) -> None:
    """Drop all private states of a stream table."""
    conn.execute("SELECT pgtrickle.drop_states(%s)", [pgt_id])


def empty_states(conn: Connection[Any], st: StreamTable) -> None:
    """Take all rows out of the private states."""
    plan, target = load_plan(st)
    for table in state_queries(plan, target) if plan is not None else ():
        conn.execute(f"TRUNCATE {table}")


def current_query(plan: Maintenance | None, target: Target, canonical: str) -> str:
    """Return the query of the whole content: from the state where there is one."""
    if plan is not None and plan.top is not None:
        return Renderer().render(reading_kept(plan, target.kept).view).sql
    if plan is None or plan.root is None or target.state is None:
        return Renderer().render(plan.view).sql if plan and plan.is_chosen else canonical
    return Renderer().render(over_state(plan.view, plan.root, target.state)).sql


def drop_storage(conn: Connection[Any], st: StreamTable) -> None:
    """Drop the table and its state; a table that is gone already is no error."""
    drop_states(conn, st.pgt_id)
    row = conn.execute("SELECT %s::oid::regclass::text", (st.pgt_relid,)).fetchone()
    if row is not None and not row[0].isdigit():
        conn.execute(f"DROP {'TABLE' if st.publish else 'VIEW'} {st.qualified_name}")
