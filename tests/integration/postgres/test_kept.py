"""Aggregates inside a view that are stored: who is, that they follow, and what is not read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import headwater
from headwater.bench.plans import read_plan
from tests.battery.oracle import find_difference

Connection = psycopg.Connection[Any]
SALES = 5000
BEST = """
WITH totals AS (SELECT shop, sum(amount) AS total FROM sales GROUP BY shop)
SELECT shops.name, total FROM shops JOIN totals ON totals.shop = shops.id
 WHERE total = (SELECT max(total) FROM totals)"""
ABOVE = "SELECT shop, count(*) FROM sales WHERE amount > (SELECT avg(amount) FROM sales) GROUP BY 1"
LISTED = "SELECT id FROM sales WHERE amount IN (SELECT max(amount) FROM sales GROUP BY shop)"
VIEWS = {"best": BEST, "above": ABOVE, "listed": LISTED}
CHANGES = (
    "INSERT INTO sales SELECT 10000 + i, i % 7, 900 + i FROM generate_series(1, 20) AS i",
    "DELETE FROM sales WHERE amount = (SELECT max(amount) FROM sales)",
    "UPDATE sales SET shop = NULL WHERE id % 50 = 0",
    "DELETE FROM shops WHERE id = 1; INSERT INTO shops VALUES (8, 'eight')",
    "UPDATE sales SET amount = NULL WHERE shop = 3; DELETE FROM sales WHERE shop = 4",
    "TRUNCATE sales",
    "INSERT INTO sales VALUES (1, 2, 3), (2, NULL, 3), (3, 2, 0)",
)


@pytest.fixture
def hw(database: str, conn: Connection) -> Iterator[headwater.Headwater]:
    with headwater.connect(database) as hw:
        conn.execute("CREATE TABLE shops (id int PRIMARY KEY, name text)")
        conn.execute("CREATE TABLE sales (id int PRIMARY KEY, shop int, amount int)")
        conn.execute("INSERT INTO shops SELECT i, 'shop ' || i FROM generate_series(0, 6) AS i")
        conn.execute(
            "INSERT INTO sales SELECT i, i % 7, i * 37 % 1000"
            f" FROM generate_series(1, {SALES}) AS i"
        )
        yield hw


def states(conn: Connection) -> list[str]:
    return [
        row[0]
        for row in conn.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'pgtrickle_state'::regnamespace"
            " AND relkind = 'r' AND relname ~ '^(state|kept)' ORDER BY 1"
        )
    ]


def test_they_follow_every_change(hw: headwater.Headwater, conn: Connection) -> None:
    for name, query in VIEWS.items():
        hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL", engine="postgres")
    for change in CHANGES:
        conn.execute(change)
        for name, query in VIEWS.items():
            assert hw.refresh_stream_table(name).action in ("DIFFERENTIAL", "NO_DATA")
            assert find_difference(conn, query, name) is None, (change, name)
    conn.execute("UPDATE sales SET amount = 4")
    for name, query in VIEWS.items():
        hw.alter_stream_table(name, refresh_mode="FULL")
        hw.alter_stream_table(name, refresh_mode="DIFFERENTIAL")
        assert find_difference(conn, query, name) is None


def test_which_ones_are_stored_and_for_how_long(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("best", BEST, refresh_mode="DIFFERENTIAL", engine="postgres")
    assert states(conn) == ["kept_1_1", "kept_1_2", "kept_1_3"]
    operators = hw.explain_st("best").operators
    assert any("stored in pgtrickle_state.kept_1_3: a group is recomputed" in o for o in operators)
    hw.alter_stream_table("best", query=ABOVE.replace("shop, count(*)", "shop AS name, count(*)"))
    assert states(conn) == ["kept_1_1", "state_1"]
    hw.alter_stream_table("best", refresh_mode="IMMEDIATE")
    assert states(conn) == ["state_1"]
    hw.alter_stream_table("best", refresh_mode="DIFFERENTIAL")
    assert states(conn) == ["kept_1_1", "state_1"]
    hw.drop_stream_table("best")
    assert states(conn) == []
    by_key = "SELECT id FROM sales s WHERE amount > (SELECT avg(amount) FROM sales WHERE id = s.id)"
    hw.create_stream_table("keyed", by_key, refresh_mode="DIFFERENTIAL", engine="postgres")
    assert states(conn) == []


def test_the_source_is_not_read_for_what_is_stored(
    hw: headwater.Headwater, conn: Connection
) -> None:
    hw.create_stream_table("best", BEST, refresh_mode="DIFFERENTIAL", engine="postgres")
    conn.execute("INSERT INTO sales VALUES (10001, 2, 5)")
    assert read_plan(conn, "best").rows_by_relation.get("sales", 0) == 0
