from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.errors import InvalidArgument
from headwater.spark.session import SparkOptions, start_session
from tests.integration.spark.conftest import NOT_RUN, OPTIONS, must_run


def test_equal_options_share_the_session(spark: SparkSession) -> None:
    assert start_session(SparkOptions(master=OPTIONS.master)) is spark


def test_other_options_are_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidArgument) as refused:
        start_session(SparkOptions(master="local[1]"))
    assert refused.value.what == "Spark runs already, with other options"


def test_settings_hold_in_the_session(spark: SparkSession) -> None:
    expected = {
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.decimalOperations.allowPrecisionLoss": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.parquet.pushdown.inFilterThreshold": "500",
        "spark.sql.maxPlanStringLength": "65536",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    }
    assert {name: spark.conf.get(name) for name in expected} == expected


def test_arrow_goes_in_and_out(spark: SparkSession) -> None:
    table = pa.table({"a": pa.array([1, 2, None], pa.int64()), "b": ["x", None, ""]})
    assert spark.createDataFrame(table).toArrow().to_pylist() == table.to_pylist()


def test_a_start_is_quiet_and_leaves_nothing(java: None, tmp_path: Path) -> None:
    done = run(
        """
        from headwater.spark.session import SparkOptions, start_session
        options = SparkOptions(
            master="local[1]",
            options=(("spark.sql.shuffle.partitions", "5"), ("spark.executor.memory", "600m")),
        )
        session = start_session(options)
        session.sql("CREATE TABLE t USING parquet AS SELECT 1 AS a")
        assert session.table("t").count() == 1
        assert session.conf.get("spark.sql.shuffle.partitions") == "5"
        assert session.conf.get("spark.executor.memory") == "600m"
        """,
        tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list((tmp_path / "cwd").iterdir()) == []
    assert list((tmp_path / "tmp").glob("headwater-*")) == []


def test_a_dead_spark_is_named_and_replaced(java: None, tmp_path: Path) -> None:
    done = run(
        """
        from headwater.errors import SparkFailed
        from headwater.spark.session import SparkOptions, spark_errors, start_session, stop_session
        from pyspark import SparkContext
        options = SparkOptions(master="local[1]")
        session = start_session(options)
        SparkContext._gateway.proc.kill()
        try:
            with spark_errors():
                session.range(3).count()
        except SparkFailed as error:
            print(error)
        again = start_session(options)
        assert again is not session
        print(again.range(3).count())
        stop_session()
        stop_session()
        """,
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "HW-305: Spark has died\n"
        "  why: its virtual machine ended with code -9\n"
        "  fix: try again, which starts Spark anew; if memory ran out, raise spark.driver.memory\n"
        "3\n"
    )


def test_a_failed_start_quotes_the_log(java: None, tmp_path: Path) -> None:
    done = run(
        """
        from headwater.errors import SparkFailed
        from headwater.spark.session import SparkOptions, start_session
        try:
            start_session(SparkOptions(options=(("spark.driver.memory", "lots"),)))
        except SparkFailed as error:
            print(error.what, error.why.splitlines()[1], sep="\\n")
        """,
        tmp_path,
    )
    assert done.stdout == "Spark does not start\nInvalid maximum heap size: -Xmxlots\n"
    assert list((tmp_path / "tmp").glob("headwater-*")) == []


def test_a_missing_java_is_named(tmp_path: Path) -> None:
    done = run(
        """
        from headwater.errors import MissingComponent
        from headwater.spark.session import start_session
        try:
            start_session()
        except MissingComponent as error:
            print(error.what)
        """,
        tmp_path,
        PATH="",
        JAVA_HOME="",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "Java is not installed\n", "")


@pytest.mark.parametrize("arguments", [["--version"], ["status", "--help"]], ids=" ".join)
def test_the_command_line_loads_no_spark(tmp_path: Path, arguments: list[str]) -> None:
    done = run(
        f"""
        import sys
        from headwater.cli import main
        try:
            main({arguments!r})
        except SystemExit as end:
            assert end.code == 0
        heavy = {{"pyspark", "py4j", "deltalake", "pyarrow"}}
        print(sorted(heavy & sys.modules.keys()), file=sys.stderr)
        """,
        tmp_path,
        PATH="",
        JAVA_HOME="",
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")


@pytest.mark.soak  # asks a repository of packages, which takes a minute
def test_delta_is_read_when_asked_for(java: None, tmp_path: Path) -> None:
    done = run(
        f"""
        import deltalake, pyarrow
        from headwater.errors import SparkFailed
        from headwater.spark.session import SparkOptions, start_session
        path = {str(tmp_path / "table")!r}
        deltalake.write_deltalake(path, pyarrow.table({{"a": [1, 2, 3]}}))
        try:
            session = start_session(SparkOptions(master="local[1]", delta=True))
        except SparkFailed as error:
            print(error.why)
        else:
            print(session.read.format("delta").load(path).count())
        """,
        tmp_path,
    )
    if "unresolved dependency" in done.stdout and not must_run():
        pytest.skip(f"{NOT_RUN}Spark: Delta's package is neither cached nor to be downloaded")
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def run(script: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `script` in a process of its own, in an empty directory."""
    for name in ("cwd", "tmp"):
        (tmp_path / name).mkdir()
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        check=False,
        cwd=tmp_path / "cwd",
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
