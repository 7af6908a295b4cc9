"""Refresh: a table and all that moves with it, in one transaction, to one epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg
from psycopg import Connection

from headwater.api.immediate import list_followers, lock_followers, resync
from headwater.api.moving import compute, move, move_all, record, sharing, start_spark
from headwater.api.reconcile import reconcile
from headwater.api.repair import repair_sources
from headwater.api.sources import EMPTIED, buffers_of, find_rewritten, movable, together
from headwater.api.transactions import BEGIN, COMMIT, lock_buffers, lock_tables, undone_on_error
from headwater.catalog import epochs, history, streams
from headwater.catalog.alerts import send_alert
from headwater.catalog.history import RefreshOutcome
from headwater.catalog.model import Epoch, StreamTable
from headwater.catalog.rows import is_inside
from headwater.catalog.settings import Settings, read_settings
from headwater.catalog.standing import (
    Opening,
    Standing,
    Verdict,
    load_standings,
    move_if_unchanged,
)
from headwater.errors import HeadwaterError, InvalidArgument, LockTimeout, Retry
from headwater.postgres.cleaning import clean_at_once, clean_seen
from headwater.postgres.faults import classify
from headwater.postgres.refresh import Stopwatch
from headwater.postgres.storage import LONG_KEYS, allow_long_keys, is_too_long
from headwater.results import RefreshResult

_PRUNE_EVERY = 64  # epochs


def refresh_stream_table(conn: Connection[Any], name: str, *, wait: bool = True) -> RefreshResult:
    """Bring a stream table, and with it all that it reads and its group, to the state of now.

    Two refreshes of one table: the second waits, or is recorded as SKIP if it must not.
    """
    watch = Stopwatch()
    with watch.step("total"):
        try:
            result = _refresh(conn, name, wait=wait)
        except psycopg.OperationalError as error:  # before the refresh itself had begun
            raise classify(error, name) from error
    result.timings.update(watch.timings)
    return result


def _refresh(conn: Connection[Any], name: str, *, wait: bool) -> RefreshResult:
    if is_inside(conn):
        return _refresh_inside(conn, name)
    found = move_if_unchanged(conn, name)
    if found.verdict == "moved":
        when = found.epoch, found.data_timestamp
        return RefreshResult(str(found.name), "NO_DATA", 0, 0, 0, 0, *when)
    if found.verdict == "unfit":
        reconcile(conn)
        st = streams.get_stream_table(conn, name)
        if st.follows_writers:
            return _resynced(conn, name, st)
        found = move_if_unchanged(conn, st.qualified_name)
    if found.verdict == "unfit":
        found, rebuilt = _repaired(conn, name, found)
        return _of_both(rebuilt, _in_one_transaction(conn, found, wait=wait))
    return _in_one_transaction(conn, found, wait=wait)


def _of_both(rebuilt: RefreshResult | None, result: RefreshResult) -> RefreshResult:
    """Tell of the rebuild if there was nothing to do after it."""
    if rebuilt is None or result.action != "NO_DATA":
        return result
    return replace(rebuilt, epoch=result.epoch, data_timestamp=result.data_timestamp)


def _refresh_inside(conn: Connection[Any], name: str) -> RefreshResult:
    """Move in the transaction of a caller, which takes all of it back if it fails."""
    reconcile(conn)
    st = streams.get_stream_table(conn, name)
    if st.follows_writers:
        return _resynced(conn, name, st)
    for table in movable(together(conn, st), st):
        _check_active(name, table)
        repair_sources(conn, table)
    ids = [table.pgt_id for table in movable(together(conn, st), st)]
    try:
        with conn.transaction():
            results = move_all(conn, ids)
            _check_sources(conn, st, ids)
            return results[ids.index(st.pgt_id)]
    except psycopg.Error as error:
        raise classify(error, st.qualified_name) from error


def _check_sources(conn: Connection[Any], st: StreamTable, ids: list[int]) -> None:
    """Refuse to end a refresh that may have seen sources empty: the snapshot is the caller's."""
    rewritten = find_rewritten(conn, ids)
    if rewritten:
        raise LockTimeout(
            f"{st.qualified_name} cannot be refreshed: {rewritten} was emptied or rewritten",
            "that happened after the snapshot of this transaction, which shows it empty",
            "refresh again in another transaction",
        )


def _resynced(conn: Connection[Any], name: str, st: StreamTable) -> RefreshResult:
    """Such a table is never behind: to refresh it is to compute it anew."""
    _check_active(name, st)
    try:
        repair_sources(conn, st)
    except psycopg.Error as error:
        raise classify(error, st.qualified_name) from error
    return resync(conn, streams.get_by_id(conn, st.pgt_id))


