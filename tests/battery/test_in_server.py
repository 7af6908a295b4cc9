"""The whole battery once more, every verb called through SQL inside the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import psycopg
import pytest

import headwater
from tests.battery.changes import STEPS
from tests.battery.fixtures import GROUPS
from tests.battery.schema import ROWS, SETUP, deep_views
from tests.battery.test_battery import CONSTANT, Run
from tests.in_server import SqlVerbs


@pytest.fixture
def run(inside: str, group: str) -> Iterator[Run]:
    with psycopg.connect(inside, autocommit=True) as conn:
        for text in (SETUP, deep_views(), ROWS):
            conn.execute(text.encode())
        yield Run(cast("headwater.Headwater", SqlVerbs(conn)), conn, list(GROUPS[group]))


@pytest.mark.parametrize("group", GROUPS)
def test_fixtures_follow_every_step_in_the_server(run: Run, group: str) -> None:
    run.create()
    for step in STEPS:
        step.change(run.conn)
        run.refresh(step)
    assert run.failures == []
    assert {f.name for f in GROUPS[group]} - CONSTANT <= run.followed
