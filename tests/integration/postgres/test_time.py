"""Conditions on the time: rows come and go as it passes, without a write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import headwater

SETUP = """
CREATE TABLE jobs (id int PRIMARY KEY, kind text, due timestamptz, started timestamp);
CREATE INDEX ON jobs (due);
INSERT INTO jobs SELECT n, 'k' || n % 2, now() + n * interval '150 ms',
    now() + n * interval '0.15 s' FROM generate_series(-2, 8) AS n;
INSERT INTO jobs VALUES (100, 'k0', NULL, NULL), (101, 'k1', 'infinity', 'infinity');
"""
VIEWS = {
    "due": "SELECT id, kind FROM jobs WHERE due <= now()",
    "open": "SELECT id FROM jobs WHERE due > CURRENT_TIMESTAMP AND kind = 'k0'",
    "recent": "SELECT kind, count(*) AS n FROM jobs WHERE due > now() - interval '300 ms'"
    " AND due <= now() GROUP BY kind",
    "local": "SELECT a.id, b.id AS b FROM jobs a JOIN jobs b ON a.id = b.id"
    " AND b.started < LOCALTIMESTAMP(3)",
    "exists_due": "SELECT DISTINCT kind FROM jobs j WHERE EXISTS"
    " (SELECT FROM jobs k WHERE k.kind = j.kind AND k.due < statement_timestamp() AND k.id > 2)",
    "having_due": "SELECT kind, max(due) AS last FROM jobs WHERE due < 'infinity' GROUP BY kind"
    " HAVING min(due) <= now() AND CURRENT_DATE > '2020-01-01'",
}


Connection = psycopg.Connection[Any]


@pytest.fixture
def hw(database: str, conn: Connection) -> Iterator[headwater.Headwater]:
    conn.execute(SETUP)
    with headwater.connect(database) as connected:
        yield connected


def test_rows_enter_and_leave_as_time_passes(hw: headwater.Headwater, conn: Connection) -> None:
    for name, query in VIEWS.items():
        assert hw.create_stream_table(name, query).effective_mode == "DIFFERENTIAL"
    moved: set[str] = set()
    for turn in range(5):
        conn.execute("SELECT pg_sleep(0.2)")
        if turn == 2:
            conn.execute("INSERT INTO jobs VALUES (50, 'k2', now(), now())")
            conn.execute("UPDATE jobs SET due = due - interval '1 s' WHERE id IN (3, 4)")
            conn.execute("DELETE FROM jobs WHERE id = 1")
        for name in VIEWS:
            result = hw.refresh_stream_table(name)
            assert result.action == "DIFFERENTIAL"
            changed = result.rows_inserted + result.rows_updated + result.rows_deleted
            moved |= {name} if changed else set()
            found = hw.verify(name)
            assert found.equal, (name, found)
    assert moved == set(VIEWS)


def test_the_reason_is_the_time(hw: headwater.Headwater) -> None:
    hw.create_stream_table("due", VIEWS["due"])
    assert hw.refresh_stream_table("due").reason == "time has passed"


def test_a_table_above_follows(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("due", VIEWS["due"])
    hw.create_stream_table("counted", "SELECT kind, count(*) AS n FROM due GROUP BY kind")
    conn.execute("SELECT pg_sleep(0.4)")
    hw.refresh_stream_table("counted")
    assert hw.verify("counted").equal


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, now() - due AS late FROM jobs",
        "SELECT date_trunc('day', now()) AS day, count(*) FROM jobs GROUP BY 1",
        "SELECT a.id FROM jobs a LEFT JOIN jobs b ON a.id = b.id AND b.due < now()",
    ],
)
def test_the_time_elsewhere_is_refused(hw: headwater.Headwater, query: str) -> None:
    with pytest.raises(headwater.HeadwaterError, match="now"):
        hw.create_stream_table("t", query, refresh_mode="DIFFERENTIAL")


def test_immediate_refuses_the_time(hw: headwater.Headwater) -> None:
    with pytest.raises(headwater.HeadwaterError, match="no write would wake it"):
        hw.create_stream_table("t", VIEWS["due"], refresh_mode="IMMEDIATE")
