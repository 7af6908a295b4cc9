"""Statements of one row, which IMMEDIATE tables follow the short way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from typing import Any

import psycopg
import pytest

import headwater
from tests.battery.oracle import find_difference
from tests.scale import scaled

Connection = psycopg.Connection[Any]
SETUP = """
CREATE TABLE customers (id int PRIMARY KEY, name text, region text);
CREATE TABLE orders (id bigint PRIMARY KEY, customer int, amount int, rate float8, note text);
CREATE INDEX ON orders (customer);
CREATE TABLE events (kind text COLLATE "C", value numeric);
INSERT INTO customers SELECT n, 'c' || n, 'r' || n % 2 FROM generate_series(1, 4) AS n;
INSERT INTO orders SELECT n, n % 4 + 1, n, n, 'n' FROM generate_series(1, 12) AS n;
INSERT INTO events VALUES ('a', 1), ('a', 1.0), ('b', 2), (NULL, NULL);
"""
QUERIES = {
    "plain": "SELECT id, customer, amount * 2 AS twice FROM orders WHERE amount > 0",
    "sums": "SELECT customer, count(*) AS n, sum(amount) AS s, avg(amount) AS a FROM orders"
    " GROUP BY customer",
    "filtered": "SELECT customer, sum(amount) AS s FROM orders WHERE note = 'n' GROUP BY customer",
    "hidden": "SELECT customer, 100 / sum(amount) AS share FROM orders GROUP BY customer"
    " HAVING sum(amount) > 0",
    "kinds": "SELECT DISTINCT kind FROM events",
    "totals": "SELECT kind, count(*) AS n, sum(value) AS v FROM events GROUP BY kind",
    "joined": "SELECT o.id, o.amount, o.customer, c.name FROM orders o"
    " JOIN customers c ON c.id = o.customer",
    "guarded": "SELECT o.id, 10 / o.amount AS share, c.name FROM orders o"
    " JOIN customers c ON c.id = o.customer WHERE o.amount <> 0",
    "by_region": "SELECT c.region, sum(o.amount) AS s, count(*) AS n"
    " FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.region",
    "keyless": "SELECT o.amount, c.name FROM orders o JOIN customers c ON c.id = o.customer",
    "outer_joined": "SELECT c.id AS c, c.name, o.id AS o, o.amount"
    " FROM customers c FULL JOIN orders o ON c.id = o.customer",
    "self_joined": "SELECT a.id AS a, b.id AS b FROM orders a JOIN orders b"
    " ON a.customer = b.customer AND a.amount < b.amount",
    "counted": "SELECT n, count(*) AS k FROM sums GROUP BY n",
}


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as made, headwater.connect(database) as hw:
        made.execute(SETUP.encode())
        for name, query in QUERIES.items():
            hw.create_stream_table(name, query, refresh_mode="IMMEDIATE")
        yield made


def statement(random: Random) -> str:
    """One statement that mostly changes one row: new and emptied groups, NULL keys, moved keys."""
    order, customer = random.randint(1, 20), random.choice(("NULL", 1, 2, 3, 4, 7))
    amount = random.choice(("NULL", 0, 1, 5, "amount", "amount + 1"))
    kind = random.choice(("NULL", "'a'", "'b'", "'q'"))
    one = f"ctid = (SELECT ctid FROM events OFFSET {random.randint(0, 3)} LIMIT 1)"
    value = random.choice(("NULL", "1", "1.0", "2.50"))
    new = amount if isinstance(amount, int) else 3
    return random.choice((
        f"INSERT INTO orders VALUES ({order}, {customer}, {new}, 1, 'n') ON CONFLICT DO NOTHING",
        f"INSERT INTO orders VALUES ({order + 20}, {customer}, {new}, 1, 'n')"
        " ON CONFLICT (id) DO UPDATE SET amount = excluded.amount",
        f"UPDATE orders SET amount = {amount} WHERE id = {order}",
        f"UPDATE orders SET customer = {customer} WHERE id = {order}",
        f"UPDATE orders SET note = CASE note WHEN 'n' THEN 'm' ELSE 'n' END WHERE id = {order}",
        f"UPDATE orders SET rate = 7 WHERE id = {order}",
        f"UPDATE orders SET id = id + 40, customer = {customer} WHERE id = {order}"
        f" AND NOT EXISTS (SELECT FROM orders WHERE id = {order} + 40)",
        f"DELETE FROM orders WHERE id = {order}",
        f"DELETE FROM customers WHERE id = {random.randint(1, 4)}",
        f"INSERT INTO customers VALUES ({random.randint(1, 4)}, 'new', 'r1')"
        " ON CONFLICT (id) DO UPDATE SET region = 'r' || (random() * 2)::int",
        f"UPDATE customers SET name = name || 'x' WHERE id = {random.randint(1, 4)}",
        f"UPDATE customers SET id = id + 10 WHERE id = {random.randint(1, 4)}"
        " AND NOT EXISTS (SELECT FROM customers WHERE id > 10)",
        "UPDATE customers SET id = id - 10 WHERE id > 10"
        " AND NOT EXISTS (SELECT FROM customers c WHERE c.id = customers.id - 10)",
        f"INSERT INTO events VALUES ({kind}, {value})",
        f"UPDATE events SET value = {value} WHERE {one}",
        f"UPDATE events SET kind = {kind} WHERE {one}",
        f"DELETE FROM events WHERE {one}",
        "UPDATE orders SET amount = amount + 1",
        "WITH d AS (DELETE FROM customers WHERE id = 2 RETURNING id)"
        " DELETE FROM orders WHERE customer IN (SELECT id FROM d) AND id % 2 = 0",
    ))  # fmt: skip


@pytest.mark.generated
@pytest.mark.timeout(0)
@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
def test_single_rows_are_followed(conn: Connection, level: str) -> None:
    conn.execute(f"SET default_transaction_isolation = '{level}'".encode())
    random = Random(11)
    for _ in range(scaled(150)):
        written = statement(random)
        conn.execute(written.encode())
        found = {name: find_difference(conn, query, name) for name, query in QUERIES.items()}
        assert {name: fault for name, fault in found.items() if fault} == {}, written


def test_a_row_that_changes_nothing_writes_nothing(conn: Connection) -> None:
    places = "SELECT array_agg(ctid ORDER BY ctid) FROM {} AS t"
    before = {name: conn.execute(places.format(name).encode()).fetchone() for name in QUERIES}
    for change in ("orders SET rate = 9", "orders SET id = id", "customers SET name = name"):
        conn.execute(f"UPDATE {change} WHERE id = 3".encode())
    after = {name: conn.execute(places.format(name).encode()).fetchone() for name in QUERIES}
    assert after == before


def test_a_missing_row_is_found_out(conn: Connection) -> None:
    conn.execute("SET pg_trickle.refreshing = on; DELETE FROM joined WHERE id = 3")
    conn.execute("SET pg_trickle.refreshing = off")
    with pytest.raises(psycopg.Error, match="does not hold the rows that it should") as failed:
        conn.execute("DELETE FROM orders WHERE id = 3")
    assert failed.value.sqlstate == "HW203"


def test_what_writers_do_is_counted(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn, headwater.connect(database) as hw:
        conn.execute(SETUP.encode())
        hw.create_stream_table("sums", QUERIES["sums"], refresh_mode="IMMEDIATE")
        hw.create_stream_table("later", QUERIES["sums"], refresh_mode="DIFFERENTIAL")
        conn.execute("SET track_functions = 'pl'")
        for number in range(3):
            conn.execute("UPDATE orders SET amount = amount + 1 WHERE id = %s", (number + 1,))
    time.sleep(0.2)
    with headwater.connect(database) as hw:
        later, sums = hw.pgt_status()
    assert (later.followed_statements, later.followed_rows, later.followed_ms) == (None,) * 3
    assert sums.followed_statements == 3
    assert sums.followed_rows == 4 + 3  # as many groups were filled in
    assert sums.followed_ms is not None
    assert sums.followed_ms > 0
