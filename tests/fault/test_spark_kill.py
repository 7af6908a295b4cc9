"""A refresh on Spark ends at each of its steps: nothing is lost, doubled or left over.

`totals` reads `joined`, and both are refreshed in one transaction. So a step that is reached twice
is the plain join's the first time and the aggregate's the second. Their results are kept in the
lake, too; that of `kept` is nowhere else.
"""

from __future__ import annotations

import errno
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import headwater
from headwater.errors import QueryFailed, ServerResources
from headwater.spark.lake import find_missing
from headwater.spark.traces import Trace
from tests.battery.oracle import find_difference
from tests.fault import spark_refresher, spark_without_jvm
from tests.integration.spark.conftest import NOT_RUN, must_run
from tests.scale import scaled
from tests.servers import Server
from tests.spark_traces import list_traces, prove_lake_clean, prove_traces

Connection = psycopg.Connection[Any]
pytestmark = pytest.mark.generated  # so that `make generated` runs them one by one

SETUP = """
CREATE TABLE customers (id int PRIMARY KEY, region int, name text);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10, 2));
CREATE TABLE ledger (id int PRIMARY KEY, kind int);
INSERT INTO ledger SELECT n, n % 4 FROM generate_series(1, 200) AS n;
INSERT INTO customers SELECT n, n % 5, 'c' || n FROM generate_series(1, 40) AS n;
INSERT INTO orders SELECT n, n % 45, n % 97 FROM generate_series(1, 500) AS n;
"""
RESULTS = """
DO $$ BEGIN
    EXECUTE format('ALTER DATABASE %I SET pg_trickle.lake_results = on', current_database());
END $$
"""
QUERIES = {
    "joined": (
        "SELECT o.id, o.customer, o.amount, c.name, c.region"
        " FROM orders o JOIN customers c ON c.id = o.customer"
    ),
    "totals": (
        "SELECT c.region, count(*) AS n, sum(j.amount)::numeric(12, 2) AS total"
        " FROM joined j JOIN customers c ON c.id = j.customer GROUP BY c.region"
    ),
}
KEPT = "SELECT kind, count(*) AS n, max(id) AS newest FROM ledger GROUP BY kind"
TRACES = 5  # three sources, two results: both tables read the same of the customers
CHANGE = """
UPDATE orders SET amount = amount + 1, customer = customer % 45 + 1 WHERE id % 7 = 0;
DELETE FROM orders WHERE id = (SELECT min(id) FROM orders);
INSERT INTO orders SELECT max(id) + 1, 3, 5 FROM orders;
UPDATE customers SET region = (region + 1) % 5, name = name || 'x' WHERE id % 9 = 0;
UPDATE ledger SET kind = (kind + 1) % 4 WHERE id % 3 = 0;
DELETE FROM ledger WHERE id = (SELECT max(id) FROM ledger)
"""
MANY = """
INSERT INTO orders SELECT n + (SELECT max(id) FROM orders), 3, 1 FROM generate_series(1, 600) AS n
"""
REBUILD = "UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true, reinit_reason = 'a test'"


Steps = tuple[tuple[str, int], ...]


def parts(steps: Steps, size: int) -> list[Steps]:
    """Return so many steps for each test; `make generated` has a test for each of them.

    What several kills leave behind must go as well as what one leaves, and the proof takes longer
    than a kill.
    """
    size = size if scaled(1) == 1 else 1
    return [steps[at : at + size] for at in range(0, len(steps), size)]


@dataclass(frozen=True)
class Shop:
    """A database with two stream tables on Spark, and its lake."""

    dsn: str
    lake: Path

    def connect(self) -> headwater.Headwater:
        return headwater.connect(self.dsn, lake=str(self.lake), spark_master="local[2]")

    def execute(self, statements: str) -> None:
        with psycopg.connect(self.dsn) as conn:
            conn.execute(statements.encode())


