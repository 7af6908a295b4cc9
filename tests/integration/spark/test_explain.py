"""Explain says what Spark computes, what PostgreSQL does before and after, and starts no Spark."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import headwater
from headwater.api import Headwater
from headwater.cli import main
from headwater.spark.compute import Compute
from headwater.spark.explain import laid_out
from tests.servers import Server

TOTALS = """
SELECT c.region, avg(o.amount) AS mean
  FROM orders o JOIN customers c ON c.id = o.customer
 WHERE initcap(c.region) <> 'Nowhere' GROUP BY c.region HAVING count(*) > 1"""
AT_INGEST = """public.customers: (initcap("region") <> 'Nowhere'::text)"""
LARGEST = """
SELECT c.region, max(o.amount) AS largest FROM orders o JOIN customers c ON c.id = o.customer
 GROUP BY c.region"""
MODE = "DIFFERENTIAL"  # AUTO would rather compute tables this small anew
SHOP = """
CREATE TABLE customers (id int PRIMARY KEY, region text);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10, 2));
INSERT INTO customers VALUES (1, 'north'), (2, 'south');
INSERT INTO orders VALUES (1, 1, 10), (2, 1, 20), (3, 2, 30), (4, 2, 40);
"""


@pytest.fixture
def shop(pg18: Server) -> Iterator[str]:
    """The DSN of a database with customers and orders."""
    dsn = pg18.create_database()
    execute(dsn, SHOP)
    yield dsn
    pg18.drop_database(dsn)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def hw(shop: str, lake: Path, spark: SparkSession) -> Iterator[Headwater]:
    with headwater.connect(shop, lake=str(lake), spark_master="local[2]") as connection:
        connection.create_stream_table("totals", TOTALS, refresh_mode=MODE, engine="spark")
        yield connection


class TestStreamTable:
    def test_who_computes_what(self, hw: Headwater) -> None:
        explained = hw.explain_st("totals")
        assert explained.engine == "spark"
        spark = explained.spark
        assert spark is not None
        assert """Scan public.customers ("id", "region", (initcap("region") <> """ in spark.boundary
        assert "Aggregate" not in spark.boundary
        assert spark.at_ingest == (AT_INGEST,)
        last = spark.at_publish.splitlines()
        assert last[-2].lstrip().startswith("Aggregate by (")
        assert last[-1].lstrip().startswith("Scan what Spark hands over (")
        assert "Filter" in spark.at_publish

    def test_the_statements(self, hw: Headwater, shop: str) -> None:
        explained = hw.explain_st("totals")
        assert explained.spark is not None
        for oid in (relid(shop, "orders"), relid(shop, "customers")):
            for state in ("change", "state"):
                assert f"FROM trace_{oid}_{state}" in explained.spark.statement
        assert "FROM pg_temp.pgt_landed_groups" in explained.sql
        assert "UPDATE pgtrickle_state.state_" in explained.sql
        assert list(explained.cost) == ["full"]

    def test_the_statement_is_the_one_that_runs(
        self, hw: Headwater, shop: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran: list[str] = []
        for method in ("_keep", "collect"):
            listen(monkeypatch, method, ran)
        monkeypatch.setattr(Compute, "keys", lambda *_: None)  # no plan knows which keys change
        hw.create_stream_table("largest", LARGEST, refresh_mode=MODE, engine="spark")
        execute(shop, "UPDATE customers SET region = 'east'; UPDATE orders SET amount = 1")
        for name in ("totals", "largest"):
            explained = hw.explain_st(name)
            assert explained.spark is not None
            ran.clear()
            assert hw.refresh_stream_table(name).action == "DIFFERENTIAL"
            shown = explained.spark.statement.split(";\n\n")
            assert sorted(map(bare, shown)) == sorted(map(bare, ran))
            assert hw.verify(name).equal

    def test_traces_and_jobs(self, hw: Headwater, shop: str, lake: Path) -> None:
        execute(shop, "INSERT INTO orders VALUES (5, 1, 5)")
        result = hw.refresh_stream_table("totals")
        spark = hw.explain_st("totals").spark
        assert spark is not None
        assert spark.jobs == result.timings["spark_jobs"] > 0
        found = {trace.source: trace for trace in spark.traces}
        assert {name: trace.files for name, trace in found.items()} == {
            "public.orders": 2,
            "public.customers": 1,
        }
        for trace in spark.traces:
            files = list(Path(trace.url).glob("*.parquet"))
            assert trace.bytes == sum(file.stat().st_size for file in files)
            assert trace.epoch == result.epoch
            assert Path(trace.url).is_relative_to(lake)
        assert hw.refresh_stream_table("totals").action == "NO_DATA"
        idle = hw.explain_st("totals").spark
        assert idle is not None
        assert idle.jobs == 0

    def test_a_lake_that_is_gone(self, hw: Headwater, lake: Path) -> None:
        shutil.rmtree(lake)
        spark = hw.explain_st("totals").spark
        assert spark is not None
        assert [(t.files, t.bytes) for t in spark.traces] == [(None, None)] * 2

    def test_on_postgres_there_is_no_spark(self, hw: Headwater) -> None:
        hw.create_stream_table("plain", TOTALS, engine="postgres")
        assert hw.explain_st("plain").spark is None


class TestQuery:
    def test_on_spark(self, hw: Headwater) -> None:
        assert hw.explain_query(TOTALS).spark is None  # the tests' default is PostgreSQL
        hw._conn.execute("SET pg_trickle.default_engine = 'auto'")
        explained = hw.explain_query(TOTALS)
        assert explained.engine == "spark"
        assert explained.spark is not None
        assert explained.spark.at_ingest == (AT_INGEST,)
        assert "_change" in explained.spark.statement
        assert (explained.spark.traces, explained.spark.jobs) == ((), None)

    def test_not_on_spark(self, hw: Headwater) -> None:
        hw._conn.execute("SET pg_trickle.default_engine = 'auto'")
        explained = hw.explain_query("SELECT max(amount) AS largest FROM orders")
        assert (explained.engine, explained.spark) == ("postgres", None)
        assert "not Spark: an aggregate over all rows" in explained.reason


class TestCommand:
    def test_for_people(self, hw: Headwater, shop: str, lake: Path) -> None:
        text = command(shop, lake, "explain", "totals")
        for heading in (
            "what Spark computes",
            "what PostgreSQL evaluates at ingest",
            "what PostgreSQL makes of the result",
            "SQL of a refresh, on Spark",
            "SQL of a refresh, in PostgreSQL with what Spark hands over",
        ):
            assert f"\n\n{heading}\n  " in text
        assert "\n\ntraces in the lake\n" in text
        assert " Spark jobs\n" in text

    def test_for_machines(self, hw: Headwater, shop: str, lake: Path) -> None:
        spark = json.loads(command(shop, lake, "explain", "totals", "--json"))["spark"]
        assert list(spark) == [
            "boundary", "at_ingest", "at_publish", "statement", "traces", "jobs", "loads",
        ]  # fmt: skip
        assert list(spark["traces"][0]) == ["source", "url", "version", "epoch", "files", "bytes"]

    def test_jobs_of_a_refresh(self, hw: Headwater, shop: str, lake: Path) -> None:
        execute(shop, "DELETE FROM orders WHERE id = 1")
        refreshed = command(shop, lake, "refresh", "totals").splitlines()
        assert "Spark jobs" in refreshed[0]
        assert "Spark jobs" in command(shop, lake, "history", "totals").splitlines()[0]

    def test_starts_no_virtual_machine(self, hw: Headwater, shop: str, lake: Path) -> None:
        code = f"""
import sys
from click.testing import CliRunner
from headwater.cli import main
done = CliRunner().invoke(main, ["--dsn", {shop!r}, "--lake", {str(lake)!r}, "explain", "totals"])
sys.exit(done.exit_code or ("pyspark" in sys.modules and "pyspark was imported") or 0)
"""
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_lines_follow_brackets() -> None:
    sql = "SELECT a, f(b) FROM (SELECT '(SELECT' AS a, `x)` AS b FROM t) AS q"
    assert laid_out(sql) == (
        "SELECT a, f(b) FROM (\n  SELECT '(SELECT' AS a, `x)` AS b FROM t\n) AS q"
    )


def listen(monkeypatch: pytest.MonkeyPatch, method: str, heard: list[str]) -> None:
    """Write down the statements with which a method of Compute is called."""
    act = getattr(Compute, method)

    def listening(self: Compute, statement: str, *more: float) -> object:
        heard.append(statement)
        return act(self, statement, *more)

    monkeypatch.setattr(Compute, method, listening)


def bare(sql: str) -> str:
    """Leave out layout, comments, what the sizes suggest, and what makes names unique."""
    lines = (line for line in sql.splitlines() if not line.startswith("--"))
    unhinted = re.sub(r"/\*\+.*?\*/", "", "".join(lines))
    return re.sub(r"_[0-9a-f]{32}_", "_", "".join(unhinted.split()))


def command(dsn: str, lake: Path, *arguments: str) -> str:
    options = ["--dsn", dsn, "--lake", str(lake), "--spark-master", "local[2]"]
    result = CliRunner().invoke(main, [*options, *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def relid(dsn: str, table: str) -> int:
    with psycopg.connect(dsn) as conn:
        row = conn.execute("SELECT %s::regclass::oid::int8", [table]).fetchone()
    assert row is not None
    return int(row[0])


def execute(dsn: str, statements: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(statements.encode())
