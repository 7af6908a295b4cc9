"""The doctor on stream tables: those that are gone, their guards, state, indexes and history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from psycopg import Connection

from headwater.api import polling
from headwater.api.drop import drop_stream_table
from headwater.api.reconcile import list_strays, reconcile
from headwater.api.refresh import refresh_stream_table
from headwater.api.symptoms import Check, Symptom
from headwater.api.transactions import lock_tables
from headwater.catalog import history, streams
from headwater.catalog.model import StreamTable, follows_writers
from headwater.catalog.names import qualified_name
from headwater.postgres import immediate
from headwater.postgres.storage import (
    GUARD,
    create_guard,
    create_index,
    create_states,
    drop_index,
    drop_states,
    index_name,
    load_plan,
    with_partition,
)

_UNGUARDED = """
SELECT st.pgt_id, g.oid IS NOT NULL FROM pgtrickle.pgt_stream_tables st
  LEFT JOIN pg_trigger g ON g.tgrelid = st.pgt_relid AND g.tgname = %s
 WHERE st.publish AND (g.oid IS NULL OR g.tgenabled NOT IN ('O', 'A')) ORDER BY 1
"""
# What belongs to a stream table by the number in its name: functions that follow changes, with
# what they keep, and the state.
_LEFT_OVER = """
SELECT made.id, array_agg(made.name ORDER BY made.name) FROM (
    SELECT substring(p.proname FROM '^follow_(\\d+)(?:_|$)')::int8 AS id, p.proname::text AS name,
           true AS follows
      FROM pg_proc p WHERE p.pronamespace = 'pgtrickle_state'::regnamespace
    UNION ALL
    SELECT substring(c.relname FROM '^(?:locks|since|pending|state|kept)_(\\d+)(?:_|$)')::int8,
           c.relname::text, c.relname !~ '^(state|kept)_'
      FROM pg_class c
     WHERE c.relnamespace = 'pgtrickle_state'::regnamespace AND c.relkind = 'r') AS made
  LEFT JOIN pgtrickle.pgt_stream_tables st ON st.pgt_id = made.id
 WHERE made.id IS NOT NULL
   AND (st.pgt_id IS NULL OR made.follows AND st.effective_mode NOT IN ('IMMEDIATE', 'COMMIT'))
 GROUP BY 1 ORDER BY 1
"""
_LOST = """
SELECT h.refresh_id, format('%I.%I', st.pgt_schema, st.pgt_name)
  FROM pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables st USING (pgt_id)
 WHERE h.status = 'RUNNING'
   AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = h.backend_pid) ORDER BY 1
