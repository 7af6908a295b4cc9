"""Fixtures in COMMIT mode: the oracle holds after every transaction, and rows are written once."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import headwater
from tests.battery.changes import STEPS, Step
from tests.battery.fixtures import GROUPS, share
from tests.battery.schema import ROWS, SETUP, deep_views
from tests.battery.test_battery import CONSTANT, Run
from tests.battery.test_immediate import EMPTY

ALONE = frozenset({"a writer with a frozen snapshot"})
EACH = 6  # of the fixtures that do not read each other one of so many in `make test`


@pytest.fixture
def run(database: str, group: str) -> Iterator[Run]:
    with psycopg.connect(database, autocommit=True) as conn, headwater.connect(database) as hw:
        for text in (SETUP, deep_views(), ROWS):
            conn.execute(text.encode())
        hw.connection.execute("SET pg_trickle.commit_recompute = on")
        yield Run(hw, conn, list(share(group, EACH)), "COMMIT")


@pytest.mark.generated
@pytest.mark.timeout(300)
@pytest.mark.parametrize("group", GROUPS)
def test_fixtures_follow_every_transaction(run: Run, group: str) -> None:
    run.create()
    moved = set[str]()
    for step in STEPS:
        change(run, step)
        for fixture in list(run.live):
            before = run.places.get(fixture.name)
            fault = run.look(fixture)
            moved |= {fixture.name} if run.places[fixture.name] != before else set()
            if fault:
                run.fail(fixture, f"{step.name}: {fault}")
    for fixture in list(run.live):
        verified = run.hw.verify(fixture.table)
        if not verified.equal:
            run.fail(fixture, f"verify: {verified}")
    assert run.failures == []
    assert {f.name for f in share(group, EACH)} - CONSTANT - EMPTY <= moved


def change(run: Run, step: Step) -> None:
    """Make one transaction of a step, unless it is about transactions itself."""
    if step.name in ALONE:
        step.change(run.conn)
        return
    with run.conn.transaction():
        step.change(run.conn)
