"""The battery once more, every verb called through SQL inside the server.

The steps are the same, but only some are looked at: what differs here is the way to the server, not
the change that is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.battery.changes import STEPS
from tests.battery.fixtures import GROUPS, Fixture
from tests.battery.oracle import find_difference
from tests.battery.schema import ROWS, SETUP, deep_views
from tests.battery.test_battery import CONSTANT

Connection = psycopg.Connection[Any]
EVERY = 8


@pytest.fixture
def conn(inside: str) -> Iterator[Connection]:
    with psycopg.connect(inside, autocommit=True) as connection:
        for text in (SETUP, deep_views(), ROWS):
            connection.execute(text.encode())
        yield connection


@pytest.mark.parametrize("group", GROUPS)
def test_fixtures_follow_in_the_server(conn: Connection, group: str) -> None:
    fixtures = GROUPS[group]
    with conn.transaction():
        for fixture in fixtures:
            create = "SELECT pgtrickle.create_stream_table(%s, %s, NULL, 'DIFFERENTIAL')"
            conn.execute(create, [fixture.table, fixture.query])
    assert different(conn, fixtures) == []
    for number, step in enumerate(STEPS, start=1):
        step.change(conn)
        if number % EVERY == 0 or number == len(STEPS):
            with conn.transaction():
                for fixture in fixtures:
                    conn.execute("SELECT pgtrickle.refresh_stream_table(%s)", [fixture.table])
            assert (step.name, different(conn, fixtures)) == (step.name, [])
    assert {f.table for f in fixtures} - followed(conn) <= {f"st.{name}" for name in CONSTANT}


def different(conn: Connection, fixtures: tuple[Fixture, ...]) -> list[str]:
    found = ((f.name, find_difference(conn, f.query, f.table)) for f in fixtures)
    return [f"{name}: {fault}" for name, fault in found if fault is not None]


def followed(conn: Connection) -> set[str]:
    """Return the tables that moved by their changes, not by being computed anew."""
    rows = conn.execute(
        "SELECT DISTINCT st.pgt_schema || '.' || st.pgt_name"
        " FROM pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables st USING (pgt_id)"
        " WHERE h.action = 'DIFFERENTIAL'"
    ).fetchall()
    return {name for (name,) in rows}
