"""`bench capture`: what writes cost the server with capture, against without."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from headwater.api import Headwater
from headwater.bench.process import cpu_seconds, is_local
from headwater.bench.shop import SCHEMA, execute

WRITES = ("INSERT", "UPDATE", "DELETE")
# Statements of one row are mostly sent as text, which the server parses and plans each time.
# Prepared ones cost half as much without capture, which then shows twice as much.
TEXT, PREPARED = "text", "prepared"
WIDTHS = {"ordinary": 0, "wide": 22}  # text columns beyond the eight of every table
_COLUMNS = """
    id bigint NOT NULL, customer_id int NOT NULL, status text NOT NULL, quantity int NOT NULL,
    amount numeric(12, 2) NOT NULL, created_at timestamptz NOT NULL, is_paid boolean NOT NULL,
    note text"""
_VALUES = """
    n, 1 + (n::bigint * 7919 % 5000)::int, 'status ' || n % 5, 1 + (n % 9)::int,
    (n % 100000) / 100.0, timestamptz '2024-01-01' + n * interval '1 second', n % 2 = 0,
    'a note of some length, ' || n"""

_ROW = "7, 'status 1', 3, 12.34, '2024-01-01 12:00+00', true, %(text)s"


@dataclass(frozen=True, slots=True)
class Load:
    """What to measure."""

    statement_rows: tuple[int, ...]
    table_rows: int  # that stay; as many as the largest round needs come and go
    rounds: int
    single: int = 2000  # statements of one row in a round

    def statements(self, size: int) -> int:
        """Return how many statements of a size make a round: 2,000 of one row, 2 of 100,000."""
        return max(1, round(self.single / math.pow(size, 0.6)))


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of write: microseconds per row with and without capture, medians over rounds."""

    width: str
    write: str
    statement_rows: int
    sent: str  # as text, or prepared
    captured_us: float
    plain_us: float
    ratio: float  # the median of the rounds' ratios
    ratios: tuple[float, ...]


def measure(hw: Headwater, conn: Connection[Any], load: Load) -> Iterator[Case]:
    """Measure all cases in the schema headwater_bench, which is gone afterwards."""
    try:
        _build(hw, conn, load)
        for width in WIDTHS:
            for size in load.statement_rows:
                yield from _Bench(hw, conn, load, width).measure(size)
    finally:
        _drop(hw, conn)


def clock_name(conn: Connection[Any]) -> str:
    """Say what is measured."""
    return "server CPU" if is_local(conn) else "wall time (the server is not on this machine)"


def _build(hw: Headwater, conn: Connection[Any], load: Load) -> None:
    _drop(hw, conn)
    execute(conn, f"CREATE SCHEMA {SCHEMA}")
    execute(conn, f"SET search_path = {SCHEMA}; SET synchronous_commit = off")
    for width, extra in WIDTHS.items():
        more = "".join(f", extra_{number} text" for number in range(extra))
        values = "".join(f", 'value {number} of ' || n" for number in range(extra))
        for kind in ("captured", "plain"):
            table = f"{width}_{kind}"
            execute(conn, f"CREATE TABLE {table} ({_COLUMNS}{more}, PRIMARY KEY (id))")
            execute(conn, f"CREATE INDEX ON {table} (customer_id)")
            execute(conn, f"INSERT INTO {table} SELECT {_VALUES}{values}"
                          f" FROM generate_series(1, {load.table_rows}) AS n")  # fmt: skip
        last = load.table_rows + max(size * load.statements(size) for size in load.statement_rows)
        execute(conn, f"CREATE TABLE {width}_new ({_COLUMNS}{more}, PRIMARY KEY (id))")
        execute(conn, f"INSERT INTO {width}_new SELECT {_VALUES}{values}"
                      f" FROM generate_series({load.table_rows + 1}, {last}) AS n")  # fmt: skip
        hw.create_stream_table(
            f"{SCHEMA}.{width}_stream",
            f"SELECT id, customer_id, status, amount FROM {SCHEMA}.{width}_captured",
            refresh_mode="DIFFERENTIAL",
            engine="postgres",
        )
    execute(conn, "VACUUM ANALYZE")


