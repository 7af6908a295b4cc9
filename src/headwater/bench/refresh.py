"""`bench refresh`: DIFFERENTIAL, FULL and REFRESH MATERIALIZED VIEW on the same changes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from psycopg import Connection

from headwater.api import Headwater
from headwater.bench.plans import read_plan
from headwater.bench.process import cpu_seconds, is_local, peak_memory_mb, reset_peak_memory
from headwater.bench.shapes import SHAPES
from headwater.bench.shop import SCHEMA, Shop, apply_change, build, execute, reset_sales
from headwater.errors import bug
from headwater.results import RefreshResult

T = TypeVar("T")

DIFFERENTIAL, FULL = f"{SCHEMA}.differential", f"{SCHEMA}.recomputed"
VIEW, INDEXED_VIEW = f"{SCHEMA}.view", f"{SCHEMA}.indexed_view"
_NO_DATA_CALLS = 7


@dataclass(frozen=True, slots=True)
class Matrix:
    """What to measure: every size with every shape and every share of changed rows."""

    rows: tuple[int, ...]
    changed: tuple[float, ...]  # percent
    shapes: tuple[str, ...]
    repeat: int


@dataclass(frozen=True, slots=True)
class Cell:
    """Medians, in milliseconds, for one shape at one size and one share of changed rows."""

    rows: int
    changed: float
    shape: str
    differential_ms: float
    full_ms: float
    view_ms: float
    indexed_view_ms: float
    no_data_ms: float
    bulk_insert_ms: float
    apply_ms: float
    delta_rows: int
    written_rows: int
    rows_read: int
    rows_read_by_relation: dict[str, int]
    planning_ms: float
    execution_ms: float
    peak_memory_mb: float | None
    differential_cpu_ms: float | None = None  # of the server process alone
    view_cpu_ms: float | None = None
    samples: dict[str, list[float]] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)

    @property
    def speedup(self) -> float:
        """REFRESH MATERIALIZED VIEW / DIFFERENTIAL."""
        return self.view_ms / self.differential_ms

    @property
    def full_ratio(self) -> float:
        """FULL / REFRESH MATERIALIZED VIEW."""
        return self.full_ms / self.view_ms

    @property
    def bulk_ratio(self) -> float:
        """DIFFERENTIAL / bulk insert of the changed rows."""
        return self.differential_ms / self.bulk_insert_ms


def measure(hw: Headwater, conn: Connection[Any], matrix: Matrix) -> Iterator[Cell]:
    """Measure the whole matrix in the schema headwater_bench, which is gone afterwards."""
    try:
        for rows in matrix.rows:
            _drop_tables(hw)
            build(conn, Shop(rows))
            for shape in matrix.shapes:
                yield from _measure_shape(hw, conn, Shop(rows), shape, matrix)
    finally:
        _drop_tables(hw)
        execute(conn, f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def _measure_shape(
    hw: Headwater, conn: Connection[Any], shop: Shop, shape: str, matrix: Matrix
) -> Iterator[Cell]:
    _drop_tables(hw)
    execute(conn, f"DROP MATERIALIZED VIEW IF EXISTS {VIEW}, {INDEXED_VIEW}")
    reset_sales(conn)
    query = SHAPES[shape]
    made = hw.create_stream_table(
        DIFFERENTIAL, query, refresh_mode="DIFFERENTIAL", engine="postgres"
    )
    hw.create_stream_table(FULL, query, refresh_mode="FULL", engine="postgres")
    for view in (VIEW, INDEXED_VIEW):
        execute(conn, f"CREATE MATERIALIZED VIEW {view} AS {query}")
    if made.key_columns:
        execute(conn, f"CREATE UNIQUE INDEX ON {INDEXED_VIEW} ({', '.join(made.key_columns)})")
    execute(conn, "CHECKPOINT")
    for changed in matrix.changed:
        yield _Bench(hw, conn, shop).measure(shape, changed, matrix.repeat)


def _drop_tables(hw: Headwater) -> None:
    known = {status.name for status in hw.pgt_status()}
    for name in (DIFFERENTIAL, FULL):
        if name in known:
            hw.drop_stream_table(name, cascade=True)


class _Bench:
    """Runs one cell: in every round the same change for all, in an order that rotates."""

    def __init__(self, hw: Headwater, conn: Connection[Any], shop: Shop) -> None:
        self._hw, self._conn, self._shop = hw, conn, shop
        self._samples: dict[str, list[float]] = {}
        self._results: list[RefreshResult] = []
        self._memory: list[float] = []
        self._pid = _refreshing_process(hw) if is_local(conn) else None

    def measure(self, shape: str, changed: float, repeat: int) -> Cell:
        """Measure one cell; raises if a stream table differs from its query afterwards."""
        contestants = [self._differential, self._full, self._view, self._indexed_view, self._bulk]
        for number in range(repeat):
            self._change(changed, number)
            turn = number % len(contestants)
            for contestant in contestants[turn:] + contestants[:turn]:
                contestant()
            self._no_data()
        self._change(changed, repeat)
        reading = read_plan(self._conn, DIFFERENTIAL)
        last = self._hw.refresh_stream_table(DIFFERENTIAL)
        self._hw.refresh_stream_table(FULL)
        for name in (DIFFERENTIAL, FULL):
            check_equal(self._conn, name, SHAPES[shape])
        median = {name: statistics.median(values) for name, values in self._samples.items()}
        return Cell(
            rows=self._shop.sales,
            changed=changed,
            shape=shape,
            **median,
            apply_ms=self._timings().get("apply", 0.0),
            delta_rows=last.delta_rows,
            written_rows=last.rows,
            rows_read=reading.rows,
            rows_read_by_relation=reading.rows_by_relation,
            planning_ms=reading.planning_ms,
            execution_ms=reading.execution_ms,
            peak_memory_mb=max(self._memory, default=None),
            samples=self._samples,
            timings=self._timings(),
        )

    def _change(self, changed: float, number: int) -> None:
        apply_change(self._conn, self._shop, changed / 100, seed=number + round(changed * 10))

    def _timings(self) -> dict[str, float]:
        """The median of each step of the DIFFERENTIAL refreshes."""
        steps = {step for result in self._results for step in result.timings}
        return {
            step: statistics.median(r.timings.get(step, 0.0) for r in self._results)
            for step in sorted(steps)
        }

    def _differential(self) -> None:
        if self._pid is not None:
            reset_peak_memory(self._pid)
        with self._cpu("differential_cpu_ms", self._pid):
            refresh = partial(self._refresh, DIFFERENTIAL, "DIFFERENTIAL")
            self._results.append(self._time("differential_ms", refresh))
        memory = peak_memory_mb(self._pid) if self._pid is not None else None
        if memory is not None:
            self._memory.append(memory)

    def _full(self) -> None:
        self._time("full_ms", lambda: self._refresh(FULL, "FULL"))

    def _no_data(self) -> None:
        for _ in range(_NO_DATA_CALLS):
            self._time("no_data_ms", lambda: self._refresh(DIFFERENTIAL, "NO_DATA"))

    def _view(self) -> None:
        with self._cpu("view_cpu_ms", self._pid and self._conn.info.backend_pid):
            self._time("view_ms", lambda: self._execute(f"REFRESH MATERIALIZED VIEW {VIEW}"))

    def _indexed_view(self) -> None:
        statement = f"REFRESH MATERIALIZED VIEW {INDEXED_VIEW}"
        self._time("indexed_view_ms", lambda: self._execute(statement))

    def _bulk(self) -> None:
        statement = "INSERT INTO sales_like SELECT * FROM delta_rows"
        self._time("bulk_insert_ms", lambda: self._execute(statement))
        self._execute("TRUNCATE sales_like")

    def _execute(self, statement: str) -> None:
        execute(self._conn, statement)

    def _refresh(self, name: str, action: str) -> RefreshResult:
        result = self._hw.refresh_stream_table(name)
        if result.action != action:
            raise bug(f"{name}: {result.action} ran instead of {action}", str(result.reason))
        return result

    def _time(self, name: str, act: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = act()
        self._samples.setdefault(name, []).append((time.perf_counter() - start) * 1000)
        return result

    @contextmanager
    def _cpu(self, name: str, pid: int | None) -> Iterator[None]:
        began = cpu_seconds(pid) if pid else 0.0
        yield
        if pid:
            self._samples.setdefault(name, []).append((cpu_seconds(pid) - began) * 1000)


def _refreshing_process(hw: Headwater) -> int | None:
    """The server process that refreshes; the history tells."""
    rows = hw.refresh_history(DIFFERENTIAL, max_rows=1)
    return rows[0].backend_pid if rows else None


def check_equal(conn: Connection[Any], name: str, query: str) -> None:
    """Raise if a stream table is not its query."""
    row = conn.execute(
        f"SELECT (SELECT count(*) FROM (SELECT * FROM {name} EXCEPT ALL ({query})) AS extra),"
        f" (SELECT count(*) FROM (({query}) EXCEPT ALL SELECT * FROM {name}) AS missing)".encode()
    ).fetchone()
    if row != (0, 0):
        raise bug(f"{name} is not equal to its query", f"rows extra and missing: {row}")
