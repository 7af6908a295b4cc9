"""A process of its own that loads, computes and publishes far more than it may hold in memory.

Prints after each refresh the most that it and Spark's virtual machine ever had, and at the end by
how many MiB it grew over what it takes with Spark started and nothing loaded.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import psycopg

import headwater
from headwater.spark import session
from headwater.spark.session import start_session

QUERY = "SELECT b.id, b.words, s.name FROM big b JOIN small s ON s.id = b.k"
FAN_OUT = "UPDATE small SET name = name || 'x' WHERE id = 1"
PART = "UPDATE big SET words = 'new' WHERE id % 10 = 3"
REBUILD = "UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true, reinit_reason = 'a test'"


def peak() -> int:
    """Return the most memory that this process ever had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def peak_of_spark() -> int:
    """Return the same of Spark's virtual machine, which is another process."""
    assert session._running is not None
    status = Path(f"/proc/{session._running.jvm.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) // 1024


def image(conn: psycopg.Connection[Any], query: str) -> tuple[Any, ...] | None:
    """Return how many rows a query has, and the sum of their hashes: sorting them takes minutes."""
    hashed = "SELECT count(*), sum(hashtextextended(q::text, 0)) FROM"
    return conn.execute(f"{hashed} ({query}) AS q".encode()).fetchone()


def refresh(hw: headwater.Headwater, conn: psycopg.Connection[Any], change: str) -> None:
    conn.execute(change.encode())
    action = hw.refresh_stream_table("shown").action
    assert image(conn, QUERY) == image(conn, "TABLE shown")
    sys.stdout.write(f"{action}: this process {peak()} MiB, Spark {peak_of_spark()} MiB\n")


def main(dsn: str, lake: str) -> None:
    options = {"spark.driver.memory": "1g"}
    with (
        headwater.connect(dsn, lake=lake, spark_master="local[2]", spark_options=options) as hw,
        psycopg.connect(dsn, autocommit=True) as conn,
    ):
        found = hw._lake
        assert found is not None
        start_session(found.spark).sql("SELECT 1").toArrow()
        before = peak()
        hw.create_stream_table("shown", QUERY, refresh_mode="DIFFERENTIAL", engine="spark")
        timings = hw.refresh_history("shown", 1)[0].timings or {}
        assert timings["load_parallel"] == 1, timings
        refresh(hw, conn, FAN_OUT)
        refresh(hw, conn, PART)
        hw._conn.execute("SET pg_trickle.parallel_load_connections = 0")
        refresh(hw, conn, REBUILD)
        sys.stdout.write(f"{peak() - before}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