def _drop(hw: Headwater, conn: Connection[Any]) -> None:
    known = {status.name for status in hw.pgt_status()}
    for width in WIDTHS:
        if f"{SCHEMA}.{width}_stream" in known:
            hw.drop_stream_table(f"{SCHEMA}.{width}_stream")
    execute(conn, f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


class _Bench:
    """Writes the same rows to two tables, one of which is captured."""

    def __init__(self, hw: Headwater, conn: Connection[Any], load: Load, width: str) -> None:
        self._hw, self._conn, self._load, self._width = hw, conn, load, width
        self._clock = server_clock(conn)

    def measure(self, size: int) -> Iterator[Case]:
        """Insert, update and delete rows; one row in both ways of sending a statement."""
        for sent in (TEXT, PREPARED) if size == 1 else (PREPARED,):
            yield from self._measure(size, sent)

    def _measure(self, size: int, sent: str) -> Iterator[Case]:
        """Write the same in every round, to either table first in turn."""
        seconds: dict[tuple[str, str], list[float]] = {}
        for number in range(self._load.rounds + 1):
            kinds = ("captured", "plain") if number % 2 else ("plain", "captured")
            for write in WRITES:
                for kind in kinds:
                    used = self._run(write, kind, (size, sent))
                    if number:  # the first round warms up
                        seconds.setdefault((write, kind), []).append(used)
            self._hw.refresh_stream_table(f"{SCHEMA}.{self._width}_stream")
            execute(self._conn, f"VACUUM {self._width}_captured, {self._width}_plain")
        for write in WRITES:
            used_by = seconds[write, "captured"], seconds[write, "plain"]
            yield self._case(write, (size, sent), *used_by)

    def _case(
        self, write: str, how: tuple[int, str], captured: list[float], plain: list[float]
    ) -> Case:
        size, sent = how
        ratios = [a / b for a, b in zip(captured, plain, strict=True)]
        per_row = 1e6 / (size * self._load.statements(size))
        return Case(
            self._width,
            write,
            size,
            sent,
            statistics.median(captured) * per_row,
            statistics.median(plain) * per_row,
            statistics.median(ratios),
            tuple(round(ratio, 3) for ratio in ratios),
        )

    def _run(self, write: str, kind: str, how: tuple[int, str]) -> float:
        """Run all statements of a round and return the seconds that they took the server."""
        size, sent = how
        statement = _statement(write, self._width, kind, size).encode()
        first = self._load.table_rows + 1
        began = self._clock()
        for _ in range(self._load.statements(size)):
            values = {"first": first, "last": first + size - 1, "text": "a value of some length"}
            self._conn.execute(statement, values, prepare=sent == PREPARED)
            first += size
        return self._clock() - began


def server_clock(conn: Connection[Any]) -> Callable[[], float]:
    """Return a clock of what the server spends on a connection."""
    pid = conn.info.backend_pid
    return (lambda: cpu_seconds(pid)) if is_local(conn) else time.perf_counter


def _statement(write: str, width: str, kind: str, size: int) -> str:
    """The statement, with the first and the last id as parameters; one row is given by values."""
    table, these = f"{width}_{kind}", "id BETWEEN %(first)s AND %(last)s"
    rows = f"SELECT * FROM {width}_new WHERE {these}"
    if size == 1:
        these = "id = %(first)s"
        rows = f"VALUES (%(first)s, {_ROW}{', %(text)s' * WIDTHS[width]})"
    return {
        "INSERT": f"INSERT INTO {table} {rows}",
        "UPDATE": f"UPDATE {table} SET amount = amount + 1, status = 'new' WHERE {these}",
        "DELETE": f"DELETE FROM {table} WHERE {these}",
    }[write]