"""


def _find_strays(conn: Connection[Any]) -> Iterator[Symptom]:
    for pgt_id, is_gone, schema, name in list_strays(conn):
        shown = streams.get_by_id(conn, pgt_id).qualified_name
        detail = "it was dropped by hand" if is_gone else f"it is called {schema}.{name} now"
        yield Symptom(shown, detail)


def _mend_strays(conn: Connection[Any], symptom: Symptom) -> None:
    reconcile(conn)


def _find_unread_mirrors(conn: Connection[Any]) -> Iterator[Symptom]:
    for name in polling.list_unread(conn):
        yield Symptom(name, "a copy of a polled source that no stream table reads", name)


def _drop_mirror(conn: Connection[Any], symptom: Symptom) -> None:
    drop_stream_table(conn, symptom.key)


def _find_left_over(conn: Connection[Any]) -> Iterator[Symptom]:
    for pgt_id, names in conn.execute(_LEFT_OVER).fetchall():
        yield Symptom(
            None, f"nothing needs {', '.join(names)} in the schema pgtrickle_state", pgt_id
        )


def _drop_left_over(conn: Connection[Any], symptom: Symptom) -> None:
    with conn.transaction():
        immediate.remove(conn, symptom.key)
        if symptom.key not in {st.pgt_id for st in streams.list_stream_tables(conn)}:
            drop_states(conn, symptom.key)


def _find_stateless(conn: Connection[Any]) -> Iterator[Symptom]:
    for st in streams.list_stream_tables(conn):
        target = load_plan(st)[1]
        states = [state for state in (target.state, *target.kept) if state is not None]
        missing = [state for state in states if not _exists(conn, state)]
        if missing:
            yield Symptom(st.qualified_name, f"its state {', '.join(missing)} is missing", st)


def _create_state(conn: Connection[Any], symptom: Symptom) -> None:
    plan, target = load_plan(symptom.key)
    assert plan is not None
    with conn.transaction():
        drop_states(conn, symptom.key.pgt_id)
        create_states(conn, plan, target)
    rebuild(conn, symptom.key, "its state was missing")


def _find_unindexed(conn: Connection[Any]) -> Iterator[Symptom]:
    for st in streams.list_stream_tables(conn):
        target = load_plan(st)[1]
        is_indexed = bool(target.key or (target.key is None and target.hashed))
        name = index_name(st.pgt_id)
        if st.publish and is_indexed and not _exists(conn, _beside(st, name)):
            yield Symptom(st.qualified_name, f"its index {name} is missing", st)


def _create_index(conn: Connection[Any], symptom: Symptom) -> None:
    st: StreamTable = symptom.key
    with conn.transaction():
        lock_tables(conn, [st.qualified_name])
        drop_index(conn, st)
        create_index(conn, st.pgt_id, with_partition(*load_plan(st)))


def _find_unguarded(conn: Connection[Any]) -> Iterator[Symptom]:
    for pgt_id, is_there in conn.execute(_UNGUARDED, [GUARD]).fetchall():
        st = streams.get_by_id(conn, pgt_id)
        state = "disabled" if is_there else "missing"
        yield Symptom(st.qualified_name, f"the trigger that refuses writes to it is {state}", st)


def _create_guard(conn: Connection[Any], symptom: Symptom) -> None:
    st: StreamTable = symptom.key
    with conn.transaction():
        conn.execute("SELECT set_config('pg_trickle.installing', 'on', true)")
        lock_tables(conn, [st.qualified_name])
        conn.execute(f"DROP TRIGGER IF EXISTS {GUARD} ON {st.qualified_name}")
        create_guard(conn, st.qualified_name)
    rebuild(conn, st, "anybody could write to it")


def rebuild(conn: Connection[Any], st: StreamTable, why: str) -> None:
    """Have a table computed anew: by its next refresh, or at once where writers maintain it."""
    streams.mark_for_rebuild(conn, [st.pgt_id], why)
    if follows_writers(st.effective_mode) and st.status != "SUSPENDED" and st.is_populated:
        refresh_stream_table(conn, st.qualified_name)


def _find_lost(conn: Connection[Any]) -> Iterator[Symptom]:
    for refresh_id, name in conn.execute(_LOST).fetchall():
        yield Symptom(name, f"refresh {refresh_id} stands as running, and its session is gone")


def _close_lost(conn: Connection[Any], symptom: Symptom) -> None:
    history.close_lost(conn)


def _exists(conn: Connection[Any], name: str) -> bool:
    row = conn.execute("SELECT to_regclass(%s) IS NOT NULL", [name]).fetchone()
    return row is not None and bool(row[0])


def _beside(st: StreamTable, name: str) -> str:
    """Return the qualified name of what stands in the schema of a stream table."""
    return qualified_name(st.pgt_schema, name)


CHECKS = (
    Check("stray table", "follow its name, or forget it", _find_strays, _mend_strays),
    Check("unread mirror", "drop it", _find_unread_mirrors, _drop_mirror),
    Check("left over", "drop it", _find_left_over, _drop_left_over),
    Check("lost refresh", "record that it failed", _find_lost, _close_lost),
    Check("missing state", "create it; the table is computed anew", _find_stateless, _create_state),
    Check("missing index", "create it", _find_unindexed, _create_index),
    Check("missing guard", "create it; the table is computed anew", _find_unguarded, _create_guard),
)
