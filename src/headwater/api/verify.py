"""Verify: the stream table against its query, EXCEPT ALL both ways, at one moment."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from headwater.api.moving import move_all
from headwater.api.reconcile import reconcile
from headwater.api.repair import repair_sources
from headwater.api.sources import buffers_of, upstream
from headwater.api.transactions import lock_buffers, lock_tables, one_snapshot
from headwater.catalog import streams
from headwater.catalog.model import StreamTable
from headwater.catalog.settings import read_settings
from headwater.catalog.standing import load_standings
from headwater.postgres.quote import identifier, listed
from headwater.postgres.session import pin
from headwater.results import Verification
from headwater.sql.analyse import describe


def verify(conn: Connection[Any], name: str) -> Verification:
    """Compare a stream table with its query in one snapshot.

    What its sources have changed since its epoch is applied first, in a savepoint that is rolled
    back: so the proof covers the stored rows and the changes that wait, and nothing moves. A FULL
    table is compared as it stands, since a refresh would replace what is to be proved.
    """
    reconcile(conn)
    st = streams.get_stream_table(conn, name)
    tables = upstream(conn, st)
    for table in tables:
        repair_sources(conn, table)
    buffers = buffers_of(conn, tables)
    with one_snapshot(conn):
        lock_tables(conn, [t.qualified_name for t in tables])
        lock_buffers(conn, buffers)
        with conn.transaction(force_rollback=True):
            standings = load_standings(conn, [t.pgt_id for t in tables])
            if st.effective_mode != "FULL":
                move_all(conn, [t.pgt_id for t in tables])
            pin(conn, standings[-1], read_settings(conn))
            missing, extra, rows = _compare(conn, st)
    return Verification(
        st.qualified_name, not missing and not extra, missing, extra, rows, st.epoch
    )


def _compare(conn: Connection[Any], st: StreamTable) -> tuple[int, int, int]:
    """Rows of the query that the table lacks, rows it has too many, and rows it has."""
    columns = describe(conn, f"SELECT * FROM {st.qualified_name}")
    shown = listed(
        identifier(c.name) if c.type.equality else f"({identifier(c.name)})::text" for c in columns
    )
    query = f"SELECT {shown} FROM ({st.canonical_query}) AS q"
    table = f"SELECT {shown} FROM {st.qualified_name}"
    row = conn.execute(
        f"SELECT (SELECT count(*) FROM ({query} EXCEPT ALL {table}) AS missing),"
        f" (SELECT count(*) FROM ({table} EXCEPT ALL {query}) AS extra),"
        f" (SELECT count(*) FROM {st.qualified_name})"
    ).fetchone()
    assert row is not None
    return row[0], row[1], row[2]
