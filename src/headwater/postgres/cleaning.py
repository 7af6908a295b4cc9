"""Removing buffer rows that every reader of a source has seen."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from headwater.catalog.model import Epoch, Tracking
from headwater.postgres.pending import unseen


def clean_buffer(conn: Connection[Any], source: Tracking, stands: tuple[Epoch, ...]) -> int:
    """Delete the rows that are seen at every one of the epochs; nothing if a reader has none yet.

    In READ COMMITTED, so that two cleaners wait for each other instead of failing.
    """
    tests = " AND ".join(f"NOT {unseen(epoch)}" for epoch in stands)
    if not stands:
        return 0
    statement = f"DELETE FROM {source.buffer_name} WHERE {tests}"
    return conn.execute(statement).rowcount  # type: ignore[call-overload, no-any-return]


def list_stands(conn: Connection[Any], source: Tracking) -> tuple[Epoch, ...] | None:
    """Return the epochs at which the readers of a source stand; None if one is not filled yet."""
    rows = conn.execute(
        "SELECT DISTINCT e.epoch, e.snapshot::text, e.xid::text, e.data_timestamp, st.pgt_id IS NULL"
        " FROM unnest(%s::int8[]) AS reader (pgt_id)"
        " LEFT JOIN pgtrickle.pgt_stream_tables st ON st.pgt_id = reader.pgt_id"
        " LEFT JOIN pgtrickle.pgt_epochs e ON e.epoch = st.epoch WHERE st.pgt_id IS NOT NULL",
        (list(source.tracked_by_pgt_ids),),
    ).fetchall()
    if any(row[0] is None for row in rows):
        return None
    return tuple(Epoch(*row[:4]) for row in rows)
