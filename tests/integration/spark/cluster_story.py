"""A process of its own on a cluster: every kind of refresh, each held against the query.

With a part of the stream tables it is a first load and one differential refresh. Prints what it
did, a line each; the test that starts it compares.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import psycopg

import headwater
from headwater.api import Headwater
from headwater.spark import compute, session
from tests.battery.oracle import find_difference

SETUP = """
CREATE TABLE customers (id int PRIMARY KEY, region int, name text);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10, 2))
    PARTITION BY HASH (id);
CREATE TABLE orders_0 PARTITION OF orders FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE orders_1 PARTITION OF orders FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO customers SELECT n, n % 5, 'c' || n FROM generate_series(1, 300) AS n;
INSERT INTO orders SELECT n, n % 310, n % 97 FROM generate_series(1, 4000) AS n
"""
QUERIES = {
    "joined": """SELECT o.id, o.customer, o.amount, c.name
                   FROM orders o JOIN customers c ON c.id = o.customer""",
    "totals": """SELECT c.region, count(*) AS n, sum(j.amount) AS total
                   FROM joined j JOIN customers c ON c.id = j.customer GROUP BY c.region""",
    "extremes": """SELECT c.region, min(o.amount) AS least, max(o.amount) AS most
                     FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.region""",
}
# Few changed rows that meet more: the customer has orders, and the order was the largest.
FEW = """
INSERT INTO customers VALUES (305, 1, 'late');
UPDATE orders SET amount = amount + 1, customer = 7 WHERE id = 700;
DELETE FROM orders WHERE id = 96
"""
MOST = "UPDATE orders SET amount = amount + 1; UPDATE customers SET name = name || 'y'"


def prove(hw: Headwater, conn: psycopg.Connection[Any], queries: dict[str, str]) -> None:
    """Refresh all, and compare."""
    ends = [name for name in queries if name != "joined"]
    actions = [hw.refresh_stream_table(name).action for name in ends]
    for name, query in queries.items():
        difference = find_difference(conn, query, name)
        assert difference is None, (name, difference)
    sys.stdout.write(f"{' '.join(actions)}\n")


def main(dsn: str, lake: str, master: str, options: str, names: str) -> None:
    queries = {name: QUERIES[name] for name in names.split(",")}
    with (
        headwater.connect(
            dsn, lake=lake, spark_master=master, spark_options=json.loads(options)
        ) as hw,
        psycopg.connect(dsn, autocommit=True) as conn,
    ):
        conn.execute(SETUP.encode())
        conn.execute("ANALYZE")  # AUTO goes by how many rows there are
        hw._conn.execute("SET pg_trickle.parallel_load_pages = 2")
        for name, query in queries.items():
            hw.create_stream_table(name, query, engine="spark")
            assert find_difference(conn, query, name) is None
            timings = hw.refresh_history(name, 1)[0].timings or {}
            sys.stdout.write(f"{name} {[key for key in timings if key.startswith('load_')]}\n")
        compute.MANY_ROWS = 5  # so that results go through files
        conn.execute(FEW.encode())
        prove(hw, conn, queries)
        if "extremes" in queries:
            prove(hw, conn, queries)
            conn.execute(MOST.encode())
            prove(hw, conn, queries)
        running = session._running
        assert running is not None
        executors = running.session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
        sys.stdout.write(f"{executors} executors\n")
        (running.jvm.scratch / "log").rename(f"{lake}.log")


if __name__ == "__main__":
    main(*sys.argv[1:])
