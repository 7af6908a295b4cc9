"""Create: analyse, then table, state, capture, catalog and first fill in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import Connection

from headwater.api.arguments import (
    Schedule,
    effective_mode,
    parse_cdc_mode,
    parse_engine,
    parse_mode,
    parse_schedule,
)
from headwater.api.engine import EngineChoice, choose_engine, engine_for, require_lake
from headwater.api.immediate import check_followed, in_order, lock_levels, needs_settings
from headwater.api.inside import refuse_stale
from headwater.api.moving import move_all
from headwater.api.reconcile import reconcile
from headwater.api.sources import (
    buffers_of,
    buffers_to_share,
    captured,
    dependencies_of,
    functions_of,
    movable,
    together,
)
from headwater.api.transactions import lock_buffers, one_snapshot
from headwater.catalog import streams
from headwater.catalog.model import NewStreamTable, StreamTable, follows_writers
from headwater.catalog.names import qualified_name, split_name
from headwater.catalog.settings import read_settings
from headwater.errors import (
    AlreadyExists,
    InvalidArgument,
    LockTimeout,
    MissingRights,
    UnsupportedQuery,
)
from headwater.postgres import immediate
from headwater.postgres.capture import sync_capture
from headwater.postgres.compile import Compiled, compile_query
from headwater.postgres.kept import Keeps, keeping, reserving
from headwater.postgres.session import read_pinned
from headwater.postgres.storage import (
    adopt_table,
    choose_hashed,
    create_guard,
    create_index,
    create_states,
    create_table,
    create_unpublished,
    is_too_long,
    partition_of,
    state_names,
    stored_plan,
)
from headwater.postgres.target import Target
from headwater.results import Created
from headwater.sql.analyse import analyse


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of create, checked."""

    name: str
    query: str
    schedule: Schedule
    mode: str
    engine: str
    cdc_mode: str | None
    initialize: bool
    publish: bool
    adopt: bool = False  # a table of that name is there, and becomes the stream table
    key: tuple[str, ...] | None = None  # known to be unique; None: the shortest that is
    has_long_keys: bool = False
    warnings: tuple[str, ...] = ()


USUAL_SCHEDULE = "1m"  # what create takes where nobody says otherwise


def make_request(conn: Connection[Any], name: str, query: str, options: dict[str, Any]) -> Request:
    """Check the arguments of create, before anything is done."""
    mode = parse_mode(options["refresh_mode"])
    if not options["publish"] and mode == "IMMEDIATE":
        raise InvalidArgument(
            "publish => false with refresh_mode IMMEDIATE",
            "a transaction of PostgreSQL cannot write to the lake",
            "use another refresh_mode, or leave publish out",
        )
    schedule = None if follows_writers(mode) else options["schedule"]
    return Request(
        name,
        query,
        parse_schedule(schedule, read_settings(conn).min_target_lag_seconds),
        mode,
        parse_engine(options["engine"]),
        parse_cdc_mode(options["cdc_mode"]),
        options["initialize"],
        options["publish"],
        options.get("adopt", False),
        options.get("key"),
        warnings=_warnings(mode, options["schedule"]),
    )


def _warnings(mode: str, schedule: str | None) -> tuple[str, ...]:
    """Say so where somebody asked for a schedule that the mode has no use for."""
    if not follows_writers(mode) or schedule in (None, USUAL_SCHEDULE):
        return ()
    return (f"the schedule {schedule} is ignored: with {mode} the table follows every write",)


def compile_for(  # noqa: PLR0913 - each of the last by its name
    conn: Connection[Any],
    query: str,
    mode: str,
    engine: str,
    *,
    publish: bool = True,
    reader: int | None = None,
) -> tuple[Compiled, EngineChoice]:
    """Compile a query and choose its engine; a mode but FULL must follow changes.

    A FULL table follows them on Spark only, where they keep its copies of the sources up to date;
    on PostgreSQL it needs no plan.
    """
    with conn.transaction(force_rollback=True):
        compiled = compile_query(conn, query, reader)
    _check_published(conn, compiled)
    if mode != "FULL":
        _ = compiled.incremental
    choose = choose_engine if publish else require_lake
    choice = choose(conn, compiled, engine_for(mode, engine))
    if choice.engine != "postgres" or compiled.maintenance is None:
        return compiled, choice
    plan = None if mode == "FULL" else compiled.maintenance
    if plan is not None:
        kept = keeping(plan, Keeps.RECURSIONS if follows_writers(mode) else Keeps.ALL)
        plan = reserving(kept)
    return replace(compiled, maintenance=plan), choice


