"""`bench tpch`: the 22 queries of TPC-H on PostgreSQL, DIFFERENTIAL against computing anew."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from psycopg import Connection

from headwater.api import Headwater
from headwater.bench.refresh import check_equal
from headwater.bench.shop import execute
from headwater.bench.tpch import SCHEMA, build, change, change_dimensions
from headwater.bench.tpch_queries import QUERIES
from headwater.errors import bug
from headwater.results import RefreshResult

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TpchMatrix:
    """What to measure: at every scale each query with each share of changed rows."""

    scales: tuple[float, ...]
    changed: tuple[float, ...]  # percent
    queries: tuple[str, ...]
    repeat: int


@dataclass(frozen=True, slots=True)
class TpchCell:
    """Medians, in milliseconds, for one query at one scale and one share of changed rows."""

    scale: float
    changed: float
    query: str
    rows: int
    differential_ms: float
    full_ms: float
    view_ms: float
    delta_rows: float
    written_rows: float
    verified: bool
    samples: dict[str, list[float]] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """FULL / DIFFERENTIAL."""
        return self.full_ms / self.differential_ms

    @property
    def anew_ratio(self) -> float:
        """The faster of FULL and REFRESH MATERIALIZED VIEW / DIFFERENTIAL."""
        return min(self.full_ms, self.view_ms) / self.differential_ms


def measure(hw: Headwater, conn: Connection[Any], matrix: TpchMatrix) -> Iterator[TpchCell]:
    """Measure the whole matrix in the schema headwater_bench, which is gone afterwards."""
    try:
        for scale in matrix.scales:
            _drop(hw, conn)
            lines = build(conn, scale)
            queries = [_Contest(hw, conn, name) for name in matrix.queries]
            for each in queries:
                each.create()
            execute(conn, "CHECKPOINT")
            for changed in matrix.changed:
                yield from _measure(conn, queries, (scale, lines, changed), matrix.repeat)
    finally:
        _drop(hw, conn)


def _measure(
    conn: Connection[Any],
    queries: list[_Contest],
    size: tuple[float, int, float],
    repeat: int,
) -> Iterator[TpchCell]:
    """One change for all queries in each round; the first round warms up and does not count."""
    scale, lines, changed = size
    for number in range(repeat + 1):
        change(conn, round(lines * changed / 100), seed=number)
        change_dimensions(conn, changed / 100, seed=number)
        for each in queries:
            each.run(number)
            if not number:
                each.samples.clear()
    for each in queries:
        yield TpchCell(scale, changed, each.query, **each.figures(), samples=dict(each.samples))
        each.samples.clear()


def _drop(hw: Headwater, conn: Connection[Any]) -> None:
    for status in hw.pgt_status():
        if status.name.startswith(f"{SCHEMA}."):
            hw.drop_stream_table(status.name, cascade=True)
    execute(conn, f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


class _Contest:
    """One query, kept up to date in three ways that take turns at being the first."""

    def __init__(self, hw: Headwater, conn: Connection[Any], query: str) -> None:
        self._hw, self._conn, self.query = hw, conn, query
        self.samples: dict[str, list[float]] = {}

    def create(self) -> None:
        """Make both stream tables and the materialized view."""
        for mode in ("DIFFERENTIAL", "FULL"):
            self._hw.create_stream_table(
                self._name(mode), QUERIES[self.query], refresh_mode=mode, engine="postgres"
            )
        execute(self._conn, f"CREATE MATERIALIZED VIEW {self._name('view')} AS"
                            f" {QUERIES[self.query]}")  # fmt: skip

    def run(self, number: int) -> None:
        """Refresh all three."""
        ways = [self._differential, self._full, self._view]
        turn = number % len(ways)
        for way in ways[turn:] + ways[:turn]:
            way()

    def figures(self) -> dict[str, Any]:
        """Return the medians; raise if a stream table is not its query."""
        for mode in ("DIFFERENTIAL", "FULL"):
            check_equal(self._conn, self._name(mode), QUERIES[self.query])
        row = self._conn.execute(f"SELECT count(*) FROM {self._name('view')}".encode()).fetchone()
        medians = {name: statistics.median(values) for name, values in self.samples.items()}
        return {**medians, "rows": row[0] if row else 0, "verified": True}

    def _name(self, way: str) -> str:
        return f"{SCHEMA}.{self.query}_{way.lower()}"

    def _differential(self) -> None:
        result = self._time("differential_ms", lambda: self._refresh("DIFFERENTIAL"))
        self._note("delta_rows", result.delta_rows)
        self._note("written_rows", result.rows)

    def _full(self) -> None:
        self._time("full_ms", lambda: self._refresh("FULL"))

    def _view(self) -> None:
        statement = f"REFRESH MATERIALIZED VIEW {self._name('view')}"
        self._time("view_ms", lambda: execute(self._conn, statement))

    def _refresh(self, mode: str) -> RefreshResult:
        result = self._hw.refresh_stream_table(self._name(mode))
        if result.action != mode:
            raise bug(f"{self._name(mode)}: {result.action} ran", str(result.reason))
        return result

    def _time(self, name: str, act: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = act()
        self._note(name, (time.perf_counter() - start) * 1000)
        return result

    def _note(self, name: str, value: float) -> None:
        self.samples.setdefault(name, []).append(round(value, 3))
