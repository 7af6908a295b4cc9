"""The daemon is killed: a standby takes over, and nothing is lost or doubled."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

import headwater
from tests.battery.oracle import find_difference
from tests.daemons import SLOWLY, daemon, until, waiting
from tests.servers import Embedded, Server

Connection = psycopg.Connection[Any]
TOTALS = "SELECT id % 10 AS g, count(*) AS n, sum(x) AS total FROM t GROUP BY 1"
TAKEOVER = "SELECT process_id, is_running FROM pgtrickle.pgt_daemon"
# Seconds from a moment to the end of the first refresh after it by anybody who then leads.
FIRST_REFRESH = """
SELECT extract(epoch FROM min(h.end_time) - %(killed)s)::float8
  FROM pgtrickle.pgt_refresh_history h, pgtrickle.pgt_leader l
 WHERE h.status = 'COMPLETED' AND l.since > %(killed)s AND h.start_time > l.since
"""
PROMISED = 10.0  # seconds; on a machine with nothing beside it, about two
BUSY = 3  # times that, while other tests run


def _prepare(dsn: str, conn: Connection) -> headwater.Headwater:
    conn.execute("CREATE TABLE t (id int PRIMARY KEY, x int)")
    conn.execute("INSERT INTO t SELECT n, n FROM generate_series(1, 2000) n")
    conn.execute(SLOWLY)
    hw = headwater.connect(dsn)
    hw.connection.execute("SET pg_trickle.min_target_lag_seconds = 1")
    hw.create_stream_table("totals", TOTALS, schedule="1s")
    hw.create_stream_table("slow", "SELECT id, slowly(x) AS x FROM t", schedule="1s")
    return hw


def test_a_standby_takes_over_after_kill_9(database: str, conn: Connection) -> None:
    """The leader dies in the middle of a refresh; its row is closed by the one that comes after."""
    with _prepare(database, conn) as hw, daemon(database) as first:
        first.wait_for("leading")
        with daemon(database) as second, psycopg.connect(database) as other:
            second.wait_for("standing by")
            other.execute("SELECT pg_advisory_xact_lock(7)")
            conn.execute("UPDATE t SET x = x + 1 WHERE id <= 500")
            until(lambda: waiting(conn) == 1)
            [(killed,)] = conn.execute("SELECT clock_timestamp()").fetchall()
            assert first.end(signal.SIGKILL) == -signal.SIGKILL
            second.wait_for("leading")  # although the refresh still waits for its lock
            until(lambda: conn.execute(TAKEOVER).fetchone() == (second.pid, True))
            conn.execute("INSERT INTO t SELECT -n, n FROM generate_series(1, 50) n")
            until(lambda: find_difference(conn, TOTALS, "totals") is None)
            [(seconds,)] = conn.execute(FIRST_REFRESH, {"killed": killed}).fetchall()
            print(f"the standby refreshed {seconds:.1f} s after the kill")  # noqa: T201
            assert seconds < BUSY * PROMISED
            other.rollback()
            until(lambda: find_difference(conn, "SELECT id, x FROM t", "slow") is None)
            lost = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE status = 'FAILED'"
            until(lambda: conn.execute(lost).fetchone() != (0,))
            for name in ("totals", "slow"):
                assert hw.verify(name).equal
            assert second.end() == 0


def _is_equal(conn: Connection) -> bool:
    return find_difference(conn, TOTALS, "totals") is None


def test_one_of_two_databases_is_away(database: str, conn: Connection, tmp_path: Path) -> None:
    """The other one goes on, whether it is away from the start or later; then it is caught up."""
    second = Embedded()
    try:
        dsns = (database, second.create_database())
        for dsn in dsns:
            with headwater.connect(dsn) as hw:
                hw.connection.execute("CREATE TABLE t (id int PRIMARY KEY, x int)")
                hw.connection.execute("SET pg_trickle.min_target_lag_seconds = 1")
                hw.create_stream_table("totals", TOTALS, schedule="1s")
        file = tmp_path / "headwater.toml"
        file.write_text("".join(f'[[databases]]\ndsn = "{dsn}"\n' for dsn in dsns))
        second.halt()
        with daemon(database, "--config", str(file)) as process:
            for number in range(2):
                process.wait_for("disconnected")
                conn.execute("INSERT INTO t VALUES (%s, 2)", [number])
                until(partial(_is_equal, conn))
                second.resume()
                with psycopg.connect(dsns[1], autocommit=True) as away:
                    away.execute("INSERT INTO t VALUES (%s, 2)", [number])
                    until(partial(_is_equal, away))
                process.events.clear()
                second.halt()
            assert process.end() == 0
    finally:
        second.stop()


def test_the_daemon_outlives_the_server(server: Server, database: str, conn: Connection) -> None:
    conn.execute("CREATE TABLE t (id int PRIMARY KEY, x int)")
    with headwater.connect(database) as hw:
        hw.connection.execute("SET pg_trickle.min_target_lag_seconds = 1")
        hw.create_stream_table("totals", TOTALS, schedule="1s")
    with daemon(database) as process:
        process.wait_for("leading")
        server.restart("immediate")
        process.wait_for("disconnected")
        with psycopg.connect(database, autocommit=True) as again:
            again.execute("INSERT INTO t VALUES (1, 2)")
            until(lambda: find_difference(again, TOTALS, "totals") is None)
        assert process.end() == 0
