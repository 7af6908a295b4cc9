"""First loads by executors: the same rows as by one process, seen by the same eyes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyarrow import parquet
from pyspark.sql import SparkSession

import headwater
from headwater.api import Headwater
from headwater.errors import (
    InexactValue,
    MissingRights,
    QueryFailed,
    ServerUnreachable,
    UnsupportedQuery,
)
from headwater.spark import compute, ingest, loading
from headwater.spark.lake import Lake
from headwater.spark.traces import Trace
from tests.battery.oracle import find_difference
from tests.integration.spark.conftest import OPTIONS
from tests.servers import Debian15, Embedded, Server
from tests.spark_traces import list_traces, prove_lake_clean, prove_traces

Connection = psycopg.Connection[Any]

SETUP = """
CREATE TABLE plain (id int PRIMARY KEY, k int, price numeric(10, 2), day date, at timestamptz,
                    raw bytea, words text);
INSERT INTO plain SELECT n, nullif(n % 7, 0), n / 4.0, date '2024-02-28' + n % 3,
                         timestamptz '2024-01-01 UTC' + n * interval '1 min',
                         decode(md5(n::text), 'hex'), repeat('ä"' || E'\\n' || n, n % 9)
                    FROM generate_series(1, 3000) AS n;
DELETE FROM plain WHERE id % 5 = 0;
UPDATE plain SET price = price + 1 WHERE id % 11 = 0;
CREATE TABLE parted (id int, k int, v text) PARTITION BY LIST (k);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1, 2) PARTITION BY RANGE (id);
CREATE TABLE parted_1a PARTITION OF parted_1 FOR VALUES FROM (0) TO (500);
CREATE TABLE parted_1b PARTITION OF parted_1 DEFAULT;
CREATE TABLE parted_0 PARTITION OF parted DEFAULT;
INSERT INTO parted SELECT n, n % 7, 'v' || n FROM generate_series(1, 4000) AS n;
INSERT INTO parted SELECT 1, NULL, NULL FROM generate_series(1, 3);
CREATE TABLE parent (id int, k int);
CREATE TABLE child (more text) INHERITS (parent);
INSERT INTO parent SELECT n, n % 3 FROM generate_series(1, 1000) AS n;
INSERT INTO child SELECT n, n % 3, 'x' FROM generate_series(1000, 3000) AS n;
"""
JOINED = """
SELECT p.id, p.price, p.day, p.at, p.raw, p.words, q.v, r.k AS rk
  FROM plain p JOIN parted q ON q.id = p.id JOIN parent r ON r.id = p.id"""
SUMS = "SELECT k, count(*) AS n, sum(price) AS total FROM plain GROUP BY k"
MODE: dict[str, Any] = {"refresh_mode": "DIFFERENTIAL", "engine": "spark"}
REBUILD = "UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true, reinit_reason = 'a test'"


@pytest.fixture
def shop(
    request: pytest.FixtureRequest, start_server: Callable[[type[Server]], Server]
) -> Iterator[str]:
    """The DSN of a database in which every table of some pages is large."""
    server = start_server(getattr(request, "param", Embedded))
    dsn = server.create_database()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(SETUP.encode())
        for name, value in (("pages", 4), ("connections", 3)):
            alter = sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                sql.Identifier(conn.info.dbname), sql.SQL(loading_setting(name)), value
            )
            conn.execute(alter)
    yield dsn
    server.drop_database(dsn)


def loading_setting(name: str) -> str:
    return f"pg_trickle.parallel_load_{name}"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def hw(shop: str, lake: Path, spark: SparkSession) -> Iterator[Headwater]:
    with connect(shop, lake) as connection:
        yield connection


@pytest.fixture
def plain(shop: str) -> Iterator[Connection]:
    """A connection of someone else."""
    with psycopg.connect(shop, autocommit=True) as connection:
        yield connection


def connect(dsn: str, lake: Path) -> Headwater:
    return headwater.connect(dsn, lake=str(lake), spark_master=OPTIONS.master)


def loads(hw: Headwater, name: str) -> dict[str, float]:
    """How the latest refresh loaded the sources."""
    timings = hw.refresh_history(name, 1)[0].timings or {}
    return {key: value for key, value in timings.items() if key.startswith("load_")}


@pytest.mark.parametrize("shop", [Embedded, Debian15], ids=["pg18", "pg15"], indirect=True)
def test_executors_load_what_the_process_would(
    hw: Headwater, plain: Connection, lake: Path
) -> None:
    hw.create_stream_table("joined", JOINED, **MODE)
    assert loads(hw, "joined") == {"load_parallel": 3.0}
    assert find_difference(plain, JOINED, "joined") is None
    assert prove_traces(plain) == 3
    for url, version, _, _ in list_traces(plain):
        assert len(Trace(url).files(version)) == 3
    prove_lake_clean(plain, lake)
    plain.execute("DELETE FROM parted_1a WHERE id % 2 = 0; UPDATE plain SET price = 0 WHERE k = 1")
    plain.execute("INSERT INTO child SELECT id, 9, 'y' FROM plain WHERE id < 50")
    assert hw.refresh_stream_table("joined").action == "DIFFERENTIAL"
    assert loads(hw, "joined") == {}
    assert find_difference(plain, JOINED, "joined") is None


def test_files_have_the_order_of_the_key(hw: Headwater, plain: Connection, lake: Path) -> None:
    """Where the rows have it, or nobody knows whether they do, the server does not sort them."""
    for table, order in (("mixed", "md5(n::text)"), ("straight", "n")):
        plain.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)".encode())
        rows = f"SELECT n FROM generate_series(1, 3000) AS n ORDER BY {order}"
        plain.execute(f"INSERT INTO {table} {rows}".encode())
    asked = [("mixed", ['"id"'], ""), ("straight", ['"id"'], ""), ("parted", ['"id"'], "")]
    for table, texts, order in asked:
        assert loading.key_order(plain, _oid(plain, table), texts) == order
    plain.execute("ANALYZE mixed, straight, parted")
    ordered = [("mixed", ['"id"'], ' ORDER BY "id"'), ("mixed", ['"v"'], ""), *asked[1:]]
    for table, texts, order in ordered:
        assert loading.key_order(plain, _oid(plain, table), texts) == order
    hw.create_stream_table("shown", "SELECT id FROM mixed", **MODE)
    assert loads(hw, "shown") == {"load_parallel": 1}
    files = [parquet.read_table(file)["c0"].to_pylist() for file in lake.glob("*/part-*.parquet")]
    assert len(files) > 1
    assert sum(map(len, files)) == 3000
    assert all(ids == sorted(ids) for ids in files)


def _oid(conn: Connection, table: str) -> int:
    [(oid,)] = conn.execute("SELECT %s::regclass::oid::int8", [table]).fetchall()
    return int(oid)


def test_a_rebuild_is_loaded_by_executors_too(hw: Headwater, plain: Connection) -> None:
    hw.create_stream_table("sums", SUMS, **MODE)
    plain.execute(REBUILD)
    assert hw.verify("sums").equal  # in a savepoint, from which no snapshot can be exported
    assert hw.refresh_stream_table("sums").action == "REINITIALIZE"
    assert loads(hw, "sums") == {"load_parallel": 1.0}
    assert find_difference(plain, SUMS, "sums") is None


def test_every_reader_sees_the_snapshot_of_the_epoch(
    hw: Headwater, plain: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What commits while executors start belongs to the next epoch, and is there then."""
    hw.create_stream_table("sums", SUMS, initialize=False, **MODE)
    run = loading._run

    def later(*args: Any) -> Any:
        plain.execute("INSERT INTO plain (id, k, price) VALUES (-1, 1, 1000000)")
        plain.execute("DELETE FROM plain WHERE id < 100 AND id > 0")
        return run(*args)

    monkeypatch.setattr(loading, "_run", later)
    before = plain.execute(f"SELECT * FROM ({SUMS}) AS q ORDER BY k".encode()).fetchall()
    assert hw.refresh_stream_table("sums").action == "REINITIALIZE"
    assert plain.execute("SELECT * FROM sums ORDER BY k").fetchall() == before
    monkeypatch.undo()
    assert hw.refresh_stream_table("sums").action == "DIFFERENTIAL"
    assert find_difference(plain, SUMS, "sums") is None


