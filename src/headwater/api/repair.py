"""Noticing what was done to the sources: dropped, altered, triggers removed or disabled."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from headwater.api.alter import recompile
from headwater.catalog import streams, tracking
from headwater.catalog.model import StreamTable
from headwater.errors import SourceDropped
from headwater.postgres.capture import EVENTS, list_leaves, sync_capture, trigger_name


def repair_sources(conn: Connection[Any], st: StreamTable) -> None:
    """Find out whether the sources still are what the plan was made for.

    A dropped source is an error; a changed one is compiled again; broken capture is put back. In
    the last two cases the next refresh rebuilds the table.
    """
    drifted = _drifted(conn, st)
    if drifted:
        recompile(conn, st, f"{', '.join(drifted)} was altered")
    elif st.effective_mode != "FULL":
        _repair_capture(conn, st)


def _drifted(conn: Connection[Any], st: StreamTable) -> list[str]:
    rows = conn.execute(
        "SELECT d.source_name, c.oid IS NULL, d.fingerprint IS DISTINCT FROM"
        " pgtrickle.source_fingerprint(d.source_relid, d.columns_used)"
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
    relids = [d.source_relid for d in streams.list_dependencies(conn, st.pgt_id)]
    for source in tracking.list_tracking(conn, relids):
        leaves = list_leaves(conn, source.source_relid)
        carriers = (source.source_relid, *leaves)
        names = [trigger_name(source.source_relid, event) for event in EVENTS]
        row = conn.execute(
            "SELECT count(*) FROM pg_trigger WHERE tgrelid = ANY(%s::int8[]::oid[])"
            " AND tgname = ANY(%s) AND tgenabled = 'A'",
            (list(carriers), names),
        ).fetchone()
        is_whole = row is not None and row[0] == len(carriers) * len(names)
        if is_whole and set(leaves) == set(source.leaves):
            continue
        with conn.transaction():
            conn.execute(f"LOCK TABLE {source.source_name} IN SHARE ROW EXCLUSIVE MODE")
            sync_capture(conn, source.source_relid)
            why = (
                f"triggers on {source.source_name} or its partitions were missing or disabled"
                if set(leaves) == set(source.leaves)
                else f"{source.source_name} has other partitions or children than before"
            )
            for pgt_id in source.tracked_by_pgt_ids:
                streams.update_stream_table(conn, pgt_id, needs_reinit=True, reinit_reason=why)
