"""Writers of every kind while tables on Spark are refreshed: at every epoch nothing is lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
import pytest

import headwater
from headwater import RefreshResult
from headwater.spark.lake import find_missing
from tests.battery.oracle import find_difference
from tests.integration.spark.conftest import NOT_RUN, must_run
from tests.scenarios.test_concurrency import GATE, SETUP, Writer
from tests.servers import Server
from tests.spark_traces import consolidated, list_traces, prove_lake_clean, prove_traces

Connection = psycopg.Connection[Any]

EPOCHS = 4  # with changes, of each table
WRITERS = (0, 1, 3, 5)  # the odd ones hold their transactions open
QUERIES = {
    "totals": (
        "SELECT a.id, count(*) AS n, sum(l.delta) AS total"
        " FROM ledger l JOIN accounts a ON a.id = l.account GROUP BY a.id"
    ),
    "details": (
        "SELECT l.writer, l.account, l.delta, a.owner, a.balance"
        " FROM ledger l JOIN accounts a ON a.id = l.account"
    ),
}
# One statement, so one snapshot: the stored rows, the epoch at which they stand, and the ledger.
# The rows of accounts change in place, but neither go nor come: 1 to 5.
AT_EPOCH = """
WITH epoch AS (
    SELECT e.epoch, e.snapshot
      FROM pgtrickle.pgt_stream_tables st JOIN pgtrickle.pgt_epochs e USING (epoch)
     WHERE st.pgt_name = %(table)s
), seen AS (
    SELECT writer, account, delta FROM ledger, epoch
     WHERE pg_visible_in_snapshot(writer, snapshot) AND account BETWEEN 1 AND 5
), wanted AS ({wanted}), stored AS ({stored})
SELECT (SELECT count(*) FROM (TABLE wanted EXCEPT ALL TABLE stored) AS missing),
       (SELECT count(*) FROM (TABLE stored EXCEPT ALL TABLE wanted) AS extra),
       (SELECT count(*) > 0 FROM stored), epoch, snapshot::text FROM epoch
"""
PROOFS = {
    "totals": (
        "SELECT account, count(*), sum(delta) FROM seen GROUP BY account",
        "SELECT id, n, total FROM totals",
    ),
    "details": (
        "SELECT writer, account, delta FROM seen",
        "SELECT writer, account, delta FROM details",
    ),
}
SEEN = "SELECT {} FROM ledger WHERE pg_visible_in_snapshot(writer, %s::pg_snapshot)"

Epochs = dict[int, str]


@pytest.fixture
def dsn(pg18: Server) -> Iterator[str]:
    """The DSN of a fresh database, if Spark can run here."""
    missing = find_missing()
    if missing is not None and must_run():
        pytest.fail(missing)
    if missing is not None:
        pytest.skip(f"{NOT_RUN}Spark: {missing}")
    dsn = pg18.create_database()
    yield dsn
    pg18.drop_database(dsn)


def _connect(dsn: str, lake: Path) -> headwater.Headwater:
    return headwater.connect(dsn, lake=str(lake), spark_master="local[2]")


def _create(hw: headwater.Headwater, name: str, query: str) -> None:
    hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL", engine="spark")


def _refresh_often(dsn: str, lake: Path, name: str) -> Epochs:
    """Refresh, and after each refresh prove the state of its epoch; return the epochs."""
    found: Epochs = {}
    with _connect(dsn, lake) as hw, psycopg.connect(dsn, autocommit=True) as conn:
        while len(found) < EPOCHS:
            result = hw.refresh_stream_table(name)
            assert result.action in ("DIFFERENTIAL", "NO_DATA"), result
            epoch, snapshot = _prove_epoch(conn, name)
            if result.action == "DIFFERENTIAL":
                found[epoch] = snapshot
            if len(found) == 1:  # its changes to the lake are rolled back, and go with the next
                verified = hw.verify(name)
                assert verified.equal, verified
    return found


def _prove_epoch(conn: Connection, table: str) -> tuple[int, str]:
    """Compare a table with what the snapshot of its epoch shows of the ledger."""
    wanted, stored = PROOFS[table]
    query = AT_EPOCH.format(wanted=wanted, stored=stored).encode()
    [(missing, extra, is_filled, epoch, snapshot)] = conn.execute(
        query, {"table": table}
    ).fetchall()
    assert (missing, extra, is_filled) == (0, 0, True), table
    return epoch, snapshot


def test_no_write_is_lost_or_doubled(dsn: str, tmp_path: Path) -> None:
    with _connect(dsn, tmp_path) as hw, psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(SETUP)
        for name, query in QUERIES.items():
            _create(hw, name, query)
    stop = Event()
    with ThreadPoolExecutor(len(WRITERS) + len(QUERIES)) as pool:
        writing = [pool.submit(Writer(dsn, number, stop).run) for number in WRITERS]
        refreshing = {name: pool.submit(_refresh_often, dsn, tmp_path, name) for name in QUERIES}
        try:
            epochs = {name: future.result() for name, future in refreshing.items()}
        finally:
            stop.set()
        committed = sum(future.result() for future in writing)
    assert committed > 0
    with _connect(dsn, tmp_path) as hw, psycopg.connect(dsn, autocommit=True) as conn:
        _prove_end(hw, conn)
        _prove_every_epoch(conn, epochs)
        prove_lake_clean(conn, tmp_path)


def _prove_end(hw: headwater.Headwater, conn: Connection) -> None:
    for name, query in QUERIES.items():
        hw.refresh_stream_table(name)
        assert find_difference(conn, query, name) is None
        assert hw.verify(name).equal
        statuses = {(row.action, row.status) for row in hw.refresh_history(name, 10_000)}
        written = {("REINITIALIZE", "COMPLETED"), ("DIFFERENTIAL", "COMPLETED")}
        assert statuses - {("NO_DATA", "COMPLETED")} == written
    assert prove_traces(conn) == 4
    for name in QUERIES:
        assert hw.refresh_stream_table(name).action == "NO_DATA"
    sizes = "SELECT sum(pending_rows) FROM pgtrickle.change_buffer_sizes()"
    assert conn.execute(sizes).fetchall() == [(0,)]


def _prove_every_epoch(conn: Connection, epochs: dict[str, Epochs]) -> None:
    """A trace, cut at any epoch that was refreshed to, is the ledger of that epoch's snapshot."""
    names = list(epochs)  # in the order of creation, as the traces are
    ledgers = [trace for trace in list_traces(conn) if trace[2] == "ledger"]
    for name, (url, version, _, columns) in zip(names, ledgers, strict=True):
        query = SEEN.format(", ".join(columns)).encode()
        for epoch, snapshot in epochs[name].items():
            seen = Counter(tuple(map(_plain, row)) for row in conn.execute(query, [snapshot]))
            stored = consolidated(url, version, epoch)
            assert {tuple(map(_plain, row)): n for row, n in stored.items()} == seen