def test_rights_are_the_owners(hw: Headwater, plain: Connection) -> None:
    """The owner reads partitions through their table only; a policy for him cannot be followed."""
    role = f"owner_{plain.info.dbname}"
    name = sql.Identifier(role)
    for statement in (
        "CREATE ROLE {} LOGIN",
        "GRANT CREATE ON SCHEMA public TO {}",
        "GRANT SELECT, TRIGGER ON parted, plain TO {}",
    ):
        plain.execute(sql.SQL(statement).format(name))
    query = "SELECT id, k, v FROM parted"
    try:
        with _as_role(plain, role):
            expected = plain.execute(f"SELECT count(*) FROM ({query}) AS q".encode()).fetchone()
        hw.create_stream_table("mine", query, **MODE)
        plain.execute(
            sql.SQL(
                "UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true, reinit_reason = 'x',"
                " owner = {}::regrole"
            ).format(sql.Literal(role))
        )
        plain.execute(sql.SQL("ALTER TABLE mine OWNER TO {}").format(name))
        assert hw.refresh_stream_table("mine").action == "REINITIALIZE"
        assert loads(hw, "mine") == {"load_parallel": 1.0}
        assert plain.execute("SELECT count(*) FROM mine").fetchone() == expected
        plain.execute("ALTER TABLE parted ENABLE ROW LEVEL SECURITY")
        plain.execute(REBUILD)
        with pytest.raises(UnsupportedQuery, match="row-level security"):
            hw.refresh_stream_table("mine")
        plain.execute("ALTER TABLE parted DISABLE ROW LEVEL SECURITY")
        plain.execute(sql.SQL("REVOKE SELECT ON parted FROM {}").format(name))
        plain.execute(REBUILD)
        with pytest.raises(MissingRights):
            hw.refresh_stream_table("mine")
    finally:
        hw.drop_stream_table("mine")
        plain.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(name))


