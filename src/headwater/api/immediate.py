"""Tables that writers move, among the verbs: locks in the order of writers, re-sync, suspension."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg
from psycopg import Connection

from headwater.algebra.ops import Filter
from headwater.algebra.walk import scans, walk
from headwater.api.inside import refuse_stale
from headwater.api.moving import move_all
from headwater.api.sources import movable, reads, together
from headwater.api.transactions import lock_tables, one_snapshot
from headwater.catalog import streams
from headwater.catalog.model import StreamTable
from headwater.catalog.names import qualified_name
from headwater.catalog.settings import read_settings
from headwater.errors import InvalidArgument, UnsupportedQuery
from headwater.postgres import immediate
from headwater.postgres.compile import Compiled
from headwater.postgres.faults import classify
from headwater.postgres.kept import changed_with, reading_kept
from headwater.postgres.maintenance import read_twice
from headwater.postgres.storage import state_names
from headwater.postgres.tops import last_row
from headwater.results import RefreshResult

DEEPEST = 16  # IMMEDIATE tables on each other: each level nests triggers in triggers


Levels = tuple[tuple[str, ...], ...]


def in_order(conn: Connection[Any], names: Iterable[str]) -> Levels:
    """Sort relations for locking, what is read before what reads it: so writers come by.

    A writer holds its table before the stream tables that its triggers write; whoever locked those
    first would wait for the writer while the writer waits for him. To be asked before the
    transaction that locks: the question takes a snapshot.
    """
    levels: dict[int, list[str]] = {}
    depth = _depths(conn)
    for name in names:
        levels.setdefault(depth.get(name, 0), []).append(name)
    return tuple(tuple(levels[level]) for level in sorted(levels))


def lock_levels(conn: Connection[Any], levels: Levels) -> None:
    """Lock relations in that order, against writers."""
    for level in levels:
        lock_tables(conn, level)


def list_followers(conn: Connection[Any], pgt_ids: Iterable[int]) -> tuple[str, ...]:
    """Return what to lock, in order, so that such tables can follow the moves of others."""
    row = conn.execute("SELECT pgtrickle.followers_of(%s)", [list(pgt_ids)]).fetchone()
    assert row is not None
    return tuple(row[0])


def lock_followers(conn: Connection[Any], names: Iterable[str], *, wait: bool = True) -> None:
    """Lock those, one after the other; before the snapshot."""
    for name in names:
        lock_tables(conn, [name], wait=wait)


def _depths(conn: Connection[Any]) -> dict[str, int]:
    """Return for each stream table how many stand below it, itself included."""
    graph = reads(conn)
    found: dict[int, int] = {}

    def depth(relid: int) -> int:
        if relid not in found:
            found[relid] = 1 + max((depth(below) for below in graph[relid]), default=0)
        return found[relid]

    names = "SELECT pgt_schema, pgt_name, pgt_relid::int8 FROM pgtrickle.pgt_stream_tables"
    return {qualified_name(s, n): depth(relid) for s, n, relid in conn.execute(names).fetchall()}


def _check_top(conn: Connection[Any], compiled: Compiled) -> None:
    most = read_settings(conn).ivm_topk_max_limit
    filters = (op for op in walk(compiled.incremental.view) if isinstance(op, Filter))
    limits = [limit for op in filters if (limit := last_row(op)) is not None]
    if max(limits, default=0) > most:
        raise UnsupportedQuery(
            f"ORDER BY … LIMIT keeps {max(limits)} rows, more than writers may maintain",
            "all of them are computed in the writing transaction;"
            f" pg_trickle.ivm_topk_max_limit is {most}",
            "lower the limit, raise pg_trickle.ivm_topk_max_limit, or use DIFFERENTIAL",
        )


def check_followed(conn: Connection[Any], compiled: Compiled, mode: str) -> None:
    """Refuse what no trigger can follow: time that passes, and a pile of too many tables; and for
    COMMIT a source of which each change is one of all rows."""
    if compiled.maintenance is not None and compiled.maintenance.is_timed:
        raise UnsupportedQuery(
            f"a condition on now() cannot be followed in mode {mode}",
            "rows come and go as time passes, and no write would wake it",
            "use refresh_mode => 'DIFFERENTIAL' with a schedule",
        )
    _check_top(conn, compiled)
    if mode == "COMMIT":
        _check_linked(conn, compiled)
    depths = _depths(conn)
    below = [depths.get(r.source.name, 0) for r in compiled.analysis.relations.values()]
    if max(below, default=0) >= DEEPEST:
        raise InvalidArgument(
            f"more than {DEEPEST} stream tables would stand on each other",
            "each is maintained by triggers on the one below, inside the writing transaction",
            "read a table further down, or use refresh_mode => 'DIFFERENTIAL'",
        )


def _check_linked(conn: Connection[Any], compiled: Compiled) -> None:
    """Refuse a source whose rows are not linked to those of the result, unless it is allowed."""
    plan = compiled.incremental
    over = reading_kept(plan, state_names(0, plan)[1])
    sources = {scan.source for scan in scans(plan.view)}
    unlinked = sorted(s.name for s in sources if read_twice(over, changed_with(plan, s.oid)))
    if unlinked and not read_settings(conn).commit_recompute:
        raise UnsupportedQuery(
            f"nothing links the rows of {', '.join(unlinked)} to those of the result",
            "each of its changes may change every row, so that a commit would compute them all",
            "use refresh_mode => 'DIFFERENTIAL', or allow it: SET pg_trickle.commit_recompute = on",
        )


def needs_settings(compiled: Compiled) -> bool:
    """Tell whether some function of the query hangs on settings, so that they must be pinned."""
    return any(function.volatility != "i" for function in compiled.analysis.functions)


def resync(conn: Connection[Any], st: StreamTable) -> RefreshResult:
    """Compute such a table anew and put its triggers in place, while writers wait."""
    tables = movable(together(conn, st), st)
    names = [*immediate.list_sources(st), *(t.qualified_name for t in tables)]
    levels = in_order(conn, names)
    followers = list_followers(conn, [t.pgt_id for t in tables])
    try:
        with one_snapshot(conn):
            lock_levels(conn, levels)
            lock_followers(conn, followers)
            refuse_stale(conn)
            immediate.pause(conn, st.pgt_id)
            results = move_all(conn, [t.pgt_id for t in tables])
            immediate.install(conn, st)
    except psycopg.Error as error:
        raise classify(error, st.qualified_name) from error
    return next(r for r in results if r.name == st.qualified_name)


def lock_sources(conn: Connection[Any], st: StreamTable) -> None:
    """Wait for the writers whose triggers maintain a table, before it or they are taken away.

    A trigger is dropped under a lock that keeps readers away too, one source after the other: a
    writer of the next one, whose trigger reads the first one, would be in the way.
    """
    if not st.follows_writers:
        return
    known = conn.execute(
        "SELECT format('%%I.%%I', n.nspname, c.relname) FROM pgtrickle.pgt_dependencies d"
        " JOIN pg_class c ON c.oid = d.source_relid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE d.pgt_id = %s AND c.relkind IN ('r', 'p')",
        (st.pgt_id,),
    ).fetchall()
    lock_levels(conn, in_order(conn, [name for (name,) in known]))


def suspend(conn: Connection[Any], st: StreamTable) -> None:
    """Let writers go by without maintenance, for a bulk load; resuming computes all anew."""
    levels = in_order(conn, [*immediate.list_sources(st), st.qualified_name])
    with conn.transaction():
        lock_levels(conn, levels)
        immediate.remove(conn, st.pgt_id)
        streams.update_stream_table(
            conn, st.pgt_id, status="SUSPENDED", needs_reinit=True, reinit_reason="it was suspended"
        )
        conn.execute(
            "UPDATE pgtrickle.pgt_stream_tables SET data_timestamp = now() WHERE pgt_id = %s",
            (st.pgt_id,),
        )
