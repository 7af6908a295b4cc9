"""Stream tables on Spark share the copies of their sources where those are the same."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.api import Headwater
from headwater.catalog.traces import RETIRED
from headwater.spark import ingest
from tests.battery.oracle import find_difference
from tests.integration.spark.conftest import OPTIONS
from tests.spark_traces import list_traces, prove_traces

Connection = psycopg.Connection[Any]
SETUP = """
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount int, note text);
INSERT INTO orders SELECT n, n % 7, n, 'n' || n FROM generate_series(1, 60) AS n;
"""
WIDE = "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer"
NARROW = "SELECT customer, count(*) AS n FROM orders GROUP BY customer"
NOTES = "SELECT note, count(*) AS n FROM orders GROUP BY note"


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as opened:
        yield opened


@pytest.fixture
def hw(dsn: str, tmp_path: Path, spark: SparkSession) -> Iterator[Headwater]:
    with _connect(dsn, tmp_path) as opened:
        yield opened


def _connect(dsn: str, lake: Path) -> Headwater:
    return headwater.connect(dsn, lake=str(lake), spark_master=OPTIONS.master)


def _create(hw: Headwater, name: str, query: str, mode: str = "DIFFERENTIAL") -> None:
    made = hw.create_stream_table(name, query, refresh_mode=mode, engine="spark")
    assert made.engine == "spark"


def _change(conn: Connection, number: int) -> None:
    conn.execute("UPDATE orders SET customer = customer + 1 WHERE id %% 5 = %s", [number % 5])
    conn.execute("INSERT INTO orders VALUES (%s, 3, 1, 'new')", [1000 + number])


def _follows(hw: Headwater, conn: Connection, **queries: str) -> None:
    for name, query in queries.items():
        assert hw.refresh_stream_table(name).action in ("DIFFERENTIAL", "NO_DATA")
        assert find_difference(conn, query, name) is None
        assert hw.verify(name).equal
    assert prove_traces(conn) > 0


def test_readers_at_different_epochs(
    hw: Headwater, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is refreshed every time, the other now and then; files are merged all the while."""
    monkeypatch.setattr(ingest, "MANY_FILES", 2)
    _create(hw, "wide", WIDE)
    _create(hw, "narrow", NARROW)
    _create(hw, "again", WIDE, "FULL")
    assert len(list_traces(conn)) == 1
    for number in range(9):
        _change(conn, number)
        assert hw.refresh_stream_table("wide").action == "DIFFERENTIAL"
        assert find_difference(conn, WIDE, "wide") is None
        if number % 4 == 3:
            result = hw.refresh_stream_table("narrow")
            assert result.action == "DIFFERENTIAL"
            assert find_difference(conn, NARROW, "narrow") is None
    assert hw.refresh_stream_table("again").action == "FULL"
    _follows(hw, conn, wide=WIDE, narrow=NARROW)
    assert find_difference(conn, WIDE, "again") is None
    assert len(list_traces(conn)) == 1


def test_created_on_changes_that_nobody_has_seen(hw: Headwater, conn: Connection) -> None:
    _create(hw, "wide", WIDE)
    _change(conn, 1)
    _create(hw, "narrow", NARROW)
    assert find_difference(conn, NARROW, "narrow") is None
    assert len(list_traces(conn)) == 1
    _change(conn, 2)
    _follows(hw, conn, wide=WIDE, narrow=NARROW)


def test_other_columns_need_a_trace_of_their_own(hw: Headwater, conn: Connection) -> None:
    _create(hw, "narrow", NARROW)
    _create(hw, "wide", WIDE)
    assert len(list_traces(conn)) == 2
    _change(conn, 1)
    _follows(hw, conn, wide=WIDE, narrow=NARROW)


