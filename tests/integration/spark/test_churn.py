"""Few rows that change all the time: joins meet what is there, not all that ever was."""

from __future__ import annotations

import psycopg
import pytest

from headwater.api import Headwater
from tests.battery.oracle import find_difference

SETUP = """
CREATE TABLE regions (id int PRIMARY KEY, name text);
CREATE TABLE customers (id int PRIMARY KEY, region int, name text);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount int);
INSERT INTO regions SELECT n, 'r' || n FROM generate_series(1, 3) AS n;
INSERT INTO customers SELECT n, n % 3 + 1, 'c' || n FROM generate_series(1, 9) AS n;
INSERT INTO orders SELECT n, n % 9 + 1, n FROM generate_series(1, 30) AS n;
"""
QUERIES = {
    "totals": "SELECT r.name, count(*) AS n, sum(o.amount) AS total FROM orders o"
    " JOIN customers c ON c.id = o.customer JOIN regions r ON r.id = c.region GROUP BY r.name",
    "details": "SELECT o.id, o.amount, c.name AS c, r.name AS r FROM orders o"
    " JOIN customers c ON c.id = o.customer LEFT JOIN regions r ON r.id = c.region",
}
ROUNDS = 150
CHURN = (
    "UPDATE orders SET amount = amount + 1, customer = customer % 9 + 1",
    "UPDATE customers SET name = name || id, region = region % 3 + 1",
    "UPDATE regions SET name = 'r' || length(name) || id",
    "DELETE FROM orders WHERE id % 5 = 0",
    "INSERT INTO orders SELECT n, n % 9 + 1, n FROM generate_series(1, 30) AS n"
    " ON CONFLICT DO NOTHING",
)


@pytest.mark.parametrize("name", QUERIES)
def test_what_came_and_went_multiplies_no_join(hw: Headwater, dsn: str, name: str) -> None:
    hw.create_stream_table(name, QUERIES[name], refresh_mode="DIFFERENTIAL", engine="spark")
    with psycopg.connect(dsn, autocommit=True) as conn:
        for _ in range(ROUNDS):
            conn.execute(";".join(CHURN).encode())
        churned = hw.refresh_stream_table(name)
        assert churned.action == "DIFFERENTIAL"
        assert find_difference(conn, QUERIES[name], name) is None
        conn.execute("UPDATE orders SET amount = 0 WHERE id = 1")
        quiet = hw.refresh_stream_table(name)
        assert find_difference(conn, QUERIES[name], name) is None
    assert churned.delta_rows > 100 * 42
    assert churned.timings["netted_scans"] >= 3  # the changes
    assert quiet.timings["netted_scans"] >= 1  # states


def test_a_change_of_each_row_is_read_as_it_is(hw: Headwater, dsn: str) -> None:
    query = QUERIES["totals"]
    hw.create_stream_table("totals", query, refresh_mode="DIFFERENTIAL", engine="spark")
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(";".join(CHURN[:3]).encode())
        assert hw.refresh_stream_table("totals").timings["netted_scans"] == 0
        assert find_difference(conn, query, "totals") is None
