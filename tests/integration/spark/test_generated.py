"""Generated schemas, queries and changes on Spark: after each round the oracle holds.

A run is one generated change that Spark followed through one generated query. All of them share
one database and one session. A failure prints its seed and the SQL that leads to it;
HEADWATER_TEST_SEED=<seed> draws it again.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from itertools import count
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

RUNS = scaled(200)
# Spark takes seconds to plan the change of a query of full depth, so those go through two rounds.
# The others are shallow, and go through more, each of which changes all tables.
DEEP = 0.1  # of the schemas; the seed decides


@pytest.fixture
def database(pg18: Server) -> Iterator[str]:
    dsn = pg18.create_database()
    yield dsn
    pg18.drop_database(dsn)


@pytest.mark.timeout(3600)
def test_generated_queries_follow_generated_changes(
    database: str, tmp_path: Path, spark: SparkSession
) -> None:
    failures: list[str] = []
    followed = 0
    with (
        psycopg.connect(database, autocommit=True) as conn,
        headwater.connect(database, lake=str(tmp_path), spark_master=OPTIONS.master) as hw,
    ):
        for number in count():
            seed = seed_of(number)
            run = Run(hw, conn, engine="spark")
            try:
                schema = f"g{secrets.token_hex(4)}"
                if Random(f"depth of {seed}").random() < DEEP:
                    go(run, Random(seed), schema, rounds=2)
                else:
                    go(run, Random(seed), schema, rounds=8, depth=1, all_change=True)
            finally:
                tidy(run)
            failures += [f"HEADWATER_TEST_SEED={seed}\n{failure}" for failure in run.failures]
            followed += run.followed
            assert run.followed or run.refused, f"HEADWATER_TEST_SEED={seed}: nothing was tried"
            if followed >= RUNS or seed == seed_of(number + 1):  # which is asked for by name
                break
    assert not failures, "".join(failures)
