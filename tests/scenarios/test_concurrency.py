"""Writers of every kind while refreshes run: at every epoch nothing is lost and nothing doubled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from threading import Event
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel, sql

import headwater
from headwater import RefreshResult
from tests.battery.oracle import find_difference

Connection = psycopg.Connection[Any]

SECONDS = 10
WRITERS = 8
LEVELS = (
    IsolationLevel.READ_COMMITTED,
    IsolationLevel.REPEATABLE_READ,
    IsolationLevel.SERIALIZABLE,
)
# A row of the ledger carries the transaction that wrote it: at an epoch exactly those rows count
# whose transaction the epoch's snapshot shows.
SETUP = """
CREATE TABLE accounts (id int PRIMARY KEY, owner text, balance int NOT NULL DEFAULT 0);
CREATE TABLE ledger (writer xid8 NOT NULL DEFAULT pg_current_xact_id(), account int, delta int);
INSERT INTO accounts SELECT n, 'owner ' || n FROM generate_series(1, 5) AS n;
INSERT INTO ledger (account, delta) SELECT n % 5 + 1, n FROM generate_series(1, 50) AS n;
"""
QUERIES = {
    "totals": "SELECT account, sum(delta) AS total, count(*) AS n FROM ledger GROUP BY account",
    "grand": "SELECT sum(total) AS total, sum(n) AS n, count(*) AS accounts FROM totals",
    "details": (
        "SELECT l.writer, l.account, l.delta, a.owner, a.balance"
        " FROM ledger l LEFT JOIN accounts a ON a.id = l.account"
    ),
}
# One statement, so one snapshot: the stored rows, the epoch at which they stand, and the ledger.
AT_EPOCH = """
WITH epoch AS (
    SELECT e.snapshot FROM pgtrickle.pgt_stream_tables st JOIN pgtrickle.pgt_epochs e USING (epoch)
     WHERE st.pgt_name = %(table)s
), seen AS (
    SELECT account, delta FROM ledger, epoch WHERE pg_visible_in_snapshot(writer, snapshot)
), wanted AS ({wanted}), stored AS ({stored})
SELECT (SELECT count(*) FROM (TABLE wanted EXCEPT ALL TABLE stored) AS missing),
       (SELECT count(*) FROM (TABLE stored EXCEPT ALL TABLE wanted) AS extra),
       (SELECT count(*) > 0 FROM stored), (SELECT count(*) FROM epoch)
"""
PROOFS = {
    "totals": (
        "SELECT account, sum(delta), count(*) FROM seen GROUP BY account",
        "SELECT account, total, n FROM totals",
    ),
    "grand": (
        "SELECT sum(delta), count(*), count(DISTINCT account) FROM seen",
        "SELECT total, n, accounts FROM grand",
    ),
    "details": ("SELECT account, delta FROM seen", "SELECT account, delta FROM details"),
}


@dataclass
class Writer:
    """One writer: keeps writing until told to stop, and knows what it committed."""

    dsn: str
    number: int
    stop: Event
    committed: int = 0

    def run(self) -> int:
        random = Random(self.number)
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            turn = 0
            while not self.stop.is_set():
                turn += 1
                self._write(conn, random, f"w{self.number}_{turn}")
        return self.committed

    def _write(self, conn: Connection, random: Random, gid: str) -> None:
        conn.isolation_level = random.choice(LEVELS)
        rows = random.randint(1, 20)
        ending = random.choices(
            ("commit", "rollback", "prepare", "prepare, rollback"), (6, 2, 1, 1)
        )
        try:
            with conn.transaction(force_rollback=ending == ["rollback"]):
                self._statements(conn, random, rows)
                time.sleep(random.choice((0, 0, 0, 0.05, 0.2, 1, 3)) if self.number % 2 else 0)
                if ending[0].startswith("prepare"):
                    conn.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(gid)))
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
            return
        if ending[0].startswith("prepare"):
            time.sleep(random.random())
            word = "ROLLBACK" if ending == ["prepare, rollback"] else "COMMIT"
            conn.execute(sql.SQL(f"{word} PREPARED {{}}").format(sql.Literal(gid)))
        self.committed += rows if ending[0] in ("commit", "prepare") else 0

    @staticmethod
    def _statements(conn: Connection, random: Random, rows: int) -> None:
        values = sql.SQL(", ").join(
            sql.SQL("({}, {})").format(random.randint(1, 6), random.randint(-5, 5))
            for _ in range(rows)
        )
        conn.execute(sql.SQL("INSERT INTO ledger (account, delta) VALUES {}").format(values))
        if random.random() < 0.5:
            conn.execute(
                "UPDATE accounts SET balance = balance + 1 WHERE id = %s", [random.randint(1, 5)]
            )


def _refresh_for_a_while(dsn: str, stop: Event, names: tuple[str, ...], pause: float) -> int:
    """Refresh in turn, and after each refresh prove the state of its epoch; return how often."""
    count = 0
    with headwater.connect(dsn) as hw, psycopg.connect(dsn, autocommit=True) as conn:
        while not stop.is_set():
            for name in names:
                result = hw.refresh_stream_table(name)
                assert result.action in ("DIFFERENTIAL", "NO_DATA"), result
                _prove(conn)
                count += 1
            if count % 20 == 0:
                verified = hw.verify(names[0])
                assert verified.equal, verified
            time.sleep(pause)
    return count


def _prove(conn: Connection) -> None:
    """Compare each table with what the snapshot of its epoch shows of the ledger."""
    for table, (wanted, stored) in PROOFS.items():
        query = AT_EPOCH.format(wanted=wanted, stored=stored).encode()
        [found] = conn.execute(query, {"table": table}).fetchall()
        assert found == (0, 0, True, 1), table


def _create_all(dsn: str) -> None:
    with headwater.connect(dsn) as hw, psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(SETUP)
        for name, query in QUERIES.items():
            hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")


def test_nothing_is_lost_or_doubled_under_concurrent_writers(database: str) -> None:
    _create_all(database)
    stop = Event()
    writers = [Writer(database, number, stop) for number in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS + 3) as pool:
        refreshers = [
            pool.submit(_refresh_for_a_while, database, stop, ("totals", "grand"), 0.0),
            pool.submit(_refresh_for_a_while, database, stop, ("details",), 0.7),
            pool.submit(_refresh_for_a_while, database, stop, ("grand", "details", "totals"), 0.3),
        ]
        writing = [pool.submit(writer.run) for writer in writers]
        _wait_for(refreshers + writing, SECONDS)
        stop.set()
        counts = [future.result() for future in refreshers]
        committed = sum(future.result() for future in writing)
    assert min(counts) > 1
    _prove_end(database, committed)


def _wait_for(futures: list[Future[int]], seconds: float) -> None:
    """Let them run; end early if one fails, so that its error is seen at once."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not any(future.done() for future in futures):
        time.sleep(0.1)


