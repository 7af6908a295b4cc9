"""The battery on Spark: every fixture that Spark takes, through every step, a few steps at a time.

A refresh on Spark takes long beside one on PostgreSQL, so the steps come in a few batches, and
`make test` takes a part of the fixtures, fewer in FULL, which shares all but the statement with
DIFFERENTIAL; `make generated` takes all in both modes, in smaller batches. Each fixture that Spark
refuses is named with the reason, whether it is in the part or not; those of chains run on
PostgreSQL, since others read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.errors import UnsupportedQuery
from tests.battery.changes import STEPS, Step
from tests.battery.fixtures import GROUPS, Fixture
from tests.battery.schema import ROWS, SETUP, deep_views
from tests.battery.test_battery import CONSTANT, Run
from tests.integration.spark.conftest import OPTIONS
from tests.integration.spark.refusals import REFUSALS
from tests.scale import scaled
from tests.servers import Server

IS_WHOLE = scaled(1) > 1
BATCH = 14 if IS_WHOLE else 21  # steps
# `make test` takes every so-many-th fixture, from one on.
PARTS = {"DIFFERENTIAL": slice(0, None, 5), "FULL": slice(2, None, 15)}
# Their changes read the sources thirty times and more, and take Spark as many seconds.
HEAVY = frozenset({
    *("using_full_chain", "chained_left", "mixed_outer", "whole_row_padded"),
    *("chained_left_minmax", "lateral_left", "exists_value"),
})  # fmt: skip
# Of those taken, what takes as long for other reasons.
SLOW = frozenset({"exists_first", "scalar_limit", "not_under_or"})


def sample(group: str, mode: str) -> list[Fixture]:
    """Return the fixtures of a group to run; those of a chain read each other."""
    if group == "chains" or IS_WHOLE:
        return list(GROUPS[group])
    taken = [f for f in GROUPS[group] if f.name not in HEAVY and f.name not in REFUSALS[group]]
    return [f for f in taken[PARTS[mode]] if f.name not in SLOW]


class SparkRun(Run):
    """Creates on Spark what Spark takes."""

    refused: dict[str, str]

    def make(self, fixture: Fixture) -> headwater.Created:
        try:
            return self.hw.create_stream_table(
                fixture.table, fixture.query, refresh_mode=self.mode, engine="spark"
            )
        except UnsupportedQuery as refusal:
            self.refused[fixture.name] = refusal.what.partition(": ")[2]
        return super().make(fixture)


@pytest.fixture
def database(pg18: Server) -> Iterator[str]:
    made = pg18.create_database()
    with psycopg.connect(made, autocommit=True) as conn:
        for text in (SETUP, deep_views(), ROWS):
            conn.execute(text.encode())
    yield made
    pg18.drop_database(made)


@pytest.fixture
def run(
    database: str, group: str, mode: str, tmp_path: Path, spark: SparkSession
) -> Iterator[SparkRun]:
    with (
        psycopg.connect(database, autocommit=True) as conn,
        headwater.connect(
            database,
            lake=str(tmp_path / "lake"),
            spark_master=OPTIONS.master,
            spark_options=dict(OPTIONS.options),
        ) as hw,
    ):
        made = SparkRun(hw, conn, sample(group, mode), mode)
        made.refused = {}
        yield made


def test_what_spark_cannot_do_exactly_is_refused(database: str, tmp_path: Path) -> None:
    """No virtual machine is started for that. What a chain refuses it tells itself."""
    found: dict[str, dict[str, str]] = {"chains": REFUSALS["chains"]}
    with headwater.connect(database, lake=str(tmp_path / "lake")) as hw:
        for group in GROUPS.keys() - {"chains"}:
            refused = [f for f in GROUPS[group] if f.name in REFUSALS[group]]
            found[group] = {fixture.name: refusal(hw, fixture) for fixture in refused}
    assert found == REFUSALS


def refusal(hw: headwater.Headwater, fixture: Fixture) -> str:
    """Return why a fixture is refused."""
    with pytest.raises(UnsupportedQuery) as refused:
        hw.create_stream_table(fixture.table, fixture.query, engine="spark")
    return refused.value.what.partition(": ")[2]


@pytest.mark.generated  # so that `make generated` runs it, too
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", PARTS)
@pytest.mark.parametrize("group", GROUPS)
def test_fixtures_follow_every_step(run: SparkRun, group: str, mode: str) -> None:
    run.create()
    names = {fixture.name for fixture in sample(group, mode)}
    assert run.refused == {n: why for n, why in REFUSALS[group].items() if n in names}
    for at in range(0, len(STEPS), BATCH):
        batch = STEPS[at : at + BATCH]
        for step in batch:
            step.change(run.conn)
        run.refresh(merged(batch))
    assert run.failures == []
    assert names - CONSTANT <= run.followed


def merged(steps: tuple[Step, ...]) -> Step:
    """Return several steps as one."""
    rebuilds = frozenset[str]().union(*(step.rebuilds for step in steps))
    named = " + ".join(step.name for step in steps)
    return replace(steps[0], name=named, is_quiet=False, rebuilds=rebuilds)
