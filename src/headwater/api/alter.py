"""Alter: schedule and status in the catalog; mode and query by compiling again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection

from headwater.api.arguments import (
    effective_mode,
    parse_cdc_mode,
    parse_engine,
    parse_mode,
    parse_schedule,
    parse_status,
)
from headwater.api.create import choose_lookup, compile_for, more_plan, reason
from headwater.api.engine import EngineChoice
from headwater.api.immediate import (
    check_depth,
    in_order,
    list_followers,
    lock_followers,
    lock_levels,
    resync,
    suspend,
)
from headwater.api.inside import refuse_frozen
from headwater.api.moving import move_all
from headwater.api.reconcile import reconcile
from headwater.api.sources import (
    buffers_of,
    buffers_to_share,
    captured,
    dependencies_of,
    lockable,
    movable,
    reads,
    upstream,
)
from headwater.api.transactions import lock_buffers, lock_tables, one_snapshot
from headwater.catalog import streams, traces, tracking
from headwater.catalog.model import StreamTable
from headwater.catalog.settings import read_settings
from headwater.errors import DependencyCycle, DependentsExist, HeadwaterError, SourceAltered
from headwater.graph import find_cycle
from headwater.postgres import immediate
from headwater.postgres.capture import relation_name, remove_capture, sync_capture
from headwater.postgres.compile import Compiled
from headwater.postgres.faults import classify
from headwater.postgres.quote import identifier
from headwater.postgres.storage import (
    create_index,
    create_state,
    drop_index,
    state_name,
    stored_plan,
)
from headwater.postgres.target import Target
from headwater.results import UNCHANGED, Unchanged
from headwater.sql.analyse import describe


@dataclass(frozen=True, slots=True)
class Changes:
    """The arguments of alter; None, or UNCHANGED for the schedule, leaves a thing as it is."""

    schedule: str | Unchanged | None = UNCHANGED
    refresh_mode: str | None = None
    status: str | None = None
    engine: str | None = None
    cdc_mode: str | None = None
    query: str | None = None


def alter_stream_table(conn: Connection[Any], name: str, changes: Changes) -> None:
    """Change a stream table; all is checked before anything is changed."""
    reconcile(conn)
    st = streams.get_stream_table(conn, name)
    values = _plain_values(conn, changes)
    mode = parse_mode(changes.refresh_mode) if changes.refresh_mode else st.refresh_mode
    engine = str(values.get("engine", st.engine))
    is_other = effective_mode(mode) != st.effective_mode or engine != st.engine
    if mode == "IMMEDIATE":
        values |= {"schedule": None, "target_lag": None}
    if changes.query is not None or is_other:
        _check_published(st)
        query = changes.query if changes.query is not None else str(st.canonical_query)
        compiled, choice = compile_for(conn, query, mode, engine)
        _check_cycle(conn, st, compiled)
        _check_readers(conn, st, compiled)
        values["defining_query"] = changes.query or st.defining_query
        if mode == "IMMEDIATE":
            check_depth(conn, compiled)
        _rebuild(conn, st, (compiled, choice), {**values, "refresh_mode": mode})
    elif mode == "IMMEDIATE" and changes.status is not None:
        _switch(conn, st, str(values.pop("status")))
    values["refresh_mode"] = mode  # and the status again: filling a table makes it active
    with conn.transaction():
        streams.update_stream_table(conn, st.pgt_id, **values)


def _check_published(st: StreamTable) -> None:
    """Refuse to compile anew what has no table: other columns would be another view."""
    if not st.publish:
        raise SourceAltered(
            f"{st.qualified_name} cannot be given another definition",
            "its result is in the lake only, under the columns that it was created with",
            "drop it and create it again",
        )


def _switch(conn: Connection[Any], st: StreamTable, status: str) -> None:
    """Switch the maintenance of an IMMEDIATE table off, or on again after computing it anew."""
    if status == "SUSPENDED":
        suspend(conn, st)
    else:
        resync(conn, st)


def _plain_values(conn: Connection[Any], changes: Changes) -> dict[str, object]:
    values: dict[str, object] = {}
    if changes.schedule is not UNCHANGED:
        minimum = read_settings(conn).min_target_lag_seconds
        schedule = parse_schedule(changes.schedule, minimum)
        values |= {"schedule": schedule.words, "target_lag": schedule.lag}
    if changes.status is not None:
        values["status"] = parse_status(changes.status)
        values |= {"consecutive_errors": 0, "last_error": None}
    if changes.engine is not None:
        values["engine"] = parse_engine(changes.engine)
    if changes.cdc_mode is not None:
        values["cdc_mode"] = parse_cdc_mode(changes.cdc_mode)
    return values


def _check_cycle(conn: Connection[Any], st: StreamTable, compiled: Compiled) -> None:
    graph = reads(conn)
    known = {t.pgt_relid: t.qualified_name for t in streams.list_stream_tables(conn)}
    sources = [r.source.oid for r in compiled.analysis.relations.values()]
    graph[st.pgt_relid] = [oid for oid in sources if oid in known]
    cycle = find_cycle(graph)
    if cycle is not None:
        path = " → ".join(known[oid] for oid in cycle)
        raise DependencyCycle(
            f"{st.qualified_name} would read itself: {path}",
            "a stream table cannot depend on its own content",
            "leave one of these out of the query",
        )


def _check_readers(conn: Connection[Any], st: StreamTable, compiled: Compiled) -> None:
    """Refuse to take away, or to give another type, what other stream tables read."""
    wanted = {c.name: c.type for c in compiled.columns}
    stored = describe(conn, f"SELECT * FROM {st.qualified_name}")
    lost = {c.name for c in stored if wanted.get(c.name) != c.type}
    readers = {t.pgt_id: t.qualified_name for t in streams.list_dependents(conn, st.pgt_relid)}
    for edge in streams.list_all_dependencies(conn):
        missed = sorted(lost & set(edge.columns_used or ()))
        if edge.source_relid == st.pgt_relid and missed:
            raise DependentsExist(
                f"{st.qualified_name} cannot lose the column {', '.join(missed)}:"
                f" {readers[edge.pgt_id]} would lose a source",
                "another stream table reads it as it is",
                "alter or drop that one first",
            )


def recompile(conn: Connection[Any], st: StreamTable, why: str) -> None:
    """Compile the query again after a source changed; the table is rebuilt at the next refresh."""
    try:
        _check_published(st)
        how = compile_for(conn, str(st.canonical_query), st.refresh_mode, st.engine)
    except psycopg.Error as error:
        fault: HeadwaterError = classify(error, st.qualified_name)
        _fail(conn, st, fault)
        raise fault from error
    except HeadwaterError as fault:
        _fail(conn, st, fault)
        raise
    _rebuild(conn, st, how, {"reinit_reason": why})


def _fail(conn: Connection[Any], st: StreamTable, fault: HeadwaterError) -> None:
    """Record that the query no longer holds, and capture only the columns that are still there:
    a trigger that names others makes every write to the source fail."""
    streams.update_stream_table(conn, st.pgt_id, status="ERROR", last_error=str(fault))
    relids = [d.source_relid for d in streams.list_dependencies(conn, st.pgt_id)]
    for source in tracking.list_tracking(conn, relids):
        with conn.transaction():
            lock_tables(conn, filter(None, [relation_name(conn, source.source_relid)]))
            sync_capture(conn, source.source_relid)


def _rebuild(
    conn: Connection[Any],
    st: StreamTable,
    how: tuple[Compiled, EngineChoice],
    values: dict[str, object],
) -> None:
    """Put a newly compiled plan in place and fill the table by it, in one transaction."""
    refuse_frozen(conn)
    compiled, choice = how
    before = [d.source_relid for d in streams.list_dependencies(conn, st.pgt_id)]
    names = [name for _, name in captured(compiled)] + [st.qualified_name]
    names += lockable(conn, before)
    tables = upstream(conn, st)
    names += [table.qualified_name for table in tables]
    buffers = buffers_of(conn, tables)
    if choice.engine == "spark":
        buffers += buffers_to_share(conn, [oid for oid, _ in captured(compiled)])
    levels = in_order(conn, names)
    followers = list_followers(conn, [st.pgt_id, *(t.pgt_id for t in tables)])
    with one_snapshot(conn):
        lock_levels(conn, levels)
        lock_followers(conn, followers)
        lock_buffers(conn, buffers)
        immediate.pause(conn, st.pgt_id)
        target = _replace_plan(conn, st, how, values)
        after = [oid for oid, _ in captured(compiled)]
        own = [t.source_relid for t in tracking.list_tracking(conn, [st.pgt_relid])]
        for oid in sorted({*before, *after, *own}):
            sync_capture(conn, oid)
        new = streams.get_by_id(conn, st.pgt_id)
        if st.is_populated:
            move_all(conn, [t.pgt_id for t in movable(upstream(conn, new), new)])
        create_index(conn, st.pgt_id, target)
        immediate.remove(conn, st.pgt_id)  # last: it locks out the readers of the sources too
        if st.is_populated and new.effective_mode == "IMMEDIATE":
            immediate.install(conn, streams.get_by_id(conn, st.pgt_id))


def _replace_plan(
    conn: Connection[Any],
    st: StreamTable,
    how: tuple[Compiled, EngineChoice],
    values: dict[str, object],
) -> Target:
    """Replace plan, columns, state and index; the old rows go, since another key may hold now."""
    compiled, choice = how
    mode = str(values.get("refresh_mode", st.refresh_mode))
    plan = compiled.maintenance
    columns = compiled.columns
    drop_index(conn, st)
    _uncapture(conn, st)
    conn.execute("SELECT set_config('pg_trickle.refreshing', 'on', true)")
    conn.execute(f"DELETE FROM {st.qualified_name}")
    _fit_columns(conn, st, compiled)
    key, hashed = choose_lookup(conn, compiled)
    state = state_name(st.pgt_id)
    conn.execute(f"DROP TABLE IF EXISTS {state}")
    if plan is not None and plan.root is not None:
        create_state(conn, plan, state)
    streams.update_stream_table(
        conn,
        st.pgt_id,
        **{
            "canonical_query": compiled.analysis.canonical,
            "effective_mode": effective_mode(mode),
            "effective_engine": choice.engine,
            "reason": reason(choice, mode),
            "plan": stored_plan(plan, columns, hashed) | more_plan(conn, compiled, choice),
            "key_columns": key,
            "is_populated": False,
            "needs_reinit": True,
            "reinit_reason": "the definition was altered",
            **values,
        },
    )
    traces.detach(conn, st.pgt_id)
    streams.record_dependencies(conn, st.pgt_id, dependencies_of(conn, compiled))
    return Target(st.qualified_name, columns, key, hashed)


def _uncapture(conn: Connection[Any], st: StreamTable) -> None:
    """Spare the triggers on a table that only its own trace follows: that is loaded anew."""
    known = tracking.find_tracking(conn, st.pgt_relid)
    if known is not None and known.tracked_by_pgt_ids == (st.pgt_id,):
        remove_capture(conn, st.pgt_relid)


def _fit_columns(conn: Connection[Any], st: StreamTable, compiled: Compiled) -> None:
    """Give the table the query's columns: what has the same name and type stays."""
    wanted = {c.name: c.type for c in compiled.analysis.columns}
    stored = {c.name: c.type for c in describe(conn, f"SELECT * FROM {st.qualified_name}")}
    steps = [f"DROP COLUMN {identifier(n)}" for n, t in stored.items() if wanted.get(n) != t]
    for name, type in wanted.items():
        if stored.get(name) != type:
            collate = f" COLLATE {type.collation}" if type.collation else ""
            steps.append(f"ADD COLUMN {identifier(name)} {type.name}{collate}")
    if steps:
        conn.execute(f"ALTER TABLE {st.qualified_name} {', '.join(steps)}")
