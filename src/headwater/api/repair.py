"""Noticing what was done to the sources: dropped, altered, triggers removed or disabled."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from headwater.api.alter import recompile
from headwater.api.inside import refuse_frozen
from headwater.api.transactions import lock_tables
from headwater.catalog import streams, tracking
from headwater.catalog.alerts import send_alert
from headwater.catalog.model import StreamTable, Tracking
from headwater.errors import HeadwaterError, MissingRights, SourceDropped
from headwater.postgres.capture import find_gap, is_stale, sync_capture
from headwater.results import RefreshResult

_FOUND = """
SELECT (SELECT string_agg(d.source_name, ', ' ORDER BY d.source_name)
          FROM pgtrickle.pgt_dependencies d LEFT JOIN pg_class c ON c.oid = d.source_relid
         WHERE d.pgt_id = %(id)s AND c.oid IS NULL) AS gone,
       pgtrickle.forbidden_to(%(id)s) AS forbidden,
       pgtrickle.alteration_of(%(id)s) AS drift
"""


def repair_sources(conn: Connection[Any], st: StreamTable) -> RefreshResult | None:
    """Find out whether the sources still are what the plan was made for.

    A dropped source is an error, and so is one that may not be read. Over an altered
    one the query is compiled and computed again, and that is returned. Broken capture is put back,
    and the next refresh rebuilds the table.
    """
    [(gone, forbidden, drift)] = conn.execute(_FOUND, {"id": st.pgt_id}).fetchall()
    if gone:
        raise _recorded(conn, st, _dropped(st, gone))
    if forbidden:
        raise _recorded(conn, st, _forbidden(st, forbidden))
    if drift:
        return recompile(conn, st, st.reinit_reason or drift)
    if st.follows_changes:
        _repair_capture(conn, st)
    return None


def _recorded(conn: Connection[Any], st: StreamTable, fault: HeadwaterError) -> HeadwaterError:
    streams.update_stream_table(conn, st.pgt_id, status="ERROR", last_error=str(fault))
    return fault


def _dropped(st: StreamTable, gone: str) -> SourceDropped:
    return SourceDropped(
        f"{st.qualified_name} reads {gone}, which no longer exists",
        "it was dropped",
        "restore it and alter the stream table to its query, or drop the stream table",
    )


def _forbidden(st: StreamTable, forbidden: str) -> MissingRights:
    return MissingRights(
        f"the owner of {st.qualified_name} may no longer read {forbidden}",
        "writers maintain the table with the rights of its owner",
        "GRANT SELECT, and USAGE of the schema, to the owner again, then refresh the table",
    )


def _repair_capture(conn: Connection[Any], st: StreamTable) -> None:
    """Put missing triggers back: whoever reads that source is then rebuilt. Those for columns that
    only others read, and that were altered, are made anew."""
    relids = [d.source_relid for d in streams.list_dependencies(conn, st.pgt_id)]
    for source in tracking.list_tracking(conn, [*relids, st.pgt_relid]):
        gap = find_gap(conn, source)
        readers, lost = _find_lost(conn, source)
        if lost:
            why = f"changes of {lost} of {source.source_name} were not captured for a time"
            streams.mark_for_rebuild(conn, readers, why)
        if gap is not None or lost or is_stale(conn, source):
            _resync_capture(conn, source, gap)


def _find_lost(conn: Connection[Any], source: Tracking) -> tuple[list[int], str]:
    """Return the columns that are used and not captured, and by whom.

    Nobody could capture a column while it had another name.
    """
    [(readers, lost)] = conn.execute(
        "SELECT array_agg(DISTINCT d.pgt_id), string_agg(DISTINCT c.name, ', ' ORDER BY c.name)"
        "  FROM pgtrickle.pgt_dependencies d CROSS JOIN LATERAL unnest(d.columns_used) AS c (name)"
        "  JOIN pg_attribute a ON a.attrelid = d.source_relid AND a.attname = c.name"
        " WHERE d.source_relid = %s AND d.pgt_id = ANY (%s) AND c.name <> ALL (%s::text[])",
        [source.source_relid, list(source.tracked_by_pgt_ids), list(source.columns)],
    ).fetchall()
    return readers or [], lost or ""


def _resync_capture(conn: Connection[Any], source: Tracking, gap: str | None) -> None:
    refuse_frozen(conn)
    with conn.transaction():
        lock_tables(conn, [source.source_name])
        if gap is not None:
            send_alert(conn, "capture_broken", None, source=source.source_name, reason=gap)
        sync_capture(conn, source.source_relid)
