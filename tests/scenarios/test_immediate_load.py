"""Many writers on IMMEDIATE tables, and changes of mode under them: a table equals its query."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from threading import Event
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

import headwater
from tests.battery.oracle import find_difference
from tests.scale import scaled

Connection = psycopg.Connection[Any]
CLIENTS = 8
SECONDS = min(30, scaled(6))
LEVELS = (
    IsolationLevel.READ_COMMITTED,
    IsolationLevel.REPEATABLE_READ,
    IsolationLevel.SERIALIZABLE,
)
SETUP = """
CREATE TABLE customers (id int PRIMARY KEY, name text, region int);
CREATE TABLE orders (id bigint PRIMARY KEY, customer int, amount int);
CREATE TABLE areas (id int PRIMARY KEY, name text);
CREATE INDEX ON orders (customer);
INSERT INTO areas SELECT n, 'r' || n FROM generate_series(0, 4) AS n;
INSERT INTO customers SELECT n, 'c' || n, n % 5 FROM generate_series(1, 60) AS n;
INSERT INTO orders SELECT n, n % 60 + 1, n FROM generate_series(1, 600) AS n;
"""
QUERIES = {
    "totals": "SELECT customer, count(*) AS n, sum(amount) AS s, max(amount) AS m FROM orders"
    " GROUP BY customer",
    "details": "SELECT o.id, o.amount, c.name FROM orders o JOIN customers c ON c.id = o.customer",
    "regions": "SELECT c.region, count(*) AS n, sum(o.amount) AS s"
    " FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.region",
    "placed": "SELECT o.id, o.amount, c.name, r.name AS region FROM orders o"
    " JOIN customers c ON c.id = o.customer JOIN areas r ON r.id = c.region",
    "named": "SELECT r.name, count(*) AS n, sum(o.amount) AS s FROM orders o"
    " JOIN customers c ON c.id = o.customer JOIN areas r ON r.id = c.region GROUP BY r.name",
}


@pytest.fixture
def hw(database: str) -> Iterator[headwater.Headwater]:
    with psycopg.connect(database, autocommit=True) as conn, headwater.connect(database) as made:
        conn.execute(SETUP.encode())
        yield made


def statement(random: Random, client: int) -> str:
    """One statement; ids of new rows are of the client's own."""
    order, customer = random.randint(1, 600), random.randint(1, 62)
    return random.choice(
        (
            f"INSERT INTO orders VALUES ({client}000000000 + {random.randint(1, 10**8)},"
            f" {customer}, {random.randint(1, 99)}) ON CONFLICT DO NOTHING",
            f"UPDATE orders SET amount = amount + 1 WHERE id = {order}",
            f"UPDATE orders SET customer = {customer} WHERE id = {order}",
            f"DELETE FROM orders WHERE id = {order}",
            f"INSERT INTO orders SELECT {order}, {customer}, 7 ON CONFLICT (id) DO UPDATE"
            " SET amount = excluded.amount",
            f"UPDATE customers SET name = name || 'x', region = {order % 5} WHERE id = {customer}",
            f"UPDATE areas SET name = 'r' || {order} WHERE id = {customer % 5}",
            f"DELETE FROM customers WHERE id = {customer % 4 + 60}",
            f"INSERT INTO customers VALUES ({customer % 4 + 60}, 'back', 1) ON CONFLICT DO NOTHING",
        )
    )


def write(dsn: str, client: int, stop: Event, levels: tuple[IsolationLevel, ...]) -> Counter[str]:
    """Write until told to stop; count how transactions ended."""
    random, ended = Random(client), Counter[str]()
    with psycopg.connect(dsn, autocommit=True) as conn:
        while not stop.is_set():
            conn.isolation_level = random.choice(levels)
            try:
                with conn.transaction(force_rollback=random.random() < 0.1):
                    conn.execute(statement(random, client).encode())
                ended["done"] += 1
            except psycopg.errors.SerializationFailure:
                ended["40001"] += 1
    return ended


@contextmanager
def writers(dsn: str, levels: tuple[IsolationLevel, ...]) -> Iterator[list[Counter[str]]]:
    """Keep clients writing for the time of the block."""
    stop, ended = Event(), list[Counter[str]]()
    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(write, dsn, n, stop, levels) for n in range(1, CLIENTS + 1)]
        try:
            yield ended
        finally:
            stop.set()
        ended.extend(future.result(timeout=60) for future in running)


