"""TPC-H on Spark: what Spark takes follows the refresh streams there, the rest says why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.bench import tpch
from headwater.bench.tpch_queries import QUERIES
from headwater.errors import UnsupportedQuery
from tests.integration.spark.conftest import OPTIONS
from tests.scale import scaled
from tests.servers import Server
from tests.tpch.streams import STREAMS
from tests.tpch.test_tpch import Run, allow_nulls, in_schema

# A quotient, or a product with a sum, has no exact form there where it is no result.
ON_SPARK = set(QUERIES) - {"q11", "q17", "q20", "q22"}
# A refresh on Spark takes long, so the streams come in two batches, and `make test` takes every
# third query; `make generated` takes all.
NAMES = tuple(QUERIES) if scaled(1) > 1 else tuple(QUERIES)[::3]
BATCHES = (STREAMS[:3], STREAMS[3:5])


@pytest.fixture
def run(pg18: Server, tmp_path: Path, spark: SparkSession) -> Iterator[Run]:
    database = pg18.create_database()
    dsn = in_schema(database)
    with (
        psycopg.connect(dsn, autocommit=True) as conn,
        headwater.connect(dsn, lake=str(tmp_path), spark_master=OPTIONS.master) as hw,
    ):
        tpch.build(conn, tpch.LEAST_SCALE)
        allow_nulls(conn)
        yield Run(hw, conn, "DIFFERENTIAL", "spark")
    pg18.drop_database(database)


@pytest.mark.generated  # so that `make generated` runs it, too
def test_what_spark_takes_follows_every_stream(run: Run) -> None:
    refused = {name for name in NAMES if is_refused(run, name)}
    assert refused == set(NAMES) - ON_SPARK
    for batch in BATCHES:
        run.follow(*batch)
    assert run.failures == []
    still = {name for name, contents in run.seen.items() if len(contents) <= len(BATCHES)}
    assert still <= {"q19"}  # which looks at few rows, and may see nothing of a batch


def is_refused(run: Run, name: str) -> bool:
    """Create a stream table on Spark; if that is refused, the reason is stored with it."""
    try:
        run.create(name)
    except UnsupportedQuery:
        auto = run.hw.create_stream_table(name, QUERIES[name], engine="auto")
        (status,) = [each for each in run.hw.pgt_status() if each.name.endswith(f".{name}")]
        assert (status.engine, status.reason) == ("postgres", auto.reason)
        assert auto.reason
        run.hw.drop_stream_table(name)
        return True
    return False
