"""IMMEDIATE tables among the verbs: locks in the order of writers, re-sync, suspension."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg
from psycopg import Connection

from headwater.api.inside import refuse_frozen
from headwater.api.moving import move_all
from headwater.api.sources import movable, reads, upstream
from headwater.api.transactions import lock_tables, one_snapshot
from headwater.catalog import streams
from headwater.catalog.model import StreamTable
from headwater.errors import InvalidArgument
from headwater.postgres import immediate
from headwater.postgres.compile import Compiled
from headwater.postgres.faults import classify
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
    """Return what to lock, in order, so that IMMEDIATE tables can follow the moves of others."""
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

    return {st.qualified_name: depth(st.pgt_relid) for st in streams.list_stream_tables(conn)}


def check_depth(conn: Connection[Any], compiled: Compiled) -> None:
    """Refuse to pile up too many IMMEDIATE tables."""
    depths = _depths(conn)
    below = [depths.get(r.source.name, 0) for r in compiled.analysis.relations.values()]
    if max(below, default=0) >= DEEPEST:
        raise InvalidArgument(
            f"more than {DEEPEST} stream tables would stand on each other",
            "each IMMEDIATE table is maintained by a trigger inside the trigger of the one below",
            "read a table further down, or use refresh_mode => 'DIFFERENTIAL'",
        )


def needs_settings(compiled: Compiled) -> bool:
    """Tell whether some function of the query hangs on settings, so that they must be pinned."""
    return any(function.volatility != "i" for function in compiled.analysis.functions)


def resync(conn: Connection[Any], st: StreamTable) -> RefreshResult:
    """Compute an IMMEDIATE table anew and put its triggers in place, while writers wait."""
    refuse_frozen(conn)
    tables = movable(upstream(conn, st), st)
    names = [*immediate.list_sources(st), *(t.qualified_name for t in tables)]
    levels = in_order(conn, names)
    followers = list_followers(conn, [t.pgt_id for t in tables])
    try:
        with one_snapshot(conn):
            lock_levels(conn, levels)
            lock_followers(conn, followers)
            immediate.pause(conn, st.pgt_id)
            results = move_all(conn, [t.pgt_id for t in tables])
            immediate.install(conn, st)
    except psycopg.Error as error:
        raise classify(error, st.qualified_name) from error
    return results[-1]


def lock_sources(conn: Connection[Any], st: StreamTable) -> None:
    """Wait for the writers whose triggers maintain a table, before it or they are taken away.

    A trigger is dropped under a lock that keeps readers away too, one source after the other: a
    writer of the next one, whose trigger reads the first one, would be in the way.
    """
    if st.effective_mode != "IMMEDIATE":
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
