"""What it would cost a stream table on Spark to compute everything anew, its change included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from psycopg import Connection

from headwater.algebra.ops import After, Aggregate, Scan
from headwater.catalog import epochs, streams, traces
from headwater.catalog.settings import read_settings
from headwater.catalog.standing import load_standings
from headwater.errors import bug
from headwater.postgres.maintenance import is_additive, plan_maintenance
from headwater.postgres.refresh import Outcome, Stopwatch
from headwater.spark import ingest
from headwater.spark.compute import Compute
from headwater.spark.lake import get_lake
from headwater.spark.place import Placed
from headwater.spark.plans import load_placed
from headwater.spark.refresh import refresh_table
from headwater.spark.wires import NotOnSpark, wires


def recompute_in_vain(conn: Connection[Any], name: str) -> Outcome:
    """Ingest the pending change, recompute on Spark and write the difference; then roll back.

    What this leaves in the traces, the next refresh cuts off.
    """
    with conn.transaction(force_rollback=True):
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        epoch = epochs.record_epoch(conn)
        st = streams.get_stream_table(conn, name)
        standing = load_standings(conn, [st.pgt_id])[0]
        full = replace(standing, table=replace(standing.table, effective_mode="FULL"))
        watch = Stopwatch()
        with watch.step("total"):
            outcome = refresh_table(conn, full, read_settings(conn), epoch)
    if outcome.action != "FULL":
        raise bug(f"{name}: {outcome.action} ran instead of FULL", str(outcome.reason))
    return replace(outcome, timings={**outcome.timings, **watch.timings})


def recompute_on_spark(conn: Connection[Any], name: str) -> dict[str, float]:
    """Run the statement for the whole state on the traces as they stand; return the time of it.

    Nothing is ingested, and nothing published: the rows are written to files, and read again.
    """
    st = streams.get_stream_table(conn, name)
    placed = load_placed(st)
    found = {
        row.source_relid: ingest.Standing(row.url, ingest.columns_of(row), row.version, row)
        for row in traces.list_traces(conn, st.pgt_id)
    }
    assert st.epoch is not None
    compute = Compute(get_lake(conn), found, placed.boundary, (st.epoch, st.epoch))
    watch, state = Stopwatch(), After(placed.boundary)
    with watch.step("spark"):
        summed = _summed(placed)
        statement = compute.grouped(summed, state) if summed else compute.consolidated(state)
        rows = sum(batch.num_rows for batch in compute.stream(statement))
    return {**watch.timings, "rows": rows, "spark_jobs": compute.jobs}


def _summed(placed: Placed) -> Aggregate | None:
    """The root over the boundary, if Spark sums it; as a refresh decides."""
    root = plan_maintenance(placed.rest).root
    if root is None or not is_additive(root) or not isinstance(root.input, Scan):
        return None
    aggregate = replace(root, input=placed.boundary)
    try:
        wires(aggregate)
    except NotOnSpark:
        return None
    return aggregate
