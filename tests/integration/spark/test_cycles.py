"""Stream tables on Spark that move together compute once what their changes have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from headwater.api import Headwater
from headwater.errors import HeadwaterError
from headwater.spark.compute import Compute
from headwater.spark.cycle import Cycle
from tests.battery.oracle import find_difference
from tests.spark_traces import list_traces, prove_traces

Connection = psycopg.Connection[Any]
Timings = dict[str, dict[str, float]]
SETUP = """
CREATE TABLE customers (id int PRIMARY KEY, name text);
CREATE TABLE orders (id int PRIMARY KEY, customer int, replaces int);
CREATE TABLE lines (order_id int, line int, amount int, note text, PRIMARY KEY (order_id, line));
INSERT INTO customers SELECT n, 'c' || n FROM generate_series(0, 6) AS n;
INSERT INTO orders SELECT n, n % 8, n - 5 FROM generate_series(1, 400) AS n;
INSERT INTO lines SELECT n, l, n * l, 'n' || l
  FROM generate_series(1, 400) AS n, generate_series(1, 4) AS l;
"""
JOINED = """
SELECT o.id, o.customer, o.replaces, l.line, l.amount, l.note
  FROM orders AS o JOIN lines AS l ON l.order_id = o.id"""
TOTALS = """
SELECT customer AS id, count(*) AS n, sum(amount) AS line
  FROM lines JOIN orders ON id = order_id WHERE amount > 3 GROUP BY customer"""
NAMED = """
SELECT c.name, l.line, l.note || '!' AS note
  FROM customers AS c JOIN orders AS o ON o.customer = c.id JOIN lines AS l ON o.id = l.order_id"""
OUTER = """
SELECT o.id, l.amount, c.name FROM orders AS o JOIN lines AS l ON o.id = l.order_id
  LEFT JOIN customers AS c ON c.id = o.customer"""
LARGEST = """
SELECT o.customer, max(l.amount) AS most
  FROM orders AS o JOIN lines AS l ON o.id = l.order_id WHERE o.id % 3 = 0 GROUP BY o.customer"""
REPLACED = "SELECT a.id, b.customer FROM orders AS a JOIN orders AS b ON a.replaces = b.id"
CHAINS = """
SELECT b.customer, count(*) AS n FROM orders AS a JOIN orders AS b ON a.replaces = b.id
 WHERE a.id > 10 GROUP BY b.customer"""
CORE = {"joined": JOINED, "totals": TOTALS, "named": NAMED}
MORE = CORE | {"outers": OUTER, "largest": LARGEST, "replaced": REPLACED, "chains": CHAINS}


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as opened:
        yield opened


def _create(hw: Headwater, **queries: str) -> None:
    for name, query in queries.items():
        made = hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL", engine="spark")
        assert made.engine == "spark"


def _level(hw: Headwater, queries: dict[str, str]) -> None:
    """Tie tables together, and bring them to one epoch: each was filled at one of its own."""
    hw.create_refresh_group("together", list(queries))
    hw.refresh_stream_table(next(iter(queries)))


def _change(conn: Connection, number: int) -> None:
    conn.execute("INSERT INTO orders VALUES (%s, 3, 7)", [1000 + number])
    conn.execute(
        "INSERT INTO lines VALUES (%s, 1, 50, 'new'), (7, %s, 9, NULL)", [1000 + number, number + 9]
    )
    conn.execute("UPDATE orders SET customer = customer + 1 WHERE id %% 90 = %s", [number])
    conn.execute("UPDATE lines SET amount = amount - 30 WHERE order_id %% 80 = %s", [number])
    conn.execute("DELETE FROM lines WHERE order_id %% 70 = %s AND line < 3", [number])
    conn.execute("DELETE FROM orders WHERE id %% 95 = %s", [number])


_LAST = """
SELECT DISTINCT ON (st.pgt_id) st.pgt_name, h.action, h.timings
  FROM pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables st USING (pgt_id)
 ORDER BY st.pgt_id, h.refresh_id DESC"""


def _moved(hw: Headwater, conn: Connection, queries: dict[str, str]) -> Timings:
    """Refresh a group; return the timings of each table, by name, once all are right."""
    hw.refresh_stream_table(next(iter(queries)))
    found: Timings = {}
    for name, action, timings in conn.execute(_LAST).fetchall():
        assert action == "DIFFERENTIAL"
        found[name] = timings
    for name, query in queries.items():
        assert find_difference(conn, query, name) is None, name
    assert prove_traces(conn) > 0
    return found


def _shared(timings: Timings) -> list[float]:
    """Return how many parts of others each table used, those that computed them first."""
    return sorted(figures["shared_parts"] for figures in timings.values())


def test_the_change_of_a_join_is_computed_once(
    hw: Headwater, conn: Connection, spark: SparkSession
) -> None:
    _create(hw, **CORE)
    _change(conn, 1)
    _change(conn, 2)
    alone = {name: hw.refresh_stream_table(name).timings for name in CORE}
    assert _shared(alone) == [0, 0, 0]
    _change(conn, 3)
    _level(hw, CORE)
    persisted = _persisted(spark)
    for number in range(4, 8):
        _change(conn, number)
        found = _moved(hw, conn, CORE)
        assert _shared(found) == [0, 1, 1]
        jobs = {name: (alone[name]["spark_jobs"], found[name]["spark_jobs"]) for name in CORE}
        assert all(
            now < before if found[name]["shared_parts"] else now <= before
            for name, (before, now) in jobs.items()
        ), jobs
    assert _persisted(spark) == persisted


def test_the_sources_are_read_once(
    hw: Headwater, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relations of Spark that a statement names are all that it reads."""
    _create(hw, **CORE)
    _change(conn, 1)
    _level(hw, CORE)
    read: list[str] = []
    run = Compute._run

    def note(self: Compute, text: str) -> Any:
        read.append(text)
        return run(self, text)

    monkeypatch.setattr(Compute, "_run", note)
    _change(conn, 2)
    _moved(hw, conn, CORE)
    sources = [oid for [oid] in conn.execute("SELECT source_relid FROM pgtrickle.pgt_traces")]
    assert len(read) == len(CORE)
    for text in read:
        named = [oid for oid in sources if f"_{oid}_state" in text or f"_{oid}_change" in text]
        assert all(_table(conn, oid) == "customers" for oid in named)


