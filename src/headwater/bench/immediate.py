"""`bench immediate`: what writes cost the server with an IMMEDIATE table, against without."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection

from headwater.api import Headwater
from headwater.bench.capture import server_clock
from headwater.bench.shop import SCHEMA, execute

VIEWS = {
    "groups": "SELECT g, count(*) AS n, sum(v) AS s, avg(v) AS a FROM {schema}.t GROUP BY g",
    "joined": "SELECT o.id, o.amount, o.customer_id, c.name FROM {schema}.orders o"
    " JOIN {schema}.customers c ON c.id = o.customer_id",
}


@dataclass(frozen=True, slots=True)
class Load:
    """What to measure: rows of the large tables, statements of one row, rounds, seconds."""

    rows: int
    single: int
    rounds: int
    clients: tuple[int, ...]
    seconds: float

    @property
    def few(self) -> int:
        """Customers, and a tenth of that are groups."""
        return max(10, self.rows // 10)


@dataclass(frozen=True, slots=True)
class Write:
    """One kind of statement; `n` counts on, `m` rows are written by each."""

    view: str
    name: str
    statement: str
    rows: int = 1


# New rows have ids from 10,000,001 on; a DELETE takes away what an INSERT of its size brought.
WRITES = (
    Write("groups", "INSERT", "INSERT INTO t VALUES (10000000 + %(n)s, %(n)s %% %(g)s, %(n)s)"),
    Write("groups", "UPDATE of a value", "UPDATE t SET v = v + 1 WHERE id = %(n)s"),
    Write("groups", "UPDATE of a group", "UPDATE t SET g = (g + 1) %% %(g)s WHERE id = %(n)s"),
    Write("groups", "DELETE", "DELETE FROM t WHERE id = 10000000 + %(n)s"),
    Write(
        "groups",
        "INSERT",
        "INSERT INTO t SELECT 20000000 + %(n)s * 1000 + i, i %% %(g)s, i"
        " FROM generate_series(1, 1000) AS i",
        1000,
    ),
    Write(
        "groups",
        "UPDATE",
        "UPDATE t SET v = v + 1 WHERE id BETWEEN 20000000 + %(n)s * 1000 + 1"
        " AND 20000000 + %(n)s * 1000 + 1000",
        1000,
    ),
    Write(
        "groups",
        "DELETE",
        "DELETE FROM t WHERE id BETWEEN 20000000 + %(n)s * 1000 + 1"
        " AND 20000000 + %(n)s * 1000 + 1000",
        1000,
    ),
    Write(
        "joined", "INSERT", "INSERT INTO orders VALUES (10000000 + %(n)s, %(n)s %% %(c)s + 1, 5)"
    ),
    Write("joined", "UPDATE of a value", "UPDATE orders SET amount = amount + 1 WHERE id = %(n)s"),
    Write(
        "joined",
        "UPDATE of the join key",
        "UPDATE orders SET customer_id = customer_id %% %(c)s + 1 WHERE id = %(n)s",
    ),
    Write("joined", "DELETE", "DELETE FROM orders WHERE id = 10000000 + %(n)s"),
    Write(
        "joined",
        "UPDATE of the other side",
        "UPDATE customers SET name = name || 'x' WHERE id = %(n)s %% %(c)s + 1",
    ),
    Write(
        "joined",
        "INSERT",
        "INSERT INTO orders SELECT 20000000 + %(n)s * 1000 + i, i %% %(c)s + 1, i"
        " FROM generate_series(1, 1000) AS i",
        1000,
    ),
    Write(
        "joined",
        "UPDATE",
        "UPDATE orders SET amount = amount + 1 WHERE id BETWEEN 20000000 + %(n)s * 1000 + 1"
        " AND 20000000 + %(n)s * 1000 + 1000",
        1000,
    ),
    Write(
        "joined",
        "DELETE",
        "DELETE FROM orders WHERE id BETWEEN 20000000 + %(n)s * 1000 + 1"
        " AND 20000000 + %(n)s * 1000 + 1000",
        1000,
    ),
)
# What many clients do at once; `r` is a random number of the loop.
TOGETHER = {
    "groups": "UPDATE {schema}.t SET v = v + 1 WHERE id = 1 + r %% {rows}",
    "joined": "UPDATE {schema}.orders SET amount = amount + 1, customer_id = 1 + r / 7 %% {few}"
    " WHERE id = 1 + r %% {rows}",
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of the server per statement, medians over rounds."""

    view: str
    write: str
    rows: int
    with_ms: float
    without_ms: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Rate:
    """Transactions per second of so many clients at once."""

    view: str
    clients: int
    with_tps: float
    without_tps: float