def _check_published(conn: Connection[Any], compiled: Compiled) -> None:
    """Refuse to read stream tables of which PostgreSQL has no rows."""
    for relation in compiled.analysis.relations.values():
        st = streams.find_by_relid(conn, relation.source.oid)
        if st is not None and not st.publish:
            raise UnsupportedQuery(
                f"the query reads {st.qualified_name}, whose result is in the lake only",
                "a stream table follows what PostgreSQL captures, and it has none of those rows",
                "create that one without publish => false, or read its sources",
            )


def create_stream_table(conn: Connection[Any], request: Request) -> Created:
    """Create a stream table; everything appears together or not at all."""
    try:
        made = _create_with_some_key(conn, request)
    except psycopg.errors.InsufficientPrivilege as error:
        raise MissingRights(
            f"{request.name} cannot be created by this role: {error.diag.message_primary}",
            "its sources are given triggers, as only their owner may, and the catalog rows",
            "create it as a role that owns both, or as a superuser, then hand it over by"
            f" ALTER TABLE {request.name} OWNER TO …",
        ) from error
    return replace(made, warnings=(*request.warnings, *made.warnings))


def _create_with_some_key(conn: Connection[Any], request: Request) -> Created:
    """Create it, and again without a unique index if some key turns out too long for one."""
    try:
        return _create(conn, request)
    except psycopg.errors.ProgramLimitExceeded as error:
        if not is_too_long(error):
            raise
        check_long_keys(request.name, request.mode, error)
        return _create(conn, replace(request, has_long_keys=True))


def check_long_keys(name: str, mode: str, error: psycopg.Error) -> None:
    """Refuse to follow writers for keys that no unique index takes: by that they agree on a row."""
    if follows_writers(mode):
        raise UnsupportedQuery(
            f"{name} cannot be maintained {mode}: {error.diag.message_primary}",
            "two writers who add the same key meet in a unique index, which takes no such value",
            "shorten the value, leave it out of the key, or use refresh_mode => 'DIFFERENTIAL'",
        ) from error


def _create(conn: Connection[Any], request: Request) -> Created:
    reconcile(conn)
    schema, name = _free_name(conn, request.name, adopt=request.adopt)
    compiled, choice = compile_for(
        conn, request.query, request.mode, request.engine, publish=request.publish
    )
    compiled = replace(compiled, key=request.key or compiled.key)
    if follows_writers(request.mode):
        check_followed(conn, compiled, request.mode)
    sources = captured(compiled)
    names, buffers = _to_lock(conn, compiled, choice)
    levels = in_order(conn, names)
    with one_snapshot(conn):
        lock_levels(conn, levels)
        lock_buffers(conn, buffers)
        if request.initialize:
            refuse_stale(conn)
        if analyse(conn, request.query) != compiled.analysis:
            raise LockTimeout(
                f"the sources of {request.name} changed while it was created",
                "their definition is not the one that was analysed",
                "create it again",
            )
        pgt_id, target = _record(conn, request, (compiled, choice), (schema, name))
        for oid, _ in sources if not follows_writers(request.mode) else ():
            sync_capture(conn, oid)
        if request.initialize:
            _fill(conn, pgt_id)
        if request.publish:
            create_index(conn, pgt_id, target)
            create_guard(conn, target.name)
            conn.execute(f"ANALYZE {target.name}")
        if request.initialize and follows_writers(request.mode):
            immediate.install(conn, streams.get_by_id(conn, pgt_id))
    return created(conn, pgt_id, compiled)


def _free_name(conn: Connection[Any], given: str, *, adopt: bool) -> tuple[str, str]:
    schema, name = split_name(given)
    row = conn.execute("SELECT coalesce(%s, current_schema())", (schema,)).fetchone()
    found = row[0] if row else None
    if found is None:
        raise InvalidArgument(
            f"there is no schema to create {given} in",
            "search_path names no existing schema",
            "write the name as schema.table",
        )
    shown = qualified_name(found, name)
    if adopt and streams.find_stream_table(conn, shown) is None:
        return found, name
    check_name(conn, shown)
    return found, name


def check_name(conn: Connection[Any], shown: str) -> None:
    """Refuse the qualified name of something that exists."""
    row = conn.execute("SELECT to_regclass(%s) IS NOT NULL", (shown,)).fetchone()
    if row is not None and row[0]:
        raise AlreadyExists(
            f"{shown} exists already",
            "a stream table needs a name of its own",
            "choose another name, drop it first, or use create_or_replace",
        )


