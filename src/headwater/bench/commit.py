"""`bench commit`: what transactions take with documents that follow at their end.

The targets are about the time of a transaction as its client sees it, as the prototype was
measured. The server's part of it is shown too: there a plain update is a smaller part of the whole.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headwater.api import Headwater
from headwater.bench.capture import PREPARED, TEXT, server_clock
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
    """Milliseconds per transaction of so many updates, for each way."""

    updates: int
    sent: str  # as text, or prepared
    ms: dict[str, float]
    server_ms: dict[str, float]


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
            for sent, updates in product((TEXT, PREPARED), SIZES):
                found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
                for number in range(rounds + 1):
                    for way, conn in places.items():
                        used = _run(conn, (sent, updates), transactions, rows)
                        found[way] += [used] if number else []
                ms, server_ms = (
                    {w: statistics.median(each[at] for each in all) for w, all in found.items()}
                    for at in (0, 1)
                )
                yield Cost(updates, sent, ms, server_ms)
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


def _run(
    conn: Connection[Any], how: tuple[str, int], transactions: int, rows: int
) -> tuple[float, float]:
    """Return the milliseconds of a transaction that writes the lines of one document: as its client
    sees it, and of the server."""
    (sent, updates), clock = how, server_clock(conn)
    began, began_server = time.perf_counter(), clock()
    for number in range(transactions):
        first = number * 7919 * LINES % rows  # orders far from each other
        with conn.transaction():
            for line in range(first, first + updates):
                update = "UPDATE lines SET n = n + 1 WHERE id = %s"
                conn.execute(update, (line,), prepare=sent == PREPARED)
    took = time.perf_counter() - began, clock() - began_server
    return took[0] * 1000 / transactions, took[1] * 1000 / transactions


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
    told = ", ".join(f"{way} {ms:.3f} ms" for way, ms in cost.ms.items())
    return f"{cost.updates} updates, {cost.sent}: {told}"


def commit_json(host: Json, figures: list[Cost]) -> Json:
    """Return the figures as JSON."""
    costs = [asdict(cost) for cost in figures]
    return {"bench": "commit", "host": host, "costs": costs, "missed": missed(figures)}


def missed(figures: list[Cost]) -> list[str]:
    """Say which targets the figures of statements sent as text miss."""
    of = {cost.updates: cost.ms for cost in figures if cost.sent == TEXT}
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


def _added(ms: dict[str, float]) -> str:
    """How much more IMMEDIATE adds than COMMIT; nothing is told if COMMIT adds nothing."""
    added = ms[COMMIT] - ms[NONE]
    return f"{(ms[STATEMENT] - ms[NONE]) / added:.2f}" if added > 0 else ""


def commit_tables(figures: list[Cost]) -> tuple[Table, ...]:
    """Return the times at the client, and those of the server."""
    heads = (
        *("updates", "sent", *(f"{way} ms" for way in WAYS)),
        *("COMMIT / without", "IMMEDIATE / COMMIT", "what they add, IMMEDIATE / COMMIT"),
    )

    def lines(of: Callable[[Cost], dict[str, float]]) -> tuple[tuple[str, ...], ...]:
        return tuple(
            (f"{c.updates}", c.sent, *(f"{ms:.3f}" for ms in of(c).values()),
             f"{of(c)[COMMIT] / of(c)[NONE]:.2f}", f"{of(c)[STATEMENT] / of(c)[COMMIT]:.2f}",
             _added(of(c)))
            for c in figures
        )  # fmt: skip

    return (
        Table("Transactions on one document", heads, lines(lambda cost: cost.ms), 1),
        Table("The server's part of them", heads, lines(lambda cost: cost.server_ms), 1),
    )