@contextmanager
def _as_role(conn: Connection, role: str) -> Iterator[None]:
    conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
    yield
    conn.execute("RESET ROLE")


def test_settings_are_those_of_the_creation(hw: Headwater, plain: Connection) -> None:
    """Executors connect anew, and must not print dates as a new session would."""
    query = "SELECT id, to_char(at, 'YYYY-MM-DD HH24 TZ') AS hour FROM plain"
    hw._conn.execute("SET TimeZone = 'Asia/Tokyo'")
    hw.create_stream_table("hours", query, **MODE)
    hw._conn.execute("RESET TimeZone")
    plain.execute(REBUILD)
    hw.refresh_stream_table("hours")
    assert loads(hw, "hours") == {"load_parallel": 1.0}
    plain.execute("SET TimeZone = 'Asia/Tokyo'")
    assert find_difference(plain, query, "hours") is None


def test_a_value_without_a_form_is_named(hw: Headwater, plain: Connection, lake: Path) -> None:
    plain.execute("UPDATE plain SET day = 'infinity' WHERE id = 2999")
    with pytest.raises(InexactValue) as refused:
        hw.create_stream_table("days", "SELECT id, day FROM plain", **MODE)
    assert refused.value.what == 'column "day" holds infinity, which DATE cannot hold exactly'
    with pytest.raises(psycopg.errors.UndefinedTable):
        plain.execute("SELECT FROM days")
    hw.create_stream_table("sums", SUMS, **MODE)
    ingest.sweep_orphans(hw._conn, Lake(str(lake)))
    prove_lake_clean(plain, lake)


def test_a_failing_expression_is_told_as_ever(hw: Headwater, plain: Connection) -> None:
    query = "SELECT id, to_char(1 / (id - 2999), '9') AS x FROM plain"
    with pytest.raises((QueryFailed, psycopg.errors.DivisionByZero)) as executors:
        hw.create_stream_table("failing", query, **MODE)
    hw._conn.execute(f"SET {loading_setting('connections')} = 0")
    with pytest.raises(type(executors.value)) as alone:
        hw.create_stream_table("failing", query, **MODE)
    assert str(executors.value) == str(alone.value)


