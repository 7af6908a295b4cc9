"""What SQL functions ask of Spark is left to a process that has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from headwater.api.facade import open_connection
from headwater.database.serve import serve_waiting, serving
from headwater.spark.lake import Lake
from tests.battery.oracle import find_difference
from tests.integration.spark.conftest import OPTIONS

TOTALS = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
LARGE = "SELECT id FROM orders WHERE amount > 3"


def serve(dsn: str, lake: Path) -> list[Exception | None]:
    errors: list[Exception | None] = []
    with open_connection(dsn, Lake(str(lake), {}, OPTIONS)) as conn, serving(conn):
        serve_waiting(conn, lambda _, error: errors.append(error))
    return errors


def facts(conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return conn.execute(
        "SELECT st.effective_engine, h.action FROM pgtrickle.pgt_stream_tables st,"
        " LATERAL pgtrickle.refresh_history(st.pgt_name, 1) h WHERE st.pgt_name = 'totals'"
    ).fetchall()


def test_spark_is_asked_by_requests(inside: str, spark: SparkSession, tmp_path: Path) -> None:
    with psycopg.connect(inside, autocommit=True) as conn:
        conn.execute("CREATE TABLE orders (id int PRIMARY KEY, customer text, amount int)")
        conn.execute("INSERT INTO orders SELECT i, 'c' || i % 3, i FROM generate_series(1, 9) i")
        create = "SELECT pgtrickle.create_stream_table(%s, %s, NULL, 'DIFFERENTIAL', engine => %s)"
        conn.execute(create, ["totals", TOTALS, "spark"])
        conn.execute(create, ["large", LARGE, "postgres"])  # at once, in the server
        assert facts(conn) == []
        assert serve(inside, tmp_path) == [None]
        assert facts(conn) == [("spark", "REINITIALIZE")]
        conn.execute("INSERT INTO orders VALUES (10, 'new', 5)")
        conn.execute("SELECT pgtrickle.refresh_stream_table('totals')")
        assert facts(conn) == [("spark", "REINITIALIZE")]
        assert serve(inside, tmp_path) == [None]
        assert facts(conn) == [("spark", "DIFFERENTIAL")]
        assert find_difference(conn, TOTALS, "totals") is None
        conn.execute("SELECT pgtrickle.create_stream_table('above', 'SELECT total FROM totals')")
        assert conn.execute("SELECT to_regclass('above')").fetchall() == [(None,)]
        assert serve(inside, tmp_path) == [None]
        assert find_difference(conn, "SELECT total FROM totals", "above") is None
        with pytest.raises(psycopg.Error, match="HW-113"), conn.transaction():
            _write_and_refresh(conn)
        conn.execute("SELECT pgtrickle.refresh_stream_table('large')")
        assert find_difference(conn, LARGE, "large") is None
        conn.execute("SELECT pgtrickle.drop_stream_table('totals', cascade => true)")
        assert serve(inside, tmp_path) == []


def _write_and_refresh(conn: psycopg.Connection[Any]) -> None:
    """What this transaction wrote would have to be read on Spark as well."""
    conn.execute("INSERT INTO orders VALUES (11, 'new', 5)")
    conn.execute("SELECT pgtrickle.refresh_stream_table('large')")