def test_other_settings_need_a_trace_of_their_own(
    hw: Headwater, conn: Connection, dsn: str, tmp_path: Path
) -> None:
    _create(hw, "wide", WIDE)
    database = conn.info.dbname
    conn.execute(f"ALTER DATABASE {database} SET TimeZone = 'Asia/Tokyo'".encode())
    with _connect(dsn, tmp_path) as other:
        _create(other, "narrow", NARROW)
    assert len(list_traces(conn)) == 2


def test_other_owners_need_a_trace_of_their_own(
    hw: Headwater, conn: Connection, dsn: str, tmp_path: Path
) -> None:
    _create(hw, "wide", WIDE)
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("CREATE ROLE keeper SUPERUSER LOGIN")
    try:
        with _connect(psycopg.conninfo.make_conninfo(dsn, user="keeper"), tmp_path) as other:
            _create(other, "narrow", NARROW)
        assert len(list_traces(conn)) == 2
        _change(conn, 1)
        _follows(hw, conn, wide=WIDE, narrow=NARROW)
        hw.drop_stream_table("narrow")
    finally:
        conn.execute("DROP OWNED BY keeper; DROP ROLE keeper")


def test_a_rebuild_loads_anew_and_leaves_the_others_alone(hw: Headwater, conn: Connection) -> None:
    _create(hw, "wide", WIDE)
    _create(hw, "narrow", NARROW)
    [before] = list_traces(conn)
    conn.execute(
        "UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true WHERE pgt_name = 'wide'"
    )
    _change(conn, 1)
    assert hw.refresh_stream_table("wide").action == "REINITIALIZE"
    assert before[0] in {trace[0] for trace in list_traces(conn)}
    assert len(list_traces(conn)) == 2
    _change(conn, 2)
    _follows(hw, conn, wide=WIDE, narrow=NARROW)
    _create(hw, "third", NARROW)
    assert len(list_traces(conn)) == 2


def test_what_the_first_reader_used_is_given_up_when_it_goes(
    hw: Headwater, conn: Connection
) -> None:
    _create(hw, "wide", WIDE)
    _create(hw, "narrow", NARROW)
    _change(conn, 0)
    hw.drop_stream_table("wide")
    [(captured,)] = conn.execute("SELECT columns FROM pgtrickle.pgt_change_tracking").fetchall()
    assert captured == ["customer"]
    [(_, _, _, columns)] = list_traces(conn)
    assert sorted(columns) == ['"customer"', RETIRED]
    _change(conn, 1)
    _follows(hw, conn, narrow=NARROW)
    _create(hw, "wide", WIDE)
    assert len(list_traces(conn)) == 2
    _follows(hw, conn, wide=WIDE, narrow=NARROW)
    conn.execute("UPDATE orders SET amount = amount + 1")
    _follows(hw, conn, wide=WIDE, narrow=NARROW)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE orders DROP COLUMN amount",
        "ALTER TABLE orders ALTER COLUMN amount TYPE bigint",
        "ALTER TABLE orders ALTER COLUMN amount TYPE int USING amount + 1",
    ],
)
@pytest.mark.parametrize("is_gone", [True, False])
def test_what_only_the_first_reader_used_is_altered(
    hw: Headwater, conn: Connection, change: str, is_gone: bool
) -> None:
    """The other does not use it, but its trace holds it."""
    _create(hw, "wide", WIDE)
    _create(hw, "narrow", NARROW)
    if is_gone:
        hw.drop_stream_table("wide")
    conn.execute(change.encode())
    if is_gone:
        conn.execute("INSERT INTO orders (id, customer) VALUES (2000, 2)")
    elif "DROP" not in change:
        assert hw.refresh_stream_table("wide").action in ("REINITIALIZE", "NO_DATA")
        assert find_difference(conn, WIDE, "wide") is None
    else:
        with pytest.raises(headwater.HeadwaterError, match="amount"):
            hw.refresh_stream_table("wide")
    conn.execute("DELETE FROM orders WHERE id < 5")
    result = hw.refresh_stream_table("narrow")
    is_cut_off = not is_gone and "DROP" not in change
    assert result.action == ("REINITIALIZE" if is_cut_off else "DIFFERENTIAL")
    assert find_difference(conn, NARROW, "narrow") is None
    conn.execute("DELETE FROM orders WHERE id < 9")
    _follows(hw, conn, **({"wide": WIDE} if is_cut_off else {}), narrow=NARROW)


