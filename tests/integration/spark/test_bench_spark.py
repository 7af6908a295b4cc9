"""`bench spark` runs to its end, on tiny data, and reports what it should; nothing is timed."""

from __future__ import annotations

import json
import shutil
import sysconfig
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psycopg
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from headwater.bench.chart import draw
from headwater.bench.spark_figures import Refused, SparkCell, summarise_spark
from headwater.bench.spark_report import sorted_out, spark_tables
from headwater.bench.tpch import GENERATOR, build
from headwater.cli import main
from headwater.errors import InvalidArgument
from tests.integration.spark.conftest import NOT_RUN, OPTIONS, must_run
from tests.servers import Server

CELL = SparkCell(
    scale=1, changed=0.1, view="q3", rows=10, verified=True, initial_ms=1, differential_ms=200,
    ingest_ms=50, spark_ms=100, land_ms=10, apply_ms=10, spark_jobs=3, full_ms=1600,
    full_spark_ms=1000, full_spark_jobs=4, view_ms=800, no_data_ms=2, delta_rows=9,
    written_rows=3,
)  # fmt: skip
FAST = SparkCell(
    scale=1, changed=0.1, view="q1", rows=4, verified=True, initial_ms=1, differential_ms=100,
    ingest_ms=50, spark_ms=25, land_ms=10, apply_ms=10, spark_jobs=1, full_ms=200,
    full_spark_ms=1000, full_spark_jobs=2, view_ms=800, no_data_ms=2, delta_rows=9,
    written_rows=3, merge_ms=3000, merge_rows=4,
)  # fmt: skip


@pytest.fixture
def generator() -> None:
    """The program that makes the data: a failure in CI if it is missing, a skip elsewhere."""
    if shutil.which(GENERATOR, path=sysconfig.get_path("scripts")) or shutil.which(GENERATOR):
        return
    if must_run():
        pytest.fail(f"{GENERATOR} is not installed")
    pytest.skip(f"{NOT_RUN}{GENERATOR} is not installed")


def test_the_whole_command(
    generator: None, spark: SparkSession, pg18: Server, tmp_path: Path
) -> None:
    dsn, output, plot = pg18.create_database(), tmp_path / "spark.json", tmp_path / "spark.svg"
    result = CliRunner().invoke(main, [
        "--dsn", dsn, "--lake", str(tmp_path / "lake"), "--spark-master", OPTIONS.master,
        "bench", "spark", "--scale", "0.01", "--changed", "1,5", "--repeat", "1",
        "--views", "join,q4", "--single-rows", "60000", "--json",
        "--output", str(output), "--plot", str(plot),
    ])  # fmt: skip
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    check(document)
    assert json.loads(output.read_text()) == document
    assert ElementTree.parse(plot).getroot().tag.endswith("svg")
    assert list((tmp_path / "lake").iterdir()) == []
    with psycopg.connect(dsn) as conn:
        row = conn.execute(
            "SELECT to_regnamespace('headwater_bench'), count(*) FROM pgtrickle.pgt_stream_tables"
        ).fetchone()
    assert row == (None, 0)
    pg18.drop_database(dsn)


def test_too_small_a_scale_is_refused(pg18: Server) -> None:
    dsn = pg18.create_database()
    with psycopg.connect(dsn, autocommit=True) as conn, pytest.raises(InvalidArgument):
        build(conn, 0.001)
    pg18.drop_database(dsn)


def check(document: dict[str, Any]) -> None:
    cells = document["cells"]
    refused = {each["view"] for each in document["refused"]}
    assert refused <= {"q4"}  # once it is supported it is measured like the others
    views = [view for view in ("join", "q4") if view not in refused]
    assert [(c["view"], c["changed"]) for c in cells] == [(v, c) for v in views for c in (1, 5)]
    for cell in cells:
        assert cell["verified"]
        assert cell["delta_rows"] > 0
        assert cell["spark_jobs"] > 0
        assert cell["merge_ms"] is None
        assert len(cell["samples"]["differential_ms"]) == 1
    assert all(each["reason"] for each in document["refused"])
    assert [single["table"] for single in document["single"]] == ["lineitem", "orders"]
    assert [(s["scale"], s["changed"]) for s in document["summary"]] == [(0.01, 1), (0.01, 5)]


def test_the_mean_is_geometric() -> None:
    (summary,) = summarise_spark([CELL, FAST])
    assert summary.spark_ratio == pytest.approx(20)
    assert summary.ratio == pytest.approx(4)
    assert (summary.views, summary.least, summary.least_view) == (2, 2, "q1")


def test_what_was_refused_is_shown_once() -> None:
    refused = [Refused(scale, "q4", "a subquery") for scale in (0.01, 1)]
    tables = spark_tables(sorted_out([CELL, *refused]))
    assert tables[-1].rows == (("q4", "a subquery"),)


def test_the_chart_has_a_bar_for_each_figure() -> None:
    root = ElementTree.fromstring(draw([CELL, FAST]))
    bars = [e for e in root.iter() if e.tag.endswith("rect") and e.get("height") == "8"]
    assert len(bars) == 3 + 4
