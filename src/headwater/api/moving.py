"""Moving stream tables to an epoch, inside the caller's transaction."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from headwater.api.inside import clean_read, settle
from headwater.catalog import history
from headwater.catalog.history import RefreshOutcome
from headwater.catalog.model import Epoch, StreamTable
from headwater.catalog.rows import is_inside
from headwater.catalog.settings import Settings
from headwater.catalog.standing import Standing, open_epoch
from headwater.postgres.refresh import Outcome, refresh_table
from headwater.results import RefreshResult
from headwater.spark.lake import get_lake


def move_all(conn: Connection[Any], pgt_ids: list[int]) -> list[RefreshResult]:
    """Refresh tables, upstream first, in the open transaction; its snapshot is the epoch.

    Returns what was done to each, in the order of the ids. In a transaction of the caller's others
    may have to move along.
    """
    together = settle(conn, pgt_ids) if is_inside(conn) else pgt_ids
    epoch, standings, settings = open_epoch(conn, together)
    moved = {s.table.pgt_id: move(conn, s, epoch, settings) for s in standings}
    if is_inside(conn):
        clean_read(conn, together)
    return [moved[pgt_id] for pgt_id in pgt_ids]


def move(
    conn: Connection[Any],
    standing: Standing,
    epoch: Epoch,
    settings: Settings,
    running: int | None = None,
) -> RefreshResult:
    """Refresh one table in the open transaction and record that it stands at `epoch`.

    `running` is the history row in which others see that the refresh runs, if there is one.
    """
    outcome = compute(conn, standing, epoch, settings)
    return record(conn, standing.table, epoch, outcome, running)


def start_spark(conn: Connection[Any]) -> None:
    """Start Spark unless it runs: that takes seconds, for which nothing should be locked."""
    lake = get_lake(conn)
    from headwater.spark.session import start_session  # noqa: PLC0415 - an optional package

    start_session(lake.spark)


def compute(conn: Connection[Any], standing: Standing, epoch: Epoch, settings: Settings) -> Outcome:
    """Make one table's rows those of `epoch`, on its engine."""
    if standing.table.effective_engine == "spark":
        get_lake(conn)  # where there is none, the packages need not be there either
        from headwater.spark import refresh as spark  # noqa: PLC0415 - an optional package

        return spark.refresh_table(conn, standing, settings, epoch)
    return refresh_table(conn, standing, settings, epoch)


def record(
    conn: Connection[Any], st: StreamTable, epoch: Epoch, outcome: Outcome, running: int | None
) -> RefreshResult:
    """Record that a table stands at `epoch`, and what it took."""
    counts = outcome.counts
    history.record_move(conn, st.pgt_id, epoch, _history(st, epoch, outcome), running)
    return RefreshResult(
        st.qualified_name,
        outcome.action,
        counts["inserted"],
        counts["updated"],
        counts["deleted"],
        counts["delta_rows"],
        epoch.epoch,
        epoch.data_timestamp,
        dict(outcome.timings),
        outcome.reason,
    )


def _history(st: StreamTable, epoch: Epoch, outcome: Outcome) -> RefreshOutcome:
    counts = outcome.counts
    return RefreshOutcome(
        action=outcome.action,
        data_timestamp=epoch.data_timestamp,
        rows_inserted=counts["inserted"],
        rows_updated=counts["updated"],
        rows_deleted=counts["deleted"],
        delta_rows=counts["delta_rows"],
        epoch=epoch.epoch,
        engine=st.effective_engine,
        reason=outcome.reason,
        timings=outcome.timings,
    )
