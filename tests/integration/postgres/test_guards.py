"""A subquery that CASE or COALESCE keep the server from computing is not computed here either."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import headwater
from headwater.errors import QueryFailed
from tests.battery.oracle import find_difference

Connection = psycopg.Connection[Any]
# k = 3 has two rows in t, and g = 0 divides by zero: no query may look there.
VIEWS = {
    "two_rows": "SELECT id, CASE WHEN k <> 3 THEN (SELECT x FROM t WHERE t.k = o.k) END AS v"
    " FROM o",
    "second": "SELECT id, CASE WHEN k = 3 THEN -1 WHEN (SELECT x FROM t WHERE t.k = o.k) > 0 THEN 1"
    " ELSE (SELECT 10 / (o.k - 3) FROM t WHERE t.k = o.k) END AS v FROM o",
    "by_value": "SELECT id, CASE g WHEN 0 THEN 0 ELSE"
    " (SELECT count(*) / o.g FROM t WHERE t.k = o.k) END AS v FROM o",
    "filter": "SELECT id FROM o WHERE CASE WHEN k <> 3 THEN (SELECT x FROM t WHERE t.k = o.k)"
    " END > 0",
    "inside": "SELECT id, CASE WHEN k <> 3 THEN (SELECT u.x FROM t u WHERE u.k ="
    " (SELECT x FROM t WHERE t.k = o.k)) END AS v FROM o WHERE id < 9",
    "nested": "SELECT id, CASE WHEN g <> 0 THEN CASE WHEN 10 / g > 1 THEN"
    " (SELECT max(x / o.g) FROM t WHERE t.k = o.k) END END AS v FROM o",
    "coalesced": "SELECT id, coalesce(nullif(k, 3) + 100, g, (SELECT x FROM t WHERE t.k = o.k))"
    " AS v, coalesce(nullif(g, 1), (SELECT 10 / o.g FROM t WHERE t.k = 1)) AS w FROM o",
    "exists": "SELECT id, CASE WHEN g <> 0 THEN EXISTS (SELECT FROM t WHERE t.k = 10 / o.g) END"
    " AS v, CASE WHEN g <> 0 THEN o.k IN (SELECT x / o.g FROM t) END AS w,"
    " CASE WHEN g <> 0 THEN ARRAY(SELECT x / o.g FROM t ORDER BY 1) END AS a FROM o",
    "summed": "SELECT g, sum(CASE WHEN k <> 3 THEN (SELECT x FROM t WHERE t.k = o.k) END) AS v"
    " FROM o GROUP BY g",
    "again": "SELECT id, CASE WHEN k > 3 THEN (SELECT x FROM t WHERE t.k = o.k)"
    " WHEN k < 3 THEN - (SELECT x FROM t WHERE t.k = o.k) END AS v FROM o",
    "window": "SELECT id, CASE WHEN row_number() OVER (ORDER BY id) > 0 THEN"
    " (SELECT max(x) FROM t WHERE t.k = o.k) END AS v FROM o",
}
CHANGES = (
    "INSERT INTO o VALUES (10, 0, 3), (11, NULL, 1), (12, 1, NULL)",
    "UPDATE t SET x = x + 1; INSERT INTO t VALUES (3, 9), (5, 5), (NULL, 1)",
    "UPDATE o SET g = g + 1 WHERE g > 0; UPDATE o SET k = 3 WHERE id = 1",
    "DELETE FROM t WHERE k = 1; DELETE FROM o WHERE k = 3 AND id > 3",
)


@pytest.fixture
def hw(database: str, conn: Connection) -> Iterator[headwater.Headwater]:
    with headwater.connect(database) as hw:
        conn.execute("CREATE TABLE o (id int PRIMARY KEY, g int, k int)")
        conn.execute("CREATE TABLE t (k int, x int)")
        conn.execute("INSERT INTO o SELECT i, i % 3, i FROM generate_series(1, 6) AS i")
        conn.execute("INSERT INTO t VALUES (1, 1), (3, 7), (3, 8), (4, 0), (6, 5)")
        yield hw


def test_what_is_guarded_is_not_computed(hw: headwater.Headwater, conn: Connection) -> None:
    for name, query in VIEWS.items():
        for mode in ("DIFFERENTIAL", "IMMEDIATE"):
            table = f"{mode[0]}_{name}".lower()
            hw.create_stream_table(table, query, refresh_mode=mode, engine="postgres")
    for change in ("SELECT", *CHANGES):
        for statement in change.split(";"):
            conn.execute(statement.encode())
        for name, query in VIEWS.items():
            hw.refresh_stream_table(f"d_{name}")
            for table in (f"d_{name}", f"i_{name}"):
                assert find_difference(conn, query, table) is None, (table, change)


def test_what_is_asked_for_fails_as_in_the_query(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", VIEWS["two_rows"], refresh_mode="DIFFERENTIAL", engine="postgres")
    conn.execute("INSERT INTO t VALUES (4, 4)")
    with pytest.raises(QueryFailed, match="more than one row"):
        hw.refresh_stream_table("st")
    conn.execute("DELETE FROM t WHERE x = 4")
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert find_difference(conn, VIEWS["two_rows"], "st") is None
    hw.alter_stream_table("st", refresh_mode="IMMEDIATE")
    with pytest.raises(psycopg.errors.CardinalityViolation):
        conn.execute("INSERT INTO t VALUES (4, 4)")
