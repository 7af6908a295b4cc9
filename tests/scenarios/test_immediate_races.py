"""Two writers at once, at every isolation level: an IMMEDIATE table misses neither of them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

import headwater
from headwater.postgres import immediate_view
from headwater.postgres.immediate_locks import Locks
from tests.battery.oracle import find_difference

Connection = psycopg.Connection[Any]
LEVELS = (
    IsolationLevel.READ_COMMITTED,
    IsolationLevel.REPEATABLE_READ,
    IsolationLevel.SERIALIZABLE,
)
SETUP = """
CREATE TABLE customers (id int PRIMARY KEY, name text, region text);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount int, note text);
CREATE INDEX ON orders (customer);
CREATE TABLE events (kind text, value int);
CREATE TABLE parts (id int, tag text) PARTITION BY RANGE (id);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (100);
INSERT INTO customers SELECT n, 'c' || n, 'r' || n % 2 FROM generate_series(1, 4) AS n;
INSERT INTO orders SELECT n, n % 4 + 1, n, 'n' FROM generate_series(1, 12) AS n;
INSERT INTO events VALUES ('a', 1), ('a', 1), ('b', 2), ('b', 3), (NULL, NULL);
INSERT INTO parts VALUES (1, 'x'), (2, 'y');
"""
QUERIES = {
    "plain": "SELECT id, customer, amount * 2 AS twice FROM orders WHERE amount > 0",
    "bag": "SELECT kind, value FROM events",
    "sums": "SELECT customer, count(*) AS n, sum(amount) AS s, avg(amount) AS a FROM orders"
    " GROUP BY customer",
    "extremes": "SELECT customer, min(amount) AS lo, max(amount) AS hi, count(*) AS n FROM orders"
    " GROUP BY customer HAVING count(*) > 1",
    "lists": "SELECT kind, string_agg(value::text, ',' ORDER BY value) AS v FROM events"
    " GROUP BY kind",
    "grand": "SELECT count(*) AS n, sum(amount) AS s FROM orders",
    "joined": "SELECT o.id, o.amount, c.name FROM orders o JOIN customers c ON c.id = o.customer",
    "outer_joined": "SELECT c.id AS c, c.name, o.id AS o, o.amount"
    " FROM customers c FULL JOIN orders o ON c.id = o.customer",
    "by_region": "SELECT c.region, sum(o.amount) AS s, count(*) AS n"
    " FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.region",
    "highest": "SELECT c.region, max(o.amount) AS m"
    " FROM customers c LEFT JOIN orders o ON c.id = o.customer GROUP BY c.region",
    "self_joined": "SELECT a.id AS a, b.id AS b FROM orders a JOIN orders b"
    " ON a.customer = b.customer AND a.amount < b.amount",
    "far": "SELECT a.id, b.name FROM customers a JOIN customers b ON a.id > b.id",
    "kinds": "SELECT DISTINCT kind FROM events",
    "left_over": "SELECT kind, value FROM events EXCEPT ALL SELECT note, amount FROM orders",
    "chained": "SELECT s.region, s.s, h.m FROM by_region s JOIN highest h ON h.region = s.region",
    "counted": "SELECT n, count(*) AS k FROM sums GROUP BY n",
}


@dataclass(frozen=True)
class Race:
    """Statements of two transactions; the second begins while the first is under way."""

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]


RACES = (
    Race(
        "new parent and child write",
        ("INSERT INTO customers VALUES (9, 'new', 'r9')",),
        ("INSERT INTO orders VALUES (90, 9, 9, 'n')",),
    ),
    Race(
        "child write and new parent",
        ("INSERT INTO orders VALUES (90, 9, 9, 'n')",),
        ("INSERT INTO customers VALUES (9, 'new', 'r9')",),
    ),
    Race(
        "re-point and rename",
        ("UPDATE orders SET customer = 2 WHERE customer = 1",),
        ("UPDATE customers SET name = 'renamed', region = 'r1' WHERE id = 2",),
    ),
    Race(
        "rename and re-point",
        ("UPDATE customers SET name = 'renamed', region = 'elsewhere' WHERE id IN (1, 2)",),
        ("UPDATE orders SET customer = 2 WHERE customer = 3", "DELETE FROM orders WHERE id = 1"),
    ),
    Race(
        "phantom child",
        ("DELETE FROM customers WHERE id = 3",),
        ("INSERT INTO orders VALUES (91, 3, 91, 'n')",),
    ),
    Race(
        "new group and write",
        ("INSERT INTO orders VALUES (92, 50, 1, 'n'); INSERT INTO events VALUES ('new', 1)",),
        ("INSERT INTO orders VALUES (93, 50, 2, 'n'); INSERT INTO events VALUES ('new', 2)",),
    ),
    Race(
        "emptying and refilling a group",
        ("DELETE FROM orders WHERE customer = 1; DELETE FROM events WHERE kind = 'b'",),
        (
            "INSERT INTO orders VALUES (94, 1, 5, 'n'); INSERT INTO events VALUES ('b', 9)",
            "UPDATE orders SET amount = amount + 1 WHERE id = 94",
        ),
    ),
    Race(
        "the extremum goes while another row rises",
        ("UPDATE orders SET amount = 7 WHERE id = 4",),
        ("DELETE FROM orders WHERE id = 12",),
    ),
    Race(
        "one of two equal rows each",
        ("DELETE FROM events WHERE ctid = '(0,1)'",),
        ("DELETE FROM events WHERE ctid = '(0,2)'",),
    ),
    Race(
        "TRUNCATE and insert",
        ("TRUNCATE orders",),
        ("INSERT INTO orders VALUES (95, 2, 5, 'n')",),
    ),
    Race(
        "insert and TRUNCATE",
        (
            "INSERT INTO customers VALUES (8, 'eight', 'r8');"
            " INSERT INTO orders VALUES (96, 8, 1, 'n')",
        ),
        ("TRUNCATE customers",),
    ),
    Race(
        "many values at once",
        ("UPDATE customers SET name = name || '!'",),
        ("INSERT INTO orders SELECT n, n % 4 + 1, n, 'm' FROM generate_series(100, 400) AS n",),
    ),
)


@pytest.fixture
def dsn(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as conn, headwater.connect(database) as hw:
        conn.execute(SETUP.encode())
        for name, query in QUERIES.items():
            hw.create_stream_table(name, query, refresh_mode="IMMEDIATE")
    return database


def differences(conn: Connection) -> dict[str, str]:
    found = {name: find_difference(conn, query, name) for name, query in QUERIES.items()}
    return {name: fault for name, fault in found.items() if fault}


def run(conn: Connection, statements: tuple[str, ...]) -> None:
    for text in statements:
        for statement in text.split(";"):
            conn.execute(statement.encode())


def attempt(dsn: str, level: IsolationLevel, statements: tuple[str, ...], is_late: bool) -> str:
    """Run statements with a snapshot of now; say how it ended."""
    with psycopg.connect(dsn) as conn:
        conn.isolation_level = level
        conn.execute("SET statement_timeout = '20s'")
        conn.commit()
        conn.execute("SELECT 1 FROM customers LIMIT 1")
        if is_late:
            time.sleep(0.15)
        try:
            run(conn, statements)
            conn.commit()
        except psycopg.errors.SerializationFailure:
            conn.rollback()
            return "40001"
        return "committed"


@pytest.mark.costly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name.lower())
def test_races_leave_nothing_stale(dsn: str, level: IsolationLevel) -> None:
    failures: list[str] = []
    with psycopg.connect(dsn, autocommit=True) as conn, ThreadPoolExecutor(1) as pool:
        for race in RACES:
            if level is not IsolationLevel.READ_COMMITTED and "TRUNCATE" in race.name:
                continue  # refused there
            outcome = overlapped(dsn, pool, level, race)
            found = differences(conn)
            if found:
                failures.append(f"{race.name} ({outcome}): {found}")
                break
            reset(conn)
    assert failures == []


def overlapped(dsn: str, pool: ThreadPoolExecutor, level: IsolationLevel, race: Race) -> str:
    """The second transaction takes its snapshot and writes before the first one commits."""
    with psycopg.connect(dsn) as first:
        first.isolation_level = level
        run(first, race.first)
        second = pool.submit(attempt, dsn, level, race.second, is_late=False)
        time.sleep(0.4)
        first.commit()
        outcome = second.result(timeout=60)
    if outcome == "40001":
        assert level is not IsolationLevel.READ_COMMITTED
        assert attempt(dsn, level, race.second, is_late=False) == "committed"
    return outcome


def reset(conn: Connection) -> None:
    """Back to the rows of the beginning, through the triggers."""
    texts = [t for t in SETUP.split(";") if t.strip().startswith("INSERT")]
    conn.execute("TRUNCATE customers, orders, events, parts")
    for text in texts:
        conn.execute(text.encode())


@pytest.mark.costly
@pytest.mark.parametrize("level", LEVELS[1:], ids=lambda level: level.name.lower())
def test_a_frozen_snapshot_that_missed_something_is_a_serialization_failure(
    dsn: str, level: IsolationLevel
) -> None:
    """The first transaction comes and goes between the snapshot of the second and its write."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for race in RACES:
            if "TRUNCATE" in race.name:
                continue
            with psycopg.connect(dsn) as second:
                second.isolation_level = level
                second.execute("SELECT 1 FROM customers LIMIT 1")
                for statement in race.first:
                    run(conn, (statement,))
                with pytest.raises(psycopg.errors.SerializationFailure):
                    run(second, race.second)
                second.rollback()
            assert differences(conn) == {}, race.name
            reset(conn)