def measure(hw: Headwater, conn: Connection[Any], load: Load) -> Iterator[Cost | Rate]:
    """Measure all writes without and with each view, in a schema that is gone afterwards."""
    try:
        for view, text in VIEWS.items():
            _build(hw, conn, load)
            without = _costs(conn, load, view)
            rates = {n: _rate(hw.dsn, load, view, n) for n in load.clients}
            _build(hw, conn, load)
            query = text.format(schema=SCHEMA)
            hw.create_stream_table(f"{SCHEMA}.{view}", query, refresh_mode="IMMEDIATE")
            costs = _costs(conn, load, view)
            for write, took in costs.items():
                alone = without[write]
                yield Cost(view, write.name, write.rows, took, alone, took / alone)
            for n in load.clients:
                yield Rate(view, n, _rate(hw.dsn, load, view, n), rates[n])
            _check(hw, view)
    finally:
        _drop(hw, conn)


def _check(hw: Headwater, view: str) -> None:
    found = hw.verify(f"{SCHEMA}.{view}")
    if not found.equal:
        raise RuntimeError(f"{view} differs from its query: {found}")


def _build(hw: Headwater, conn: Connection[Any], load: Load) -> None:
    _drop(hw, conn)
    execute(conn, f"CREATE SCHEMA {SCHEMA}")
    execute(conn, f"SET search_path = {SCHEMA}; SET synchronous_commit = off")
    for statement in (
        "CREATE TABLE t (id bigint PRIMARY KEY, g int, v int)",
        "CREATE TABLE customers (id int PRIMARY KEY, name text)",
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer_id int, amount int)",
        "CREATE INDEX ON orders (customer_id)",
        f"INSERT INTO t SELECT n, n % {load.few // 10}, n FROM generate_series(1, {load.rows}) n",
        f"INSERT INTO customers SELECT n, 'customer ' || n FROM generate_series(1, {load.few}) n",
        "INSERT INTO orders"
        f" SELECT n, n % {load.few} + 1, n FROM generate_series(1, {load.rows}) n",
        "VACUUM ANALYZE t, customers, orders",
    ):
        execute(conn, statement)


def _drop(hw: Headwater, conn: Connection[Any]) -> None:
    known = {status.name for status in hw.pgt_status()}
    for view in VIEWS:
        if f"{SCHEMA}.{view}" in known:
            hw.drop_stream_table(f"{SCHEMA}.{view}")
    execute(conn, f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def _costs(conn: Connection[Any], load: Load, view: str) -> dict[Write, float]:
    """Run every kind of write on the tables of a view, round after round; the first warms up."""
    clock = server_clock(conn)
    found: dict[Write, list[float]] = {}
    for number in range(load.rounds + 1):
        for write in (w for w in WRITES if w.view == view):
            count = load.single if write.rows == 1 else max(1, load.single // 200)
            first = number * count
            began = clock()
            for n in range(first + 1, first + count + 1):
                values = {"n": n, "g": load.few // 10, "c": load.few}
                conn.execute(write.statement.encode(), values, prepare=True)
            used = (clock() - began) * 1000 / count
            if number:
                found.setdefault(write, []).append(used)
    return {write: statistics.median(times) for write, times in found.items()}


def _rate(dsn: str, load: Load, view: str, clients: int) -> float:
    """Let clients write as fast as the server can, each in a loop inside the server."""
    write = TOGETHER[view].format(schema=SCHEMA, rows=load.rows, few=load.few).replace("%%", "%")
    code = (
        "DO $$ DECLARE r int; BEGIN"
        f" WHILE clock_timestamp() < timestamptz '{{until}}' LOOP"
        f" r := (random() * 1000000000)::int; {write}; COMMIT;"
        " PERFORM set_config('bench.done', (current_setting('bench.done')::int + 1)::text, false);"
        " END LOOP; END $$"
    )

    def work(until: str) -> int:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("SET synchronous_commit = off; SET bench.done = 0")
            conn.execute(code.replace("{until}", until).encode())
            row = conn.execute("SELECT current_setting('bench.done')::int").fetchone()
            return int(row[0]) if row else 0

    with psycopg.connect(dsn, autocommit=True) as conn, ThreadPoolExecutor(clients) as pool:
        row = conn.execute(
            "SELECT (clock_timestamp() + make_interval(secs => %s))::text", (load.seconds,)
        ).fetchone()
        began = time.perf_counter()
        done = sum(pool.map(work, [str(row[0] if row else "")] * clients))
        return done / (time.perf_counter() - began)
