"""`headwater run`, as a process of its own, on real servers."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import headwater
from headwater.catalog.alerts import CHANNEL, EVENTS
from tests.battery.oracle import find_difference
from tests.daemons import SLOWLY, Process, daemon, until, waiting

Connection = psycopg.Connection[Any]
TOTALS = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
FRAGILE = "SELECT id, 100 / amount AS share FROM orders"


@pytest.fixture
def hw(database: str, conn: Connection) -> Iterator[headwater.Headwater]:
    with headwater.connect(database) as hw:
        conn.execute("CREATE TABLE orders (id int PRIMARY KEY, customer text, amount int)")
        conn.execute("INSERT INTO orders VALUES (1, 'ann', 3), (2, 'bob', 5), (3, 'ann', 7)")
        hw.connection.execute("SET pg_trickle.min_target_lag_seconds = 1")
        yield hw


@pytest.fixture
def alerts(hw: headwater.Headwater, database: str) -> Iterator[Alerts]:
    """Hears from now on."""
    with psycopg.connect(database, autocommit=True) as conn:
        yield Alerts(conn)


class Alerts:
    """The alerts that were heard and not asked for yet."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._heard: list[dict[str, Any]] = []
        conn.add_notify_handler(lambda note: self._heard.append(json.loads(note.payload)))
        conn.execute(f"LISTEN {CHANNEL}")

    def next(self, event: str) -> dict[str, Any]:
        """Return the next alert of a kind, passing over others."""
        return until(lambda: self._find(event), lambda: f"no {event}")  # type: ignore[no-any-return]

    def _find(self, event: str) -> dict[str, Any] | None:
        self._conn.execute("SELECT")
        while self._heard:
            alert = self._heard.pop(0)
            assert alert["event"] in EVENTS
            assert "st" in alert
            if alert["event"] == event:
                return alert
        return None


def wait_for_equal(conn: Connection, query: str, name: str) -> None:
    until(lambda: find_difference(conn, query, name) is None)


def test_tables_follow_without_anyone_asking(
    hw: headwater.Headwater, conn: Connection, database: str
) -> None:
    hw.create_stream_table("totals", TOTALS, schedule="3s")
    hw.create_stream_table("most", "SELECT max(total) AS most FROM totals", schedule="calculated")
    hw.create_stream_table("late", "SELECT count(*) AS n FROM orders", "3s", initialize=False)
    with daemon(database) as process:
        process.wait_for("leading")
        conn.execute("INSERT INTO orders VALUES (4, 'cid', 9)")
        for name, query in (("totals", TOTALS), ("most", "SELECT max(total) AS most FROM totals")):
            wait_for_equal(conn, query, name)
        wait_for_equal(conn, "SELECT count(*) AS n FROM orders", "late")
        hw.create_stream_table("new", "SELECT id FROM orders", schedule="3s")
        conn.execute("INSERT INTO orders VALUES (5, 'dan', 1)")
        wait_for_equal(conn, "SELECT id FROM orders", "new")
        row = conn.execute("SELECT is_running, process_id FROM pgtrickle.pgt_daemon").fetchone()
        assert row == (True, process.pid)
        assert process.end(signal.SIGTERM) == 0
    [(running,)] = conn.execute("SELECT is_running FROM pgtrickle.pgt_daemon").fetchall()
    assert not running
    [(left,)] = conn.execute(
        "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE status = 'RUNNING'"
    ).fetchall()
    assert left == 0


def test_requests_are_served(hw: headwater.Headwater, conn: Connection, database: str) -> None:
    with daemon(database) as process:
        process.wait_for("leading")
        until(lambda: conn.execute("SELECT pgtrickle.is_served()").fetchone() == (True,))
        conn.execute("SELECT pgtrickle.create_stream_table('totals', %s)", [TOTALS])
        query = "SELECT pgtrickle.wait_for_request(max(request_id)) FROM pgtrickle.pgt_requests"
        assert conn.execute(query).fetchone() == ("done",)
        assert find_difference(conn, TOTALS, "totals") is None


