"""Every fixture goes through every step: the oracle holds, and only what changed is written.

`make test` refreshes most after every other step, `make generated` after every one. PostgreSQL 15
takes a share of the fixtures here, and all of them in `test_in_server`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

import headwater
from tests.battery.changes import STEPS, Step
from tests.battery.fixtures import GROUPS, VIEWS, Fixture, share
from tests.battery.oracle import (
    Connection,
    Places,
    columns_of,
    columns_of_query,
    find_difference,
    find_moved,
    places_of,
)
from tests.battery.schema import ROWS, SETUP, deep_views
from tests.scale import scaled
from tests.servers import Server

# Fixtures whose sources never change.
CONSTANT = frozenset({"constant"})
INCREMENTAL = ("DIFFERENTIAL", "NO_DATA")
SHARES = {18: 1, 15: 6}  # of the fixtures one of so many, by the version of the server
EVERY = 1 if scaled(1) > 1 else 2  # steps


@dataclass
class Run:
    """A group of fixtures in one database; a fixture that failed once is not looked at again."""

    hw: headwater.Headwater
    conn: Connection
    live: list[Fixture]
    mode: str = "DIFFERENTIAL"  # of those that run on Spark
    places: dict[str, Places] = field(default_factory=dict)
    followed: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    behind: set[str] = field(default_factory=set)  # what some step has left to be refreshed

    def create(self) -> None:
        for fixture in list(self.live):
            try:
                made = self.make(fixture)
            except (headwater.HeadwaterError, psycopg.Error) as error:
                self.fail(fixture, f"create: {type(error).__name__}: {error}")
                continue
            if made.effective_mode not in ("DIFFERENTIAL", self.mode):
                self.fail(fixture, f"create: effective mode {made.effective_mode}")
            elif columns_of(self.conn, fixture.table) != columns_of_query(self.conn, fixture.query):
                self.fail(fixture, f"create: columns {columns_of(self.conn, fixture.table)}")
            elif fault := self.look(fixture):
                self.fail(fixture, f"create: {fault}")

    def make(self, fixture: Fixture) -> headwater.Created:
        return self.hw.create_stream_table(
            fixture.table, fixture.query, refresh_mode=self.mode, engine="postgres"
        )

    def refresh(self, step: Step, number: int = 0, every: int = 1) -> None:
        """Refresh the fixtures whose turn it is: at a quiet step those that nothing waits for."""
        names = [fixture.name for fixture in self.live]
        if step.is_quiet:
            turn = set(names) - self.behind
        else:
            turn = set(names if step.rebuilds else names[number % every :: every])
            self.behind = set(names) - turn
        for fixture in [fixture for fixture in self.live if fixture.name in turn]:
            try:
                action = self.hw.refresh_stream_table(fixture.table).action
            except headwater.HeadwaterError as error:
                self.fail(fixture, f"{step.name}: {error}")
                continue
            self.followed |= {fixture.name} if action in ("DIFFERENTIAL", self.mode) else set()
            fault = self._wrong_action(fixture, step, action) or self.look(fixture)
            if fault:
                self.fail(fixture, f"{step.name}: {fault}")

    def _wrong_action(self, fixture: Fixture, step: Step, action: str) -> str | None:
        if step.is_quiet and action != "NO_DATA":
            return f"{action} although nothing changed"
        if any(self._reads(fixture, source) for source in step.rebuilds):
            return None
        expected = (*INCREMENTAL, self.mode)
        return None if action in expected else f"{action} instead of one of {expected}"

    def _reads(self, fixture: Fixture, source: str) -> bool:
        [(reads,)] = self.conn.execute(
            "WITH RECURSIVE up (name) AS (SELECT %s::text UNION SELECT g.source_name"
            " FROM up JOIN pgtrickle.st_graph() g ON g.pgt_name = up.name)"
            " SELECT %s IN (SELECT name FROM up)",
            [fixture.table, source],
        ).fetchall()
        return bool(reads)

    def look(self, fixture: Fixture) -> str | None:
        """Compare with the query, and tell whether a row moved that did not change."""
        fault = find_difference(self.conn, fixture.query, fixture.table)
        now = places_of(self.conn, fixture.table)
        moved = find_moved(self.places.get(fixture.name, {}), now)
        self.places[fixture.name] = now
        return fault or (f"written again without a change: {moved}" if moved else None)

    def fail(self, fixture: Fixture, why: str) -> None:
        self.failures.append(f"{fixture.name}: {why}")
        self.live.remove(fixture)


@pytest.fixture
def run(database: str, server: Server, group: str) -> Iterator[Run]:
    with (
        psycopg.connect(database, autocommit=True) as conn,
        headwater.connect(database) as hw,
    ):
        for text in (SETUP, deep_views(), ROWS):
            conn.execute(text.encode())
        yield Run(hw, conn, list(share(group, SHARES[server.version])))


@pytest.mark.generated  # so that `make generated` takes all of them
@pytest.mark.parametrize("group", GROUPS)
def test_fixtures_follow_every_step(run: Run, group: str) -> None:
    taken = {fixture.name for fixture in run.live}
    every = 1 if group == "chains" else EVERY  # whose readers refresh it when it is their turn
    run.create()
    for number, step in enumerate(STEPS):
        step.change(run.conn)
        run.refresh(step, number, every)
    for fixture in list(run.live):
        verified = run.hw.verify(fixture.table)
        if not verified.equal:
            run.fail(fixture, f"verify: {verified}")
    assert run.failures == []
    assert taken - CONSTANT <= run.followed


def test_battery_is_large_enough() -> None:
    fixtures = [fixture for group in GROUPS.values() for fixture in group]
    headers = re.findall(r"^-- \w+: ", "".join(map(Path.read_text, VIEWS.iterdir())), re.MULTILINE)
    assert len(fixtures) == len(headers) >= 400
    for group in GROUPS.values():
        assert len({fixture.name for fixture in group}) == len(group)
    assert all(fixture.tags for fixture in fixtures)
