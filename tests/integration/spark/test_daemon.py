"""A daemon with tables on Spark: it starts Spark when one is due, and again when Spark dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import psycopg
import pytest

import headwater
from tests.battery.oracle import find_difference
from tests.daemons import Process, daemon, until

SETUP = """
CREATE TABLE a (id int PRIMARY KEY, g int, x int);
CREATE TABLE b (g int PRIMARY KEY, name text);
INSERT INTO a SELECT n, n % 5, n FROM generate_series(1, 50) n;
INSERT INTO b SELECT n, 'g' || n FROM generate_series(0, 4) n
"""
JOINED = "SELECT b.name, sum(a.x) AS total, count(*) AS n FROM a JOIN b USING (g) GROUP BY b.name"
RUNNING = """
SELECT FROM pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables st USING (pgt_id)
 WHERE h.status = 'RUNNING' AND st.pgt_name = 'joined'
"""
PLAIN = "SELECT g, count(*) AS n FROM a GROUP BY g"


@pytest.mark.usefixtures("java")
def test_spark_starts_when_it_is_needed_and_again_when_it_dies(dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "headwater.toml"
    file.write_text(
        f'stop_seconds = 1\n[[databases]]\ndsn = "{dsn}"\nlake = "{tmp_path / "lake"}"\n'
        'spark_master = "local[1]"\n'
    )
    with (
        headwater.connect(dsn, lake=str(tmp_path / "lake"), spark_master="local[1]") as hw,
        psycopg.connect(dsn, autocommit=True) as conn,
        daemon(dsn, "--config", str(file), HEADWATER_LAKE_VACUUM_SECONDS="2") as process,
    ):
        hw.connection.execute("SET pg_trickle.min_target_lag_seconds = 1")
        process.wait_for("leading")
        hw.create_stream_table("plain", PLAIN, "1s", engine="postgres")
        conn.execute("INSERT INTO a VALUES (100, 1, 1)")
        until(lambda: find_difference(conn, PLAIN, "plain") is None)
        assert machines(process.pid) == []
        hw.create_stream_table("joined", JOINED, "1s", engine="spark", initialize=False)
        for number in range(3):
            conn.execute("INSERT INTO a VALUES (%s, 2, 7)", [200 + number])
            until(lambda: not find_difference(conn, JOINED, "joined"), lambda: told(process), 240)
            [machine] = machines(process.pid)
            machine.kill() if number < 2 else machine.suspend()
        process.wait_for("tidied the lake", traces=2)
        refreshes = [r for r in hw.refresh_history("joined", 200) if r.status != "SKIPPED"]
        assert {r.engine for r in refreshes} == {"spark"}
        failed = {(r.error_class, r.error_code) for r in refreshes if r.status == "FAILED"}
        assert failed <= {("system", "HW-305")}
        # Whoever waits for this one waits for ever, but for the end of the daemon.
        conn.execute("INSERT INTO a VALUES (300, 2, 7)")
        until(lambda: conn.execute(RUNNING).fetchall() != [], lambda: told(process))
        assert process.end() == 0
        assert psutil.wait_procs([machine], timeout=60)[1] == []
        assert conn.execute(RUNNING).fetchall() == []


def told(process: Process) -> list[dict[str, Any]]:
    """Return what a daemon logged of the table on Spark."""
    of_table = [event for event in process.events if event.get("st") == "public.joined"]
    return [event for event in of_table if event["event"] != "skipped"]


def machines(pid: int) -> list[Any]:
    """Return the Java virtual machines of a daemon."""
    children = psutil.Process(pid).children(recursive=True)
    return [child for child in children if child.name() == "java"]
