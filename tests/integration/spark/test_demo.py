"""The demonstration with Spark; without it, tests/integration/postgres/test_cli.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from headwater.cli import main
from headwater.spark.lake import find_missing
from tests.servers import Server


@pytest.fixture
def database(pg18: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The DSN of an empty database whose default engine is the user's."""
    monkeypatch.delenv("PGOPTIONS", raising=False)
    dsn = pg18.create_database()
    yield dsn
    pg18.drop_database(dsn)


def test_on_spark(database: str, tmp_path: Path, spark: SparkSession) -> None:
    told = json.loads(demo(database, tmp_path, "--json"))
    assert [t["engine"] for t in told["created"]] == ["spark", "spark", "spark", "postgres"]
    assert "not Spark: an aggregate over all rows" in told["created"][3]["reason"]
    assert [r["action"] for r in told["refreshed"]] == ["DIFFERENTIAL"] * 4
    assert [r["timings"].get("spark_jobs", 0) > 0 for r in told["refreshed"]] == [
        True, True, True, False,
    ]  # fmt: skip
    assert told["before"]["rows"] != told["after"]["rows"]
    assert [v["equal"] for v in told["verified"]] == [True] * 5
    assert [r["action"] for r in told["unchanged"]] == ["NO_DATA"] * 4
    assert [r for r in told["unchanged"] if "spark_jobs" in r["timings"]] == []
    assert len(told["explained"]["spark"]["traces"]) == 3


def test_for_people(database: str, tmp_path: Path, spark: SparkSession) -> None:
    text = demo(database, tmp_path)
    assert "\n… creating the stream tables; Spark starts" in text
    assert "Spark takes no part" not in text
    assert "traces in the lake" in text


def test_without_java(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    find_missing.cache_clear()
    try:
        text = demo(database, tmp_path)
    finally:
        find_missing.cache_clear()
    assert "\nSpark takes no part: /nowhere/bin/java is not a Java that runs.\n" in text
    assert text.count("DIFFERENTIAL") >= 4
    assert text.count("  equal ") == 5


def demo(dsn: str, lake: Path, *options: str) -> str:
    named = ["--dsn", dsn, "--lake", str(lake), "--spark-master", "local[2]"]
    result = CliRunner().invoke(main, [*named, "demo", *options])
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout
