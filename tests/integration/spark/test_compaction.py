"""A trace of many small files is merged by a refresh, and stays what it was."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.spark import ingest
from tests.integration.spark.conftest import OPTIONS
from tests.servers import Server


def test_many_files_become_one(
    pg18: Server, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "MANY_FILES", 2)
    database = pg18.create_database()
    with (
        psycopg.connect(database, autocommit=True) as conn,
        headwater.connect(database, lake=str(tmp_path), spark_master=OPTIONS.master) as hw,
    ):
        conn.execute("CREATE TABLE t (id int PRIMARY KEY, g int)")
        conn.execute("INSERT INTO t SELECT n, n % 3 FROM generate_series(1, 20) AS n")
        query = "SELECT g, count(*) AS n FROM t GROUP BY g"
        hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL", engine="spark")
        for number in range(6):
            conn.execute("UPDATE t SET g = g + 1 WHERE id %% 6 = %s", [number])
            assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
            assert hw.verify("st").equal
        assert len(list(tmp_path.rglob("part-*.parquet"))) <= 6
    pg18.drop_database(database)