def _plain(value: object) -> int:
    return int(str(value))


# --- two refreshes of one table -----------------------------------------------------------------

# The gate is an expression over one row, so the refresh waits for it while it ingests.
GATED = (
    "SELECT s.id, public.gate(s.value) AS value, t.name FROM source s JOIN names t ON t.id = s.id"
)
NAMES = "CREATE TABLE names (id int PRIMARY KEY, name text);"
FILL = "INSERT INTO names SELECT n, 'n' || n FROM generate_series(1, 9) AS n"


@contextmanager
def _closed_gate(conn: Connection) -> Iterator[None]:
    conn.execute("SELECT pg_advisory_lock(4711)")
    try:
        yield
    finally:
        conn.execute("SELECT pg_advisory_unlock(4711)")


def _in_thread(pool: ThreadPoolExecutor, dsn: str, lake: Path) -> Future[RefreshResult]:
    def refresh() -> RefreshResult:
        with _connect(dsn, lake) as hw:
            return hw.refresh_stream_table("gated")

    return pool.submit(refresh)


def _await_waiting(conn: Connection, kind: str) -> None:
    while not conn.execute(
        "SELECT FROM pg_stat_activity WHERE application_name = 'headwater'"
        " AND wait_event_type = 'Lock' AND wait_event = %s",
        [kind],
    ).fetchall():
        time.sleep(0.02)


def test_second_refresh_waits_or_is_skipped(dsn: str, tmp_path: Path) -> None:
    with _connect(dsn, tmp_path) as hw, psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(GATE + NAMES + FILL)
        _create(hw, "gated", GATED)
        conn.execute("INSERT INTO source VALUES (2, 2)")
        with ThreadPoolExecutor(2) as pool:
            with _closed_gate(conn):
                first = _in_thread(pool, dsn, tmp_path)
                _await_waiting(conn, "advisory")
                conn.execute("INSERT INTO source VALUES (3, 3)")
                second = _in_thread(pool, dsn, tmp_path)
                _await_waiting(conn, "relation")
                skipped = hw.refresh_stream_table("gated", wait=False)
            done = [(f.result().action, f.result().rows_inserted) for f in (first, second)]
        assert done == [("DIFFERENTIAL", 1), ("DIFFERENTIAL", 1)]
        assert skipped.action == "SKIP"
        assert skipped.reason == "public.gated is being refreshed or written by someone else"
        assert find_difference(conn, GATED, "gated") is None
        rows = Counter((row.action, row.status) for row in hw.refresh_history("gated"))
        assert rows == {
            ("REINITIALIZE", "COMPLETED"): 1,
            ("DIFFERENTIAL", "COMPLETED"): 2,
            ("SKIP", "SKIPPED"): 1,
        }
        assert prove_traces(conn) == 2
        prove_lake_clean(conn, tmp_path)
