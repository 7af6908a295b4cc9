"""Noticing what was done to stream tables by hand: dropped, renamed, moved."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from headwater.catalog import streams, traces, tracking, tviews
from headwater.catalog.install import require_home
from headwater.catalog.model import StreamTable
from headwater.postgres import immediate
from headwater.postgres.capture import sync_capture
from headwater.postgres.storage import drop_storage
from headwater.spark.lake import find_lake

_STRAYS = """
SELECT st.pgt_id, c.oid IS NULL, n.nspname, c.relname FROM pgtrickle.pgt_stream_tables st
  LEFT JOIN pg_class c ON c.oid = st.pgt_relid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid IS NULL OR c.relname <> st.pgt_name OR n.nspname <> st.pgt_schema
"""


def reconcile(conn: Connection[Any]) -> tuple[str, ...]:
    """Follow stream tables that were renamed, and clean up after those that were dropped.

    Returns the names of those that are gone. In a copy of another database all of them would be.
    """
    require_home(conn)
    gone = []
    for pgt_id, is_gone, schema, name in list_strays(conn):
        with conn.transaction():
            st = streams.get_by_id(conn, pgt_id)
            if is_gone:
                forget(conn, st)
                gone.append(st.qualified_name)
            else:
                named = {"pgt_schema": schema, "pgt_name": name}
                streams.update_stream_table(conn, pgt_id, **named, **_behind(st))
    return tuple(gone)


def list_strays(conn: Connection[Any]) -> list[tuple[int, bool, str | None, str | None]]:
    """Return the ids of those, whether each is gone, and the schema and name that it has now."""
    return conn.execute(_STRAYS).fetchall()


def _behind(st: StreamTable) -> dict[str, object]:
    """Functions of a table that writers move have its old name: it follows after a refresh."""
    if not st.follows_writers or st.status != "ACTIVE":
        return {}
    why = "it was renamed, and its triggers still have the old name: refresh it"
    return {"status": "ERROR", "last_error": why, "needs_reinit": True, "reinit_reason": why}


def sweep(conn: Connection[Any]) -> None:
    """Delete from the lake what no stream table reads any more; without a lake, later."""
    lake = find_lake(conn)
    if lake is None or not traces.list_unread(conn):
        return
    from headwater.spark import ingest  # noqa: PLC0415 - an optional package

    ingest.sweep(conn, lake)


def forget(conn: Connection[Any], st: StreamTable) -> None:
    """Remove a stream table, its state, its catalog rows and captures that nobody else needs."""
    sources = streams.list_dependencies(conn, st.pgt_id)
    immediate.remove(conn, st.pgt_id)
    drop_storage(conn, st)
    tviews.drop_view(conn, st.pgt_id)
    streams.drop_stream_table_rows(conn, st.pgt_id)
    relids = [source.source_relid for source in sources]
    for known in tracking.list_tracking(conn, [*relids, st.pgt_relid]):
        sync_capture(conn, known.source_relid)