def _prove_end(dsn: str, committed: int) -> None:
    with headwater.connect(dsn) as hw, psycopg.connect(dsn, autocommit=True) as conn:
        for name in QUERIES:
            hw.refresh_stream_table(name)
        for name, query in QUERIES.items():
            assert find_difference(conn, query, name) is None
            assert hw.refresh_stream_table(name).action == "NO_DATA"
            statuses = {(row.action, row.status) for row in hw.refresh_history(name, 10_000)}
            incremental = {("DIFFERENTIAL", "COMPLETED"), ("NO_DATA", "COMPLETED")}
            assert statuses == incremental | {("REINITIALIZE", "COMPLETED")}
        [(rows, pending)] = conn.execute(
            "SELECT (SELECT count(*) FROM ledger),"
            " (SELECT sum(pending_rows) FROM pgtrickle.change_buffer_sizes())"
        ).fetchall()
        assert rows == 50 + committed > 50
        assert pending == 0


# --- two refreshes of one table -----------------------------------------------------------------

# A refresh of a table with this function in its query waits in the middle for the gate.
GATE = """
CREATE FUNCTION gate(value int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN value; END $$;
CREATE TABLE source (id int PRIMARY KEY, value int);
INSERT INTO source VALUES (1, 1);
"""
GATED = "SELECT id, public.gate(value) AS value FROM source"


@contextmanager
def _closed_gate(conn: Connection) -> Iterator[None]:
    conn.execute("SELECT pg_advisory_lock(4711)")
    try:
        yield
    finally:
        conn.execute("SELECT pg_advisory_unlock(4711)")


def _in_thread(pool: ThreadPoolExecutor, dsn: str) -> Future[RefreshResult]:
    def refresh() -> RefreshResult:
        with headwater.connect(dsn) as hw:
            return hw.refresh_stream_table("gated")

    return pool.submit(refresh)


def _await(condition: Callable[[], bool]) -> None:
    """Wait until something happens; the timeout of the test ends it if it never does."""
    while not condition():
        time.sleep(0.02)


def _waiting(conn: Connection, kind: str) -> int:
    [(count,)] = conn.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'headwater'"
        " AND wait_event_type = 'Lock' AND wait_event = %s",
        [kind],
    ).fetchall()
    return int(count)


@pytest.fixture
def gated(database: str, conn: Connection) -> Iterator[headwater.Headwater]:
    conn.execute(GATE)
    with headwater.connect(database) as hw:
        hw.create_stream_table("gated", GATED, refresh_mode="DIFFERENTIAL")
        conn.execute("INSERT INTO source VALUES (2, 2)")
        yield hw


