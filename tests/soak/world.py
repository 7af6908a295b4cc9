"""Six sources and twelve stream tables over them, three deep, in every mode and on both engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from headwater.api import Headwater
from tests.battery.oracle import find_difference

Connection = psycopg.Connection[Any]

SETUP = """
CREATE TABLE customers (id int PRIMARY KEY, name text, region int);
CREATE TABLE products (id int PRIMARY KEY, title text, kind int, price int);
CREATE TABLE orders (id int PRIMARY KEY, customer int, placed int);
CREATE TABLE lines (
    order_id int REFERENCES orders ON DELETE CASCADE, product int, quantity int,
    PRIMARY KEY (order_id, product));
CREATE TABLE payments (order_id int, amount int);
CREATE TABLE visits (customer int, page text);
CREATE VIEW dear AS SELECT id, title FROM products WHERE price > 50;
INSERT INTO customers SELECT n, 'c' || n, n % 5 FROM generate_series(1, 40) AS n;
INSERT INTO products SELECT n, 'p' || n, n % 6, 4 * n FROM generate_series(1, 30) AS n;
INSERT INTO orders SELECT n, n % 40 + 1, n FROM generate_series(1, 200) AS n;
INSERT INTO lines SELECT n, n % 30 + 1, n % 7 FROM generate_series(1, 200) AS n;
INSERT INTO payments SELECT n, n % 90 FROM generate_series(1, 200, 3) AS n;
INSERT INTO visits SELECT n % 40 + 1, 'page' || n % 3 FROM generate_series(1, 200) AS n;
"""


@dataclass(frozen=True)
class Wanted:
    """A stream table: its query, how it is kept, and what it reads."""

    query: str
    reads: tuple[str, ...]
    mode: str = "DIFFERENTIAL"
    engine: str = "postgres"
    schedule: str = "20s"

    @property
    def follows(self) -> bool:
        """Whether it equals its query at the end of every transaction."""
        return self.mode in {"IMMEDIATE", "COMMIT"}


SPARK = {"engine": "spark", "schedule": "40s"}
TABLES = {
    # over sources
    "order_totals": Wanted(
        "SELECT o.customer, count(*) AS n, sum(l.quantity * p.price) AS total"
        " FROM orders o JOIN lines l ON l.order_id = o.id JOIN products p ON p.id = l.product"
        " GROUP BY o.customer",
        ("orders", "lines", "products"), **SPARK),
    "popular": Wanted(
        "SELECT p.kind, count(*) AS n, sum(l.quantity) AS quantity"
        " FROM lines l JOIN products p ON p.id = l.product GROUP BY p.kind",
        ("lines", "products"), "FULL", **SPARK),
    "paid": Wanted(
        "SELECT order_id, count(*) AS n, sum(amount) AS amount, max(amount) AS most"
        " FROM payments GROUP BY order_id",
        ("payments",)),
    "dear_lines": Wanted(
        "SELECT l.order_id, d.title, l.quantity FROM lines l JOIN dear d ON d.id = l.product",
        ("lines", "dear"), "AUTO"),
    "seen": Wanted(
        "SELECT customer, count(*) AS n, count(DISTINCT page) AS pages FROM visits"
        " GROUP BY customer",
        ("visits",), "IMMEDIATE"),
    "letters": Wanted(
        "SELECT o.id, o.placed, c.name FROM orders o JOIN customers c ON c.id = o.customer",
        ("orders", "customers"), "COMMIT"),
    # over those
    "regions": Wanted(
        "SELECT c.region, count(*) AS n, sum(t.total) AS total"
        " FROM customers c JOIN order_totals t ON t.customer = c.id GROUP BY c.region",
        ("customers", "order_totals"), **SPARK),
    "best_kinds": Wanted(
        "SELECT kind, quantity FROM popular ORDER BY quantity DESC, kind LIMIT 3",
        ("popular",), schedule="40s"),
    "owed": Wanted(
        "SELECT o.id, o.customer, coalesce(p.amount, 0) AS paid"
        " FROM orders o LEFT JOIN paid p ON p.order_id = o.id",
        ("orders", "paid")),
    "active": Wanted(
        "SELECT c.region, sum(s.n) AS n FROM customers c JOIN seen s ON s.customer = c.id"
        " GROUP BY c.region",
        ("customers", "seen"), "IMMEDIATE"),
    # over these
    "ranking": Wanted(
        "SELECT region, total, rank() OVER (ORDER BY total DESC) AS place FROM regions",
        ("regions",), schedule="40s"),
    "region_owed": Wanted(
        "SELECT c.region, count(*) AS n, sum(o.paid) AS paid, count(s.customer) AS seen"
        " FROM owed o JOIN customers c ON c.id = o.customer"
        " LEFT JOIN seen s ON s.customer = c.id GROUP BY c.region",
        ("owed", "customers", "seen")),
}  # fmt: skip


def create(hw: Headwater) -> None:
    """Make sources and stream tables; whatever waits for Spark is filled by the daemon."""
    hw.connection.execute(SETUP.encode())
    late: set[str] = set()
    for name, table in TABLES.items():
        if table.engine == "spark" or late.intersection(table.reads):
            late.add(name)
        schedule = None if table.follows else table.schedule
        hw.create_stream_table(
            name, table.query, schedule, table.mode, name not in late, table.engine
        )


def downstream(source: str) -> frozenset[str]:
    """Return the stream tables that read a relation, or read what does."""
    found = {name for name, table in TABLES.items() if source in table.reads}
    return frozenset(found).union(*(downstream(name) for name in found))


def find_differences(conn: Connection) -> dict[str, str]:
    """Return how each stream table differs from its query, those that do, in one snapshot."""
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        found = {name: find_difference(conn, t.query, name) for name, t in TABLES.items()}
    return {name: fault for name, fault in found.items() if fault}


def pending_rows(conn: Connection) -> dict[str, int]:
    """Return how many rows each buffer holds, those that hold any."""
    found = {}
    query = "SELECT source_name, buffer_name FROM pgtrickle.pgt_change_tracking"
    for source, buffer in conn.execute(query).fetchall():
        [(rows,)] = conn.execute(f"SELECT count(*) FROM {buffer}".encode()).fetchall()
        if rows:
            found[source] = rows
    return found