def _to_lock(
    conn: Connection[Any], compiled: Compiled, choice: EngineChoice
) -> tuple[list[str], list[str]]:
    """Sources whose writers must wait for the triggers, stream tables that are read, and the
    buffers that those and this one read on Spark."""
    names = [name for _, name in captured(compiled)]
    tables: list[StreamTable] = []
    for relation in compiled.analysis.relations.values():
        st = streams.find_by_relid(conn, relation.source.oid)
        tables += together(conn, st) if st is not None else ()
    buffers = buffers_of(conn, tables)
    if choice.engine == "spark":
        buffers += buffers_to_share(conn, [oid for oid, _ in captured(compiled)])
    return names + [table.qualified_name for table in tables], buffers


def _record(
    conn: Connection[Any],
    request: Request,
    how: tuple[Compiled, EngineChoice],
    name: tuple[str, str],
) -> tuple[int, Target]:
    """Create the table and its catalog rows."""
    compiled, choice = how
    if request.adopt:
        relid = adopt_table(conn, *name, compiled.analysis.columns)
    elif request.publish:
        relid = create_table(conn, *name, compiled.analysis.canonical)
    else:
        relid = create_unpublished(conn, *name, compiled.analysis.columns)
    columns = compiled.columns
    plan = compiled.maintenance
    key, hashed = choose_lookup(conn, compiled)
    pgt_id = streams.record_stream_table(
        conn,
        NewStreamTable(
            pgt_relid=relid,
            pgt_name=name[1],
            pgt_schema=name[0],
            defining_query=request.query,
            canonical_query=compiled.analysis.canonical,
            refresh_mode=request.mode,
            effective_mode=effective_mode(request.mode),
            owner=streams.owner_of(conn, relid),
            schedule=request.schedule.words,
            target_lag=request.schedule.lag,
            engine=request.engine,
            effective_engine=choice.engine,
            reason=reason(choice, request.mode),
            cdc_mode=request.cdc_mode,
            publish=request.publish,
            plan=stored_plan(plan, columns, hashed, has_long_keys=request.has_long_keys)
            | more_plan(conn, compiled, choice, publish=request.publish),
            key_columns=key,
            pinned_settings=read_pinned(conn),
        ),
    )
    streams.record_dependencies(conn, pgt_id, dependencies_of(conn, compiled))
    streams.record_function_uses(conn, pgt_id, functions_of(compiled))
    state, kept = state_names(pgt_id, plan) if request.publish else (None, ())
    shown, partition = qualified_name(*name), partition_of(plan)
    target = Target(
        shown, columns, key, hashed, state, partition, kept, has_long_keys=request.has_long_keys
    )
    if plan is not None:
        create_states(conn, plan, target)
    return pgt_id, target


def choose_lookup(
    conn: Connection[Any], compiled: Compiled
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Choose what a refresh finds rows by: a key, else a hash of the columns that have one."""
    key = compiled.key
    if key is not None:
        return key, ()
    return None, choose_hashed(conn, compiled.analysis.columns)


def more_plan(
    conn: Connection[Any], compiled: Compiled, choice: EngineChoice, *, publish: bool = True
) -> dict[str, object]:
    """Return what the catalog keeps beside the plan: for triggers, and for Spark."""
    kept: dict[str, object] = {"settings": needs_settings(compiled)}
    if choice.placed is None:
        return kept
    from headwater.spark.plans import stored_placed  # noqa: PLC0415 - an optional package

    keeps_result = publish and read_settings(conn).lake_results
    return kept | {"spark": stored_placed(choice.placed), "keeps_result": keeps_result}


def reason(choice: EngineChoice, mode: str) -> str:
    """Say why this engine and this mode."""
    if mode == "AUTO":
        return f"{choice.reason}; mode: DIFFERENTIAL, every operator has a delta rule"
    return f"{choice.reason}; mode: {mode} was asked for"


def _fill(conn: Connection[Any], pgt_id: int) -> None:
    """Fill the new table, after bringing all that it reads to the same epoch."""
    st = streams.get_by_id(conn, pgt_id)
    move_all(conn, [t.pgt_id for t in movable(together(conn, st), st)])


def created(conn: Connection[Any], pgt_id: int, compiled: Compiled) -> Created:
    """Return what the user should know of a new stream table."""
    st = streams.get_by_id(conn, pgt_id)
    return Created(
        st.qualified_name,
        st.key_columns,
        str(st.effective_mode),
        str(st.effective_engine),
        str(st.reason),
        compiled.warnings,
    )