def differences(dsn: str) -> dict[str, str]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.isolation_level = IsolationLevel.REPEATABLE_READ
        with conn.transaction():
            found = {name: find_difference(conn, query, name) for name, query in QUERIES.items()}
    return {name: fault for name, fault in found.items() if fault}


@pytest.mark.costly
@pytest.mark.generated
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "levels",
    [LEVELS[:1], LEVELS[1:2], LEVELS[2:], LEVELS],
    ids=["rc", "rr", "serializable", "mixed"],
)
def test_eight_clients_at_once(hw: headwater.Headwater, levels: tuple[IsolationLevel, ...]) -> None:
    for name, query in QUERIES.items():
        hw.create_stream_table(name, query, refresh_mode="IMMEDIATE")
    with writers(hw.dsn, levels) as ended:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            assert differences(hw.dsn) == {}
            time.sleep(0.2)
    total = sum(ended, Counter[str]())
    assert total["done"] > 100
    assert levels != LEVELS[:1] or not total["40001"]
    assert differences(hw.dsn) == {}


@pytest.mark.costly
@pytest.mark.timeout(300)
def test_a_refresh_below_is_not_kept_out(hw: headwater.Headwater) -> None:
    """Writers move IMMEDIATE tables over a deferred one all the time; its refresh goes through."""
    hw.create_stream_table("below", QUERIES["totals"], refresh_mode="DIFFERENTIAL")
    over = {
        "beside": "SELECT b.customer, b.n, c.name"
        " FROM below b JOIN customers c ON c.id = b.customer",
        "counts": "SELECT customer % 3 AS k, sum(n) AS n FROM below GROUP BY customer % 3 UNION ALL"
        " SELECT id, 1 FROM customers",
        "sums": "SELECT c.region, sum(b.n) AS n FROM below b JOIN customers c ON c.id = b.customer"
        " GROUP BY c.region",
    }
    for name, query in over.items():
        hw.create_stream_table(name, query, refresh_mode="IMMEDIATE")
    with writers(hw.dsn, LEVELS[:1]) as ended:
        for _ in range(8):
            time.sleep(0.4)
            assert hw.refresh_stream_table("below").action == "DIFFERENTIAL"
        hw.refresh_stream_table("sums")
        hw.alter_stream_table("below", refresh_mode="FULL")
    assert sum(ended, Counter[str]()).keys() == {"done"}
    assert all(hw.verify(name).equal for name in over)


def switches(hw: headwater.Headwater) -> dict[str, Callable[[str], object]]:
    """What can be done to a table while others write."""
    return {
        "to DIFFERENTIAL": lambda name: hw.alter_stream_table(name, refresh_mode="DIFFERENTIAL"),
        "to IMMEDIATE": lambda name: hw.alter_stream_table(name, refresh_mode="IMMEDIATE"),
        "to FULL": lambda name: hw.alter_stream_table(name, refresh_mode="FULL"),
        "to IMMEDIATE again": lambda name: hw.alter_stream_table(name, refresh_mode="IMMEDIATE"),
        "re-sync": hw.refresh_stream_table,
        "suspend": lambda name: hw.alter_stream_table(name, status="SUSPENDED"),
        "resume": lambda name: hw.alter_stream_table(name, status="ACTIVE"),
    }


@pytest.mark.costly
@pytest.mark.timeout(300)
def test_modes_change_under_load(hw: headwater.Headwater) -> None:
    """Create, alter, re-sync, suspend and drop, with eight writers who never see an error."""
    with writers(hw.dsn, LEVELS[:1]) as ended:
        for name, query in QUERIES.items():
            hw.create_stream_table(name, query, refresh_mode="IMMEDIATE")
        assert differences(hw.dsn) == {}
        for what, switch in switches(hw).items():
            for name in QUERIES:
                switch(name)
                mode = next(s for s in hw.pgt_status() if s.name == f"public.{name}")
                if mode.effective_mode == "IMMEDIATE" and mode.status == "ACTIVE":
                    assert name not in differences(hw.dsn), what
                elif mode.effective_mode != "IMMEDIATE":
                    hw.refresh_stream_table(name)
                    assert hw.verify(name).equal or mode.effective_mode == "FULL", what
        assert differences(hw.dsn) == {}
        hw.drop_stream_table("details")
        time.sleep(0.3)
    assert sum(ended, Counter[str]()).keys() == {"done"}
    assert all(hw.verify(name).equal for name in ("totals", "regions"))