def _table(conn: Connection, oid: int) -> str:
    [(name,)] = conn.execute("SELECT %s::oid::regclass::text", [oid]).fetchall()
    return str(name)


def test_one_side_changes(hw: Headwater, conn: Connection) -> None:
    _create(hw, **CORE)
    _change(conn, 1)
    _level(hw, CORE)
    conn.execute("UPDATE lines SET amount = amount + 5 WHERE order_id < 9")
    assert _shared(_moved(hw, conn, CORE)) == [0, 1, 1]
    conn.execute("UPDATE orders SET customer = 2 WHERE id IN (4, 300)")
    assert _shared(_moved(hw, conn, CORE)) == [0, 1, 1]
    _change(conn, 2)
    conn.execute("DELETE FROM customers WHERE id = 3")
    conn.execute("INSERT INTO customers VALUES (8, 'eight')")
    assert _shared(_moved(hw, conn, CORE)) == [0, 1, 1]


def test_only_what_is_not_in_common_changes(hw: Headwater, conn: Connection) -> None:
    _create(hw, **CORE)
    _change(conn, 1)
    _level(hw, CORE)
    conn.execute("UPDATE customers SET name = name || '.' WHERE id > 3")
    hw.refresh_stream_table("named")
    found = {name: (action, how) for name, action, how in conn.execute(_LAST)}
    assert [found[name][0] for name in CORE] == ["NO_DATA", "NO_DATA", "DIFFERENTIAL"]
    assert found["named"][1]["shared_parts"] == 0
    assert find_difference(conn, NAMED, "named") is None


def test_views_of_every_kind(hw: Headwater, conn: Connection) -> None:
    """Outer joins, groups that are computed anew, self-joins; and two joins in one group."""
    _create(hw, **MORE)
    _change(conn, 1)
    _level(hw, MORE)
    for number in range(2, 4):
        _change(conn, number)
        conn.execute("UPDATE customers SET name = name || %s WHERE id = %s", [number, number])
        found = _moved(hw, conn, MORE)
        assert _shared(found) == [0, 0, 1, 1, 1, 1, 1]
        assert found["replaced"]["shared_parts"] + found["chains"]["shared_parts"] == 1


