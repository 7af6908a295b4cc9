"""Noticing what was done to the sources: dropped, altered, triggers removed or disabled."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from headwater.api.alter import recompile
from headwater.api.inside import refuse_frozen
from headwater.api.transactions import lock_tables
from headwater.catalog import streams, tracking
from headwater.catalog.model import StreamTable
from headwater.errors import SourceDropped
from headwater.postgres.capture import find_gap, sync_capture


def repair_sources(conn: Connection[Any], st: StreamTable) -> None:
    """Find out whether the sources still are what the plan was made for.

    A dropped source is an error; a changed one is compiled again; broken capture is put back. In
    the last two cases the next refresh rebuilds the table.
    """
    drifted = _drifted(conn, st)
    if drifted:
        recompile(conn, st, f"{', '.join(drifted)} was altered")
    elif st.follows_changes:
        _repair_capture(conn, st)


def _drifted(conn: Connection[Any], st: StreamTable) -> list[str]:
    rows = conn.execute(
        "SELECT d.source_name, c.oid IS NULL AS is_gone, d.fingerprint IS DISTINCT FROM"
        " pgtrickle.source_fingerprint(d.source_relid, d.columns_used) AS is_other"
        " FROM pgtrickle.pgt_dependencies d LEFT JOIN pg_class c ON c.oid = d.source_relid"
        " WHERE d.pgt_id = %s ORDER BY 1",
        (st.pgt_id,),
    ).fetchall()
    gone = [name for name, is_gone, _ in rows if is_gone]
    if gone:
        fault = SourceDropped(
            f"{st.qualified_name} reads {', '.join(gone)}, which no longer exists",
            "it was dropped",
            "restore it and alter the stream table to its query, or drop the stream table",
        )
        streams.update_stream_table(conn, st.pgt_id, status="ERROR", last_error=str(fault))
        raise fault
    return [name for name, _, changed in rows if changed]


def _repair_capture(conn: Connection[Any], st: StreamTable) -> None:
    """Put missing triggers back; whoever reads that source is then rebuilt."""
    relids = [d.source_relid for d in streams.list_dependencies(conn, st.pgt_id)]
    for source in tracking.list_tracking(conn, [*relids, st.pgt_relid]):
        if find_gap(conn, source) is None:
            continue
        refuse_frozen(conn)
        with conn.transaction():
            lock_tables(conn, [source.source_name])
            sync_capture(conn, source.source_relid)
