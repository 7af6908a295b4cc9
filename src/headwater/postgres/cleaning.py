"""Removing buffer rows that every reader of a source has seen."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from headwater.catalog.model import Tracking


def clean_at_once(conn: Connection[Any], source: Tracking) -> None:
    """Delete all that this transaction sees: all readers of the source moved in it.

    Nobody else deletes then, so REPEATABLE READ finds no conflict.
    """
    conn.execute(f"DELETE FROM {source.buffer_name}")


def clean_seen(conn: Connection[Any], source: Tracking) -> None:
    """Delete what the slowest reader has seen; nothing while a reader was never filled.

    In READ COMMITTED, after the refresh: two cleaners wait for each other instead of failing, and
    a crash before this only leaves the rows for the next time.
    """
    rows = conn.execute(
        "SELECT DISTINCT e.snapshot::text, e.xid::text FROM pgtrickle.pgt_stream_tables st"
        " LEFT JOIN pgtrickle.pgt_epochs e ON e.epoch = st.epoch"
        " WHERE st.pgt_id = ANY(%s)",
        (list(source.tracked_by_pgt_ids),),
    ).fetchall()
    if not rows or any(snapshot is None for snapshot, _ in rows):
        return
    seen = " AND ".join(
        f"(pg_visible_in_snapshot(__xid, '{snapshot}'::pg_snapshot) OR __xid = '{xid}'::xid8)"
        for snapshot, xid in rows
    )
    conn.execute(f"DELETE FROM {source.buffer_name} WHERE {seen}")