def test_a_failing_table_is_tried_suspended_and_resumed(
    hw: headwater.Headwater, conn: Connection, database: str, alerts: Alerts
) -> None:
    hw.create_stream_table("shares", FRAGILE, schedule="1s")
    hw.create_stream_table("above", "SELECT id FROM shares", schedule="1s")
    hw.create_stream_table("totals", TOTALS, schedule="1s")
    conn.execute("INSERT INTO orders VALUES (4, 'cid', 0)")
    with daemon(database) as process:
        failed = alerts.next("refresh_failed")
        assert (failed["st"], failed["error_class"], failed["error_code"]) == (
            "public.shares", "user", "HW-111",
        )  # fmt: skip
        suspended = alerts.next("auto_suspended")
        assert (suspended["st"], suspended["errors"]) == ("public.shares", 3)
        assert "division by zero" in suspended["last_error"]
        wait_for_equal(conn, TOTALS, "totals")  # one table's failure is not another's
        failures = [r for r in hw.refresh_history("shares") if r.status == "FAILED"]
        assert [(r.error_class, r.error_code) for r in failures] == [("user", "HW-111")] * 3
        found = {(f.check, f.subject) for f in hw.health_check()}
        assert {("suspended", "public.shares"), ("held", "public.above")} <= found
        conn.execute("UPDATE orders SET amount = 1 WHERE id = 4")
        hw.alter_stream_table("shares", status="ACTIVE")
        assert alerts.next("resumed")["st"] == "public.shares"
        wait_for_equal(conn, FRAGILE, "shares")
        wait_for_equal(conn, "SELECT id FROM shares", "above")
        assert process.end() == 0


def test_a_lock_in_the_way_is_skipped_and_waited_out(
    hw: headwater.Headwater, conn: Connection, database: str, alerts: Alerts
) -> None:
    hw.create_stream_table("totals", TOTALS, schedule="1s")
    conn.execute("INSERT INTO orders VALUES (4, 'cid', 9)")
    with daemon(database) as process:
        with psycopg.connect(database) as other:
            other.execute("LOCK TABLE totals IN SHARE MODE")
            until(lambda: any(r.action == "SKIP" for r in hw.refresh_history("totals")))
            assert alerts.next("lag_exceeded")["lag_seconds"] > 2
        wait_for_equal(conn, TOTALS, "totals")
        [status] = hw.pgt_status()
        assert (status.status, status.errors) == ("ACTIVE", 0)
        assert process.end() == 0


def test_two_at_once_and_a_table_that_is_still_running(
    hw: headwater.Headwater, conn: Connection, database: str, alerts: Alerts
) -> None:
    """Both refreshes wait inside the server for one lock: only side by side do both come to it."""
    conn.execute(SLOWLY)
    for name in ("one", "two"):
        hw.create_stream_table(name, "SELECT id, slowly(id) AS n FROM orders", schedule="1s")
    with daemon(database) as process, psycopg.connect(database) as other:
        other.execute("SELECT pg_advisory_xact_lock(7)")
        conn.execute("INSERT INTO orders VALUES (4, 'cid', 9)")
        until(lambda: waiting(conn) == 2)
        process.wait_for("skipped", st="public.one")
        assert alerts.next("scheduler_falling_behind")["max_concurrent_refreshes"] == 4
        other.rollback()
        for name in ("one", "two"):
            wait_for_equal(conn, "SELECT id, id AS n FROM orders", name)
        assert process.end() == 0


def test_stop_abandons_what_does_not_end(
    hw: headwater.Headwater, conn: Connection, database: str
) -> None:
    conn.execute(SLOWLY)
    hw.create_stream_table("one", "SELECT id, slowly(id) AS n FROM orders", schedule="1s")
    with psycopg.connect(database) as other:
        other.execute("SELECT pg_advisory_xact_lock(7)")
        conn.execute("INSERT INTO orders VALUES (4, 'cid', 9)")
        with daemon(database, HEADWATER_STOP_SECONDS="0.2") as process:
            until(lambda: waiting(conn) == 1)
            assert process.end() == 0
    run = next(r for r in hw.refresh_history("one") if r.action != "SKIP")
    assert (run.status, run.error_class) == ("FAILED", "system")
    assert hw.refresh_stream_table("one").rows_inserted == 1


