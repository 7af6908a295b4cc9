"""Maintenance inside the writing transaction: put in place, taken away, looked after."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from psycopg import Connection

from headwater.algebra.loops import loops_of
from headwater.algebra.ops import Op
from headwater.algebra.walk import scans
from headwater.catalog.model import StreamTable
from headwater.postgres.commit_code import commit_functions
from headwater.postgres.immediate_code import (
    anew_function,
    event_function,
    follow_statement,
    pending_function,
    truncate_functions,
)
from headwater.postgres.immediate_locks import SLOTS, describe_locks
from headwater.postgres.immediate_view import View, locks_name, pending_name, since_name
from headwater.postgres.immediate_whole import opening_function
from headwater.postgres.ownership import give_to_owner
from headwater.postgres.quote import identifier, listed
from headwater.postgres.refresh import COSTS
from headwater.postgres.storage import load_plan

# Whoever writes says nothing about how a change is followed. A few rows meet the others by index: a
# plan that was made while a table was empty must not scan it for ever.
_ALWAYS = {"jit": "off", "enable_seqscan": "off"}
_PLAIN = {"smallint", "integer", "bigint", "boolean", "uuid", "text", "numeric"}
_PLAIN_PREFIXES = ("numeric(", "character varying", "character(")


def view_of(conn: Connection[Any], st: StreamTable) -> View:
    """Return a stream table as its trigger functions see it."""
    plan, stored = load_plan(st)
    assert plan is not None
    # In quotes, so that nothing else in the functions can be taken for it when it is renamed.
    name = f"{identifier(st.pgt_schema)}.{identifier(st.pgt_name)}"
    target = replace(stored, name=name)
    settings = dict(_ALWAYS)
    if loops_of(plan.view):
        settings |= COSTS  # the planner knows nothing of how far steps lead
    if st.plan.get("settings", True) or not _is_plain(plan.view):
        settings |= st.pinned_settings
    sources = [scan.source.oid for scan in scans(plan.view)]
    [found] = conn.execute(_SURROUNDINGS, {"id": st.pgt_id, "sources": sources}).fetchall()
    over_streams, relations, uses_functions = found
    return View(st.pgt_id, plan, target, settings, over_streams, tuple(relations), uses_functions)


_SURROUNDINGS = """
SELECT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables
                WHERE pgt_relid = ANY (%(sources)s::int8[]::oid[])) AS over_streams,
       ARRAY(SELECT DISTINCT known.relid::int8
               FROM pgtrickle.pgt_stream_tables st
               LEFT JOIN pgtrickle.pgt_dependencies d USING (pgt_id)
              CROSS JOIN LATERAL unnest(st.pgt_relid
                         || pgtrickle.table_with_children(d.source_relid)) AS known (relid)
              WHERE st.pgt_id = %(id)s AND known.relid IS NOT NULL ORDER BY 1) AS relations,
       EXISTS (SELECT FROM pgtrickle.pgt_function_uses WHERE pgt_id = %(id)s) AS uses_functions
