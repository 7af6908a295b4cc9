"""Refresh: a table and all that it reads, in one transaction, to one epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg
from psycopg import Connection

from headwater.api.reconcile import reconcile, repair_sources
from headwater.api.sources import upstream
from headwater.api.transactions import lock_tables, one_snapshot
from headwater.catalog import epochs, history, streams, tracking
from headwater.catalog.history import RefreshOutcome
from headwater.catalog.model import Epoch, StreamTable
from headwater.catalog.settings import Settings, read_settings
from headwater.errors import HeadwaterError, InvalidArgument, LockTimeout
from headwater.postgres.cleaning import clean_buffer, list_stands
from headwater.postgres.faults import classify
from headwater.postgres.refresh import Outcome, Stopwatch, refresh_table
from headwater.results import RefreshResult


def refresh_stream_table(conn: Connection[Any], name: str, *, wait: bool = True) -> RefreshResult:
    """Bring a stream table, and before it all that it reads, to the state of now.

    Two refreshes of one table: the second waits, or is recorded as SKIP if it must not.
    """
    reconcile(conn)
    st = streams.get_stream_table(conn, name)
    tables = upstream(conn, st)
    _check_active(st, tables)
    for table in tables:
        repair_sources(conn, table)
    settings = read_settings(conn)
    watch = Stopwatch()
    try:
        with watch.step("total"):
            results = _in_one_transaction(conn, tables, settings, wait=wait)
    except LockTimeout as error:
        if wait:
            raise
        return _skipped(conn, st, error)
    _clean(conn, tables)
    result = results[-1]
    return replace(result, timings={**result.timings, **watch.timings})


def _check_active(st: StreamTable, tables: tuple[StreamTable, ...]) -> None:
    for table in tables:
        if table.status == "SUSPENDED":
            raise InvalidArgument(
                f"{st.qualified_name} cannot be refreshed: {table.qualified_name} is suspended",
                table.last_error or "it was suspended by hand",
                f"resume it: alter {table.qualified_name} to status ACTIVE",
            )


def _in_one_transaction(
    conn: Connection[Any], tables: tuple[StreamTable, ...], settings: Settings, *, wait: bool
) -> list[RefreshResult]:
    running: dict[int, int] = {}
    current = tables[-1]
    try:
        with one_snapshot(conn):
            lock_tables(conn, [t.qualified_name for t in tables], wait=wait)
            epoch = epochs.record_epoch(conn)
            results = []
            for table in tables:
                current = streams.get_by_id(conn, table.pgt_id)
                results.append(move(conn, current, epoch, settings))
            return results
    except psycopg.Error as error:
        fault = classify(error, current.qualified_name)
        _record_failure(conn, current, fault, running)
        raise fault from error
    except HeadwaterError as fault:
        if not isinstance(fault, LockTimeout):
            _record_failure(conn, current, fault, running)
        raise


def move(
    conn: Connection[Any], st: StreamTable, epoch: Epoch, settings: Settings
) -> RefreshResult:
    """Refresh one table in the open transaction and record that it stands at `epoch`."""
    outcome = refresh_table(conn, st, epoch, settings)
    _record_success(conn, st, epoch, outcome)
    counts = outcome.counts
    return RefreshResult(
        st.qualified_name,
        outcome.action,
        counts.get("inserted", 0),
        counts.get("updated", 0),
        counts.get("deleted", 0),
        counts.get("delta_rows", 0),
        epoch.epoch,
        epoch.data_timestamp,
        outcome.timings,
        outcome.reason,
    )


def _record_success(conn: Connection[Any], st: StreamTable, epoch: Epoch, outcome: Outcome) -> None:
    changes: dict[str, object] = {
        "epoch": epoch.epoch,
        "data_timestamp": epoch.data_timestamp,
        "last_refresh_at": epoch.data_timestamp,
        "frontier": frontier(epoch),
        "status": "ACTIVE",
        "is_populated": True,
        "consecutive_errors": 0,
        "last_error": None,
        "needs_reinit": False,
        "reinit_reason": None,
    }
    streams.update_stream_table(conn, st.pgt_id, **changes)
    counts = outcome.counts
    history.record_refresh(
        conn,
        st.pgt_id,
        RefreshOutcome(
            action=outcome.action,
            data_timestamp=epoch.data_timestamp,
            rows_inserted=counts.get("inserted", 0),
            rows_updated=counts.get("updated", 0),
            rows_deleted=counts.get("deleted", 0),
            delta_rows=counts.get("delta_rows", 0),
            epoch=epoch.epoch,
            engine="postgres",
            reason=outcome.reason,
            timings=outcome.timings,
        ),
    )


def frontier(epoch: Epoch) -> dict[str, object]:
    """Return the readable form of where a table stands."""
    return {
        "epoch": epoch.epoch,
        "snapshot": epoch.snapshot,
        "xid": epoch.xid,
        "data_timestamp": epoch.data_timestamp.isoformat(),
    }


def _record_failure(
    conn: Connection[Any], st: StreamTable, fault: HeadwaterError, running: dict[int, int]
) -> None:
    """Write the failure down in a transaction of its own; after three in a row, suspend.

    A connection that is gone cannot record anything: the next refresh finds nothing half-done.
    """
    if conn.closed:
        return
    limit = read_settings(conn).max_consecutive_errors
    with conn.transaction():
        now = streams.get_by_id(conn, st.pgt_id)
        failures = now.consecutive_errors + 1
        status = "SUSPENDED" if failures >= limit else "ERROR"
        streams.update_stream_table(
            conn, st.pgt_id, consecutive_errors=failures, last_error=str(fault), status=status
        )
        refresh_id = history.start_refresh(conn, st.pgt_id, "DIFFERENTIAL", "postgres")
        history.fail_refresh(conn, refresh_id, fault)


def _skipped(conn: Connection[Any], st: StreamTable, error: LockTimeout) -> RefreshResult:
    outcome = RefreshOutcome(action="SKIP", status="SKIPPED", reason=error.what, engine="postgres")
    history.record_refresh(conn, st.pgt_id, outcome)
    return RefreshResult(st.qualified_name, "SKIP", reason=error.what)


def _clean(conn: Connection[Any], tables: tuple[StreamTable, ...]) -> None:
    """Remove what every reader has seen; a crash before this only leaves it for the next time."""
    ids = {table.pgt_id for table in tables}
    for source in tracking.list_tracking(conn):
        if ids & set(source.tracked_by_pgt_ids):
            stands = list_stands(conn, source)
            if stands:
                clean_buffer(conn, source, stands)
    epochs.prune_epochs(conn)
