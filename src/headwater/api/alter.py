"""Alter: schedule and status in the catalog; mode and query by compiling again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import Connection

from headwater.algebra.schema import Column
from headwater.api.arguments import (
    effective_mode,
    parse_cdc_mode,
    parse_engine,
    parse_mode,
    parse_schedule,
    parse_status,
)
from headwater.api.create import check_long_keys, choose_lookup, compile_for, more_plan, reason
from headwater.api.engine import EngineChoice
from headwater.api.groups import refuse_member
from headwater.api.immediate import (
    check_followed,
    in_order,
    list_followers,
    lock_followers,
    lock_levels,
    resync,
    suspend,
)
from headwater.api.inside import refuse_stale
from headwater.api.moving import move_all
from headwater.api.reconcile import reconcile
from headwater.api.sources import (
    buffers_of,
    buffers_to_share,
    captured,
    dependencies_of,
    functions_of,
    lockable,
    movable,
    reads,
    together,
)
from headwater.api.transactions import lock_buffers, lock_tables, one_snapshot
from headwater.catalog import streams, traces, tracking, tviews
from headwater.catalog.alerts import send_alert
from headwater.catalog.model import StreamTable, follows_writers
from headwater.catalog.settings import read_settings
from headwater.errors import (
    DependencyCycle,
    DependentsExist,
    HeadwaterError,
    InvalidArgument,
    SourceAltered,
    SourceChanged,
)
from headwater.graph import find_cycle
from headwater.postgres import immediate
from headwater.postgres.capture import relation_name, remove_capture, sync_capture
from headwater.postgres.compile import Compiled
from headwater.postgres.faults import classify
from headwater.postgres.ownership import give_to_owner
from headwater.postgres.quote import identifier
from headwater.postgres.storage import (
    LONG_KEYS,
    create_index,
    create_states,
    drop_index,
    drop_states,
    is_too_long,
    partition_of,
    state_names,
    stored_plan,
)
from headwater.postgres.target import Target
from headwater.results import UNCHANGED, RefreshResult, Unchanged
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
    is_resumed = values.get("status") == "ACTIVE" and st.status in ("SUSPENDED", "ERROR")
    mode = parse_mode(changes.refresh_mode) if changes.refresh_mode else st.refresh_mode
    engine = str(values.get("engine", st.engine))
    is_other = effective_mode(mode) != st.effective_mode or engine != st.engine
    if follows_writers(mode):
        _check_unscheduled(st, mode, values)
        values |= {"schedule": None, "target_lag": None}
    if changes.query is not None or is_other:
        _check_published(st)
        query = changes.query if changes.query is not None else str(st.canonical_query)
        compiled, choice = compile_for(conn, query, mode, engine, reader=st.owner)
        _check_cycle(conn, st, compiled)
        _check_readers(conn, st, compiled)
        values["defining_query"] = changes.query or st.defining_query
        if follows_writers(mode):
            refuse_member(conn, st, mode)
            check_followed(conn, compiled, mode)
        _rebuild(conn, st, (compiled, choice), {**values, "refresh_mode": mode})
    elif follows_writers(mode) and changes.status is not None:
        _switch(conn, st, str(values.pop("status")))
    values["refresh_mode"] = mode  # and the status again: filling a table makes it active
    with conn.transaction():
        streams.update_stream_table(conn, st.pgt_id, **values)
        if is_resumed:
            send_alert(conn, "resumed", st.qualified_name, last_error=st.last_error)


def _check_unscheduled(st: StreamTable, mode: str, values: dict[str, object]) -> None:
    """Refuse a schedule for what follows every write: nothing would ever read it."""
    if values.get("schedule") is not None:
        raise InvalidArgument(
            f"{st.qualified_name} cannot have the schedule {values['schedule']}",
            f"with {mode} the table follows every write",
            "leave the schedule out, or give refresh_mode DIFFERENTIAL or FULL too",
        )


def _check_published(st: StreamTable) -> None:
    """Refuse to compile anew what has no table: other columns would be another view."""
    if not st.publish:
        raise SourceAltered(
            f"{st.qualified_name} cannot be given another definition",
            "its result is in the lake only, under the columns that it was created with",
            "drop it and create it again",
        )


def _switch(conn: Connection[Any], st: StreamTable, status: str) -> None:
    """Switch the maintenance by writers off, or on again after computing it anew."""
    if status == "SUSPENDED":
        suspend(conn, st)
        return
    (drift,) = conn.execute("SELECT pgtrickle.alteration_of(%s)", [st.pgt_id]).fetchall()[0]
    if drift is not None:
        recompile(conn, st, drift)
    resync(conn, streams.get_by_id(conn, st.pgt_id))


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
    stored = _stored_columns(conn, st)
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


def _stored_columns(conn: Connection[Any], st: StreamTable) -> tuple[Column, ...]:
    """Return the columns that the table has by its query."""
    own = tviews.own_columns(conn, st.pgt_relid)
    columns = describe(conn, f"SELECT * FROM {st.qualified_name}")
    return tuple(c for c in columns if c.name not in own)


def recompile(conn: Connection[Any], st: StreamTable, why: str) -> RefreshResult | None:
    """Compile the query again after a source changed, or the owner; compute the table anew if it
    was filled."""
    owner = streams.owner_of(conn, st.pgt_relid)
    st = replace(st, owner=owner)
    try:
        _check_published(st)
        query = str(st.canonical_query)
        how = compile_for(conn, query, st.refresh_mode, st.engine, reader=st.owner)
        _check_cycle(conn, st, how[0])
    except psycopg.Error as error:
        fault = _explained(classify(error, st.qualified_name), why)
        _fail(conn, st, fault)
        raise fault from error
    except HeadwaterError as fault:
        _fail(conn, st, fault)
        raise
    if not st.needs_reinit:
        send_alert(conn, "reinitialize_needed", st.qualified_name, reason=why)
    moved = _rebuild(conn, st, how, {"reinit_reason": why, "owner": owner})
    return next((result for result in moved if result.name == st.qualified_name), None)


def _explained(fault: HeadwaterError, why: str) -> HeadwaterError:
    """Say what was done to the sources where that is why the query no longer holds."""
    if not isinstance(fault, SourceChanged):
        return fault
    return type(fault)(fault.what, why, fault.fix)


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
) -> Sequence[RefreshResult]:
    """Put a newly compiled plan in place and fill the table by it, in one transaction."""
    try:
        return _rebuild_once(conn, st, how, values)
    except psycopg.errors.ProgramLimitExceeded as error:
        if not is_too_long(error, st.pgt_id):
            raise
        check_long_keys(st.qualified_name, str(values.get("refresh_mode", st.refresh_mode)), error)
        long = replace(st, plan={**st.plan, LONG_KEYS: True})
        return _rebuild_once(conn, long, how, values)


def _rebuild_once(
    conn: Connection[Any],
    st: StreamTable,
    how: tuple[Compiled, EngineChoice],
    values: dict[str, object],
) -> Sequence[RefreshResult]:
    compiled, choice = how
    results: Sequence[RefreshResult] = ()
    before = [d.source_relid for d in streams.list_dependencies(conn, st.pgt_id)]
    names = [name for _, name in captured(compiled)] + [st.qualified_name]
    names += lockable(conn, before)
    tables = together(conn, st)
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
        refuse_stale(conn)
        immediate.pause(conn, st.pgt_id)
        target = _replace_plan(conn, st, how, values)
        after = [oid for oid, _ in captured(compiled)]
        own = [t.source_relid for t in tracking.list_tracking(conn, [st.pgt_relid])]
        for oid in sorted({*before, *after, *own}):
            sync_capture(conn, oid)
        new = streams.get_by_id(conn, st.pgt_id)
        if st.is_populated:
            results = move_all(conn, [t.pgt_id for t in movable(together(conn, new), new)])
        create_index(conn, st.pgt_id, target)
        immediate.remove(conn, st.pgt_id)  # last: it locks out the readers of the sources too
        if st.is_populated and new.follows_writers:
            immediate.install(conn, streams.get_by_id(conn, st.pgt_id))
    return results


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
    _uncapture(conn, st)
    conn.execute("SELECT set_config('pg_trickle.refreshing', 'on', true)")
    conn.execute(f"DELETE FROM {st.qualified_name}")
    _fit_columns(conn, st, compiled)
    key, hashed = choose_lookup(conn, compiled)
    key = tviews.find_key(conn, st.pgt_id) or key
    state, kept = state_names(st.pgt_id, plan)
    long = bool(st.plan.get(LONG_KEYS)) and not follows_writers(mode)
    target = Target(
        st.qualified_name, columns, key, hashed, state, partition_of(plan), kept, has_long_keys=long
    )
    has_same_key = (key, list(hashed)) == (st.key_columns, st.plan["hashed"])
    is_kept = has_same_key and not st.plan.get(LONG_KEYS)
    drop_index(conn, st, but_key=is_kept)  # without it those that read the table could not follow
    drop_states(conn, st.pgt_id)
    if plan is not None:
        create_states(conn, plan, target)
    streams.update_stream_table(
        conn,
        st.pgt_id,
        **{
            "canonical_query": compiled.analysis.canonical,
            "effective_mode": effective_mode(mode),
            "effective_engine": choice.engine,
            "reason": reason(choice, mode),
            "plan": stored_plan(plan, columns, hashed, has_long_keys=long)
            | more_plan(conn, compiled, choice),
            "key_columns": key,
            "is_populated": False,
            "needs_reinit": True,
            "reinit_reason": "the definition was altered",
            **values,
        },
    )
    give_to_owner(conn, st.pgt_id)
    traces.detach(conn, st.pgt_id)
    streams.record_dependencies(conn, st.pgt_id, dependencies_of(conn, compiled))
    streams.record_function_uses(conn, st.pgt_id, functions_of(compiled))
    return target


def _uncapture(conn: Connection[Any], st: StreamTable) -> None:
    """Spare the triggers on a table that only its own trace follows: that is loaded anew."""
    known = tracking.find_tracking(conn, st.pgt_relid)
    if known is not None and known.tracked_by_pgt_ids == (st.pgt_id,):
        remove_capture(conn, st.pgt_relid)


def _fit_columns(conn: Connection[Any], st: StreamTable, compiled: Compiled) -> None:
    """Give the table the query's columns: what has the same name and type stays."""
    wanted = {c.name: c.type for c in compiled.analysis.columns}
    stored = {c.name: c.type for c in _stored_columns(conn, st)}
    steps = [f"DROP COLUMN {identifier(n)}" for n, t in stored.items() if wanted.get(n) != t]
    for name, type in wanted.items():
        if stored.get(name) != type:
            collate = f" COLLATE {type.collation}" if type.collation else ""
            steps.append(f"ADD COLUMN {identifier(name)} {type.name}{collate}")
    if steps:
        conn.execute(f"ALTER TABLE {st.qualified_name} {', '.join(steps)}")
