"""Two writers at once on joins of three and four relations: no value that they share is missed."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

import headwater
from headwater.algebra.ops import Op
from headwater.postgres import immediate_locks
from headwater.postgres.immediate_meetings import Walk, find_walks
from tests.battery.oracle import find_difference
from tests.scale import scaled

Connection = psycopg.Connection[Any]
LEVELS = (
    IsolationLevel.READ_COMMITTED,
    IsolationLevel.REPEATABLE_READ,
    IsolationLevel.SERIALIZABLE,
)
SETUP = """
CREATE TABLE regions (id int PRIMARY KEY, name text);
CREATE TABLE customers (id int PRIMARY KEY, name text, region int);
CREATE TABLE products (id bigint PRIMARY KEY, name text);
CREATE TABLE orders (id int PRIMARY KEY, customer int, product int, amount int);
CREATE INDEX ON customers (region);
CREATE INDEX ON orders (customer);
CREATE INDEX ON orders (product);
INSERT INTO regions SELECT n, 'r' || n FROM generate_series(1, 3) AS n;
INSERT INTO customers SELECT n, 'c' || n, n FROM generate_series(1, 3) AS n;
INSERT INTO products SELECT n, 'p' || n FROM generate_series(1, 3) AS n;
INSERT INTO orders VALUES (1, 1, 1, 10), (2, 2, 2, 20), (3, 1, 2, 30), (4, NULL, 1, 40),
    (5, 9, 9, 50);
