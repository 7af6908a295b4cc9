"""Settings that bound what a query may ask for, at create and at alter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import headwater

Connection = psycopg.Connection[Any]


@pytest.fixture
def hw(database: str, conn: Connection) -> Iterator[headwater.Headwater]:
    conn.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b int, c int)")
    conn.execute("INSERT INTO t SELECT n, n % 2, n % 3, n % 5 FROM generate_series(1, 40) AS n")
    with headwater.connect(database) as connected:
        yield connected


def top(rows: int) -> str:
    return f"SELECT id, a FROM t ORDER BY a DESC, id OFFSET 1 LIMIT {rows}"


def test_immediate_takes_the_first_rows(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", top(3), refresh_mode="IMMEDIATE")
    with conn.transaction():
        conn.execute("DELETE FROM t WHERE id IN (1, 3, 7)")
        assert conn.execute("SELECT id FROM st ORDER BY id").fetchall() == [(9,), (11,), (13,)]
    assert hw.verify("st").equal


def test_immediate_refuses_too_many_rows(hw: headwater.Headwater) -> None:
    with pytest.raises(headwater.HeadwaterError, match=r"pg_trickle\.ivm_topk_max_limit is 1000"):
        hw.create_stream_table("st", top(5000), refresh_mode="IMMEDIATE")
    hw.create_stream_table("st", top(5000), refresh_mode="DIFFERENTIAL")
    with pytest.raises(headwater.HeadwaterError, match=r"ivm_topk_max_limit"):
        hw.alter_stream_table("st", refresh_mode="IMMEDIATE")
    assert hw.verify("st").equal


def test_too_many_grouping_sets_are_refused(hw: headwater.Headwater, conn: Connection) -> None:
    database = conn.info.dbname
    cube = "SELECT a, b, c, count(*) AS n FROM t GROUP BY CUBE (a, b, c)"
    hw.create_stream_table("fits", cube, refresh_mode="DIFFERENTIAL")
    conn.execute(f'ALTER DATABASE "{database}" SET pg_trickle.max_grouping_sets = 7'.encode())
    refused = pytest.raises(headwater.HeadwaterError, match=r"8 grouping sets")
    with headwater.connect(hw.dsn) as again, refused:
        again.create_stream_table("st", cube, refresh_mode="DIFFERENTIAL")