@pytest.fixture(scope="module")
def shop(pg18: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """One for all tests: each leaves it whole, which is what it proves."""
    missing = find_missing()
    if missing is not None and must_run():
        pytest.fail(missing)
    if missing is not None:
        pytest.skip(f"{NOT_RUN}Spark: {missing}")
    made = Shop(pg18.create_database(), tmp_path_factory.mktemp("lake"))
    made.execute(SETUP)
    made.execute(RESULTS)
    with made.connect() as hw:
        for name, query in QUERIES.items():
            hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL", engine="spark")
        hw.create_stream_table("kept", KEPT, engine="spark", publish=False)
    yield made
    pg18.drop_database(made.dsn)


def _strike(shop: Shop, step: str, times: int, name: str = "totals") -> None:
    """Refresh in a process that dies at a step; wait until server and Spark have noticed."""
    arguments = [shop.dsn, str(shop.lake), name, step, str(times)]
    died = _run(spark_refresher.__file__, *arguments)
    assert died.returncode == -signal.SIGKILL, died.stderr
    if died.stdout != "none\n":
        pid, scratch = died.stdout.split()
        _await_end(int(pid))
        shutil.rmtree(scratch)
    with psycopg.connect(shop.dsn, autocommit=True) as conn:
        while conn.execute(
            "SELECT FROM pg_stat_activity"
            " WHERE application_name = 'headwater' AND datname = current_database()"
        ).fetchall():
            time.sleep(0.02)


def _run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)


def _await_end(pid: int) -> None:
    """A virtual machine goes when the process that talks to it has gone."""
    while (status := Path(f"/proc/{pid}/stat")).exists():
        if status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)


def _prove(shop: Shop, action: str = "DIFFERENTIAL") -> None:
    """The next refresh does it all: tables, traces, history and lake are as if nothing was."""
    with shop.connect() as hw, psycopg.connect(shop.dsn, autocommit=True) as conn:
        assert hw.refresh_stream_table("totals").action == action
        for name, query in QUERIES.items():
            assert find_difference(conn, query, name) is None
            assert hw.verify(name).equal
            assert hw.refresh_stream_table(name).action == "NO_DATA"
        hw.refresh_stream_table("kept")
        assert hw.verify("kept").equal
        assert hw.refresh_stream_table("kept").action == "NO_DATA"
        assert prove_traces(conn) == TRACES
        prove_lake_clean(conn, shop.lake)
        assert prove_traces(conn) == TRACES
        left = "SELECT FROM pgtrickle.pgt_refresh_history WHERE status = 'RUNNING'"
        assert conn.execute(left).fetchall() == []
        statuses = {(s.name, s.status, s.errors) for s in hw.pgt_status()}
        assert statuses == {(f"public.{name}", "ACTIVE", 0) for name in [*QUERIES, "kept"]}


BEFORE_COMMIT = (
    ("epoch", 1),
    ("append", 1),
    ("append", 2),
    ("append", 3),
    ("append", 4),
    ("spark", 2),
    ("land", 2),
    ("apply", 2),
    ("before commit", 1),
)


@pytest.mark.parametrize("steps", parts(BEFORE_COMMIT, 3), ids=str)
def test_killed_before_the_commit(shop: Shop, steps: Steps) -> None:
    before = _versions(shop)
    for step, times in steps:
        shop.execute(CHANGE)
        _strike(shop, step, times)
        assert _versions(shop) == before
    _prove(shop)
    assert _versions(shop) != before


IN_THE_LAKE = (("append", 1), ("append", 2), ("before commit", 1))


@pytest.mark.parametrize(
    ("steps", "rebuilt"),
    [(part, False) for part in parts(IN_THE_LAKE, 3)] + [((("append", 2),), True)],
    ids=str,
)
def test_killed_while_a_result_stays_in_the_lake(shop: Shop, steps: Steps, rebuilt: bool) -> None:
    for step, times in steps:
        shop.execute(CHANGE)
        if rebuilt:
            shop.execute(REBUILD)
        _strike(shop, step, times, "kept")
    _prove(shop, "REINITIALIZE" if rebuilt else "DIFFERENTIAL")


def test_killed_after_the_commit(shop: Shop) -> None:
    before = _versions(shop)
    shop.execute(CHANGE)
    _strike(shop, "after commit", 1)
    assert _versions(shop) != before
    _prove(shop, "NO_DATA")


