"""The lake in an object store, as delta-rs sees it: S3 by moto, on this machine, without Spark."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

import headwater
from headwater.algebra.schema import SqlType
from headwater.catalog import epochs
from headwater.errors import ServerResources
from headwater.spark import ingest
from headwater.spark.lake import Lake
from headwater.spark.traces import Trace
from tests.integration.spark.conftest import NOT_RUN, must_run
from tests.servers import Server

COLUMNS = (('"id"', SqlType("integer")), ('"v"', SqlType("text")))
BUCKET = "bucket"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 with one empty bucket."""
    if importlib.util.find_spec("moto") is None:
        if must_run():
            pytest.fail("the package moto is not installed")
        pytest.skip(f"{NOT_RUN}S3: the package moto is not installed")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    log = tmp_path_factory.mktemp("moto") / "log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        url = f"http://127.0.0.1:{port}"
        _make_bucket(url, log)
        yield url
    finally:
        server.terminate()
        server.wait(30)


def _make_bucket(url: str, log: Path) -> None:
    request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
    for _ in range(300):
        try:
            with urllib.request.urlopen(request):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.fixture
def lake(endpoint: str) -> Lake:
    options = {
        "AWS_ACCESS_KEY_ID": "a key",
        "AWS_SECRET_ACCESS_KEY": "a secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
    }
    return Lake(f"s3a://{BUCKET}/some/lake", options)


@pytest.fixture
def conn(pg18: Server) -> Iterator[psycopg.Connection]:
    """A connection to a database with a catalog and one source."""
    dsn = pg18.create_database()
    with headwater.connect(dsn), psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE source AS SELECT n AS id, 'v' || n AS v"
                     " FROM generate_series(1, 1000) AS n")  # fmt: skip
        yield conn
    pg18.drop_database(dsn)


def _load(conn: psycopg.Connection, lake: Lake) -> ingest.Standing:
    epoch = epochs.record_epoch(conn)
    [relid] = conn.execute("SELECT 'source'::regclass::oid::int8").fetchone() or [0]
    need = ingest.Need(relid, "source", COLUMNS)
    return ingest.load(conn, ingest.own_lake(conn, lake, epoch), need, epoch)


def _batch(ids: list[int], weight: int) -> pa.RecordBatch:
    values = pa.array([f"v{n}" for n in ids])
    weights = pa.array([weight] * len(ids), pa.int32())
    return pa.RecordBatch.from_arrays([pa.array(ids, pa.int32()), values, weights], list("abc"))


def _objects(endpoint: str) -> int:
    with urllib.request.urlopen(f"{endpoint}/{BUCKET}?list-type=2") as answer:
        return int(answer.read().count(b"<Key>"))


def test_a_trace_lives_and_goes(conn: psycopg.Connection, lake: Lake, endpoint: str) -> None:
    with conn.transaction(force_rollback=True):
        standing = _load(conn, lake)
    trace = Trace(standing.url, lake.storage_options)
    [loaded] = trace.files(standing.version)
    assert loaded.rows == 1000
    version = trace.append(7, [_batch([1, 2], -1)], standing.version)
    version = trace.append(8, [_batch([1001], 1)], version)
    assert [f.rows for f in trace.between(version, 6, 8)] == [2, 1]
    assert len(trace.files(trace.append(7, [_batch([3], -1)], standing.version))) == 2
    compacted = trace.compact(version, upto=8, keep_after=8)
    assert [f.rows for f in trace.files(compacted)] == [999]
    assert len(trace.vacuum([compacted])) == 4
    stored = pa.Table.from_batches(trace.stored_rows()).column(0).to_pylist()
    assert sorted(stored) == list(range(3, 1002))
    again = Trace(standing.url, lake.storage_options)
    assert again.files(compacted) == trace.files(compacted)
    ingest.sweep_orphans(conn, lake)
    assert _objects(endpoint) == 0


def test_what_is_being_made_stays(conn: psycopg.Connection, lake: Lake, endpoint: str) -> None:
    with conn.transaction():
        standing = _load(conn, lake)
        ingest.sweep_orphans(conn, lake)
        assert Trace(standing.url, lake.storage_options).files(standing.version)
    Trace(standing.url, lake.storage_options).drop()
    assert _objects(endpoint) == 0


def test_a_store_that_refuses_is_told(conn: psycopg.Connection, lake: Lake) -> None:
    elsewhere = Lake("s3a://no-such-bucket/lake", lake.storage_options)
    with conn.transaction(force_rollback=True), pytest.raises(ServerResources):
        _load(conn, elsewhere)
