"""Counts and sums of different values follow by a count of rows for each value."""

from __future__ import annotations

from random import Random
from typing import Any

import psycopg
import pytest

import headwater
from headwater.postgres import different
from headwater.postgres.refresh import _rendered
from tests.battery.oracle import find_difference
from tests.servers import Server

Connection = psycopg.Connection[Any]
LONG = "repeat(md5({0}::text), 200)"  # no index takes it

SETUP = "CREATE TABLE t (g int, x int, b bigint, w text, n numeric, f float8)"
QUERIES = {
    "one": "SELECT g, count(DISTINCT x) AS n FROM t GROUP BY g",
    "several": "SELECT g, count(DISTINCT x) AS x, count(DISTINCT w) AS w, sum(DISTINCT b) AS s,"
    " avg(DISTINCT x) FILTER (WHERE b > 0) AS a, count(*) AS c, min(x) AS m FROM t GROUP BY g",
    "coarse": "SELECT g, count(DISTINCT n) AS n, count(DISTINCT f) AS f,"
    " array_agg(x ORDER BY x) AS xs FROM t GROUP BY g",
    "alone": "SELECT count(DISTINCT x) AS x, sum(DISTINCT x) AS s, count(DISTINCT w) AS w FROM t",
    "numbers": "SELECT n, count(DISTINCT g) AS g FROM t GROUP BY n",
}
MODES = {"d": "DIFFERENTIAL", "i": "IMMEDIATE"}


def drawn(random: Random) -> str:
    """Return a row of few different values, NULL among them."""
    g, x = (random.choice(("0", "1", "NULL")) for _ in range(2))
    b = random.choice(("9223372036854775807", "-9223372036854775808", "3", "NULL"))
    w = random.choice(("'a'", "'b'", LONG.format(1), LONG.format(2), "NULL"))
    n = random.choice(("1.0", "1.00", "'NaN'", "2", "NULL"))
    f = random.choice(("0", "'-0'", "'NaN'", "NULL"))
    return f"({g}, {x}, {b}, {w}, {n}, {f})"


def change(random: Random) -> str:
    """Return a statement that inserts, updates or deletes a few rows."""
    some = f"ctid IN (SELECT ctid FROM t ORDER BY md5(ctid::text || {random.random()}) LIMIT 2)"
    rows = ", ".join(drawn(random) for _ in range(random.randint(1, 3)))
    return random.choice(
        (
            f"INSERT INTO t VALUES {rows}",
            f"UPDATE t SET (g, x, b, w, n, f) = {drawn(random)} WHERE {some}",
            f"DELETE FROM t WHERE {some}",
            "UPDATE t SET x = x + 1, g = 1 - g WHERE n = 1",
        )
    )


def wrong(hw: headwater.Headwater, conn: Connection, rounds: int) -> list[str]:
    """Return what differs from its query after any of some random changes."""
    random, found = Random(7), []
    for _ in range(rounds):
        statement = change(random)
        conn.execute(statement.encode())
        for name, query in QUERIES.items():
            hw.refresh_stream_table(f"d_{name}")
            for mode in MODES:
                if fault := find_difference(conn, query, f"{mode}_{name}"):
                    found.append(f"{mode}_{name} after {statement}: {fault}")
    return found


def create(hw: headwater.Headwater, conn: Connection) -> None:
    conn.execute(SETUP)
    for short, mode in MODES.items():
        for name, query in QUERIES.items():
            hw.create_stream_table(f"{short}_{name}", query, refresh_mode=mode)


def test_different_values_are_counted(database: str, conn: Connection) -> None:
    with headwater.connect(database) as hw:
        create(hw, conn)
        assert wrong(hw, conn, 25) == []
        conn.execute("TRUNCATE t")
        assert wrong(hw, conn, 3) == []
        state = hw.explain_st("d_several").state
        names = conn.execute("SELECT relname FROM pg_class WHERE relname LIKE 'state%\\_%\\_%'")
        assert state is not None
        assert f"{state}_3".removeprefix("pgtrickle_state.") in {name for (name,) in names}
        for name in ("d_one", "i_one", "d_several", "i_several"):
            hw.drop_stream_table(name)
        assert conn.execute("SELECT to_regclass(%s)", [f"{state}_3"]).fetchone() == (None,)


def test_a_wrong_count_is_found(pg18: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle is awake: a value that comes again is no new one."""
    right = different.moved_values

    def forgets_known(kept: different.Different, counted: str) -> str:
        return right(kept, counted).replace("CASE WHEN __before > 0 THEN 1 ELSE 0 END", "0")

    monkeypatch.setattr(different, "moved_values", forgets_known)
    _rendered.cache_clear()
    dsn = pg18.create_database()
    with psycopg.connect(dsn, autocommit=True) as conn, headwater.connect(dsn) as hw:
        create(hw, conn)
        assert {fault[0] for fault in wrong(hw, conn, 4)} == set(MODES)
    _rendered.cache_clear()
    pg18.drop_database(dsn)