def test_groups_touched_in_any_order_do_not_deadlock(dsn: str) -> None:
    """Each worker has rows of its own; the groups and join values of all are the same."""

    def work(number: int) -> int:
        done, order = 0, "ASC" if number % 2 else "DESC"
        statements = (
            f"UPDATE orders SET amount = amount + 1 WHERE (id - 1) / 3 = {number}",
            f"UPDATE customers SET name = name || '.' WHERE id = {number + 1}",
            f"INSERT INTO events SELECT k, {number} FROM unnest('{{a,b,c}}'::text[]) AS k"
            f" ORDER BY k {order}",
        )
        with psycopg.connect(dsn, autocommit=True) as conn:
            until = time.monotonic() + 4
            while time.monotonic() < until:
                conn.execute(statements[(number + done) % len(statements)].encode())
                done += 1
        return done

    with ThreadPoolExecutor(4) as pool:
        assert all(done > 0 for done in pool.map(work, range(4)))
    with psycopg.connect(dsn, autocommit=True) as conn:
        assert differences(conn) == {}


def test_without_locks_something_is_missed(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The races are real: it is the locks that make them harmless."""
    monkeypatch.setattr(immediate_view, "choose_locks", lambda plan: Locks())
    with psycopg.connect(database, autocommit=True) as conn, headwater.connect(database) as hw:
        conn.execute(SETUP.encode())
        hw.create_stream_table("joined", QUERIES["joined"], refresh_mode="IMMEDIATE")
        with ThreadPoolExecutor(1) as pool:
            overlapped(database, pool, IsolationLevel.READ_COMMITTED, RACES[0])
        assert find_difference(conn, QUERIES["joined"], "joined") is not None


def test_without_collecting_something_is_counted_twice(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(immediate_view, "is_isolated", lambda plan: True)
    with psycopg.connect(database, autocommit=True) as conn, headwater.connect(database) as hw:
        conn.execute(SETUP.encode())
        query = QUERIES["by_region"]
        hw.create_stream_table("by_region", query, refresh_mode="IMMEDIATE")
        conn.execute(
            "WITH c AS (INSERT INTO customers VALUES (9, 'new', 'r9'))"
            " INSERT INTO orders VALUES (90, 9, 9, 'n')"
        )
        assert find_difference(conn, query, "by_region") is not None