"""


def _is_plain(view: Op) -> bool:
    """Tell whether no setting changes how a value is shown."""
    columns = [c for scan in scans(view) for c in scan.columns]
    return all(c.type.name in _PLAIN or c.type.name.startswith(_PLAIN_PREFIXES) for c in columns)


def install(conn: Connection[Any], st: StreamTable) -> None:
    """Let the sources' triggers maintain a stream table from now on.

    The caller holds locks that keep writers of the sources away, and the table is filled. What is
    there already, made for the same plan, is made again in place.
    """
    conn.execute("SELECT set_config('pg_trickle.installing', 'on', true)")
    view = view_of(conn, st)
    _create_tables(conn, view)
    if st.effective_mode == "COMMIT":
        _index_pending(conn, view)
    if not view.columns:
        return  # a constant
    conn.execute(anew_function(view, list_sources(st), str(st.canonical_query)))
    is_late = st.effective_mode == "COMMIT"
    made = commit_functions(view, str(st.canonical_query)) if is_late else _each_statement(view)
    for statement in made:
        conn.execute(statement)
    give_to_owner(conn, st.pgt_id)
    for oid in sorted(view.columns):
        conn.execute("SELECT pgtrickle.put_all_triggers(%s, %s::int8::oid)", (st.pgt_id, oid))


def _each_statement(view: View) -> list[str]:
    """Return the statements that make the functions which follow each statement."""
    made = [pending_function(view)]
    if not view.is_isolated:
        made.append(opening_function(view))
    for oid in sorted(view.columns):
        made += [event_function(view, oid, event) for event in ("insert", "update", "delete")]
        made += truncate_functions(view, oid)
    return made


def _create_tables(conn: Connection[Any], view: View) -> None:
    locks, since = view.locks, since_name(view.pgt_id)
    conn.execute(f"CREATE TABLE IF NOT EXISTS {since} (since timestamptz NOT NULL)")
    conn.execute(f"INSERT INTO {since} SELECT now() WHERE NOT EXISTS (SELECT FROM {since})")
    if not locks.is_none:
        table, last = locks_name(view.pgt_id), 0 if locks.whole else (locks.ranks + 1) * SLOTS - 1
        conn.execute(
            f"CREATE TABLE IF NOT EXISTS {table}"
            " (slot int PRIMARY KEY, taken bigint NOT NULL DEFAULT 0)"
            " WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000)"
        )
        conn.execute(
            f"INSERT INTO {table} (slot) SELECT generate_series(0, {last}) ON CONFLICT DO NOTHING"
        )
        conn.execute(f"ANALYZE {table}")
    for oid, columns in view.columns.items():
        parts = ["__xid xid8 NOT NULL", "__weight int NOT NULL"]
        for column in columns:
            collate = f" COLLATE {column.type.collation}" if column.type.collation else ""
            parts.append(f"{identifier(column.name)} {column.type.name}{collate}")
        table = pending_name(view.pgt_id, oid)
        conn.execute(f"CREATE UNLOGGED TABLE IF NOT EXISTS {table} ({listed(parts)})")


def _index_pending(conn: Connection[Any], view: View) -> None:
    """Let each transaction find its own rows among those that others left to be vacuumed."""
    for oid in view.columns:
        table = pending_name(view.pgt_id, oid)
        index = f"pending_{view.pgt_id}_{oid}_xid"
        conn.execute(f"CREATE INDEX IF NOT EXISTS {index} ON {table} (__xid)")


def pause(conn: Connection[Any], pgt_id: int) -> None:
    """Let the triggers rest while the table is computed anew; readers of the sources go on.

    What this transaction collected is followed before.
    """
    conn.execute("SELECT pgtrickle.flush_commit()")
    conn.execute("SELECT set_config('pg_trickle.installing', 'on', true)")
    rows = conn.execute(
        "SELECT tgrelid::regclass::text, tgname FROM pg_trigger WHERE starts_with(tgname, %s)",
        (f"pgt_imm_{pgt_id}_",),
    ).fetchall()
    for table, trigger in rows:
        conn.execute(f"ALTER TABLE {table} DISABLE TRIGGER {identifier(trigger)}")


def remove(conn: Connection[Any], pgt_id: int) -> None:
    """Take away functions, with them the triggers wherever they stand, and what they keep."""
    conn.execute("SELECT set_config('pg_trickle.installing', 'on', true)")
    conn.execute("SELECT pgtrickle.remove_following(%s)", (pgt_id,))


def describe(conn: Connection[Any], st: StreamTable, sources: dict[int, str]) -> tuple[str, ...]:
    """Say how concurrent writers are kept apart and when a change is followed."""
    view = view_of(conn, st)
    if st.effective_mode == "COMMIT":
        when = "what a transaction changes is collected, and followed when it ends"
    elif view.is_isolated:
        when = "each trigger follows its own change"
    else:
        when = "what several triggers of one statement change is followed at the last of them"
    return f"locks: {describe_locks(view.locks, sources)}", f"triggers: {when}"


def statement_of(conn: Connection[Any], st: StreamTable) -> str:
    """Return the statement that follows a change of all sources; of fewer it is a part of that."""
    view = view_of(conn, st)
    selects = {oid: f"SELECT * FROM changes_of({oid})" for oid in view.columns}
    return follow_statement(view, selects)


def list_sources(st: StreamTable) -> tuple[str, ...]:
    """Return the relations whose writers maintain a stream table."""
    plan, _ = load_plan(st)
    assert plan is not None
    return tuple(sorted({scan.source.name for scan in scans(plan.view)}))
