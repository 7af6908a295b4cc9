"""Restore: a catalog that came out of a dump, or with a copy of its database, in its new home."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import Connection

from headwater.api.inside import refuse_frozen
from headwater.api.reconcile import reconcile
from headwater.api.repair import repair_sources
from headwater.api.sources import lockable, upstream
from headwater.api.transactions import lock_tables
from headwater.catalog import streams
from headwater.catalog.install import is_at_home
from headwater.catalog.model import StreamTable, follows_writers
from headwater.errors import HeadwaterError
from headwater.postgres.capture import sync_capture
from headwater.results import Restored

WHY = "the catalog came from another database, by a dump or a copy"
_GONE = "it was not restored, or under another name; the catalog has forgotten it"
# Of a table in the lake only there is nothing here: neither rows nor copies of its sources.
_IN_LAKE = "its result is in the lake of the other database only: drop it and create it again"


def restore_stream_tables(conn: Connection[Any]) -> tuple[Restored, ...]:
    """Find everything by its name, put triggers back, and mark what must be computed anew.

    Tables that writers maintain are computed here and now: without that nothing could follow their
    sources. One table's failure is not another's. Where the catalog is at home nothing is done.
    """
    if is_at_home(conn):
        return ()
    refuse_frozen(conn)
    with conn.transaction():
        gone = conn.execute("SELECT * FROM pgtrickle.adopt_catalog(%s)", [WHY]).fetchall()
        _capture_again(conn)
    reconcile(conn)
    found = [_restored(conn, st) for st in streams.list_stream_tables(conn)]
    return (*found, *(Restored(name, "gone", _GONE) for (name,) in gone))


def _capture_again(conn: Connection[Any]) -> None:
    """Put back what captures changes; a table that is kept in the lake is a source of its own."""
    relids = {d.source_relid for d in streams.list_all_dependencies(conn)}
    relids |= {st.pgt_relid for st in streams.list_stream_tables(conn)}
    lock_tables(conn, lockable(conn, relids))
    for relid in sorted(relids):
        sync_capture(conn, relid)


def _restored(conn: Connection[Any], st: StreamTable) -> Restored:
    missing = ", ".join(_missing_sources(conn, st))
    if missing:
        return Restored(st.qualified_name, "failed", f"it reads {missing}, which is not here")
    if not st.publish:
        return Restored(st.qualified_name, "failed", _IN_LAKE)
    is_stopped = follows_writers(st.effective_mode) and st.status == "ERROR"
    if not (is_stopped and st.is_populated):
        return Restored(st.qualified_name, "marked", "its next refresh computes it anew")
    try:
        for table in upstream(conn, st):
            repair_sources(conn, streams.get_by_id(conn, table.pgt_id))
    except (psycopg.Error, HeadwaterError) as error:
        return Restored(st.qualified_name, "failed", str(error))
    return Restored(st.qualified_name, "rebuilt", "it follows its sources again")


def _missing_sources(conn: Connection[Any], st: StreamTable) -> Iterator[str]:
    rows = conn.execute(
        "SELECT d.source_name FROM pgtrickle.pgt_dependencies d WHERE d.pgt_id = %s"
        " AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = d.source_relid) ORDER BY 1",
        (st.pgt_id,),
    )
    return (name for (name,) in rows)