def test_a_truncate_that_nobody_could_follow_is_not_shared(hw: Headwater, conn: Connection) -> None:
    _create(hw, "wide", WIDE)
    _create(hw, "narrow", NARROW)
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        conn.execute("TRUNCATE orders")
    _create(hw, "third", WIDE)
    assert len(list_traces(conn)) == 2
    assert find_difference(conn, WIDE, "third") is None
    conn.execute("INSERT INTO orders VALUES (1, 1, 1, 'one')")
    for name, query in (("wide", WIDE), ("narrow", NARROW)):
        assert hw.refresh_stream_table(name).action == "REINITIALIZE"
        assert find_difference(conn, query, name) is None
    _follows(hw, conn, third=WIDE)


def test_missed_changes_are_noticed_by_all(hw: Headwater, conn: Connection) -> None:
    """Whoever puts the triggers back: here a new table, which must not share what missed them."""
    _create(hw, "wide", WIDE)
    _create(hw, "narrow", NARROW)
    conn.execute("ALTER TABLE orders DISABLE TRIGGER USER")
    _change(conn, 1)
    _create(hw, "third", NARROW)
    assert find_difference(conn, NARROW, "third") is None
    assert len(list_traces(conn)) == 2
    for name, query in (("wide", WIDE), ("narrow", NARROW)):
        result = hw.refresh_stream_table(name)
        assert (result.action, result.reason) == (
            "REINITIALIZE",
            "triggers on public.orders or its partitions were missing or disabled",
        )
        assert find_difference(conn, query, name) is None
    _change(conn, 2)
    _follows(hw, conn, wide=WIDE, narrow=NARROW, third=NARROW)


def test_the_last_reader_takes_the_files_along(
    hw: Headwater, conn: Connection, tmp_path: Path
) -> None:
    _create(hw, "wide", WIDE)
    _create(hw, "narrow", NARROW)
    hw.drop_stream_table("wide")
    assert len(list(tmp_path.iterdir())) == 1
    hw.alter_stream_table("narrow", engine="postgres")
    assert list(tmp_path.iterdir()) == []
    assert conn.execute("SELECT count(*) FROM pgtrickle.pgt_traces").fetchall() == [(0,)]


def test_a_lost_trace_is_not_shared(hw: Headwater, conn: Connection, tmp_path: Path) -> None:
    _create(hw, "wide", WIDE)
    for path in tmp_path.iterdir():
        shutil.rmtree(path)
    _create(hw, "narrow", NARROW)
    assert len(list(tmp_path.iterdir())) == 1
    _change(conn, 1)
    assert hw.refresh_stream_table("narrow").action == "DIFFERENTIAL"
    assert find_difference(conn, NARROW, "narrow") is None


def test_chain_shares_within_one_transaction(hw: Headwater, conn: Connection) -> None:
    """Both rebuilt at once: what the first loaded serves the second."""
    over = "SELECT w.n, o.amount FROM wide w JOIN orders o ON o.customer = w.customer"
    _create(hw, "wide", WIDE)
    _create(hw, "over", over)
    assert len(list_traces(conn)) == 2
    conn.execute("UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true")
    _change(conn, 1)
    assert hw.refresh_stream_table("over").action == "REINITIALIZE"
    assert len(list_traces(conn)) == 2
    _change(conn, 2)
    _follows(hw, conn, over=over, wide=WIDE)
    _create(hw, "notes", NOTES)
    assert len(list_traces(conn)) == 3
