"""Drop: refused while other stream tables read this one, unless they go too."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from headwater.api.immediate import lock_sources
from headwater.api.reconcile import forget, reconcile
from headwater.api.sources import lockable, reads
from headwater.api.transactions import lock_tables
from headwater.catalog import streams
from headwater.catalog.model import StreamTable
from headwater.catalog.tracking import list_tracking
from headwater.errors import DependentsExist
from headwater.graph import closure, inverted


def drop_stream_table(
    conn: Connection[Any], name: str, *, cascade: bool = False
) -> tuple[str, ...]:
    """Drop a stream table and, with cascade, those that read it; return their names."""
    reconcile(conn)
    st = streams.get_stream_table(conn, name)
    with conn.transaction():
        of = {table.pgt_relid: table for table in streams.list_stream_tables(conn)}
        doomed = [of[relid] for relid in closure(st.pgt_relid, inverted(reads(conn)))]
        if len(doomed) > 1 and not cascade:
            raise _dependents(st, doomed)
        for table in reversed(doomed):
            lock_sources(conn, table)
        _lock(conn, doomed)
        for table in doomed:
            forget(conn, table)
    return tuple(table.qualified_name for table in doomed)


def _lock(conn: Connection[Any], doomed: list[StreamTable]) -> None:
    """Lock what is dropped and the captured sources of it, in the order in which create does:
    whether anybody else reads a source is decided when nobody can join."""
    ids = {t.pgt_id for t in doomed}
    captured = {t.source_relid for t in list_tracking(conn) if ids & set(t.tracked_by_pgt_ids)}
    lock_tables(conn, lockable(conn, {t.pgt_relid for t in doomed} | captured))


def _dependents(st: StreamTable, doomed: list[StreamTable]) -> DependentsExist:
    names = ", ".join(t.qualified_name for t in doomed if t.pgt_id != st.pgt_id)
    return DependentsExist(
        f"{st.qualified_name} cannot be dropped: {names} would lose a source",
        "other stream tables read it",
        "drop those first, or drop with cascade => true",
    )
