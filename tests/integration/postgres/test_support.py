"""The page of supported SQL says what the compiler says."""

from __future__ import annotations

import json

import psycopg
import pytest

import headwater
from tests.battery.fixtures import GROUPS
from tests.servers import Server
from tests.support import DATA, collected, prepare


@pytest.mark.timeout(300)
def test_the_page_says_what_the_compiler_says(pg18: Server) -> None:
    dsn = pg18.create_database()
    with psycopg.connect(dsn, autocommit=True) as conn, headwater.connect(dsn) as hw:
        prepare(conn)
        found = collected(conn, hw)
    pg18.drop_database(dsn)
    stored = json.loads(DATA.read_text(encoding="utf-8"))
    assert found == stored, "run `python -m tests.support`, then `make docs`"


def test_every_construct_is_in_the_battery() -> None:
    """What the page promises is followed through changes: each of these is a tag of some view."""
    tags = {tag for group in GROUPS.values() for view in group for tag in view.tags}
    wanted = {
        *("join", "outer", "using", "natural", "lateral", "set-returning", "ordinality", "values"),
        *("aggregate", "having", "grouping-sets", "distinct", "union", "union-all", "intersect"),
        *("intersect-all", "except", "except-all", "exists", "in", "null", "any", "all", "or"),
        *("scalar", "array", "window", "distinct-on", "limit", "recursive", "cte", "view", "where"),
    }
    assert wanted - tags == set()
