"""Every fixture in IMMEDIATE mode: the oracle holds after every statement, before its commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

import headwater
from tests.battery.changes import STEPS
from tests.battery.fixtures import GROUPS, Fixture, share
from tests.battery.oracle import difference_test, find_difference, find_moved, places_of
from tests.battery.schema import ROWS, SETUP, deep_views
from tests.battery.test_battery import CONSTANT, SHARES, Run
from tests.servers import Server

STEP = "step: "  # more than one statement, perhaps
# What never has a row that could be seen to come.
EMPTY = frozenset({"filter_false", "except_of_same", "no_ties_of_no_row"})


class Watched(psycopg.Connection[Any]):
    """A connection that runs statements one by one, and looks around after each."""

    look: Callable[[str], None] | None = None

    def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
        if self.look is None or not isinstance(query, bytes | str):
            return super().execute(query, *arguments, **options)
        text = query.decode() if isinstance(query, bytes) else query
        look, self.look = self.look, None
        try:
            for statement in filter(str.strip, text.split(";")):
                cursor = super().execute(statement.encode(), *arguments, **options)
                look(statement.strip())
        finally:
            self.look = look
        return cursor


@contextmanager
def watched(conn: Watched, look: Callable[[str], None]) -> Iterator[None]:
    conn.look = look
    try:
        yield
    finally:
        conn.look = None


@pytest.fixture
def run(database: str, server: Server, group: str) -> Iterator[Run]:
    with Watched.connect(database, autocommit=True) as conn, headwater.connect(database) as hw:
        for text in (SETUP, deep_views(), ROWS):
            conn.execute(text.encode())
        yield Run(hw, conn, list(share(group, SHARES[server.version])), "IMMEDIATE")


@dataclass
class Watch:
    """Looks at all fixtures after each statement: equal to the query, no row written in vain."""

    run: Run
    followed: set[str] = field(default_factory=set)
    tests: dict[str, bytes] = field(default_factory=dict)

    def look(self, statement: str) -> None:
        for fixture in list(self.run.live):
            fault = self._fault(fixture, statement)
            if fault:
                self.run.fail(fixture, f"{statement[:60]}: {fault}")

    def _fault(self, fixture: Fixture, statement: str) -> str | None:
        conn, places = self.run.conn, self.run.places
        before, now = places.get(fixture.name, {}), places_of(conn, fixture.table)
        places[fixture.name] = now
        if now != before:
            self.followed.add(fixture.name)
        if self._differs(fixture):
            return find_difference(conn, fixture.query, fixture.table)
        # What it reads may be written by two statements: one more if a group vanishes.
        is_twice = fires_often(statement) or "stream-over-stream" in fixture.tags
        moved = [] if is_twice else find_moved(before, now)
        return f"written again: {moved}" if moved else None

    def _differs(self, fixture: Fixture) -> bool:
        """Ask by a statement that is planned once; `find_difference` tells the rows."""
        conn = self.run.conn
        if fixture.name not in self.tests:
            self.tests[fixture.name] = difference_test(conn, fixture.query, fixture.table)
        return conn.execute(self.tests[fixture.name]).fetchall() != [(False,)]


@pytest.mark.generated
@pytest.mark.timeout(300)
@pytest.mark.parametrize("group", GROUPS)
def test_fixtures_follow_every_statement(run: Run, group: str) -> None:
    taken = {fixture.name for fixture in run.live}
    run.create()
    watch, conn = Watch(run), run.conn
    assert isinstance(conn, Watched)
    for step in STEPS:
        with watched(conn, watch.look):
            step.change(conn)
        watch.look(STEP + step.name)
    for fixture in list(run.live):
        verified = run.hw.verify(fixture.table)
        if not verified.equal:
            run.fail(fixture, f"verify: {verified}")
    assert run.failures == []
    assert taken - CONSTANT - EMPTY <= watch.followed


def fires_often(statement: str) -> bool:
    """Tell whether a row may go and come again: by one trigger after the other, or in TRUNCATE."""
    return statement.startswith(("TRUNCATE", "MERGE", "WITH", STEP))
