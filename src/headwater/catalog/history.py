"""Turns the course of a refresh into a row of the refresh history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import psycopg
from psycopg import sql

from headwater.catalog.model import Epoch, Json, Refresh, StreamTable
from headwater.catalog.rows import (
    Connection,
    assignments,
    columns_of,
    cursor_of,
    fetch_scalar,
    identifiers,
    names_of,
    parameters_of,
    placeholders,
)
from headwater.errors import HeadwaterError, NotFound, SourceChanged, Unavailable, UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshOutcome:
    """How a refresh ended: the columns of its history row that the refresher knows."""

    action: str
    status: str = "COMPLETED"
    data_timestamp: datetime | None = None
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    delta_rows: int | None = None
    epoch: int | None = None
    engine: str | None = None
    reason: str | None = None
    timings: Json = None
    error_message: str | None = None
    error_code: str | None = None
    error_class: str | None = None


_OUTCOME = names_of(RefreshOutcome)
_FINISH = (
    sql.SQL(
        "UPDATE pgtrickle.pgt_refresh_history SET end_time = clock_timestamp(), {}"
        " WHERE refresh_id = %(refresh_id)s RETURNING refresh_id"
    )
    .format(assignments(_OUTCOME))
    .as_bytes()
)
_RECORD = (
    sql.SQL(
        "INSERT INTO pgtrickle.pgt_refresh_history"
        " (pgt_id, start_time, end_time, backend_pid, {})"
        " VALUES (%(pgt_id)s, transaction_timestamp(), clock_timestamp(), pg_backend_pid(), {})"
        " RETURNING refresh_id"
    )
    .format(identifiers(_OUTCOME), placeholders(_OUTCOME))
    .as_bytes()
)
_END = (
    sql.SQL("""
    WITH moved AS (
        UPDATE pgtrickle.pgt_stream_tables
           SET epoch = %(epoch)s, data_timestamp = %(data_timestamp)s,
               last_refresh_at = clock_timestamp(),
               frontier = jsonb_build_object(
                   'epoch', %(epoch)s::int8, 'snapshot', %(snapshot)s::text,
                   'xid', pg_current_xact_id()::text,
                   'data_timestamp', %(data_timestamp)s::timestamptz),
               status = 'ACTIVE', is_populated = true, consecutive_errors = 0, last_error = NULL,
               needs_reinit = false, reinit_reason = NULL, updated_at = now()
         WHERE pgt_id = %(pgt_id)s
    ), finished AS (
        UPDATE pgtrickle.pgt_refresh_history SET end_time = clock_timestamp(), {assignments}
         WHERE refresh_id = %(running)s RETURNING refresh_id
    )
    INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, backend_pid, {names})
    SELECT %(pgt_id)s, transaction_timestamp(), clock_timestamp(), pg_backend_pid(), {values}
     WHERE NOT EXISTS (SELECT FROM finished)""")
    .format(
        assignments=assignments(_OUTCOME),
        names=identifiers(_OUTCOME),
        values=placeholders(_OUTCOME),
    )
    .as_bytes()
)
_START = b"SELECT pgtrickle.start_refresh(%(pgt_id)s, %(action)s, %(engine)s, %(epoch)s)"


def start_refresh(
    conn: Connection, pgt_id: int, action: str, engine: str | None = None, epoch: int | None = None
) -> int:
    """Record that a refresh runs now and return its id; others see it once the caller commits.

    Refreshes that still stand there as running although their session ended are failed.
    That commit is asynchronous: a crash that loses the row also ends the refresh.
    """
    values = {"pgt_id": pgt_id, "action": action, "engine": engine, "epoch": epoch}
    return int(fetch_scalar(conn, _START, values))


def finish_refresh(conn: Connection, refresh_id: int, outcome: RefreshOutcome) -> None:
    """Record how a refresh that was started ended; its end is now."""
    values = {"refresh_id": refresh_id, **parameters_of(outcome)}
    if fetch_scalar(conn, _FINISH, values) is None:
        raise _no_such_refresh(refresh_id)


def record_move(
    conn: Connection, pgt_id: int, epoch: Epoch, outcome: RefreshOutcome, running: int | None
) -> None:
    """Record that a stream table stands at `epoch`, that nothing is wrong with it, and what its
    refresh did: in the row `running`, where others saw that it ran, or in a new one.

    In a batch it waits for no answer.
    """
    values = {"pgt_id": pgt_id, "running": running, "snapshot": epoch.snapshot}
    conn.execute(_END, {**parameters_of(outcome), **values}, prepare=True)


def fail_refresh(conn: Connection, refresh_id: int, error: BaseException) -> None:
    """Record that a refresh that was started ended with `error`; counts and times stay."""
    query = """
        UPDATE pgtrickle.pgt_refresh_history
           SET status = 'FAILED', end_time = clock_timestamp(),
               error_message = %s, error_code = %s, error_class = %s
         WHERE refresh_id = %s"""
    values = [str(error), error_code(error), error_class(error), refresh_id]
    if conn.execute(query, values).rowcount == 0:
        raise _no_such_refresh(refresh_id)


def find_owner(conn: Connection, refresh_id: int) -> int | None:
    """Return the stream table whose refresh this is."""
    query = b"SELECT pgt_id FROM pgtrickle.pgt_refresh_history WHERE refresh_id = %s"
    found = fetch_scalar(conn, query, [refresh_id])
    return None if found is None else int(found)


def count_lasting_failures(conn: Connection, pgt_id: int, last: int) -> int:
    """Return how many of the last refreshes failed in a way that waiting does not help."""
    query = b"""
        SELECT count(*) FROM (
            SELECT status, error_class FROM pgtrickle.pgt_refresh_history
             WHERE pgt_id = %s AND status IN ('COMPLETED', 'FAILED') AND end_time < now()
             ORDER BY refresh_id DESC LIMIT %s) AS newest
         WHERE status = 'FAILED' AND error_class <> 'system'"""
    return int(fetch_scalar(conn, query, [pgt_id, last]))


def failed_outcome(st: StreamTable, error: BaseException) -> RefreshOutcome:
    """Return the outcome of a refresh that failed before it was recorded as running."""
    return RefreshOutcome(
        action="FULL" if st.effective_mode == "FULL" else "DIFFERENTIAL",
        status="FAILED",
        engine=st.effective_engine,
        error_message=str(error),
        error_code=error_code(error),
        error_class=error_class(error),
    )


def close_lost(conn: Connection) -> int:
    """Fail the refreshes that stand there as running although their session ended."""
    return conn.execute(
        "UPDATE pgtrickle.pgt_refresh_history h"
        " SET status = 'FAILED', end_time = clock_timestamp(), error_class = 'system',"
        " error_message = 'the refreshing process ended before the refresh did'"
        " WHERE h.status = 'RUNNING'"
        " AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = h.backend_pid)"
    ).rowcount


def prune_history(conn: Connection, retention: str) -> int:
    """Delete what ended longer ago than that, but not the newest row of a stream table."""
    return conn.execute(
        "DELETE FROM pgtrickle.pgt_refresh_history h WHERE h.end_time < now() - %s::interval"
        " AND EXISTS (SELECT FROM pgtrickle.pgt_refresh_history n"
        " WHERE n.pgt_id = h.pgt_id AND n.refresh_id > h.refresh_id)",
        [retention],
    ).rowcount


def record_refresh(conn: Connection, pgt_id: int, outcome: RefreshOutcome) -> int:
    """Record a refresh that has ended and return its id.

    It runs from the start of the caller's transaction until now, both by the server's clock.
    """
    return int(fetch_scalar(conn, _RECORD, {"pgt_id": pgt_id, **parameters_of(outcome)}))


def list_history(conn: Connection, pgt_id: int, max_rows: int = 20) -> tuple[Refresh, ...]:
    """Return the last refreshes of one stream table, newest first."""
    query = sql.SQL(
        "SELECT {} FROM pgtrickle.pgt_refresh_history"
        " WHERE pgt_id = %s ORDER BY refresh_id DESC LIMIT %s"
    ).format(columns_of(Refresh))
    with cursor_of(conn, Refresh) as cursor:
        return tuple(cursor.execute(query, [pgt_id, max_rows]))


def error_class(error: BaseException) -> str:
    """Return who must act on `error`: user, schema (rebuild), system (try again) or internal."""
    match error:
        case UserError():
            return "user"
        case SourceChanged():
            return "schema"
        case Unavailable():
            return "system"
        case _:
            return "internal"


def error_code(error: BaseException) -> str | None:
    """Return the code of a headwater error or the SQLSTATE of a server error, else None."""
    if isinstance(error, HeadwaterError):
        return error.code
    return error.sqlstate if isinstance(error, psycopg.Error) else None


def _no_such_refresh(refresh_id: int) -> NotFound:
    return NotFound(
        f"the history has no refresh {refresh_id}",
        why="its stream table was dropped, or the transaction that started it rolled back",
        fix="start the refresh again",
    )
