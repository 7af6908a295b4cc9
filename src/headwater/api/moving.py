"""Moving stream tables to an epoch, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from headwater.spark.cycle import Cycle


@dataclass(frozen=True, slots=True)
class Moment:
    """What tables of one transaction move to, and what those on Spark share on the way."""

    epoch: Epoch
    settings: Settings
    cycle: Cycle | None


def move_all(conn: Connection[Any], pgt_ids: list[int]) -> list[RefreshResult]:
    """Refresh tables, upstream first, in the open transaction; its snapshot is the epoch.

    Returns what was done to each, in the order of the ids. In a transaction of the caller's others
    may have to move along.
    """
    together = settle(conn, pgt_ids) if is_inside(conn) else pgt_ids
    epoch, standings, settings = open_epoch(conn, together)
    with sharing(conn, standings, (epoch, settings)) as moment:
        moved = {s.table.pgt_id: move(conn, s, moment) for s in standings}
    if is_inside(conn):
        clean_read(conn, together)
    return [moved[pgt_id] for pgt_id in pgt_ids]


@contextmanager
def sharing(
    conn: Connection[Any], standings: Sequence[Standing], to: tuple[Epoch, Settings]
) -> Iterator[Moment]:
    """Let tables share what they compute alike, until the last of them has moved."""
    cycle = _open_cycle(conn, standings)
    try:
        yield Moment(*to, cycle)
    finally:
        if cycle is not None:
            cycle.close()


def _open_cycle(conn: Connection[Any], standings: Sequence[Standing]) -> Cycle | None:
    """One table has nobody to share with, and need not ask."""
    on_spark = [s for s in standings if s.table.effective_engine == "spark"]
    if len(on_spark) <= 1:
        return None
    get_lake(conn)  # where there is none, the packages need not be there either
    from headwater.spark.cycle import open_cycle  # noqa: PLC0415 - an optional package

    return open_cycle(conn, on_spark)


def move(
    conn: Connection[Any], standing: Standing, moment: Moment, running: int | None = None
) -> RefreshResult:
    """Refresh one table in the open transaction and record that it stands at the epoch.

    `running` is the history row in which others see that the refresh runs, if there is one.
    """
    outcome = compute(conn, standing, moment)
    return record(conn, standing.table, moment.epoch, outcome, running)


def start_spark(conn: Connection[Any]) -> None:
    """Start Spark unless it runs: that takes seconds, for which nothing should be locked."""
    lake = get_lake(conn)
    from headwater.spark.session import start_session  # noqa: PLC0415 - an optional package

    start_session(lake.spark)


def compute(conn: Connection[Any], standing: Standing, moment: Moment) -> Outcome:
    """Make one table's rows those of the epoch, on its engine."""
    if standing.table.effective_engine == "spark":
        get_lake(conn)  # where there is none, the packages need not be there either
        from headwater.spark import refresh as spark  # noqa: PLC0415 - an optional package

        to = moment.settings, moment.epoch
        return spark.refresh_table(conn, standing, *to, moment.cycle)
    return refresh_table(conn, standing, moment.settings, moment.epoch)


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
