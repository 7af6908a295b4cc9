"""ORDER BY … LIMIT keeps more rows than it shows: what moves up, and when sources are read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import headwater
from headwater.bench.plans import read_plan
from tests.battery.oracle import find_difference

Connection = psycopg.Connection[Any]
ROWS = 2000
FULL = 110  # rows in the reserve of a LIMIT 10
# What the query leaves open the tests pin: by a key, by all that is shown, or by ties.
VIEWS = {
    "plain": "SELECT id, v FROM t ORDER BY v DESC NULLS LAST, id LIMIT 10",
    "later": "SELECT id, v, x FROM t ORDER BY v NULLS FIRST, id DESC OFFSET 7 FETCH FIRST 5 ROWS"
    " ONLY",
    "ties": "SELECT id, w FROM t ORDER BY w DESC FETCH FIRST 10 ROWS WITH TIES",
    "later_ties": "SELECT v, w FROM bag ORDER BY w, v OFFSET 3 FETCH FIRST 40 ROWS WITH TIES",
    "copies": "SELECT w, x FROM bag ORDER BY w DESC, x LIMIT 10",
    "few": "SELECT id, v FROM t WHERE w = -1 ORDER BY v, id LIMIT 10",
    "groups": "SELECT v % 50 AS g, sum(w) AS s, count(*) AS n FROM t GROUP BY 1"
    " ORDER BY s DESC NULLS LAST, 1 LIMIT 10",
    "joined": "SELECT t.id, bag.w FROM t JOIN bag ON bag.v = t.v ORDER BY bag.w, t.id, bag.x"
    " LIMIT 10",
    "hidden": "SELECT q.id FROM (SELECT id, v FROM t ORDER BY v, id LIMIT 10) q WHERE q.v > 1",
    "numbered": "SELECT q.id, q.n FROM (SELECT id, row_number() OVER (ORDER BY x, id) AS n"
    " FROM t) q WHERE q.n <= 10",
}


@pytest.fixture
def hw(database: str, conn: Connection) -> Iterator[headwater.Headwater]:
    with headwater.connect(database) as hw:
        conn.execute("CREATE TABLE t (id int PRIMARY KEY, v int, w int, x numeric)")
        conn.execute("CREATE TABLE bag (v int, w int, x numeric)")
        conn.execute(
            "INSERT INTO t SELECT i, nullif(i * 37 % 1000, 5), i % 30, (i % 9)::numeric(4,1)"
            f" FROM generate_series(1, {ROWS}) AS i"
        )
        conn.execute("INSERT INTO bag SELECT v % 40, w % 8, x FROM t WHERE id % 5 = 0")
        conn.execute("ANALYZE t; ANALYZE bag")
        yield hw


def change(rng: random.Random) -> str:
    """Return a statement that changes a few rows, mostly at the ends of the orders."""
    low, key = rng.randrange(12), rng.randrange(1, ROWS)
    return rng.choice(
        (
            f"DELETE FROM t WHERE v IN ({low}, {999 - low})",
            f"DELETE FROM t WHERE id IN (SELECT id FROM t ORDER BY v DESC, id LIMIT {low * 4})",
            f"DELETE FROM bag WHERE (w = {low % 8} AND v < 30) OR v = {low}",
            f"UPDATE t SET v = {low}, w = w + 1 WHERE id BETWEEN {key} AND {key} + {low}",
            f"UPDATE t SET x = x * 1.00, v = NULL WHERE id % 97 = {low}",
            f"UPDATE bag SET w = w % 3, x = NULL WHERE v % 12 = {low}",
            f"INSERT INTO t SELECT coalesce(max(id), 0) + 1, {999 - low}, -1, 0 FROM t",
            f"INSERT INTO bag SELECT {low}, g / 4, {low}.0 FROM generate_series(1, 9) AS g",
            "INSERT INTO bag SELECT * FROM bag WHERE w < 2 LIMIT 3",
        )
    )


@pytest.mark.parametrize("mode", ["DIFFERENTIAL", "IMMEDIATE"])
def test_the_first_rows_follow(hw: headwater.Headwater, conn: Connection, mode: str) -> None:
    for name, query in VIEWS.items():
        hw.create_stream_table(name, query, refresh_mode=mode, engine="postgres")
    rng = random.Random(mode)
    changes = [change(rng) for _ in range(40)]
    last = ["TRUNCATE bag", "DELETE FROM t WHERE id % 100 > 0", "INSERT INTO bag VALUES (1, 2, 3)"]
    more = "INSERT INTO t SELECT i, i, i % 4, 1.0 FROM generate_series(3001, 3400) AS i"
    for statement in (*changes, *last, "DELETE FROM t", more, "DELETE FROM t WHERE id < 3300"):
        conn.execute(statement.encode())
        for name, query in VIEWS.items():
            if mode == "DIFFERENTIAL":
                assert hw.refresh_stream_table(name).action in ("DIFFERENTIAL", "NO_DATA")
            assert find_difference(conn, query, name) is None, (statement, name)


def rows_read(conn: Connection, name: str) -> int:
    """Return how many rows of a table were read so far."""
    conn.execute("SELECT pg_stat_force_next_flush()")
    [(count,)] = conn.execute(
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = %s", [name]
    )
    return int(count)


def test_the_source_is_read_when_the_reserve_is_spent(
    hw: headwater.Headwater, conn: Connection
) -> None:
    hw.create_stream_table("top", VIEWS["plain"], refresh_mode="DIFFERENTIAL", engine="postgres")
    hw.create_stream_table("sums", VIEWS["groups"], refresh_mode="DIFFERENTIAL", engine="postgres")
    best = "DELETE FROM t WHERE id = (SELECT id FROM top ORDER BY v DESC LIMIT 1)"
    [(held,)] = conn.execute("SELECT count(*) FROM pgtrickle_state.kept_1_1")
    assert held == FULL
    for _ in range(3):
        conn.execute(best)
        for name in ("top", "sums"):
            assert read_plan(conn, name).rows_by_relation.get("t", 0) == 0
            assert hw.refresh_stream_table(name).action == "DIFFERENTIAL"
    held_now = "SELECT count(*) FROM pgtrickle_state.kept_1_1"
    assert conn.execute(held_now).fetchall() == [(FULL - 3,)]
    conn.execute(
        "DELETE FROM t WHERE id IN (SELECT id FROM t ORDER BY v DESC NULLS LAST, id LIMIT 99)"
    )
    assert read_plan(conn, "top").rows_by_relation["t"] > 0
    hw.refresh_stream_table("top")
    assert conn.execute(held_now).fetchall() == [(FULL,)]
    assert find_difference(conn, VIEWS["plain"], "top") is None


def test_writers_do_not_read_the_source(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("top", VIEWS["plain"], refresh_mode="IMMEDIATE")
    before = rows_read(conn, "t")
    for number in range(5):
        conn.execute("INSERT INTO t VALUES (%s, 2000, 1, 1)", [ROWS + 1 + number])
    assert rows_read(conn, "t") == before
    conn.execute("DELETE FROM t WHERE id > %s", [ROWS])
    assert rows_read(conn, "t") < before + ROWS / 10  # by the DELETE itself
    assert find_difference(conn, VIEWS["plain"], "top") is None


def test_explain_says_what_is_kept(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("top", VIEWS["plain"], refresh_mode="DIFFERENTIAL", engine="postgres")
    said = (
        "the first 110 rows are stored in pgtrickle_state.kept_1_1: others move up from there,"
        " and the sources are read again when fewer than 10 are left"
    )
    assert any(said in line for line in hw.explain_st("top").operators)
    hw.alter_stream_table("top", refresh_mode="FULL")
    assert conn.execute("SELECT to_regclass('pgtrickle_state.kept_1_1')").fetchall() == [(None,)]
    hw.alter_stream_table("top", refresh_mode="IMMEDIATE")
    assert any(said in line for line in hw.explain_st("top").operators)
    conn.execute("DELETE FROM t WHERE v > 900")
    assert find_difference(conn, VIEWS["plain"], "top") is None
    assert hw.verify("top").equal
    hw.alter_stream_table("top", refresh_mode="COMMIT")  # which takes no query that reads all rows
    conn.execute("DELETE FROM t WHERE v > 800")
    assert find_difference(conn, VIEWS["plain"], "top") is None
    hw.drop_stream_table("top")
    assert conn.execute("SELECT to_regclass('pgtrickle_state.kept_1_1_1')").fetchall() == [(None,)]