def test_what_this_transaction_wrote_is_loaded_by_it(hw: Headwater, plain: Connection) -> None:
    """One refresh fills both, and nobody else sees the first one's rows yet."""
    query = "SELECT id, v FROM joined WHERE v IS NOT NULL"
    hw.create_stream_table("joined", JOINED, initialize=False, **MODE)
    hw.create_stream_table("above", query, initialize=False, **MODE)
    assert hw.refresh_stream_table("above").action == "REINITIALIZE"
    assert loads(hw, "joined") == {"load_parallel": 3.0}
    assert loads(hw, "above") == {"load_written": 1.0}
    assert find_difference(plain, query, "above") is None
    plain.execute(
        "UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true WHERE pgt_name = 'above'"
    )
    hw.refresh_stream_table("above")
    assert loads(hw, "above") == {"load_parallel": 1.0}
    assert find_difference(plain, query, "above") is None


@pytest.mark.parametrize(
    ("setting", "value", "kind"), [("pages", 1000, "small"), ("connections", 0, "off")]
)
def test_settings_decide(hw: Headwater, setting: str, value: int, kind: str) -> None:
    hw._conn.execute(f"SET {loading_setting(setting)} = {value}")
    hw.create_stream_table("sums", SUMS, **MODE)
    assert loads(hw, "sums") == {f"load_{kind}": 1.0}
    explained = hw.explain_st("sums").spark
    assert explained is not None
    [words] = explained.loads
    assert words.startswith("public.plain: by this process: ")
    assert f"pg_trickle.parallel_load_{setting} is {value}" in words


def test_explain_tells_who_would_load(hw: Headwater) -> None:
    hw.create_stream_table("sums", SUMS, **MODE)
    explained = hw.explain_st("sums").spark
    assert explained is not None
    assert explained.loads == ("public.plain: by executors, in 3 ranges of blocks",)


def test_nobody_waits_for_whom_the_server_does_not_know(
    hw: Headwater, plain: Connection, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another wants to alter the source, and waits for this refresh; executors do not."""
    hw.create_stream_table("sums", SUMS, **MODE)
    plain.execute(REBUILD)
    run = loading._run
    other = threading.Thread(target=_lock_exclusively, args=(shop, "plain"))

    def later(*args: Any) -> Any:
        other.start()
        waiting = "SELECT FROM pg_locks WHERE NOT granted AND relation = 'plain'::regclass"
        while plain.execute(waiting).fetchone() is None:
            time.sleep(0.02)
        return run(*args)

    monkeypatch.setattr(loading, "_run", later)
    assert hw.refresh_stream_table("sums").action == "REINITIALIZE"
    other.join()
    assert loads(hw, "sums") == {"load_blocked": 1.0}
    assert find_difference(plain, SUMS, "sums") is None
    assert prove_traces(plain) == 1


def _lock_exclusively(dsn: str, table: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())


def test_a_server_out_of_reach_is_told(hw: Headwater, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = loading._parameters

    def elsewhere(conn: Connection) -> dict[str, str]:
        return parameters(conn) | {"host": "/nowhere"}

    monkeypatch.setattr(loading, "_parameters", elsewhere)
    with pytest.raises(ServerUnreachable) as refused:
        hw.create_stream_table("sums", SUMS, **MODE)
    assert "pg_trickle.parallel_load_connections = 0" in refused.value.fix


def test_more_rows_than_memory_should_hold_go_through_files(
    hw: Headwater, plain: Connection, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One changed row that meets many; then many changed rows; then few of both."""
    query = "SELECT p.id, p.price, r.id AS rid FROM plain p JOIN parent r ON r.k = p.k"
    hw.create_stream_table("met", query, **MODE)
    streamed: list[str] = []
    stream = compute.Compute.stream

    def listening(self: compute.Compute, statement: str) -> Any:
        streamed.append(statement)
        return stream(self, statement)

    monkeypatch.setattr(compute.Compute, "stream", listening)
    monkeypatch.setattr(compute, "MANY_ROWS", 500)
    for change, is_large in (
        ("INSERT INTO plain (id, k, price) VALUES (-1, 1, 5)", True),
        ("UPDATE parent SET k = 77 WHERE id < 1000", True),
        ("INSERT INTO plain (id, k, price) VALUES (-2, 77, 5)", True),
        ("INSERT INTO plain (id, k, price) VALUES (-3, 78, 5)", False),
    ):
        streamed.clear()
        plain.execute(change.encode())
        assert hw.refresh_stream_table("met").action == "DIFFERENTIAL"
        assert bool(streamed) is is_large
        assert find_difference(plain, query, "met") is None
    prove_lake_clean(plain, lake)
