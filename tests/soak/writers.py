"""Eight clients that write without end, and go on when the server comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from threading import Event
from typing import Any

import psycopg
from psycopg import errors

Connection = psycopg.Connection[Any]
CLIENTS = 8
PAUSE = 0.05  # seconds, on average, between two transactions of a client: two cores carry all of it

# What may end a transaction: another one that is in its way, or a server that goes away.
EXPECTED = (
    errors.DeadlockDetected,
    errors.ForeignKeyViolation,
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
)


def is_expected(error: psycopg.Error) -> bool:
    """Whether a client may see this; a connection that breaks has no code."""
    return isinstance(error, EXPECTED) or error.sqlstate is None


def statement(random: Random) -> str:
    """One statement over small domains; a column that is renamed meanwhile it does not name."""
    order, product = random.randint(1, 250), random.randint(1, 32)
    customer, number = random.randint(1, 42), random.randint(0, 99)
    return random.choice(
        (
            f"INSERT INTO orders VALUES ({order}, {customer}, {number}) ON CONFLICT DO NOTHING",
            f"UPDATE orders SET customer = {customer} WHERE id = {order}",
            f"DELETE FROM orders WHERE id = {order}",
            f"INSERT INTO lines SELECT id, {product}, {number % 7} FROM orders"
            f" WHERE id BETWEEN {order} AND {order + 3} ORDER BY id"
            " ON CONFLICT (order_id, product) DO UPDATE SET quantity = excluded.quantity",
            f"DELETE FROM lines WHERE product = {product} AND order_id % 5 = {number % 5}",
            f"UPDATE products SET price = {number}, kind = {number % 6} WHERE id = {product}",
            f"INSERT INTO payments VALUES ({order}, {number}), ({order}, 1), ({order}, 1)",
            f"UPDATE payments SET amount = amount + 1 WHERE order_id = {order}",
            f"DELETE FROM payments WHERE order_id % 40 = {order % 40}",
            f"INSERT INTO visits VALUES ({customer}, 'page{number % 3}'), ({customer}, NULL)",
            f"DELETE FROM visits WHERE customer = {customer}",
            f"UPDATE customers SET name = 'c{number}' WHERE id = {customer}",
            f"DELETE FROM customers WHERE id = {customer % 4 + 39}",
            f"INSERT INTO customers VALUES ({customer % 4 + 39}, 'back', {number % 5})"
            " ON CONFLICT DO NOTHING",
        )
    )


def write(dsn: str, seed: int, stop: Event) -> Counter[str]:
    """Write until told to stop; count how the transactions ended."""
    random, ended = Random(seed), Counter[str]()
    while not stop.is_set():
        try:
            with psycopg.connect(dsn, autocommit=True) as conn:
                _write(conn, random, stop, ended)
        except psycopg.Error as error:
            if not is_expected(error):
                stop.set()
                raise
            ended[type(error).__name__] += 1
            stop.wait(0.2)
    return ended


def _write(conn: Connection, random: Random, stop: Event, ended: Counter[str]) -> None:
    while not stop.wait(random.uniform(0, 2 * PAUSE)):
        texts = [statement(random) for _ in range(random.choice((1, 1, 2, 3)))]
        if random.random() < 0.002:
            texts = ["TRUNCATE visits"]
        try:
            with conn.transaction(force_rollback=random.random() < 0.1):
                for text in texts:
                    conn.execute(text.encode())
            ended["done"] += 1
        except psycopg.Error as error:
            if not is_expected(error):
                error.add_note(f"a writer did: {'; '.join(texts)}")
                raise
            ended[type(error).__name__] += 1
            if conn.closed:
                return


@contextmanager
def writing(dsn: str, seed: int, stop: Event) -> Iterator[list[Counter[str]]]:
    """Keep the clients writing for the time of the block; afterwards the list says what came of it.

    An error that nobody may see stops all, and is raised at the end of the block.
    """
    ended: list[Counter[str]] = []
    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(write, dsn, 1000 * seed + n, stop) for n in range(CLIENTS)]
        try:
            yield ended
        finally:
            stop.set()
        ended.extend(future.result(timeout=60) for future in running)
