"""`bench spark`: DIFFERENTIAL on Spark against a recompute, PostgreSQL and MERGE, on TPC-H."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headwater.bench.merge import MergeTable
from headwater.bench.recompute import recompute_in_vain, recompute_on_spark
from headwater.bench.shop import execute
from headwater.bench.spark_figures import Place, Refused, SingleRow, SparkCell, SparkMatrix
from headwater.bench.tpch import LEAST_SCALE, LINES_PER_SCALE, SCHEMA, build, change, change_one
from headwater.bench.tpch_views import VIEWS
from headwater.errors import UnsupportedQuery, bug
from headwater.results import RefreshResult

T = TypeVar("T")

STREAM, VIEW = f"{SCHEMA}.stream", f"{SCHEMA}.view"
STEPS = ("ingest", "spark", "land", "apply")
_NO_DATA_CALLS = 7


def measure(place: Place, matrix: SparkMatrix) -> Iterator[SparkCell | Refused | SingleRow]:
    """Measure the whole matrix in the schema headwater_bench, which is gone afterwards."""
    try:
        for scale in matrix.scales:
            _drop(place)
            lines = build(place.conn, scale)
            for view in matrix.views:
                yield from _measure_view(place, matrix, view, (scale, lines))
        if matrix.single_rows:
            _drop(place)
            build(place.conn, max(LEAST_SCALE, matrix.single_rows / LINES_PER_SCALE))
            yield from _measure_single(place, matrix)
    finally:
        _drop(place)


def _drop(place: Place) -> None:
    if STREAM in {status.name for status in place.hw.pgt_status()}:
        place.hw.drop_stream_table(STREAM)
    execute(place.conn, f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def _measure_view(
    place: Place, matrix: SparkMatrix, view: str, size: tuple[float, int]
) -> Iterator[SparkCell | Refused]:
    started = time.perf_counter()
    try:
        made = place.hw.create_stream_table(
            STREAM, VIEWS[view], refresh_mode="DIFFERENTIAL", engine="spark"
        )
    except UnsupportedQuery as refusal:
        yield Refused(size[0], view, f"{refusal.what}: {refusal.why}")
        return
    initial_ms = (time.perf_counter() - started) * 1000
    execute(place.conn, f"CREATE MATERIALIZED VIEW {VIEW} AS {VIEWS[view]}")
    merged = None
    if matrix.merge and made.key_columns:
        merged = MergeTable(place.conn, place.lake, STREAM, made.key_columns)
    try:
        cells = [
            _Rounds(place, size[1], merged).measure(changed, matrix.repeat)
            for changed in matrix.changed
        ]
        if merged is not None:
            merged.check()
    finally:
        if merged is not None:
            merged.drop()
    rows = _verify(place)
    place.hw.drop_stream_table(STREAM)
    execute(place.conn, f"DROP MATERIALIZED VIEW {VIEW}")
    for changed, rounds in zip(matrix.changed, cells, strict=True):
        known: dict[str, Any] = {
            "scale": size[0],
            "rows": rows,
            "verified": True,
            "initial_ms": initial_ms,
        }
        yield SparkCell(
            view=view, changed=changed, **known, **rounds.figures(), samples=rounds.samples
        )


def _verify(place: Place) -> int:
    """Return the number of rows; raise if the stream table is not its query."""
    found = place.hw.verify(STREAM)
    if not found.equal:
        raise bug(
            f"{STREAM} is not equal to its query",
            f"{found.missing} rows missing, {found.extra} too many",
        )
    return found.rows


def _measure_single(place: Place, matrix: SparkMatrix) -> Iterator[SingleRow]:
    """Change one row at a time under the plain join."""
    place.hw.create_stream_table(STREAM, VIEWS["join"], refresh_mode="DIFFERENTIAL", engine="spark")
    found = []
    for table in ("lineitem", "orders"):
        rounds = _Rounds(place, 0, None)
        for number in range(matrix.repeat + 1):
            change_one(place.conn, table, number)
            rounds.differential()
            rounds.no_data()
            if not number:
                rounds.forget()
        figures = rounds.figures()
        found.append((table, figures, rounds.samples))
    rows = _verify(place)
    for table, figures, samples in found:
        kept = {name: figures[name] for name in ("differential_ms", "no_data_ms", "spark_jobs")}
        steps = {f"{step}_ms": figures[f"{step}_ms"] for step in STEPS}
        yield SingleRow(table=table, rows=rows, **kept, **steps, samples=samples)


@dataclass(slots=True)
class _Rounds:
    """Samples of one cell: in every round the same change for all."""

    place: Place
    lines: int
    merged: MergeTable | None
    samples: dict[str, list[float]] = field(default_factory=dict)

    def measure(self, changed: float, repeat: int) -> _Rounds:
        """Run the rounds; the first one warms up and does not count."""
        if self.merged is not None:
            self.merged.drop()
            self.merged.fill()
        for number in range(repeat + 1):
            change(self.place.conn, round(self.lines * changed / 100), seed=number)
            parts = (self._view, self._spark)
            for part in parts if number % 2 else reversed(parts):
                part()
            self.no_data()
            if not number:
                self.forget()
        return self

    def forget(self) -> None:
        """Forget the samples so far."""
        self.samples.clear()

    def figures(self) -> dict[str, Any]:
        """Return the medians."""
        return {name: statistics.median(values) for name, values in self.samples.items()}

    def differential(self) -> None:
        """Refresh, and note every step."""
        result = self._time("differential_ms", lambda: self._refresh("DIFFERENTIAL"))
        for step in STEPS:
            self._note(f"{step}_ms", result.timings.get(step, 0.0))
        self._note("spark_jobs", result.timings["spark_jobs"])
        self._note("delta_rows", result.delta_rows)
        self._note("written_rows", result.rows)

    def no_data(self) -> None:
        """Refresh when nothing came."""
        for _ in range(_NO_DATA_CALLS):
            self._time("no_data_ms", lambda: self._refresh("NO_DATA"))

    def _view(self) -> None:
        statement = f"REFRESH MATERIALIZED VIEW {VIEW}"
        self._time("view_ms", lambda: execute(self.place.conn, statement))

    def _spark(self) -> None:
        """The recompute that is rolled back comes first, while its change is still pending."""
        outcome = recompute_in_vain(self.place.inner, STREAM)
        self._note("full_ms", outcome.timings["total"])
        self.differential()
        alone = recompute_on_spark(self.place.inner, STREAM)
        self._note("full_spark_ms", alone["spark"])
        self._note("full_spark_jobs", alone["spark_jobs"])
        if self.merged is not None:
            self._note("merge_rows", self.merged.stage())
            self._time("merge_ms", self.merged.merge)

    def _refresh(self, action: str) -> RefreshResult:
        result = self.place.hw.refresh_stream_table(STREAM)
        if result.action != action:
            raise bug(f"{STREAM}: {result.action} ran instead of {action}", str(result.reason))
        return result

    def _time(self, name: str, act: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = act()
        self._note(name, (time.perf_counter() - start) * 1000)
        return result

    def _note(self, name: str, value: float) -> None:
        self.samples.setdefault(name, []).append(round(value, 3))