def _repaired(
    conn: Connection[Any], name: str, found: Verdict
) -> tuple[Verdict, RefreshResult | None]:
    """Make sources and triggers fit again, and record that a refresh runs.

    The second value is how the table itself was computed anew for that, if it was.
    """
    pgt_ids, rebuilt = found.pgt_ids or [], None
    for standing in load_standings(conn, pgt_ids):
        _check_active(name, standing.table)
        try:
            result = repair_sources(conn, standing.table)
            rebuilt = result if standing.table.pgt_id == pgt_ids[0] else rebuilt
        except (psycopg.Error, HeadwaterError) as error:
            fault = _as_ours(error, standing.table.qualified_name)
            record_failure(conn, standing.table.pgt_id, fault)
            raise fault from error.__cause__ if fault is error else error
    standings = load_standings(conn, pgt_ids)
    own = next(s.table for s in standings if s.table.pgt_id == pgt_ids[0])
    tables = movable((s.table for s in standings), own)
    expected = "FULL" if own.effective_mode == "FULL" else "DIFFERENTIAL"
    running = history.start_refresh(conn, own.pgt_id, expected, own.effective_engine)
    names = [t.qualified_name for t in tables]
    ids = [own.pgt_id, *(t.pgt_id for t in tables if t != own)]
    buffers, followers = buffers_of(conn, tables), list(list_followers(conn, ids))
    begun = replace(
        found, running=running, names=names, buffers=buffers, pgt_ids=ids, followers=followers
    )
    return begun, rebuilt


def _check_active(name: str, table: StreamTable) -> None:
    if table.status == "SUSPENDED":
        raise InvalidArgument(
            f"{name} cannot be refreshed: {table.qualified_name} is suspended",
            table.last_error or "it was suspended by hand",
            f"resume it: alter {table.qualified_name} to status ACTIVE",
        )


def _in_one_transaction(conn: Connection[Any], found: Verdict, *, wait: bool) -> RefreshResult:
    """Lock, take the snapshot, move all tables, clean; or write down why not."""
    assert found.pgt_ids is not None
    assert found.running is not None
    own = {found.pgt_ids[0]: found.running}
    standings: tuple[Standing, ...] = ()
    results: list[RefreshResult] = []
    try:
        if found.buffers:  # of tables on Spark
            start_spark(conn)
        with undone_on_error(conn):
            epoch, standings, settings = _opened(conn, found, wait=wait)
            with sharing(conn, standings, (epoch, settings)) as moment:
                for standing in standings[:-1]:
                    running = own.get(standing.table.pgt_id)
                    results.append(move(conn, standing, moment, running))
                outcome = compute(conn, standings[-1], moment)
            with conn.pipeline():
                _check_before_commit(conn, found, standings)
                _clean_sole(conn, standings)
                st = standings[-1].table
                results.append(record(conn, st, epoch, outcome, own.get(st.pgt_id)))
                conn.execute(COMMIT)
    except (psycopg.Error, HeadwaterError) as error:
        if not wait and not standings and _is_busy(error):
            return _skipped(conn, found)
        failed = _reached(standings, len(results))
        if _can_begin_again(conn, failed, error):
            return _in_one_transaction(conn, found, wait=wait)
        fault = _as_ours(error, failed.qualified_name if failed else str(found.name))
        _end_failed(conn, found, failed.pgt_id if failed else found.pgt_ids[0], fault)
        raise fault from error.__cause__ if fault is error else error
    _clean_shared(conn, standings, epoch, settings)
    return next(r for r, s in zip(results, standings, strict=True) if s.table.pgt_id in own)


def _opened(
    conn: Connection[Any], found: Verdict, *, wait: bool
) -> tuple[Epoch, tuple[Standing, ...], Settings]:
    """Lock, take the snapshot as a new epoch, and look at the tables, in one round trip."""
    assert found.pgt_ids is not None
    with conn.pipeline():
        conn.execute(BEGIN)
        lock_tables(conn, found.names or (), wait=wait)
        lock_followers(conn, found.followers or (), wait=wait)
        lock_buffers(conn, found.buffers or (), wait=wait)
        opening = Opening(conn, found.pgt_ids)
    return opening.answer()


def _reached(standings: tuple[Standing, ...], moved: int) -> StreamTable | None:
    """Return the table at which a refresh ended that had moved so many; None before the first."""
    return standings[min(moved, len(standings) - 1)].table if standings else None


def _can_begin_again(conn: Connection[Any], failed: StreamTable | None, error: Exception) -> bool:
    """Tell whether the same refresh may now succeed: with a snapshot that shows the sources as they
    are, or with keys of any length, which are allowed from here on."""
    if isinstance(error, psycopg.Error) and error.sqlstate == EMPTIED:
        return True
    if failed is None or not _has_longer_keys(failed, error):
        return False
    _allow_long_keys(conn, failed)
    return True