def test_tables_at_different_epochs_have_different_changes(hw: Headwater, conn: Connection) -> None:
    _create(hw, joined=JOINED, totals=TOTALS)
    _change(conn, 1)
    _level(hw, {"joined": JOINED, "totals": TOTALS})
    hw.drop_refresh_group("together")
    _change(conn, 2)
    _create(hw, named=NAMED)
    hw.create_refresh_group("together", ["named", "joined", "totals"])
    _change(conn, 3)
    found = _moved(hw, conn, {"named": NAMED, "joined": JOINED, "totals": TOTALS})
    assert found["named"]["shared_parts"] == 0
    assert _shared(found) == [0, 0, 1]
    _change(conn, 4)
    assert _shared(_moved(hw, conn, CORE)) == [0, 1, 1]


def test_copies_of_their_own_are_not_shared(hw: Headwater, conn: Connection) -> None:
    """The first has fewer columns, so that the second loads other traces."""
    queries = {"totals": TOTALS, "joined": JOINED}
    _create(hw, **queries)
    assert len(list_traces(conn)) == 4
    _change(conn, 1)
    _level(hw, queries)
    _change(conn, 2)
    assert _shared(_moved(hw, conn, queries)) == [0, 0]


def test_a_table_with_those_that_it_reads(hw: Headwater, conn: Connection) -> None:
    """Their result is a source like any other, brought up to date in the same cycle."""
    small = "SELECT order_id, line, amount FROM lines WHERE amount % 2 = 0"
    queries = {
        "even": small,
        "pairs": "SELECT o.id, o.customer, e.line, e.amount"
        " FROM orders AS o JOIN even AS e ON e.order_id = o.id",
        "sums": "SELECT o.customer, sum(e.amount) AS total"
        " FROM orders AS o JOIN even AS e ON e.order_id = o.id GROUP BY o.customer",
        "own": "SELECT p.id, o.customer FROM pairs AS p JOIN orders AS o ON o.id = p.id",
    }
    _create(hw, **queries)
    _change(conn, 1)
    _level(hw, queries)
    for number in range(2, 5):
        _change(conn, number)
        assert _shared(_moved(hw, conn, queries)) == [0, 0, 0, 1]


def test_a_change_of_many_rows(hw: Headwater, conn: Connection) -> None:
    """It comes back through files, from another session than small ones do."""
    _create(hw, **CORE)
    _change(conn, 1)
    _level(hw, CORE)
    conn.execute("UPDATE customers SET name = name || '.'")
    conn.execute("INSERT INTO customers SELECT n, 'more' FROM generate_series(100, 40100) AS n")
    _change(conn, 2)
    assert _shared(_moved(hw, conn, CORE)) == [0, 1, 1]
    conn.execute("UPDATE lines SET amount = amount + 1")
    conn.execute(
        "INSERT INTO lines SELECT id, n, n, 'x' FROM orders, generate_series(100, 190) AS n"
    )
    assert _shared(_moved(hw, conn, CORE)) == [0, 1, 1]


def test_a_failure_leaves_nothing_behind(
    hw: Headwater, conn: Connection, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    _create(hw, **CORE)
    _change(conn, 1)
    _level(hw, CORE)
    conn.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN RAISE EXCEPTION ''refused''; END';"
        "CREATE TRIGGER refused BEFORE INSERT OR UPDATE OR DELETE ON named"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse()"
    )
    before, kept, close = _persisted(spark), list[int](), Cycle.close

    def note(self: Cycle) -> None:
        kept.append(_persisted(spark))
        close(self)

    monkeypatch.setattr(Cycle, "close", note)
    _change(conn, 2)
    with pytest.raises(HeadwaterError, match="refused"):
        hw.refresh_stream_table("joined")
    assert kept == [before + 1]
    assert _persisted(spark) == before
    assert not [t for t in spark.catalog.listTables("global_temp") if t.name.startswith("kept_")]
    conn.execute("DROP TRIGGER refused ON named")
    assert _shared(_moved(hw, conn, CORE)) == [0, 1, 1]


def _persisted(spark: SparkSession) -> int:
    return int(spark.sparkContext._jsc.getPersistentRDDs().size())


def test_verify_shares_and_releases(hw: Headwater, conn: Connection, spark: SparkSession) -> None:
    _create(hw, **CORE)
    _change(conn, 1)
    _level(hw, CORE)
    persisted = _persisted(spark)
    _change(conn, 2)
    assert hw.verify("named").equal
    assert _persisted(spark) == persisted
