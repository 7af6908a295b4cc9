"""Verify: the stream table against its query, EXCEPT ALL both ways, at one moment."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from headwater.api.moving import move_all
from headwater.api.reconcile import reconcile
from headwater.api.repair import repair_sources
from headwater.api.sources import buffers_of, movable, upstream
from headwater.api.transactions import lock_buffers, lock_tables, one_snapshot
from headwater.catalog import streams, traces
from headwater.catalog.model import StreamTable, TraceRow
from headwater.catalog.settings import read_settings
from headwater.catalog.standing import load_standings
from headwater.postgres.quote import WEIGHT, identifier, listed
from headwater.postgres.render import Renderer
from headwater.postgres.session import pin
from headwater.postgres.storage import load_plan
from headwater.results import Verification
from headwater.spark.lake import get_lake
from headwater.sql.analyse import describe
from headwater.sql.clock import NOW


def verify(conn: Connection[Any], name: str) -> Verification:
    """Compare a stream table with its query in one snapshot.

    What its sources have changed since its epoch is applied first, in a savepoint that is rolled
    back: so the proof covers the stored rows and the changes that wait, and nothing moves. A FULL
    table is compared as it stands, since a refresh would replace what is to be proved.
    """
    reconcile(conn)
    st = streams.get_stream_table(conn, name)
    tables = movable(upstream(conn, st), st)
    for table in tables:
        repair_sources(conn, table)
    buffers = buffers_of(conn, tables)
    with one_snapshot(conn):
        lock_tables(conn, [t.qualified_name for t in tables])
        lock_buffers(conn, buffers)
        with conn.transaction(force_rollback=True):
            standings = load_standings(conn, [t.pgt_id for t in tables])
            if st.effective_mode == "DIFFERENTIAL":
                move_all(conn, [t.pgt_id for t in tables])
            copies = traces.list_traces(conn, st.pgt_id)
            clock = streams.get_by_id(conn, st.pgt_id).data_timestamp
            now = {NOW: clock.isoformat()} if clock is not None else {}
            pin(conn, standings[-1], read_settings(conn), **now)
            if st.publish:
                missing, extra, rows = _compare(conn, st)
            else:
                [own] = [t for t in copies if t.source_relid == st.pgt_relid]
                missing, extra, rows = _compare_lake(conn, st, own)
    return Verification(
        st.qualified_name, not missing and not extra, missing, extra, rows, st.epoch
    )


def _compare(conn: Connection[Any], st: StreamTable) -> tuple[int, int, int]:
    """Rows of the query that the table lacks, rows it has too many, and rows it has."""
    shown = _shown(conn, st)
    plan, _ = load_plan(st)
    wanted = str(st.canonical_query)
    if plan is not None and plan.is_chosen:
        wanted = Renderer().render(plan.view).sql
    query = f"SELECT {shown} FROM ({wanted}) AS q"
    table = f"SELECT {shown} FROM {st.qualified_name}"
    return _counted(conn, query, table, f"SELECT count(*) FROM {st.qualified_name}")


def _compare_lake(conn: Connection[Any], st: StreamTable, own: TraceRow) -> tuple[int, int, int]:
    """The same for a result that is in the lake only, copied here for the comparison.

    It holds what came and what went: query and what went must be what came.
    """
    from headwater.spark.unpublished import land_result  # noqa: PLC0415 - an optional package

    landed = land_result(conn, get_lake(conn), own, load_plan(st)[1].columns)
    shown = _shown(conn, st)
    copies = f"SELECT {shown} FROM {landed} CROSS JOIN LATERAL generate_series(1,"
    query = f"SELECT {shown} FROM ({st.canonical_query}) AS q UNION ALL {copies} -{WEIGHT}) AS c"
    total = f"SELECT coalesce(sum({WEIGHT}), 0) FROM {landed}"
    return _counted(conn, f"({query})", f"({copies} {WEIGHT}) AS c)", total)


def _shown(conn: Connection[Any], st: StreamTable) -> str:
    """The columns, as text where values cannot be compared."""
    own = listed(identifier(c.name) for c in load_plan(st)[1].columns)
    columns = describe(conn, f"SELECT {own} FROM {st.qualified_name}")
    return listed(
        identifier(c.name) if c.type.equality else f"({identifier(c.name)})::text" for c in columns
    )


def _counted(conn: Connection[Any], wanted: str, found: str, total: str) -> tuple[int, int, int]:
    row = conn.execute(
        f"SELECT (SELECT count(*) FROM ({wanted} EXCEPT ALL {found}) AS m) AS missing,"
        f" (SELECT count(*) FROM ({found} EXCEPT ALL {wanted}) AS e) AS extra, ({total}) AS total"
    ).fetchone()
    assert row is not None
    return row[0], row[1], int(row[2])