"""
QUERIES = {
    "chain": "SELECT o.id, o.amount, c.name AS c, r.name AS r FROM orders o"
    " JOIN customers c ON c.id = o.customer JOIN regions r ON r.id = c.region",
    "star": "SELECT o.id, o.amount, c.name AS c, p.name AS p FROM orders o, customers c, products p"
    " WHERE c.id = o.customer AND p.id = o.product",
    "snow": "SELECT o.id, c.name AS c, p.name AS p, r.name AS r FROM orders o"
    " JOIN products p ON p.id = o.product"
    " JOIN (customers c JOIN regions r ON r.id = c.region) ON c.id = o.customer",
    "sums": "SELECT r.name, count(*) AS n, sum(o.amount) AS s FROM orders o"
    " JOIN customers c ON c.id = o.customer JOIN regions r ON r.id = c.region GROUP BY r.name",
    "peaks": "SELECT p.name, max(o.amount) AS m FROM orders o JOIN products p ON p.id = o.product"
    " JOIN customers c ON c.id = o.customer WHERE c.name <> 'none' GROUP BY p.name",
    "padded": "SELECT o.id, c.name AS c, r.name AS r, p.name AS p FROM orders o"
    " LEFT JOIN customers c ON c.id = o.customer LEFT JOIN regions r ON r.id = c.region"
    " LEFT JOIN products p ON p.id = o.product",
    "sold": "SELECT r.id, r.name FROM regions r WHERE EXISTS (SELECT FROM customers c"
    " JOIN orders o ON o.customer = c.id WHERE c.region = r.id)",
    "idle": "SELECT c.id, r.name FROM customers c JOIN regions r ON r.id = c.region"
    " WHERE NOT EXISTS (SELECT FROM orders o WHERE o.customer = c.id)",
    "pairs": "SELECT a.id AS a, b.id AS b, c.name FROM orders a"
    " JOIN orders b ON b.customer = a.customer AND b.id > a.id"
    " JOIN customers c ON c.id = a.customer",
}
STATEMENTS = (
    "UPDATE regions SET name = 'other' WHERE id = 1",
    "DELETE FROM regions WHERE id = 2",
    "INSERT INTO regions VALUES (9, 'new')",
    "UPDATE customers SET name = 'renamed' WHERE id = 1",
    "UPDATE customers SET region = 9 WHERE id = 1",
    "DELETE FROM customers WHERE id = 2",
    "INSERT INTO customers VALUES (9, 'new', 1)",
    "UPDATE products SET name = 'other' WHERE id = 2",
    "INSERT INTO products VALUES (9, 'new')",
    "INSERT INTO orders VALUES (90, 9, 9, 9)",
    "INSERT INTO orders VALUES (91, 2, 1, 91)",
    "UPDATE orders SET customer = 9, product = 9 WHERE id = 1",
    "DELETE FROM orders WHERE customer = 1",
)
TABLES = ("regions", "customers", "products", "orders")


def table_of(statement: str) -> str:
    return next(table for table in TABLES if table in statement.split())


PAIRS = [
    (first, second)
    for first, second in product(STATEMENTS, STATEMENTS)
    if table_of(first) != table_of(second)
]
MEETING = {  # pairs that have a combination of rows, old or new, in common
    "UPDATE regions SET name = 'other' WHERE id = 1": STATEMENTS[6],
    "UPDATE products SET name = 'other' WHERE id = 2": STATEMENTS[3],
    "DELETE FROM regions WHERE id = 2": STATEMENTS[10],
    "INSERT INTO products VALUES (9, 'new')": STATEMENTS[6],
}


def make(database: str, queries: dict[str, str]) -> None:
    with psycopg.connect(database, autocommit=True) as conn, headwater.connect(database) as hw:
        conn.execute(SETUP.encode())
        for name, query in queries.items():
            hw.create_stream_table(name, query, refresh_mode="IMMEDIATE")
            assert not any("one lock" in line for line in hw.explain_st(name).operators), name


def differences(conn: Connection, queries: dict[str, str]) -> dict[str, str]:
    found = {name: find_difference(conn, query, name) for name, query in queries.items()}
    return {name: fault for name, fault in found.items() if fault}


def reset(conn: Connection) -> None:
    """Back to the rows of the beginning, through the triggers."""
    conn.execute("TRUNCATE regions, customers, products, orders")
    for text in SETUP.split(";"):
        if text.strip().startswith("INSERT"):
            conn.execute(text.encode())


class Writers:
    """Two connections, and a third one that looks on."""

    def __init__(self, dsn: str, level: IsolationLevel) -> None:
        self.watch = psycopg.connect(dsn, autocommit=True)
        self.first, self.second = psycopg.connect(dsn), psycopg.connect(dsn)
        self.first.isolation_level = self.second.isolation_level = level
        self.pool = ThreadPoolExecutor(1)

    def __enter__(self) -> Writers:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()
        for conn in (self.first, self.second, self.watch):
            conn.close()

    def overlap(self, first: str, second: str) -> str:
        """Let the second write, with a snapshot from before, until it ends or waits."""
        self.second.execute("SELECT 1 FROM orders LIMIT 1")
        self.first.execute(first.encode())
        running = self.pool.submit(self._write, second)
        self._until_still(running)
        outcomes = [self._end(), running.result(timeout=60)]
        for failed in (s for s, o in zip((first, second), outcomes, strict=True) if o == "40001"):
            assert self._write(failed) == "committed"
        return " and ".join(outcomes)

    def late(self, first: str, second: str) -> str:
        """Let the first come and go after the snapshot of the second."""
        self.second.execute("SELECT 1 FROM orders LIMIT 1")
        self.first.execute(first.encode())
        self.first.commit()
        return self._write(second)

    def _write(self, statement: str) -> str:
        try:
            self.second.execute(statement.encode())
            self.second.commit()
        except psycopg.errors.SerializationFailure:
            self.second.rollback()
            return "40001"
        return "committed"

    def _end(self) -> str:
        try:
            self.first.commit()
        except psycopg.errors.SerializationFailure:
            return "40001"
        return "committed"

    def _until_still(self, running: Future[str]) -> None:
        waits = "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        pid = self.second.info.backend_pid
        while not running.done() and not self.watch.execute(waits, (pid,)).fetchall():
            time.sleep(0.002)


@pytest.mark.costly
@pytest.mark.timeout(300)
def test_every_pair_of_writers(database: str) -> None:
    """Parents, children, re-points and phantoms, each against each, at every level."""
    make(database, QUERIES)
    for level in LEVELS:
        with Writers(database, level) as writers:
            every = 4 if level is LEVELS[0] else 9
            for first, second in PAIRS[:: max(1, every // scaled(1))]:
                outcome = writers.overlap(first, second)
                assert level is not LEVELS[0] or outcome == "committed and committed"
                found = differences(writers.watch, QUERIES)
                assert found == {}, (level.name, first, second, outcome)
                reset(writers.watch)


@pytest.mark.costly
@pytest.mark.parametrize("level", LEVELS[1:], ids=lambda level: level.name.lower())
def test_a_frozen_snapshot_that_missed_something_far_away_fails(
    database: str, level: IsolationLevel
) -> None:
    queries = {name: QUERIES[name] for name in ("chain", "star")}
    make(database, queries)
    with Writers(database, level) as writers:
        for one, other in MEETING.items():
            for first, second in ((one, other), (other, one)):
                assert writers.late(first, second) == "40001", (first, second)
                assert differences(writers.watch, queries) == {}
                reset(writers.watch)


def without_hops(view: Op) -> dict[int, tuple[Walk, ...]]:
    """Only the values that the changed rows have themselves."""
    walks = find_walks(view)
    return {oid: tuple(w for w in own if not w.hops) for oid, own in walks.items()}


def without_last(view: Op) -> dict[int, tuple[Walk, ...]]:
    """The values of all meetings but the last."""
    walks = find_walks(view)
    last = max(walk.rank for own in walks.values() for walk in own)
    kept = {oid: tuple(w for w in own if w.rank < last) for oid, own in walks.items()}
    return {oid: own for oid, own in kept.items() if own}


@pytest.mark.parametrize(
    ("fault", "name", "pair"),
    [
        (without_hops, "star", (STATEMENTS[6], STATEMENTS[8])),
        (without_hops, "chain", (STATEMENTS[0], STATEMENTS[9])),
        (without_last, "chain", (STATEMENTS[6], STATEMENTS[9])),
    ],
    ids=["siblings", "far apart", "neighbours"],
)
def test_without_all_the_locks_something_is_missed(
    database: str, monkeypatch: pytest.MonkeyPatch, fault: Any, name: str, pair: tuple[str, str]
) -> None:
    """The races are real: it is each of the locks that makes them harmless."""
    monkeypatch.setattr(immediate_locks, "find_walks", fault)
    queries = {name: QUERIES[name]}
    make(database, queries)
    with Writers(database, LEVELS[0]) as writers:
        if name == "chain" and fault is without_hops:
            writers.watch.execute("INSERT INTO customers VALUES (9, 'new', 1)")
        writers.overlap(*pair)
        assert differences(writers.watch, queries) != {}