def test_capture_broken_and_rebuilt(
    hw: headwater.Headwater, conn: Connection, database: str, alerts: Alerts
) -> None:
    hw.create_stream_table("totals", TOTALS, schedule="1s")
    conn.execute("ALTER TABLE orders DISABLE TRIGGER ALL")
    conn.execute("INSERT INTO orders VALUES (4, 'cid', 9)")
    with daemon(database):
        assert alerts.next("capture_broken")["source"] == "public.orders"
        assert alerts.next("reinitialize_needed")["st"] == "public.totals"
        wait_for_equal(conn, TOTALS, "totals")


def test_buffer_warning(
    hw: headwater.Headwater, conn: Connection, database: str, alerts: Alerts
) -> None:
    hw.create_stream_table("totals", TOTALS, schedule="1h")
    conn.execute("INSERT INTO orders SELECT n, 'x', 1 FROM generate_series(10, 30) n")
    [(buffer,)] = conn.execute("SELECT buffer_name FROM pgtrickle.pgt_change_tracking").fetchall()
    conn.execute(f"ANALYZE {buffer}")
    hw.alter_stream_table("totals", status="SUSPENDED")
    with daemon(database, HEADWATER_BUFFER_ALERT_ROWS="20"):
        warning = alerts.next("buffer_lag_warning")
    assert (warning["source"], warning["pending_rows"]) == ("public.orders", 21)


def test_settings_come_from_file_and_database_and_are_reloaded(
    hw: headwater.Headwater, conn: Connection, database: str, tmp_path: Path
) -> None:
    hw.create_stream_table("totals", TOTALS, schedule="1s")
    [(name,)] = conn.execute("SELECT current_database()").fetchall()
    conn.execute(f"ALTER DATABASE {name} SET pg_trickle.enabled = off")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    file = tmp_path / "headwater.toml"
    file.write_text(
        f'http = "127.0.0.1:{port}"\n[settings]\nmax_concurrent_refreshes = 1\n'
        f'[[databases]]\ndsn = "{database}"\n'
    )
    conn.execute("INSERT INTO orders VALUES (4, 'cid', 9)")
    nowhere = "postgresql://nowhere.invalid/"
    with daemon(nowhere, "--config", str(file), HEADWATER_HTTP="") as process:
        process.wait_for("leading")
        assert ("enabled", None) in {(f.check, f.subject) for f in _fresh_health(database)}
        assert find_difference(conn, TOTALS, "totals") is not None
        conn.execute(f"ALTER DATABASE {name} RESET pg_trickle.enabled")
        process._process.send_signal(signal.SIGHUP)
        process.wait_for("reloaded")
        wait_for_equal(conn, TOTALS, "totals")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        label = f'database="{name}",stream_table="public.totals"'
        assert f'headwater_up{{database="{name}"}} 1\n' in text
        assert f'headwater_leading{{database="{name}"}} 1\n' in text
        assert f'headwater_status{{{label},status="ACTIVE"}} 1\n' in text
        assert f"headwater_target_lag_seconds{{{label}}} 1.0\n" in text
        assert f'headwater_buffer_rows{{database="{name}",source="public.orders"}}' in text
        _follow_file(process, file, conn)
        assert process.end() == 0


def _follow_file(process: Process, file: Path, conn: Connection) -> None:
    """What the file comes to say holds without a signal; what has no meaning is told once."""
    known = file.read_text()
    file.write_text(f"{known}\nnonsense = 1")
    fault = f"{file}, databases says nonsense, which means nothing"
    process.wait_for("bad configuration", error=fault)
    file.write_text(known.replace("[settings]", "[settings]\nmax_consecutive_errors = 5"))
    until(lambda: sum(e["event"] == "reloaded" for e in process.events) == 2)
    assert sum(e["event"] == "bad configuration" for e in process.events) == 1


def _fresh_health(database: str) -> tuple[headwater.results.Finding, ...]:
    with headwater.connect(database) as hw:
        return hw.health_check()
