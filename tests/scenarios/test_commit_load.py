"""Many writers on documents of four levels: after each commit all are those of their views."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Event
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

import headwater
from tests.integration.postgres.test_tviews import PYTHON, SETUP, wrong
from tests.scale import scaled
from tests.servers import Server

Connection = psycopg.Connection[Any]
CLIENTS = 8
SECONDS = min(30, scaled(10))
LEVELS = (
    IsolationLevel.READ_COMMITTED,
    IsolationLevel.REPEATABLE_READ,
    IsolationLevel.SERIALIZABLE,
)
ROWS = """
INSERT INTO tb_company (pk_company, name) SELECT n, 'c' || n FROM generate_series(1, 6) AS n;
INSERT INTO tb_user (pk_user, name, fk_company)
    SELECT n, 'u', n % 6 + 1 FROM generate_series(1, 30) AS n;
INSERT INTO tb_post (pk_post, title, fk_user)
    SELECT n, 'p', n % 30 + 1 FROM generate_series(1, 120) AS n;
INSERT INTO tb_feed (pk_feed, name) SELECT n, 'f' FROM generate_series(1, 10) AS n;
INSERT INTO tb_feed_post SELECT n % 10 + 1, n FROM generate_series(1, 120) AS n;
"""


@pytest.fixture(scope="module")
def dsn(server: Server) -> Iterator[str]:
    """One database for all: each level goes on where the one before has ended."""
    database = server.create_database()
    with psycopg.connect(database, autocommit=True) as conn, headwater.connect(database) as hw:
        conn.execute(SETUP.encode())
        exec(PYTHON, {"hw": hw})
        conn.execute(ROWS.encode())
    yield database
    server.drop_database(database)


def statements(random: Random, client: int) -> list[str]:
    """A transaction on all levels, in one order of tables and rows: its own locks never cross."""
    new = client * 10**9 + random.randrange(10**8)
    user, post, feed = random.randint(1, 30), random.randint(1, 120), random.randint(1, 10)
    found = [
        f"UPDATE tb_company SET name = name || 'x' WHERE pk_company = {random.randint(1, 6)}",
        f"UPDATE tb_user SET fk_company = {random.randint(1, 6)} WHERE pk_user = {user}",
        f"UPDATE tb_user SET name = '{new}' WHERE pk_user = {user}",
        f"INSERT INTO tb_post (pk_post, title, fk_user) VALUES ({new}, 'new', {user})"
        " ON CONFLICT DO NOTHING",
        f"UPDATE tb_post SET title = title || '.', fk_user = {user} WHERE pk_post = {post}",
        f"INSERT INTO tb_feed_post VALUES ({feed}, {post}) ON CONFLICT DO NOTHING",
        f"DELETE FROM tb_feed_post WHERE fk_feed = {feed} AND fk_post = {post}",
        f"DELETE FROM tb_post WHERE pk_post BETWEEN {client * 10**9} AND {new}",
    ]
    chosen = sorted(random.sample(range(len(found)), random.randint(1, 4)))
    return [found[n] for n in chosen]


def write(dsn: str, client: int, stop: Event, level: IsolationLevel) -> Counter[str]:
    """Write until told to stop; count how transactions ended. A deadlock is an error."""
    random, ended = Random(client), Counter[str]()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.isolation_level = level
        while not stop.is_set():
            try:
                with conn.transaction(force_rollback=random.random() < 0.1):
                    for statement in statements(random, client):
                        conn.execute(statement.encode())
                ended["done"] += 1
            except psycopg.errors.SerializationFailure:
                ended["40001"] += 1
    return ended


def differences(dsn: str) -> dict[str, object]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.isolation_level = IsolationLevel.REPEATABLE_READ
        with conn.transaction():
            return wrong(conn)


@pytest.mark.costly
@pytest.mark.generated
@pytest.mark.timeout(300)
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name.lower())
def test_eight_clients_at_once(dsn: str, level: IsolationLevel) -> None:
    stop, until = Event(), time.monotonic() + SECONDS
    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(write, dsn, n, stop, level) for n in range(1, CLIENTS + 1)]
        try:
            while time.monotonic() < until and not any(future.done() for future in running):
                assert differences(dsn) == {}
                time.sleep(0.3)
        finally:
            stop.set()
        ended = sum((future.result(timeout=60) for future in running), Counter[str]())
    assert ended["done"] > 100
    assert level is not IsolationLevel.READ_COMMITTED or not ended["40001"]
    assert differences(dsn) == {}
    with psycopg.connect(dsn, autocommit=True) as conn:
        assert conn.execute("SELECT xid FROM pgtrickle.pgt_commits").fetchall() == []