def _versions(shop: Shop) -> list[tuple[str, int]]:
    with psycopg.connect(shop.dsn) as conn:
        return [(url, version) for url, version, _, _ in list_traces(conn)]


@pytest.mark.parametrize("steps", parts((("append", 1), ("stream", 1)), 2), ids=str)
def test_killed_in_a_rebuild(shop: Shop, steps: Steps) -> None:
    before = _versions(shop)
    for step, times in steps:
        shop.execute(CHANGE)
        shop.execute(REBUILD)
        _strike(shop, step, times)
        assert _versions(shop) == before
    _prove(shop, "REINITIALIZE")


WHILE_LOADING = (("range", 1), ("loaded", 1), ("loaded", 2))


@pytest.mark.parametrize("steps", parts(WHILE_LOADING, 3), ids=str)
def test_killed_while_executors_load(shop: Shop, steps: Steps) -> None:
    """Their files are in no version of any trace, and go with the next sweep."""
    before = _versions(shop)
    name = conninfo_to_dict(shop.dsn)["dbname"]
    shop.execute(f"ALTER DATABASE {name} SET pg_trickle.parallel_load_pages = 1")
    known = {Path(url) for url, _ in before}
    for step, times in steps:
        shop.execute(CHANGE)
        shop.execute(REBUILD)
        _strike(shop, step, times)
        assert _versions(shop) == before
        written = {path.parent for path in shop.lake.rglob("*.parquet")}
        assert written - known
        known |= written
    _prove(shop, "REINITIALIZE")
    shop.execute(f"ALTER DATABASE {name} RESET pg_trickle.parallel_load_pages")


def test_killed_before_the_sweep(shop: Shop) -> None:
    """The traces of before are still there; the next sweep takes them."""
    shop.execute(REBUILD)
    _strike(shop, "after commit", 1)
    with shop.connect() as hw:
        hw.alter_stream_table("totals", schedule="5m")
    _prove(shop, "NO_DATA")


def test_killed_virtual_machine_fails_one_refresh(shop: Shop) -> None:
    ended = _run(spark_without_jvm.__file__, shop.dsn, str(shop.lake), "joined", CHANGE)
    assert ended.stdout == "HW-305 DIFFERENTIAL\n" * len(spark_without_jvm.BLOWS), ended.stderr
    with shop.connect() as hw:
        latest = hw.refresh_history("joined", 2 * len(spark_without_jvm.BLOWS))
    seen = [(row.status, row.error_code) for row in latest]
    assert seen == [("COMPLETED", None), ("FAILED", "HW-305")] * len(spark_without_jvm.BLOWS)
    _prove(shop)


@pytest.mark.parametrize("action", ["DIFFERENTIAL", "REINITIALIZE"])
def test_failing_publish_changes_nothing(shop: Shop, action: str) -> None:
    """A refused row of the second table takes the first one back as well."""
    before = _versions(shop)
    shop.execute("ALTER TABLE totals ADD CONSTRAINT refused CHECK (n < 600)")
    shop.execute(CHANGE)
    shop.execute(MANY)
    if action == "REINITIALIZE":
        shop.execute(REBUILD)
    with shop.connect() as hw:
        for _ in range(2):
            with pytest.raises(QueryFailed):
                hw.refresh_stream_table("totals")
        assert [row.error_code for row in hw.refresh_history("totals", 2)] == ["HW-111"] * 2
    assert _versions(shop) == before
    shop.execute("DELETE FROM orders WHERE customer = 3 AND amount = 1")
    shop.execute("ALTER TABLE totals DROP CONSTRAINT refused")
    _prove(shop, action)


def test_full_disk_is_recorded_and_harmless(shop: Shop) -> None:
    shop.execute(CHANGE)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    with shop.connect() as hw:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Trace, "_write_file", refuse)
            with pytest.raises(ServerResources):
                hw.refresh_stream_table("totals")
        [latest] = hw.refresh_history("totals", 1)
    assert (latest.status, latest.error_code) == ("FAILED", "HW-303")
    _prove(shop)
