"""Every command, against real servers: what it does, what it prints, and how it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from headwater.cli import main
from tests.servers import Embedded

TOTALS = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
BIG = "SELECT customer FROM totals WHERE total > 10"


@pytest.fixture
def shop(database: str, conn: psycopg.Connection) -> str:
    """A database with one table of orders; its DSN."""
    conn.execute("CREATE TABLE orders (id int PRIMARY KEY, customer text, amount int)")
    conn.execute("INSERT INTO orders VALUES (1, 'ann', 5), (2, 'bob', 20), (3, 'ann', 3)")
    return database


class TestInit:
    def test_installs_once(self, database: str) -> None:
        first, second = ask(database, "init"), ask(database, "init")
        assert first["dsn"] == database
        assert first["applied"][0] == 1
        assert second["applied"] == []
        assert tell(database, "init") == "catalog up to date\n"

    def test_uninstall_asks(self, shop: str, conn: psycopg.Connection) -> None:
        ask(shop, "create", "totals", TOTALS)
        refused = run(shop, "uninstall", input="n\n")
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "Aborted!" in refused.stderr
        assert has_catalog(conn)
        assert run(shop, "uninstall", input="y\n").exit_code == 0
        assert not has_catalog(conn)
        assert conn.execute("SELECT count(*) FROM totals").fetchone() == (2,)

    def test_uninstall_without_asking(self, database: str, conn: psycopg.Connection) -> None:
        assert ask(database, "uninstall", "--yes") == {"uninstalled": True}
        tell(database, "init")
        assert tell(database, "uninstall", "--yes") == "headwater is gone from this database\n"
        assert not has_catalog(conn)


class TestCreate:
    def test_creates(self, shop: str, conn: psycopg.Connection) -> None:
        created = ask(shop, "create", "totals", TOTALS)
        assert created["name"] == "public.totals"
        assert created["effective_mode"] == "DIFFERENTIAL"
        assert created["key_columns"] == ["customer"]
        assert rows(conn, "totals") == [("ann", 8), ("bob", 20)]

    def test_tells_people(self, shop: str) -> None:
        text = tell(shop, "create", "totals", TOTALS, "--mode", "full", "--schedule", "5m")
        assert text.startswith("created public.totals\nmode    FULL\nengine  postgres\n")

    def test_from_standard_input(self, shop: str, conn: psycopg.Connection) -> None:
        assert run(shop, "create", "totals", "-", input=TOTALS).exit_code == 0
        assert rows(conn, "totals") == [("ann", 8), ("bob", 20)]

    def test_from_a_file(self, shop: str, conn: psycopg.Connection, tmp_path: Path) -> None:
        (tmp_path / "totals.sql").write_text(TOTALS)
        tell(shop, "create", "totals", f"@{tmp_path}/totals.sql")
        assert rows(conn, "totals") == [("ann", 8), ("bob", 20)]

    def test_not_initialized(self, shop: str, conn: psycopg.Connection) -> None:
        tell(shop, "create", "totals", TOTALS, "--no-initialize")
        assert rows(conn, "totals") == []
        tell(shop, "refresh", "totals")
        assert rows(conn, "totals") == [("ann", 8), ("bob", 20)]

    def test_dry_run_creates_nothing(self, shop: str) -> None:
        assert ask(shop, "create", "totals", TOTALS, "--dry-run")["key_columns"] == ["customer"]
        assert "SQL of a refresh" in tell(shop, "create", "totals", TOTALS, "--dry-run")
        assert ask(shop, "status") == []

    def test_replace(self, shop: str, conn: psycopg.Connection) -> None:
        tell(shop, "create", "totals", TOTALS, "--replace")
        tell(shop, "create", "totals", "SELECT customer FROM orders", "--replace")
        assert rows(conn, "totals") == [("ann",), ("ann",), ("bob",)]

    def test_name_is_taken(self, shop: str) -> None:
        tell(shop, "create", "totals", TOTALS)
        refuse(shop, 2, "HW-104: ", "create", "totals", TOTALS)

    def test_query_that_cannot_be_maintained(self, shop: str) -> None:
        refuse(shop, 2, "HW-101: ", "create", "r", "SELECT random() FROM orders")
        assert ask(shop, "status") == []

    def test_bad_schedule(self, shop: str) -> None:
        refuse(shop, 2, "HW-102: ", "create", "t", TOTALS, "--schedule", "often")

    def test_error_of_postgresql_is_unchanged(self, shop: str, conn: psycopg.Connection) -> None:
        query = "SELECT nothing FROM orders"
        with pytest.raises(psycopg.Error) as caught:
            conn.execute(query)
        message = caught.value.diag.message_primary
        refuse(shop, 1, str(message), "create", "t", query)


class TestAlter:
    def test_alters(self, shop: str) -> None:
        tell(shop, "create", "totals", TOTALS)
        assert tell(shop, "alter", "totals", "--mode", "full") == "altered totals\n"
        tell(shop, "alter", "totals", "--status", "suspended", "--schedule", "1h30m")
        [status] = ask(shop, "status")
        assert (status["status"], status["effective_mode"]) == ("SUSPENDED", "FULL")
        assert status["target_lag"] == 5400

    def test_calculated_schedule(self, shop: str) -> None:
        tell(shop, "create", "totals", TOTALS)
        changes = {"schedule": "calculated"}
        altered = ask(shop, "alter", "totals", "--schedule", "calculated")
        assert altered == {"altered": "totals", "changes": changes}
        assert ask(shop, "status")[0]["target_lag"] is None

    def test_query(self, shop: str, conn: psycopg.Connection) -> None:
        tell(shop, "create", "totals", TOTALS)
        tell(shop, "alter", "totals", "--query", TOTALS.replace("amount", "-amount"))
        assert rows(conn, "totals") == [("ann", -8), ("bob", -20)]

    def test_unknown_name(self, shop: str) -> None:
        tell(shop, "create", "totals", TOTALS)
        error = refuse(shop, 2, "HW-103: ", "alter", "total", "--mode", "full")
        assert "did you mean public.totals?" in error


class TestDrop:
    def test_refuses_while_others_read_it(self, shop: str) -> None:
        create_two(shop)
        refuse(shop, 2, "HW-105: ", "drop", "totals")
        assert tell(shop, "drop", "big") == "dropped public.big\n"
        assert ask(shop, "drop", "totals") == {"dropped": ["public.totals"]}

    def test_cascade(self, shop: str) -> None:
        create_two(shop)
        dropped = ask(shop, "drop", "totals", "--cascade")["dropped"]
        assert sorted(dropped) == ["public.big", "public.totals"]
        assert ask(shop, "status") == []


class TestRefresh:
    def test_refreshes(self, shop: str, conn: psycopg.Connection) -> None:
        tell(shop, "create", "totals", TOTALS)
        conn.execute("INSERT INTO orders VALUES (4, 'cy', 1), (5, 'ann', 1)")
        [result] = ask(shop, "refresh", "totals")
        assert (result["action"], result["delta_rows"]) == ("DIFFERENTIAL", 2)
        assert (result["rows_inserted"], result["rows_updated"]) == (1, 1)
        assert datetime.fromisoformat(result["data_timestamp"]).tzinfo is not None
        assert rows(conn, "totals") == [("ann", 9), ("bob", 20), ("cy", 1)]
        assert "NO_DATA" in tell(shop, "refresh", "totals")

    def test_all_goes_upstream_first(self, shop: str, conn: psycopg.Connection) -> None:
        create_two(shop)
        conn.execute("UPDATE orders SET amount = 100 WHERE customer = 'ann'")
        assert [r["name"] for r in ask(shop, "refresh", "--all")] == ["public.totals", "public.big"]
        assert rows(conn, "big") == [("ann",), ("bob",)]

    def test_one_failure_does_not_stop_the_others(
        self, shop: str, conn: psycopg.Connection
    ) -> None:
        tell(shop, "create", "inverse", "SELECT id, 100 / amount AS inverse FROM orders")
        tell(shop, "create", "totals", TOTALS)
        conn.execute("INSERT INTO orders VALUES (4, 'cy', 0)")
        result = run(shop, "refresh", "inverse", "totals", "--json")
        assert result.exit_code == 2
        assert result.stderr.startswith("HW-111: ")
        assert "division by zero" in result.stderr
        assert [r["name"] for r in json.loads(result.stdout)] == ["public.totals"]
        assert rows(conn, "totals") == [("ann", 8), ("bob", 20), ("cy", 0)]

    def test_no_wait(self, shop: str, conn: psycopg.Connection) -> None:
        tell(shop, "create", "totals", TOTALS)
        conn.execute("DELETE FROM orders WHERE id = 1")
        with conn.transaction():
            conn.execute("LOCK TABLE totals IN ACCESS EXCLUSIVE MODE")
            [result] = ask(shop, "refresh", "totals", "--no-wait")
        assert result["action"] == "SKIP"


class TestLooking:
    def test_status(self, shop: str) -> None:
        assert tell(shop, "status") == "no stream tables yet: see `headwater create --help`\n"
        create_two(shop)
        status = ask(shop, "status")
        assert [s["name"] for s in status] == ["public.big", "public.totals"]
        assert status[0]["status"] == "ACTIVE"
        assert status[0]["target_lag"] == 60
        assert status[0]["current_lag"] >= 0
        heading, _, big, totals, _, daemon, fix = tell(shop, "status").splitlines()
        assert daemon == "warning: no daemon runs for this database"
        assert fix == "how to fix it: headwater health"
        assert heading.split()[:4] == ["name", "status", "mode", "engine"]
        assert big.split()[:2] == ["public.big", "ACTIVE"]
        assert totals.split()[:2] == ["public.totals", "ACTIVE"]

    def test_history(self, shop: str, conn: psycopg.Connection) -> None:
        tell(shop, "create", "totals", TOTALS)
        conn.execute("DELETE FROM orders WHERE id = 1")
        tell(shop, "refresh", "totals")
        history = ask(shop, "history", "totals")
        assert [h["action"] for h in history] == ["DIFFERENTIAL", "REINITIALIZE"]
        assert [h["status"] for h in history] == ["COMPLETED", "COMPLETED"]
        assert len(ask(shop, "history", "totals", "--max-rows", "1")) == 1
        assert len(tell(shop, "history", "totals").splitlines()) == 4
        refuse(shop, 2, "HW-103: ", "history", "nothing")

    def test_graph(self, shop: str) -> None:
        create_two(shop)
        assert ask(shop, "graph") == [
            {"pgt_name": "public.big", "source_name": "public.totals",
             "source_type": "STREAM_TABLE"},
            {"pgt_name": "public.totals", "source_name": "public.orders", "source_type": "TABLE"},
        ]  # fmt: skip
        assert tell(shop, "graph") == (
            "public.big\n└── public.totals (stream table)\n    └── public.orders (table)\n"
        )
        assert tell(shop, "graph", "--format", "mermaid").startswith("graph LR\n")
        assert '"public.orders" -> "public.totals";' in tell(shop, "graph", "--format", "dot")

    def test_explain(self, shop: str) -> None:
        tell(shop, "create", "totals", TOTALS)
        explained = ask(shop, "explain", "totals")
        assert explained["name"] == "public.totals"
        assert explained["last_refresh"]["status"] == "COMPLETED"
        text = tell(shop, "explain", "totals")
        for heading in ("operators", "change of the operators", "SQL of a refresh"):
            assert f"\n\n{heading}\n  " in text

    def test_explain_a_query(self, shop: str) -> None:
        explained = ask(shop, "explain", "--query", TOTALS)
        assert (explained["name"], explained["sources"]) == (None, ["public.orders"])
        assert tell(shop, "explain", "--query", TOTALS).startswith(
            "a query that is no stream table"
        )


class TestVerify:
    def test_equal(self, shop: str, conn: psycopg.Connection) -> None:
        create_two(shop)
        conn.execute("DELETE FROM orders WHERE id = 1")
        results = ask(shop, "verify", "--all")
        assert [(r["name"], r["equal"]) for r in results] == [
            ("public.totals", True),
            ("public.big", True),
        ]

    def test_different(self, shop: str, conn: psycopg.Connection) -> None:
        tell(shop, "create", "totals", TOTALS)
        conn.execute("SET session_replication_role = replica")  # past the guard, and the capture
        conn.execute("DELETE FROM totals WHERE customer = 'bob'")
        result = run(shop, "verify", "totals", "--json")
        assert (result.exit_code, result.stderr) == (1, "")
        [found] = json.loads(result.stdout)
        assert (found["equal"], found["missing"], found["extra"]) == (False, 1, 0)
        shown = run(shop, "verify", "totals")
        assert (shown.exit_code, shown.stdout.splitlines()[2].split()[1]) == (1, "different")


class TestTarget:
    def test_environment(self, shop: str) -> None:
        result = CliRunner().invoke(main, ["status", "--json"], env={"HEADWATER_DSN": shop})
        assert (result.exit_code, json.loads(result.stdout)) == (0, [])

    def test_unreachable_server(self) -> None:
        refuse("host=/nowhere connect_timeout=1", 4, "HW-301: ", "status")

    @pytest.mark.skipif(Embedded.find_missing() is not None, reason="needs the embedded server")
    def test_home(self) -> None:
        with tempfile.TemporaryDirectory(prefix="hw-", dir="/tmp") as home:
            Path(home).chmod(0o755)
            for expected in ([1], []):
                result = CliRunner().invoke(main, ["--home", home, "init", "--json"])
                assert result.exit_code == 0, result.output
                assert json.loads(result.stdout)["applied"][:1] == expected


class TestDemo:
    def test_on_a_given_server(self, database: str, conn: psycopg.Connection) -> None:
        told = ask(database, "demo")
        assert list(told) == [
            "shop", "created", "before", "written", "refreshed", "after", "newcomer", "live",
            "verified",
            "unchanged", "explained", "seconds",
        ]  # fmt: skip
        assert [r["action"] for r in told["refreshed"]] == ["DIFFERENTIAL"] * 4
        assert [r["delta_rows"] for r in told["refreshed"]][:2] == [63, 63]
        assert [v["equal"] for v in told["verified"]] == [True] * 5
        assert [r["action"] for r in told["unchanged"]] == ["NO_DATA"] * 4
        assert told["before"]["rows"] != told["after"]["rows"]
        again = ask(database, "demo")
        assert again["after"] == told["after"]
        kept = conn.execute("SELECT count(*) FROM headwater_demo.region_totals").fetchone()
        assert kept == (4,)

    @pytest.mark.skipif(Embedded.find_missing() is not None, reason="needs the embedded server")
    def test_by_itself(self, tmp_path: Path) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")}
        done = subprocess.run(
            [str(Path(sys.executable).with_name("headwater")), "demo"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "\x1b" not in done.stdout
        assert "\nSpark takes no part: PostgreSQL was asked for.\n" in done.stdout
        assert "Spark starts" not in done.stdout
        assert done.stdout.count("DIFFERENTIAL") >= 4
        assert done.stdout.count("  equal ") == 5
        assert "\nThat took " in done.stdout
        assert list(tmp_path.iterdir()) == []


def run(dsn: str, *arguments: str, input: str | None = None) -> Result:
    result = CliRunner().invoke(main, ["--dsn", dsn, *arguments], input=input)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def tell(dsn: str, *arguments: str) -> str:
    """Run a command that must succeed, and return what it prints."""
    result = run(dsn, *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def ask(dsn: str, *arguments: str) -> Any:
    """Run a command that must succeed, and return its JSON."""
    return json.loads(tell(dsn, *arguments, "--json"))


def refuse(dsn: str, code: int, start: str, *arguments: str) -> str:
    """Run a command that must fail, and return its error."""
    result = run(dsn, *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith(start)
    return result.stderr


def create_two(dsn: str) -> None:
    tell(dsn, "create", "totals", TOTALS)
    tell(dsn, "create", "big", BIG)


def rows(conn: psycopg.Connection, table: str) -> list[tuple[Any, ...]]:
    return conn.execute(f"SELECT * FROM {table} ORDER BY 1".encode()).fetchall()


def has_catalog(conn: psycopg.Connection) -> bool:
    return conn.execute("SELECT to_regclass('pgtrickle.pgt_stream_tables')").fetchone() != (None,)
