"""The one Spark session of the tests; `tests.scheduling` keeps them all in one worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.api import Headwater
from headwater.errors import MissingComponent
from headwater.spark.java import require_java
from headwater.spark.session import SparkOptions, start_session, stop_session
from tests.servers import Server

NOT_RUN = "not run: "
OPTIONS = SparkOptions(master="local[2]")


@pytest.fixture(scope="session")
def java() -> None:
    """Java, without which a test cannot run: a failure in CI, a skip elsewhere."""
    try:
        require_java()
    except MissingComponent as missing:
        if must_run():
            pytest.fail(str(missing))
        pytest.skip(f"{NOT_RUN}Spark: {missing.what}")


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    """The session that the tests share; it must be left as it was."""
    yield start_session(OPTIONS)
    stop_session()


@pytest.fixture
def dsn(pg18: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database with what the module's SETUP makes."""
    made = pg18.create_database()
    with psycopg.connect(made) as conn:
        conn.execute(request.module.SETUP.encode())
    yield made
    pg18.drop_database(made)


@pytest.fixture
def hw(dsn: str, tmp_path: Path, spark: SparkSession) -> Iterator[Headwater]:
    """The verbs on that database, with a lake of their own."""
    with headwater.connect(dsn, lake=str(tmp_path), spark_master=OPTIONS.master) as opened:
        yield opened


def must_run() -> bool:
    """Say whether a missing component is a failure here."""
    return os.environ.get("CI") == "true" or os.environ.get("HEADWATER_TEST_REQUIRE_DB") == "1"
