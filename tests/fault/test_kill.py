"""The refreshing process or the server dies in the middle of a refresh: nothing is lost or doubled.

The moment is drawn at random, and each time it is established that the refresh was under way: the
history shows it as running when the blow falls.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg import sql

import headwater
from tests.battery.oracle import find_difference
from tests.fault import refresher
from tests.servers import Server

Connection = psycopg.Connection[Any]

BLOWS = 4
ROWS = 20_000
SETUP = f"""
CREATE TABLE customers (id int PRIMARY KEY, region int);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10, 2));
INSERT INTO customers SELECT n, n % 50 FROM generate_series(1, 500) AS n;
INSERT INTO orders SELECT n, n % 600, n % 97 FROM generate_series(1, {ROWS}) AS n;
"""
# The second reads the first, so both must arrive together; the third shares their source.
QUERIES = {
    "joined": (
        "SELECT o.id, o.amount, c.region FROM orders o LEFT JOIN customers c ON c.id = o.customer"
    ),
    "regions": "SELECT region, count(*) AS n, sum(amount) AS total FROM joined GROUP BY region",
    "slow": "SELECT customer, max(amount) AS most FROM orders GROUP BY customer",
}
CHANGE = """
UPDATE orders SET amount = amount + 1, customer = customer + 1 WHERE id % 2 = %(turn)s % 2;
DELETE FROM orders WHERE id % 11 = %(turn)s % 11;
INSERT INTO orders SELECT -n - %(turn)s * 100000, n % 600, 5 FROM generate_series(1, 3000) AS n;
UPDATE customers SET region = region + 1 WHERE id % 5 = %(turn)s % 5
"""


def _change(dsn: str, turn: int) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(CHANGE.replace("%(turn)s", str(turn)).encode())


@pytest.fixture
def crowded(database: str) -> str:
    """A database with three stream tables over two sources."""
    with headwater.connect(database) as hw, psycopg.connect(database, autocommit=True) as conn:
        conn.execute(SETUP)
        for name, query in QUERIES.items():
            hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")
    return database


@contextmanager
def _refreshing(dsn: str, name: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that refreshes; it is about to do so when the block begins."""
    command = [sys.executable, refresher.__file__, dsn, name]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()
        process.wait()


def _await_running(dsn: str, process: subprocess.Popen[str]) -> bool:
    """Wait until the history shows a refresh as running; False if it was over too soon."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        while process.poll() is None:
            [(running,)] = conn.execute(
                "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE status = 'RUNNING'"
            ).fetchall()
            if running:
                return True
    return False


def _await_end_of_session(dsn: str) -> None:
    """The server notices that a client is gone when it next writes to it, or at the end."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'headwater'"
        )
        while conn.execute(
            "SELECT FROM pg_stat_activity WHERE application_name = 'headwater'"
        ).fetchall():
            time.sleep(0.02)


def _strike(dsn: str, turn: int, blow: Callable[[subprocess.Popen[str]], None]) -> bool:
    """Change the sources, start a refresh of all, and strike at a random moment of it."""
    _change(dsn, turn)
    with _refreshing(dsn, "regions") as process:
        was_running = _await_running(dsn, process)
        time.sleep(Random(turn).random() * 0.3)
        blow(process)
        process.wait()
    return was_running


def _prove(dsn: str) -> None:
    """Buffers are still there, refresh works, the oracle holds, and nothing is left running."""
    with headwater.connect(dsn) as hw, psycopg.connect(dsn, autocommit=True) as conn:
        for name, query in QUERIES.items():
            assert hw.refresh_stream_table(name).action in ("DIFFERENTIAL", "NO_DATA")
            assert find_difference(conn, query, name) is None
            assert hw.verify(name).equal
        for name in QUERIES:
            assert hw.refresh_stream_table(name).action == "NO_DATA"
        left = conn.execute(
            "SELECT pgt_name, action, h.status FROM pgtrickle.pgt_refresh_history h"
            " JOIN pgtrickle.pgt_stream_tables USING (pgt_id) WHERE h.status = 'RUNNING'"
        ).fetchall()
        assert left == []
        statuses = {(s.name, s.status, s.errors) for s in hw.pgt_status()}
        assert statuses == {(f"public.{name}", "ACTIVE", 0) for name in QUERIES}
        _prove_small(conn)


def _prove_small(conn: Connection) -> None:
    """Consumed changes are gone from the buffers, and no object is left over."""
    [(pending,)] = conn.execute(
        "SELECT sum(pending_rows) FROM pgtrickle.change_buffer_sizes()"
    ).fetchall()
    assert pending == 0
    rows = conn.execute(
        "SELECT n.nspname, count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE nspname ~ '^pgtrickle_' AND relkind = 'r' GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert rows == [("pgtrickle_changes", 3), ("pgtrickle_state", 2)]


def test_killed_process_leaves_nothing_half_done(crowded: str) -> None:
    struck = 0
    for turn in range(BLOWS):
        struck += _strike(crowded, turn, lambda process: process.kill())
        _await_end_of_session(crowded)
        _prove(crowded)
    assert struck > 0
    assert _failures(crowded) <= struck


def _failures(dsn: str) -> int:
    """Refreshes recorded as failed; each says that its process ended."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        rows = conn.execute(
            "SELECT error_message, error_class FROM pgtrickle.pgt_refresh_history"
            " WHERE status = 'FAILED'"
        ).fetchall()
    assert set(rows) <= {("the refreshing process ended before the refresh did", "system")}
    return len(rows)


def test_crashed_server_leaves_nothing_half_done(crowded: str, server: Server) -> None:
    struck = 0
    for turn in range(BLOWS):
        struck += _strike(crowded, turn, lambda process: server.restart("immediate"))
        _prove(crowded)
    assert struck > 0


def test_buffers_survive_a_crash(crowded: str, server: Server) -> None:
    _change(crowded, 1)
    before = _pending(crowded)
    server.restart("immediate")
    assert _pending(crowded) == before
    assert min(before.values()) > 0
    _prove(crowded)


def _pending(dsn: str) -> dict[str, int]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        rows = conn.execute(
            "SELECT source_name, pending_rows FROM pgtrickle.change_buffer_sizes()"
            " WHERE source_name <> 'public.joined'"
        ).fetchall()
    return dict(rows)


def test_lost_connection_is_reported_and_harmless(crowded: str) -> None:
    """The session of a refresh is ended from outside: the caller learns it, the next one works."""
    _change(crowded, 3)
    with headwater.connect(crowded) as hw, psycopg.connect(crowded, autocommit=True) as conn:
        with conn.transaction():
            conn.execute(sql.SQL("LOCK TABLE joined IN SHARE ROW EXCLUSIVE MODE"))
            with _refreshing(crowded, "joined") as process:
                _await_waiting(crowded)
                conn.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'headwater' AND wait_event_type = 'Lock'"
                )
                assert process.wait() != 0
        assert hw.refresh_stream_table("joined").action == "DIFFERENTIAL"
    _prove(crowded)


def _await_waiting(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        while not conn.execute(
            "SELECT FROM pg_stat_activity WHERE application_name = 'headwater'"
            " AND wait_event_type = 'Lock'"
        ).fetchall():
            time.sleep(0.02)
