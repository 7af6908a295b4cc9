"""States are not read for what came with the change, but where no key was checked they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from headwater.api import Headwater
from tests.battery.oracle import find_difference

Connection = psycopg.Connection[Any]
SETUP = """
CREATE TABLE orders (id int PRIMARY KEY, customer int);
CREATE TABLE lines (order_id int REFERENCES orders ON DELETE CASCADE, line int, amount int,
                    PRIMARY KEY (order_id, line));
INSERT INTO orders SELECT n, n % 7 FROM generate_series(1, 400) AS n;
INSERT INTO lines SELECT n, l, n * l FROM generate_series(1, 400) AS n, generate_series(1, 4) AS l;
"""
QUERY = """
SELECT customer, count(*) AS n, sum(amount) AS total
  FROM orders JOIN lines ON order_id = id WHERE amount > 3 GROUP BY customer"""


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as opened:
        yield opened


@pytest.fixture
def hw(hw: Headwater) -> Headwater:
    hw.create_stream_table("totals", QUERY, refresh_mode="DIFFERENTIAL", engine="spark")
    return hw


def _skipped(hw: Headwater, conn: Connection) -> tuple[float, float]:
    """Refresh; return in how many joins no state was read, and the jobs that it took."""
    result = hw.refresh_stream_table("totals")
    assert result.action == "DIFFERENTIAL"
    assert find_difference(conn, QUERY, "totals") is None
    return result.timings["states_skipped"], result.timings["spark_jobs"]


def _order(conn: Connection, number: int) -> None:
    conn.execute("INSERT INTO orders VALUES (%s, 3)", [number])
    conn.execute("INSERT INTO lines VALUES (%(n)s, 1, 50), (%(n)s, 2, 60)", {"n": number})


def test_orders_that_come_and_go_with_their_lines(hw: Headwater, conn: Connection) -> None:
    for number in range(1001, 1006):
        _order(conn, number)
    conn.execute("DELETE FROM orders WHERE id IN (17, 18)")
    conn.execute("UPDATE lines SET amount = amount + 1 WHERE order_id = 30")
    skipped, jobs = _skipped(hw, conn)
    assert skipped > 0
    assert jobs <= 4


def test_orders_that_are_updated_besides(hw: Headwater, conn: Connection) -> None:
    _order(conn, 1001)
    conn.execute("UPDATE orders SET customer = 5 WHERE id = 40")
    conn.execute("DELETE FROM orders WHERE id = 41")
    assert _skipped(hw, conn)[0] > 0


def test_lines_that_waited_for_their_order(hw: Headwater, conn: Connection) -> None:
    """A subscription delivers without looking at foreign keys."""
    conn.execute("SET session_replication_role = replica")
    conn.execute("INSERT INTO lines VALUES (2001, 1, 70), (2001, 2, 80)")
    _skipped(hw, conn)
    conn.execute("INSERT INTO orders VALUES (2001, 3)")
    _order(conn, 2002)
    _skipped(hw, conn)
    assert conn.execute("SELECT sum(n) FROM totals").fetchone() == (1600 - 5 + 4,)


def test_lines_whose_order_went_without_them(hw: Headwater, conn: Connection) -> None:
    conn.execute("SET session_replication_role = replica")
    conn.execute("DELETE FROM orders WHERE id IN (50, 51)")
    conn.execute("DELETE FROM lines WHERE order_id = 51")
    _skipped(hw, conn)
    conn.execute("INSERT INTO orders VALUES (50, 6)")
    _skipped(hw, conn)


def test_without_an_index_the_state_is_read(hw: Headwater, conn: Connection) -> None:
    conn.execute("ALTER TABLE lines DROP CONSTRAINT lines_pkey")
    conn.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey CASCADE")
    hw.refresh_stream_table("totals")
    assert find_difference(conn, QUERY, "totals") is None
    _order(conn, 1001)
    assert _skipped(hw, conn)[0] == 0


def test_keys_of_different_widths(hw: Headwater, conn: Connection) -> None:
    """An order may have a number that no line could name."""
    conn.execute("ALTER TABLE lines DROP CONSTRAINT lines_order_id_fkey")
    conn.execute("ALTER TABLE orders ALTER COLUMN id TYPE bigint")
    hw.refresh_stream_table("totals")
    conn.execute("INSERT INTO orders VALUES (5000000000, 3)")
    _order(conn, 1001)
    _skipped(hw, conn)