def test_second_refresh_waits(gated: headwater.Headwater, database: str, conn: Connection) -> None:
    with ThreadPoolExecutor(2) as pool:
        with _closed_gate(conn):
            first = _in_thread(pool, database)
            _await(lambda: _waiting(conn, "advisory") == 1)
            conn.execute("INSERT INTO source VALUES (3, 3)")
            second = _in_thread(pool, database)
            _await(lambda: _waiting(conn, "relation") == 1)
        assert (first.result().action, first.result().rows_inserted) == ("DIFFERENTIAL", 1)
        assert (second.result().action, second.result().rows_inserted) == ("DIFFERENTIAL", 1)
    assert find_difference(conn, GATED, "gated") is None
    statuses = [(row.action, row.status) for row in gated.refresh_history("gated")]
    assert sorted(statuses) == [
        ("DIFFERENTIAL", "COMPLETED"),
        ("DIFFERENTIAL", "COMPLETED"),
        ("REINITIALIZE", "COMPLETED"),
    ]


def test_second_refresh_that_must_not_wait_is_recorded_as_skipped(
    gated: headwater.Headwater, database: str, conn: Connection
) -> None:
    with ThreadPoolExecutor(1) as pool:
        with _closed_gate(conn):
            first = _in_thread(pool, database)
            _await(lambda: _waiting(conn, "advisory") == 1)
            skipped = gated.refresh_stream_table("gated", wait=False)
        assert first.result().action == "DIFFERENTIAL"
    assert (skipped.name, skipped.action, skipped.rows) == ("public.gated", "SKIP", 0)
    assert skipped.reason == "public.gated is being refreshed or written by someone else"
    rows = {(row.action, row.status, row.reason) for row in gated.refresh_history("gated")}
    assert rows == {
        ("REINITIALIZE", "COMPLETED", "first fill"),
        ("DIFFERENTIAL", "COMPLETED", None),
        ("SKIP", "SKIPPED", skipped.reason),
    }
    assert find_difference(conn, GATED, "gated") is None
    [status] = gated.pgt_status()
    assert (status.status, status.errors) == ("ACTIVE", 0)


def test_running_refresh_shows_in_the_history(
    gated: headwater.Headwater, database: str, conn: Connection
) -> None:
    with ThreadPoolExecutor(1) as pool, _closed_gate(conn):
        first = _in_thread(pool, database)
        _await(lambda: _waiting(conn, "advisory") == 1)
        [running, _] = gated.refresh_history("gated")
        [(is_alive,)] = conn.execute(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)", [running.backend_pid]
        ).fetchall()
        conn.execute("SELECT pg_advisory_unlock(4711)")
        first.result()
        conn.execute("SELECT pg_advisory_lock(4711)")
    assert (running.status, running.end_time, is_alive) == ("RUNNING", None, True)
    assert gated.refresh_history("gated")[0].status == "COMPLETED"


# --- readers ------------------------------------------------------------------------------------


def _read_for_a_while(dsn: str, stop: Event) -> int:
    """Read the stream table; every whole state has as many rows as it says and balances to 0."""
    count = 0
    with psycopg.connect(dsn, autocommit=True, options="-c lock_timeout=1s") as conn:
        while not stop.is_set():
            [(rows, total, versions)] = conn.execute(
                "SELECT count(*), sum(amount), count(DISTINCT version) FROM pairs"
            ).fetchall()
            assert (rows, total, versions) == (2000, 0, 1)
            count += 1
    return count


@pytest.mark.parametrize("mode", ["DIFFERENTIAL", "FULL"])
def test_readers_see_whole_states_and_do_not_wait(database: str, mode: str) -> None:
    with headwater.connect(database) as hw, psycopg.connect(database, autocommit=True) as conn:
        conn.execute(
            "CREATE TABLE entries (id int PRIMARY KEY, amount int, version int);"
            "INSERT INTO entries SELECT n, CASE WHEN n % 2 = 0 THEN n ELSE -n - 1 END, 0"
            " FROM generate_series(1, 2000) AS n"
        )
        query = "SELECT id, amount, version FROM entries"
        hw.create_stream_table("pairs", query, refresh_mode=mode)
        stop = Event()
        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(_read_for_a_while, database, stop) for _ in range(2)]
            for turn in range(20):
                with conn.transaction():
                    conn.execute("UPDATE entries SET amount = -amount, version = version + 1")
                    conn.execute("UPDATE entries SET id = -id WHERE id %% 10 = %s", [turn % 10])
                assert hw.refresh_stream_table("pairs").action == mode
            stop.set()
            assert min(reader.result() for reader in readers) > 0
        assert find_difference(conn, query, "pairs") is None
