"""Generated schemas, queries and changes on Spark: after each round the oracle holds.

A failure prints its seed and the SQL that leads to it; HEADWATER_TEST_SEED=<seed> draws it again.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from random import Random

import psycopg
import pytest
from pyspark.sql import SparkSession

import headwater
from tests.integration.postgres.test_generated import Run, go, seed_of, tidy
from tests.integration.spark.conftest import OPTIONS
from tests.scale import scaled
from tests.servers import Server

pytestmark = pytest.mark.generated

SCHEMAS = scaled(4)
ROUNDS = 2  # one alone may be rolled back


@pytest.fixture(scope="module")
def shared_database(pg18: Server) -> Iterator[str]:
    dsn = pg18.create_database()
    yield dsn
    pg18.drop_database(dsn)


@pytest.mark.parametrize("number", range(SCHEMAS))
def test_generated_queries_follow_generated_changes(
    shared_database: str, number: int, tmp_path: Path, spark: SparkSession
) -> None:
    seed = seed_of(number)
    with (
        psycopg.connect(shared_database, autocommit=True) as conn,
        headwater.connect(
            shared_database,
            lake=str(tmp_path / "lake"),
            spark_master=OPTIONS.master,
            spark_options=dict(OPTIONS.options),
        ) as hw,
    ):
        run = Run(hw, conn, engine="spark")
        try:
            go(run, Random(seed), f"g{secrets.token_hex(4)}", ROUNDS)
        finally:
            tidy(run)
    assert not run.failures, f"HEADWATER_TEST_SEED={seed}\n" + "".join(run.failures)
    assert run.followed, f"HEADWATER_TEST_SEED={seed}: Spark followed nothing: {run.refused}"
