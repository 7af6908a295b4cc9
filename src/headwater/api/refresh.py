"""Refresh: a table and all that it reads, in one transaction, to one epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg
from psycopg import Connection

from headwater.api.immediate import list_followers, lock_followers, resync
from headwater.api.moving import compute, move, move_all, record
from headwater.api.reconcile import reconcile
from headwater.api.repair import repair_sources
from headwater.api.sources import buffers_of, movable, upstream
from headwater.api.transactions import lock_buffers, lock_tables, one_snapshot
from headwater.catalog import epochs, history, streams
from headwater.catalog.history import RefreshOutcome
from headwater.catalog.model import Epoch, StreamTable
from headwater.catalog.rows import is_inside
from headwater.catalog.settings import Settings, read_settings
from headwater.catalog.standing import (
    Standing,
    Verdict,
    load_standings,
    move_if_unchanged,
    open_epoch,
)
from headwater.errors import HeadwaterError, InvalidArgument, LockTimeout
from headwater.postgres.cleaning import clean_at_once, clean_seen
from headwater.postgres.faults import classify
from headwater.postgres.refresh import Stopwatch
from headwater.results import RefreshResult

_PRUNE_EVERY = 64  # epochs


def refresh_stream_table(conn: Connection[Any], name: str, *, wait: bool = True) -> RefreshResult:
    """Bring a stream table, and before it all that it reads, to the state of now.

    Two refreshes of one table: the second waits, or is recorded as SKIP if it must not.
    """
    watch = Stopwatch()
    with watch.step("total"):
        results = _refresh(conn, name, wait=wait)
    results[-1].timings.update(watch.timings)
    return results[-1]


def _refresh(conn: Connection[Any], name: str, *, wait: bool) -> list[RefreshResult]:
    if is_inside(conn):
        return _refresh_inside(conn, name)
    found = move_if_unchanged(conn, name)
    if found.verdict == "moved":
        when = found.epoch, found.data_timestamp
        return [RefreshResult(str(found.name), "NO_DATA", 0, 0, 0, 0, *when)]
    if found.verdict == "unfit":
        reconcile(conn)
        st = streams.get_stream_table(conn, name)
        if st.effective_mode == "IMMEDIATE":
            return [_resynced(conn, name, st)]
        found = move_if_unchanged(conn, st.qualified_name)
    if found.verdict == "unfit":
        found = _repaired(conn, name, found)
    return _in_one_transaction(conn, found, wait=wait)


def _refresh_inside(conn: Connection[Any], name: str) -> list[RefreshResult]:
    """Move in the transaction of a caller, which takes all of it back if it fails."""
    reconcile(conn)
    st = streams.get_stream_table(conn, name)
    if st.effective_mode == "IMMEDIATE":
        return [_resynced(conn, name, st)]
    for table in movable(upstream(conn, st), st):
        _check_active(name, table)
        repair_sources(conn, table)
    ids = [table.pgt_id for table in movable(upstream(conn, st), st)]
    try:
        with conn.transaction():
            return move_all(conn, ids)
    except psycopg.Error as error:
        raise classify(error, st.qualified_name) from error


def _resynced(conn: Connection[Any], name: str, st: StreamTable) -> RefreshResult:
    """An IMMEDIATE table is never behind: to refresh it is to compute it anew."""
    _check_active(name, st)
    repair_sources(conn, st)
    return resync(conn, streams.get_by_id(conn, st.pgt_id))


def _repaired(conn: Connection[Any], name: str, found: Verdict) -> Verdict:
    """Make sources and triggers fit again, and record that a refresh runs."""
    pgt_ids = found.pgt_ids or []
    for standing in load_standings(conn, pgt_ids):
        _check_active(name, standing.table)
        repair_sources(conn, standing.table)
    standings = load_standings(conn, pgt_ids)
    tables = movable((s.table for s in standings), standings[-1].table)
    expected = "FULL" if tables[-1].effective_mode == "FULL" else "DIFFERENTIAL"
    engine = tables[-1].effective_engine
    running = history.start_refresh(conn, tables[-1].pgt_id, expected, engine)
    names = [t.qualified_name for t in tables]
    ids = [t.pgt_id for t in tables]
    buffers, followers = buffers_of(conn, tables), list(list_followers(conn, ids))
    return replace(
        found, running=running, names=names, buffers=buffers, pgt_ids=ids, followers=followers
    )


def _check_active(name: str, table: StreamTable) -> None:
    if table.status == "SUSPENDED":
        raise InvalidArgument(
            f"{name} cannot be refreshed: {table.qualified_name} is suspended",
            table.last_error or "it was suspended by hand",
            f"resume it: alter {table.qualified_name} to status ACTIVE",
        )


def _in_one_transaction(
    conn: Connection[Any], found: Verdict, *, wait: bool
) -> list[RefreshResult]:
    """Lock, take the snapshot, move all tables, clean; or write down why not."""
    assert found.pgt_ids is not None
    assert found.running is not None
    assert found.names is not None
    standings: tuple[Standing, ...] = ()
    results: list[RefreshResult] = []
    try:
        with one_snapshot(conn):
            lock_tables(conn, found.names, wait=wait)
            lock_followers(conn, found.followers or (), wait=wait)
            lock_buffers(conn, found.buffers or (), wait=wait)
            epoch, standings, settings = open_epoch(conn, found.pgt_ids)
            for standing in standings[:-1]:
                results.append(move(conn, standing, epoch, settings))
            outcome = compute(conn, standings[-1], epoch, settings)
            with conn.pipeline():
                _let_commit_be_lost(conn, standings)
                _clean_sole(conn, standings)
                st = standings[-1].table
                results.append(record(conn, st, epoch, outcome, found.running))
    except (psycopg.Error, HeadwaterError) as error:
        if isinstance(error, LockTimeout) and not wait:
            return [_skipped(conn, found, error)]
        at = min(len(results), len(standings) - 1)
        failed = standings[at].table.pgt_id if standings else found.pgt_ids[0]
        name = standings[at].table.qualified_name if standings else str(found.name)
        fault = classify(error, name) if isinstance(error, psycopg.Error) else error
        _record_failure(conn, failed, found.running, fault)
        raise fault from error.__cause__ if fault is error else error
    _clean_shared(conn, standings, epoch, settings)
    return results


def _let_commit_be_lost(conn: Connection[Any], standings: tuple[Standing, ...]) -> None:
    """Do not wait for the disk: a crash that loses this commit loses all of it.

    Tables, epoch and consumed buffer rows go back together, and the next refresh does it again.
    What the catalog says of the lake must last, since files are deleted by it.
    """
    if all(standing.table.effective_engine == "postgres" for standing in standings):
        conn.execute("SET LOCAL synchronous_commit = off")


def _record_failure(
    conn: Connection[Any], pgt_id: int, running: int, fault: HeadwaterError
) -> None:
    """Write a failure down in a transaction of its own; suspend after too many in a row.

    A connection that is gone cannot record anything: the next refresh finds nothing half-done.
    """
    if conn.closed:
        return
    limit = read_settings(conn).max_consecutive_errors
    with conn.transaction():
        failures = streams.get_by_id(conn, pgt_id).consecutive_errors + 1
        status = "SUSPENDED" if failures >= limit else "ERROR"
        streams.update_stream_table(
            conn, pgt_id, consecutive_errors=failures, last_error=str(fault), status=status
        )
        history.fail_refresh(conn, running, fault)


def _skipped(conn: Connection[Any], found: Verdict, error: LockTimeout) -> RefreshResult:
    assert found.running is not None
    outcome = RefreshOutcome(action="SKIP", status="SKIPPED", reason=error.what)
    history.finish_refresh(conn, found.running, outcome)
    return RefreshResult(str(found.name), "SKIP", reason=error.what)


def _clean_sole(conn: Connection[Any], standings: tuple[Standing, ...]) -> None:
    """Clean, in the transaction itself, the buffers that only the moved tables read."""
    moved = {s.table.pgt_id for s in standings}
    for source in {t.source_relid: t for s in standings for t in s.sources}.values():
        if set(source.tracked_by_pgt_ids) <= moved:
            clean_at_once(conn, source)


def _clean_shared(
    conn: Connection[Any], standings: tuple[Standing, ...], epoch: Epoch, settings: Settings
) -> None:
    """Clean, after the commit, the buffers that other tables read too."""
    moved = {s.table.pgt_id for s in standings}
    for source in {t.source_relid: t for s in standings for t in s.sources}.values():
        if not set(source.tracked_by_pgt_ids) <= moved:
            clean_seen(conn, source)
    if epoch.epoch % _PRUNE_EVERY == 0:
        epochs.prune_epochs(conn, settings.lake_retention)
