"""Which engine a stream table runs on, why, and that it is the same table on either."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.api import Headwater
from headwater.errors import StreamTableDamaged, UnsupportedQuery
from headwater.spark.lake import find_missing
from tests.servers import Server

REGIONS = """
SELECT initcap(c.region) AS region, count(*) AS orders, sum(o.amount) AS total
  FROM orders o JOIN customers c ON c.id = o.customer GROUP BY initcap(c.region)"""
ALL_ROWS = "SELECT max(o.amount) AS largest FROM orders o JOIN customers c ON c.id = o.customer"
UNKNOWN = """
SELECT o.id, c.id AS customer FROM orders o JOIN customers c ON md5(o.note || c.region) < '8'"""
VOLATILE = "SELECT id, random() AS r FROM orders"
OVER = "SELECT orders, count(*) AS regions FROM regions GROUP BY orders"
SHOP = """
CREATE TABLE customers (id int PRIMARY KEY, region text);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10, 2), note text);
INSERT INTO customers SELECT n, (ARRAY['north', 'south', NULL])[1 + n % 3]
  FROM generate_series(1, 30) AS n;
INSERT INTO orders SELECT n, 1 + n % 35, n * 1.5, 'n' || n FROM generate_series(1, 200) AS n;
"""
MODE = "DIFFERENTIAL"  # AUTO would rather compute tables this small anew
Connect = Callable[..., Headwater]


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
def connect(
    shop: str, lake: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Connect]:
    """Connect as a user does, to whom no test has given another engine."""
    monkeypatch.delenv("PGOPTIONS", raising=False)
    opened: list[Headwater] = []

    def open_one(**settings: str) -> Headwater:
        for name, value in settings.items():
            execute(shop, f"ALTER DATABASE {shop_name(shop)} SET pg_trickle.{name} = '{value}'")
        opened.append(headwater.connect(shop, lake=str(lake), spark_master="local[2]"))
        return opened[-1]

    yield open_one
    for hw in opened:
        hw.close()


class TestChoice:
    def test_auto_takes_spark(self, connect: Connect, lake: Path) -> None:
        hw = connect()
        created = hw.create_stream_table("regions", REGIONS)
        assert created.engine == "spark"
        assert created.reason.startswith("engine: Spark, which computes the same; ")
        assert [s.engine for s in hw.pgt_status()] == ["spark"]
        assert len(traces(lake)) == 2
        assert hw.verify("regions").equal

    @pytest.mark.parametrize(
        ("query", "reason"),
        [
            (ALL_ROWS, "an aggregate over all rows would be recomputed from all rows"),
            (UNKNOWN, "md5 on (string) is not known to be the same in Spark"),
        ],
    )
    def test_auto_leaves_to_postgres(
        self, connect: Connect, lake: Path, query: str, reason: str
    ) -> None:
        hw = connect()
        created = hw.create_stream_table("st", query)
        assert created.engine == "postgres"
        assert created.reason.startswith(f"engine: PostgreSQL, not Spark: {reason}; ")
        assert traces(lake) == []
        assert hw.verify("st").equal

    @pytest.mark.parametrize("query", [ALL_ROWS, UNKNOWN])
    def test_spark_is_refused_and_nothing_stays(
        self, connect: Connect, shop: str, lake: Path, query: str
    ) -> None:
        hw = connect()
        with pytest.raises(UnsupportedQuery, match="the query cannot run on Spark: "):
            hw.create_stream_table("st", query, engine="spark")
        assert hw.pgt_status() == ()
        assert traces(lake) == []
        triggers = (
            "SELECT FROM pg_trigger WHERE tgrelid IN ('orders'::regclass, 'customers'::regclass)"
        )
        left = (
            f"SELECT to_regclass('st'), (SELECT count(*) FROM ({triggers} AND NOT tgisinternal) q)"
        )
        assert fetch(shop, left) == [(None, 0)]

    def test_full_that_spark_cannot_take_is_left_to_postgres(self, connect: Connect) -> None:
        hw = connect()
        created = hw.create_stream_table("st", VOLATILE, refresh_mode="FULL")
        assert (created.engine, created.effective_mode) == ("postgres", "FULL")
        assert "not Spark: its changes cannot be followed: " in created.reason
        assert hw.create_stream_table("md", UNKNOWN, refresh_mode="FULL").engine == "postgres"
        for query in (VOLATILE, UNKNOWN):
            with pytest.raises(UnsupportedQuery, match="cannot run on Spark"):
                hw.create_stream_table("again", query, refresh_mode="FULL", engine="spark")
        assert hw.refresh_stream_table("md").action == "FULL"

    def test_without_what_spark_needs(
        self, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", "/nowhere")
        find_missing.cache_clear()
        try:
            hw = connect()
            created = hw.create_stream_table("regions", REGIONS)
            assert created.engine == "postgres"
            assert "not Spark: /nowhere/bin/java is not a Java that runs" in created.reason
        finally:
            find_missing.cache_clear()

    def test_the_default_is_a_setting(self, connect: Connect) -> None:
        assert connect(default_engine="postgres").create_stream_table("a", REGIONS).engine == (
            "postgres"
        )
        hw = connect(default_engine="spark")
        assert hw.create_stream_table("b", REGIONS).engine == "spark"
        with pytest.raises(UnsupportedQuery, match="cannot run on Spark"):
            hw.create_stream_table("c", ALL_ROWS)
        assert hw.create_stream_table("c", ALL_ROWS, engine="postgres").engine == "postgres"


class TestFull:
    def test_recomputes_what_changed_and_nothing_else(self, connect: Connect, shop: str) -> None:
        hw = connect()
        created = hw.create_stream_table("regions", REGIONS, refresh_mode="FULL")
        assert (created.engine, created.effective_mode) == ("spark", "FULL")
        assert equal(shop, "regions", REGIONS)
        for _ in range(2):
            change(shop)
            again = hw.refresh_stream_table("regions")
            assert again.action == "FULL"
            assert again.reason == "refresh_mode is FULL"
            assert again.delta_rows > 0
            assert again.timings["spark_jobs"] > 0
            assert equal(shop, "regions", REGIONS)
            assert hw.verify("regions").equal
        quiet = hw.refresh_stream_table("regions")
        assert quiet.action == "NO_DATA"
        assert "spark_jobs" not in quiet.timings

    def test_is_read_by_others_and_reads_others(self, connect: Connect, shop: str) -> None:
        hw = connect()
        hw.create_stream_table("regions", REGIONS, refresh_mode="FULL", engine="postgres")
        hw.create_stream_table("sizes", OVER, refresh_mode="FULL", engine="spark")
        over = "SELECT count(*) AS n FROM sizes"
        hw.create_stream_table("number", over, refresh_mode=MODE, engine="spark")
        change(shop)
        assert hw.refresh_stream_table("number").action in ("DIFFERENTIAL", "NO_DATA")
        assert [h.action for h in hw.refresh_history("sizes", 1)] == ["FULL"]
        for name, query in (("regions", REGIONS), ("sizes", OVER), ("number", over)):
            assert equal(shop, name, query)

    def test_alter_moves_between_modes(self, connect: Connect, shop: str, lake: Path) -> None:
        hw = connect()
        hw.create_stream_table("regions", REGIONS, refresh_mode=MODE, engine="spark")
        for mode, engine in [("FULL", "spark"), ("FULL", "postgres"), (MODE, "spark")]:
            change(shop)
            hw.alter_stream_table("regions", refresh_mode=mode, engine=engine)
            [status] = hw.pgt_status()
            assert (status.engine, status.effective_mode) == (engine, mode)
            assert len(traces(lake)) == (2 if engine == "spark" else 0)
            change(shop)
            assert hw.refresh_stream_table("regions").action == mode
            assert equal(shop, "regions", REGIONS)

    def test_missing_triggers_are_noticed(self, connect: Connect, shop: str) -> None:
        hw = connect()
        hw.create_stream_table("regions", REGIONS, refresh_mode="FULL")
        execute(shop, "ALTER TABLE orders DISABLE TRIGGER USER")
        change(shop)
        assert hw.refresh_stream_table("regions").action == "REINITIALIZE"
        assert equal(shop, "regions", REGIONS)

    def test_explain_shows_the_whole_statement(self, connect: Connect) -> None:
        hw = connect()
        hw.create_stream_table("regions", REGIONS, refresh_mode="FULL")
        shown = hw.explain_st("regions")
        assert (shown.mode, shown.delta, shown.sql) == ("FULL", "", "")
        assert shown.spark is not None
        assert "_state" in shown.spark.statement
        assert "_change" not in shown.spark.statement


class TestFollowing:
    def test_changes_through_two_tables(self, connect: Connect, shop: str) -> None:
        hw = connect()
        hw.create_stream_table("regions", REGIONS, refresh_mode=MODE)
        hw.create_stream_table("sizes", OVER, refresh_mode=MODE, engine="spark")
        change(shop)
        lower = hw.refresh_stream_table("sizes")
        assert lower.action == "DIFFERENTIAL"
        assert lower.timings["spark_jobs"] > 0
        assert [hw.verify(name).equal for name in ("regions", "sizes")] == [True, True]
        again = hw.refresh_stream_table("sizes")
        assert again.action == "NO_DATA"
        assert "spark_jobs" not in again.timings

    def test_alter_moves_between_engines(self, connect: Connect, shop: str, lake: Path) -> None:
        hw = connect()
        hw.create_stream_table("regions", REGIONS, refresh_mode=MODE, engine="postgres")
        for engine in ("spark", "postgres", "spark"):
            change(shop)
            hw.alter_stream_table("regions", engine=engine)
            [status] = hw.pgt_status()
            assert (status.engine, status.status) == (engine, "ACTIVE")
            assert len(traces(lake)) == (2 if engine == "spark" else 0)
            assert equal(shop, "regions", REGIONS)
            change(shop)
            assert hw.refresh_stream_table("regions").action == "DIFFERENTIAL"
            assert equal(shop, "regions", REGIONS)

    def test_alter_to_spark_is_refused_whole(self, connect: Connect, shop: str) -> None:
        hw = connect()
        hw.create_stream_table("st", UNKNOWN, refresh_mode=MODE)
        with pytest.raises(UnsupportedQuery, match="md5"):
            hw.alter_stream_table("st", engine="spark")
        change(shop)
        assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
        assert hw.verify("st").equal

    def test_a_lost_lake_is_made_anew(self, connect: Connect, shop: str, lake: Path) -> None:
        hw = connect()
        hw.create_stream_table("regions", REGIONS, refresh_mode=MODE)
        shutil.rmtree(lake)
        change(shop)
        with pytest.raises(StreamTableDamaged, match="there is no trace at "):
            hw.refresh_stream_table("regions")
        hw.alter_stream_table("regions", engine="postgres")
        hw.alter_stream_table("regions", engine="spark")
        change(shop)
        assert hw.refresh_stream_table("regions").action == "DIFFERENTIAL"
        assert equal(shop, "regions", REGIONS)

    def test_drop_deletes_the_files(self, connect: Connect, lake: Path) -> None:
        hw = connect()
        hw.create_stream_table("regions", REGIONS, refresh_mode=MODE)
        hw.create_stream_table("sizes", OVER, refresh_mode=MODE, engine="spark")
        assert len(traces(lake)) == 3
        dropped = hw.drop_stream_table("regions", cascade=True)
        assert sorted(dropped) == ["public.regions", "public.sizes"]
        assert traces(lake) == []


def change(dsn: str) -> None:
    """Insert, update and delete on both sides of the join, in one transaction."""
    execute(dsn, """
        INSERT INTO orders SELECT max(id) + 1, 3, 7.25, 'new' FROM orders;
        UPDATE orders SET amount = amount + 1 WHERE id % 50 = 0;
        DELETE FROM orders WHERE id IN (SELECT id FROM orders ORDER BY id LIMIT 5);
        UPDATE customers SET region = CASE WHEN region IS NULL THEN 'east' END WHERE id <= 3
    """)  # fmt: skip


def equal(dsn: str, table: str, query: str) -> bool:
    """Compare without headwater: EXCEPT ALL both ways."""
    both = [(query, f"TABLE {table}"), (f"TABLE {table}", query)]
    return all(fetch(dsn, f"({a}) EXCEPT ALL ({b})") == [] for a, b in both)


def traces(lake: Path) -> list[str]:
    """Return the traces that the lake holds, wherever in it."""
    return sorted(path.name for path in lake.rglob("*-source-*"))


def shop_name(dsn: str) -> str:
    [(name,)] = fetch(dsn, "SELECT current_database()")
    return str(name)


def execute(dsn: str, statements: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(statements.encode())


def fetch(dsn: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute(query.encode()).fetchall()