def _has_longer_keys(st: StreamTable, error: Exception) -> bool:
    return not st.plan.get(LONG_KEYS) and is_too_long(error, st.pgt_id)


def _allow_long_keys(conn: Connection[Any], st: StreamTable) -> None:
    """Let the keys be longer than a unique index takes."""
    with conn.transaction():
        lock_tables(conn, [st.qualified_name])
        allow_long_keys(conn, st)
        streams.update_stream_table(conn, st.pgt_id, plan={**st.plan, LONG_KEYS: True})


def _check_before_commit(
    conn: Connection[Any], found: Verdict, standings: tuple[Standing, ...]
) -> None:
    """Refuse to end a refresh that saw sources empty, and do not wait for the disk.

    A crash that loses this commit loses all of it: tables, epoch and consumed buffer rows go back
    together, and the next refresh does it again. What the catalog says of the lake must last,
    since files are deleted by it.
    """
    may_be_lost = all(standing.table.effective_engine == "postgres" for standing in standings)
    more = ", set_config('synchronous_commit', 'off', true)" if may_be_lost else ""
    conn.execute(f"SELECT pgtrickle.refuse_rewritten(%s){more}", [found.pgt_ids], prepare=True)


def _as_ours(error: psycopg.Error | HeadwaterError, name: str) -> HeadwaterError:
    return classify(error, name) if isinstance(error, psycopg.Error) else error


def _end_failed(conn: Connection[Any], found: Verdict, failed: int, fault: HeadwaterError) -> None:
    """Write down that a refresh failed, at its table and at the one whose fault it was."""
    assert found.pgt_ids is not None
    assert found.running is not None
    if conn.closed:
        return
    with conn.transaction():
        history.fail_refresh(conn, found.running, fault)
        own = history.find_owner(conn, found.running)
        record_failure(conn, failed, fault, is_in_history=own == failed)


def record_failure(
    conn: Connection[Any], pgt_id: int, fault: HeadwaterError, *, is_in_history: bool = False
) -> None:
    """Write a failure down in a transaction of its own; suspend after too many in a row.

    Those that may pass by waiting suspend nothing: they would have to be resumed for nothing.
    A connection that is gone cannot record anything: the next refresh finds nothing half-done.
    """
    if conn.closed:
        return
    limit = read_settings(conn).max_consecutive_errors
    with conn.transaction():
        st = streams.get_by_id(conn, pgt_id)
        failures = st.consecutive_errors + 1
        is_last = fault.retry is not Retry.LATER and (
            history.count_lasting_failures(conn, pgt_id, failures - 1) + 1 >= limit
        )
        status = "SUSPENDED" if is_last else "ERROR"
        changes = {"consecutive_errors": failures, "last_error": str(fault), "status": status}
        streams.update_stream_table(conn, pgt_id, **changes)
        if not is_in_history:
            history.record_refresh(conn, pgt_id, history.failed_outcome(st, fault))
        _alert_of_failure(conn, st, fault, failures)
        if is_last:
            send_alert(conn, "auto_suspended", st.qualified_name, errors=failures,
                       last_error=str(fault))  # fmt: skip
    fault.is_recorded = True


def _alert_of_failure(
    conn: Connection[Any], st: StreamTable, fault: HeadwaterError, failures: int
) -> None:
    details = {
        "error_class": history.error_class(fault), "error_code": fault.code,
        "error": str(fault), "errors": failures, "retry": fault.retry.value,
    }  # fmt: skip
    send_alert(conn, "refresh_failed", st.qualified_name, **details)


def _is_busy(error: psycopg.Error | HeadwaterError) -> bool:
    """Tell whether a lock was taken; in a batch the server's own error says so."""
    return isinstance(error, LockTimeout | psycopg.errors.LockNotAvailable)


def _skipped(conn: Connection[Any], found: Verdict) -> RefreshResult:
    assert found.running is not None
    why = f"{', '.join(sorted(found.names or ()))} is being refreshed or written by someone else"
    history.finish_refresh(
        conn, found.running, RefreshOutcome(action="SKIP", status="SKIPPED", reason=why)
    )
    return RefreshResult(str(found.name), "SKIP", reason=why)


def _clean_sole(conn: Connection[Any], standings: tuple[Standing, ...]) -> None:
    """Clean, in the transaction itself, the buffers that only the moved tables read.

    One without unseen changes is left: what may stand there was seen, and goes with the next.
    """
    moved = {s.table.pgt_id for s in standings}
    for source in {t.source_relid: t for s in standings for t in s.sources}.values():
        is_sole = set(source.tracked_by_pgt_ids) <= moved
        if is_sole and any(s.may_have_unseen(source.source_relid) for s in standings):
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
