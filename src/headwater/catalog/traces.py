"""Records which copies of the sources the lake holds, and up to which epoch."""

from __future__ import annotations

from psycopg import sql
from psycopg.types.json import Jsonb

from headwater.catalog.model import Epoch, Json, TraceRow
from headwater.catalog.rows import Connection, columns_of, cursor_of

_SELECT = sql.SQL("SELECT {} FROM pgtrickle.pgt_traces ").format(columns_of(TraceRow))


def list_traces(conn: Connection, pgt_id: int) -> tuple[TraceRow, ...]:
    """Return the traces that a stream table reads."""
    with cursor_of(conn, TraceRow) as cursor:
        return tuple(cursor.execute(_SELECT + sql.SQL("WHERE pgt_id = %s ORDER BY 1"), [pgt_id]))


def record_trace(
    conn: Connection, owner: tuple[int, int], where: tuple[str, Json], at: tuple[int, Epoch]
) -> None:
    """Record a new trace of (stream table, source) in place of the one that it had.

    `where` is its URL and its columns, `at` the version that holds everything up to the epoch.
    """
    detach(conn, *owner)
    conn.execute(
        "INSERT INTO pgtrickle.pgt_traces (pgt_id, source_relid, url, columns, version, epoch)"
        " VALUES (%s, %s::oid, %s, %s, %s, %s)",
        [*owner, where[0], Jsonb(where[1]), at[0], at[1].epoch],
    )


def record_version(conn: Connection, trace_id: int, version: int, epoch: Epoch) -> None:
    """Record that a trace holds everything up to `epoch` in this version."""
    conn.execute(
        "UPDATE pgtrickle.pgt_traces SET version = %s, epoch = %s WHERE trace_id = %s",
        [version, epoch.epoch, trace_id],
    )


def detach(conn: Connection, pgt_id: int, source_relid: int | None = None) -> None:
    """Record that a stream table reads no trace any more, or none of one source."""
    conn.execute(
        "UPDATE pgtrickle.pgt_traces SET pgt_id = NULL WHERE pgt_id = %(pgt_id)s"
        " AND source_relid = coalesce(%(relid)s::oid, source_relid)",
        {"pgt_id": pgt_id, "relid": source_relid},
    )


def list_unread(conn: Connection) -> tuple[TraceRow, ...]:
    """Return the traces that nobody reads."""
    with cursor_of(conn, TraceRow) as cursor:
        return tuple(cursor.execute(_SELECT + sql.SQL("WHERE pgt_id IS NULL")))


def drop_trace(conn: Connection, trace_id: int) -> None:
    """Forget a trace that nobody reads and whose files are gone."""
    conn.execute(
        "DELETE FROM pgtrickle.pgt_traces WHERE trace_id = %s AND pgt_id IS NULL", [trace_id]
    )
