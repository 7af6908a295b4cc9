"""The base of a trace is written anew when much of it has come and gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

import headwater
from headwater.api import Headwater
from headwater.spark import rewriting
from headwater.spark.rewriting import is_worn
from headwater.spark.traces import Trace, TraceFile
from tests.battery.oracle import find_difference
from tests.integration.spark.conftest import OPTIONS
from tests.servers import Server
from tests.spark_traces import list_traces, prove_lake_clean, prove_traces

Connection = psycopg.Connection[Any]
SETUP = """
CREATE TABLE orders (note text, id int PRIMARY KEY, amount numeric(10, 2), at timestamptz);
INSERT INTO orders SELECT 'n' || n % 9, 2001 - n, n, '2026-01-01'::timestamptz + n * interval '1 d'
  FROM generate_series(1, 2000) AS n;
"""
QUERY = "SELECT note, id, amount, at FROM orders"


@pytest.fixture
def dsn(pg18: Server) -> Iterator[str]:
    made = pg18.create_database()
    with psycopg.connect(made) as conn:
        conn.execute(SETUP.encode())
        name = conn.info.dbname
        conn.execute(f"ALTER DATABASE {name} SET pg_trickle.lake_retention = '0 s'".encode())
    yield made
    pg18.drop_database(made)


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as opened:
        yield opened


@pytest.fixture
def hw(
    dsn: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Headwater]:
    monkeypatch.setattr(rewriting, "MIN_BYTES", 1)
    with headwater.connect(dsn, lake=str(tmp_path), spark_master=OPTIONS.master) as opened:
        opened.create_stream_table("st", QUERY, refresh_mode="DIFFERENTIAL", engine="spark")
        yield opened


def _change(hw: Headwater, conn: Connection, share: int) -> None:
    conn.execute("UPDATE orders SET amount = amount + 1 WHERE id %% %s = 0", [share])
    conn.execute("DELETE FROM orders WHERE id = (SELECT min(id) FROM orders)")
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"


def test_a_worn_base_is_written_in_the_order_of_the_key(
    hw: Headwater, conn: Connection, tmp_path: Path
) -> None:
    _change(hw, conn, 100)
    [(url, _, _, columns)] = list_traces(conn)
    hw.vacuum()
    assert sum(f.rows for f in Trace(url).files(_version(conn))) > 2000
    _change(hw, conn, 2)
    left = Path(url) / "rewritten-by-one-who-died"
    left.mkdir()
    (left / "part-0.parquet").write_bytes(b"")
    hw.vacuum()
    assert not left.exists()
    [file] = Trace(url).files(_version(conn))
    assert file.rows == 1998
    stored = parquet.ParquetFile(Path(url) / file.name)
    place = columns.index('"id"')
    ids = stored.read().column(f"c{place}").to_pylist()
    assert ids == sorted(ids)
    assert prove_traces(conn) == 1
    _change(hw, conn, 50)
    assert find_difference(conn, QUERY, "st") is None
    assert hw.verify("st").equal
    assert prove_traces(conn) == 1
    hw.vacuum()
    prove_lake_clean(conn, tmp_path)


def _version(conn: Connection) -> int:
    [(_, version, _, _)] = list_traces(conn)
    return version


def _file(epochs: tuple[int, int], rows: int, size: int = 1 << 30) -> TraceFile:
    return TraceFile("a", "a", rows, *epochs, size)


@pytest.mark.parametrize(
    ("files", "keep_after", "expected"),
    [
        ([_file((1, 1), 100)], 9, False),
        ([_file((1, 1), 100), _file((2, 8), 19)], 9, False),
        ([_file((1, 1), 100), _file((2, 8), 20)], 9, True),
        ([_file((1, 1), 100), _file((2, 10), 20)], 9, False),
        ([_file((1, 1), 100, 9), _file((2, 8), 20, 9)], 9, False),
        ([], 9, False),
    ],
)
def test_what_is_worn(files: list[TraceFile], keep_after: int, expected: bool) -> None:
    assert is_worn(tuple(files), keep_after) is expected
