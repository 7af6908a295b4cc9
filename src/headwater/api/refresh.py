"""Refresh: a table and all that it reads, in one transaction, to one epoch."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import Connection

from headwater.api.moving import move
from headwater.api.reconcile import reconcile
from headwater.api.repair import repair_sources
from headwater.api.transactions import lock_tables, one_snapshot
from headwater.catalog import epochs, history, streams
from headwater.catalog.history import RefreshOutcome
from headwater.catalog.model import Epoch, StreamTable
from headwater.catalog.settings import read_settings
from headwater.catalog.standing import Standing, load_standings, move_if_unchanged
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
    found = move_if_unchanged(conn, name)
    if found.verdict == "moved":
        when = found.epoch, found.data_timestamp
        return [RefreshResult(str(found.name), "NO_DATA", 0, 0, 0, 0, *when)]
    if found.verdict == "unfit":
        reconcile(conn)
        found = move_if_unchanged(conn, streams.get_stream_table(conn, name).qualified_name)
    pgt_ids = list(found.pgt_ids or ())
    if found.verdict == "unfit":
        for standing in load_standings(conn, pgt_ids):
            _check_active(name, standing.table)
            repair_sources(conn, standing.table)
    return _in_one_transaction(conn, pgt_ids, wait=wait)


def _check_active(name: str, table: StreamTable) -> None:
    if table.status == "SUSPENDED":
        raise InvalidArgument(
            f"{name} cannot be refreshed: {table.qualified_name} is suspended",
            table.last_error or "it was suspended by hand",
            f"resume it: alter {table.qualified_name} to status ACTIVE",
        )


def _in_one_transaction(
    conn: Connection[Any], pgt_ids: list[int], *, wait: bool
) -> list[RefreshResult]:
    """Lock, take the snapshot, move all tables, clean; or write down why not."""
    settings = read_settings(conn)
    tables = [standing.table for standing in load_standings(conn, pgt_ids)]
    running = history.start_refresh(conn, tables[-1].pgt_id, _expected(tables[-1]), "postgres")
    results: list[RefreshResult] = []
    try:
        with one_snapshot(conn):
            lock_tables(conn, [t.qualified_name for t in tables], wait=wait)
            epoch = epochs.record_epoch(conn)
            standings = load_standings(conn, pgt_ids)
            for standing in standings[:-1]:
                results.append(move(conn, standing, epoch, settings))
            results.append(move(conn, standings[-1], epoch, settings, running))
            _clean_sole(conn, standings)
    except psycopg.Error as error:
        fault = classify(error, tables[len(results)].qualified_name)
        _record_failure(conn, tables[len(results)], running, fault)
        raise fault from error
    except LockTimeout as error:
        if wait:
            _record_failure(conn, tables[-1], running, error)
            raise
        return [_skipped(conn, tables[-1], running, error)]
    except HeadwaterError as fault:
        _record_failure(conn, tables[len(results)], running, fault)
        raise
    _clean_shared(conn, standings, epoch)
    return results


def _expected(st: StreamTable) -> str:
    """The action that a refresh is likely to take, until it is known."""
    return "FULL" if st.effective_mode == "FULL" else "DIFFERENTIAL"


def _record_failure(
    conn: Connection[Any], st: StreamTable, running: int, fault: HeadwaterError
) -> None:
    """Write the failure of `st` down in a transaction of its own; suspend after too many in a row.

    A connection that is gone cannot record anything: the next refresh finds nothing half-done.
    """
    if conn.closed:
        return
    limit = read_settings(conn).max_consecutive_errors
    with conn.transaction():
        failures = streams.get_by_id(conn, st.pgt_id).consecutive_errors + 1
        status = "SUSPENDED" if failures >= limit else "ERROR"
        streams.update_stream_table(
            conn, st.pgt_id, consecutive_errors=failures, last_error=str(fault), status=status
        )
        history.fail_refresh(conn, running, fault)


def _skipped(
    conn: Connection[Any], st: StreamTable, running: int, error: LockTimeout
) -> RefreshResult:
    outcome = RefreshOutcome(action="SKIP", status="SKIPPED", reason=error.what, engine="postgres")
    history.finish_refresh(conn, running, outcome)
    return RefreshResult(st.qualified_name, "SKIP", reason=error.what)


def _clean_sole(conn: Connection[Any], standings: tuple[Standing, ...]) -> None:
    """Clean, in the transaction itself, the buffers that only the moved tables read."""
    moved = {s.table.pgt_id for s in standings}
    for source in {t.source_relid: t for s in standings for t in s.sources}.values():
        if set(source.tracked_by_pgt_ids) <= moved:
            clean_at_once(conn, source)


def _clean_shared(conn: Connection[Any], standings: tuple[Standing, ...], epoch: Epoch) -> None:
    """Clean, after the commit, the buffers that other tables read too."""
    moved = {s.table.pgt_id for s in standings}
    for source in {t.source_relid: t for s in standings for t in s.sources}.values():
        if not set(source.tracked_by_pgt_ids) <= moved:
            clean_seen(conn, source)
    if epoch.epoch % _PRUNE_EVERY == 0:
        epochs.prune_epochs(conn)
