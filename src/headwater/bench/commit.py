"""`bench commit`: what transactions cost the server with documents that follow at their end."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headwater.api import Headwater
from headwater.bench.capture import server_clock
from headwater.bench.report import Json, Table
from headwater.bench.shop import SCHEMA, execute

NONE, STATEMENT, COMMIT = "without", "IMMEDIATE", "COMMIT"
WAYS = {NONE: f"{SCHEMA}_none", STATEMENT: f"{SCHEMA}_imm", COMMIT: f"{SCHEMA}_commit"}
LINES = 10  # of each order
SIZES = (1, 10)  # updates of one document in a transaction
MOST, LESS, ALLOWED = 2.2, 2.5, 1.15  # the targets, as ratios
DOCUMENT = """
SELECT o.id AS pk_order, o.customer_id AS fk_customer, jsonb_build_object('id', o.id,
       'customer', c.name, 'lines', (SELECT jsonb_agg(jsonb_build_object('id', l.id, 'n', l.n)
       ORDER BY l.id) FROM lines l WHERE l.order_id = o.id)) AS data
  FROM orders o JOIN customers c ON c.id = o.customer_id
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of the server per transaction of so many updates, for each way."""

    updates: int
    ms: dict[str, float]


def measure(hw: Headwater, rows: int, transactions: int, rounds: int) -> Iterator[Cost]:
    """Measure each way in turns, in schemas that are gone afterwards; the first round warms up."""
    with ExitStack() as stack:
        places = {
            way: stack.enter_context(psycopg.connect(_dsn(hw, way), autocommit=True))
            for way in WAYS
        }
        try:
            for way, conn in places.items():
                _build(hw, way, conn, rows)
            for updates in SIZES:
                found: dict[str, list[float]] = {way: [] for way in WAYS}
                for number in range(rounds + 1):
                    for way, conn in places.items():
                        used = _run(conn, updates, transactions, rows)
                        found[way] += [used] if number else []
                yield Cost(updates, {way: statistics.median(ms) for way, ms in found.items()})
            _check(hw)
        finally:
            for way, conn in places.items():
                _drop(hw, way, conn)


def _dsn(hw: Headwater, way: str) -> str:
    """Return where a session finds the tables of one way first."""
    given = str(conninfo_to_dict(hw.dsn).get("options") or "")
    settings = f"-c search_path={WAYS[way]} -c synchronous_commit=off"
    return make_conninfo(hw.dsn, options=f"{given} {settings}".strip())


def _build(hw: Headwater, way: str, conn: Connection[Any], rows: int) -> None:
    _drop(hw, way, conn)
    orders = rows // LINES
    for statement in (
        f"CREATE SCHEMA {WAYS[way]}",
        "CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL)",
        "CREATE TABLE orders (id int PRIMARY KEY, customer_id int NOT NULL)",
        "CREATE TABLE lines (id int PRIMARY KEY, order_id int NOT NULL, n int NOT NULL)",
        f"INSERT INTO customers SELECT n, 'customer ' || n FROM generate_series(0, {orders}) AS n",
        f"INSERT INTO orders SELECT n, n / 10 FROM generate_series(0, {orders - 1}) AS n",
        f"INSERT INTO lines SELECT n, n / {LINES}, n FROM generate_series(0, {rows - 1}) AS n",
        "CREATE INDEX ON orders (customer_id)",
        "CREATE INDEX ON lines (order_id)",
        "VACUUM ANALYZE customers, orders, lines",
    ):
        execute(conn, statement)
    if way != NONE:
        with Headwater(_dsn(hw, way)) as ours:
            ours.create_stream_table(f"{WAYS[way]}.documents", DOCUMENT, refresh_mode=way)


def _run(conn: Connection[Any], updates: int, transactions: int, rows: int) -> float:
    """Return the milliseconds of the server per transaction: each writes one document's lines."""
    clock = server_clock(conn)
    began = clock()
    for number in range(transactions):
        first = number * 7919 * LINES % rows  # orders far from each other
        with conn.transaction():
            for line in range(first, first + updates):
                conn.execute("UPDATE lines SET n = n + 1 WHERE id = %s", (line,), prepare=True)
    return (clock() - began) * 1000 / transactions


def _check(hw: Headwater) -> None:
    """A way that is fast and wrong is not measured."""
    for way in (STATEMENT, COMMIT):
        found = hw.verify(f"{WAYS[way]}.documents")
        if not found.equal:
            raise RuntimeError(f"the documents of {way} differ from their query: {found}")


def _drop(hw: Headwater, way: str, conn: Connection[Any]) -> None:
    name = f"{WAYS[way]}.documents"
    if any(status.name == name for status in hw.pgt_status()):
        hw.drop_stream_table(name)
    execute(conn, f"DROP SCHEMA IF EXISTS {WAYS[way]} CASCADE")


def tell(cost: Cost) -> str:
    """Return a figure in words."""
    return f"{cost.updates} updates: " + ", ".join(f"{w} {ms:.3f} ms" for w, ms in cost.ms.items())


def commit_json(host: Json, figures: list[Cost]) -> Json:
    """Return the figures as JSON."""
    costs = [{"updates": c.updates, "ms": c.ms} for c in figures]
    return {"bench": "commit", "host": host, "costs": costs, "missed": missed(figures)}


def missed(figures: list[Cost]) -> list[str]:
    """Say which targets the figures miss."""
    of = {cost.updates: cost.ms for cost in figures}
    one, many = of[1], of[max(of)]
    targets = {
        f"many updates cost more than {MOST:g} times those without a view":
            many[COMMIT] <= MOST * many[NONE],
        f"many updates are not {LESS:g} times cheaper than with IMMEDIATE":
            LESS * many[COMMIT] <= many[STATEMENT],
        f"one update costs more than {ALLOWED:g} times that with IMMEDIATE":
            one[COMMIT] <= ALLOWED * one[STATEMENT],
    }  # fmt: skip
    return [told for told, is_met in targets.items() if not is_met]


def commit_tables(figures: list[Cost]) -> tuple[Table, ...]:
    """Return one table of costs."""
    heads = ("updates", *(f"{way} ms" for way in WAYS), "COMMIT / without", "IMMEDIATE / COMMIT")
    lines = tuple(
        (f"{c.updates}", *(f"{ms:.3f}" for ms in c.ms.values()),
         f"{c.ms[COMMIT] / c.ms[NONE]:.2f}", f"{c.ms[STATEMENT] / c.ms[COMMIT]:.2f}")
        for c in figures
    )  # fmt: skip
    return (Table("Server time per transaction on one document", heads, lines, 1),)
