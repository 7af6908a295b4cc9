"""What `bench spark` works with and what it finds; starts no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection

from headwater.api import Headwater
from headwater.bench.targets import geometric_mean
from headwater.spark.lake import Lake, get_lake


@dataclass(frozen=True, slots=True)
class Place:
    """What a benchmark works with: the API, a connection with the lake, and a plain one."""

    hw: Headwater
    inner: Connection[Any]
    conn: Connection[Any]

    @property
    def lake(self) -> Lake:
        """The lake of the connection."""
        return get_lake(self.inner)


@dataclass(frozen=True, slots=True)
class SparkMatrix:
    """What to measure: at every scale each view with each share of changed lines."""

    scales: tuple[float, ...]
    changed: tuple[float, ...]  # percent
    views: tuple[str, ...]
    repeat: int
    single_rows: int  # of the join in which one row changes; 0 for not at all
    merge: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """A view that does not run on Spark."""

    scale: float
    view: str
    reason: str


@dataclass(frozen=True, slots=True)
class SparkCell:
    """Medians, in milliseconds, for one view at one scale and one share of changed lines.

    `full_ms` is a recompute that ingests the change and writes the difference; `full_spark_ms` is
    the part of it that runs on Spark, alone.
    """

    scale: float
    changed: float
    view: str
    rows: int
    verified: bool
    initial_ms: float
    differential_ms: float
    ingest_ms: float
    spark_ms: float
    land_ms: float
    apply_ms: float
    spark_jobs: float
    full_ms: float
    full_spark_ms: float
    full_spark_jobs: float
    view_ms: float
    no_data_ms: float
    delta_rows: float
    written_rows: float
    merge_ms: float | None = None
    merge_rows: float | None = None
    samples: dict[str, list[float]] = field(default_factory=dict)

    @property
    def spark_ratio(self) -> float:
        """FULL / DIFFERENTIAL, the time on Spark alone."""
        return self.full_spark_ms / self.spark_ms

    @property
    def ratio(self) -> float:
        """FULL / DIFFERENTIAL, from the buffers to the stream table."""
        return self.full_ms / self.differential_ms


@dataclass(frozen=True, slots=True)
class SingleRow:
    """Medians, in milliseconds, of a refresh after one row of a table changed."""

    table: str
    rows: int
    differential_ms: float
    ingest_ms: float
    spark_ms: float
    land_ms: float
    apply_ms: float
    spark_jobs: float
    no_data_ms: float
    samples: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SparkSummary:
    """All views at one scale and one share of changed lines."""

    scale: float
    changed: float
    views: int
    spark_ratio: float
    ratio: float
    least: float
    least_view: str


def summarise_spark(cells: Sequence[SparkCell]) -> tuple[SparkSummary, ...]:
    """Return the geometric means, and the worst view."""
    return tuple(
        _summary([c for c in cells if (c.scale, c.changed) == group])
        for group in dict.fromkeys((c.scale, c.changed) for c in cells)
    )


def _summary(cells: Sequence[SparkCell]) -> SparkSummary:
    worst = min(cells, key=lambda c: c.ratio)
    return SparkSummary(
        scale=worst.scale,
        changed=worst.changed,
        views=len(cells),
        spark_ratio=geometric_mean(c.spark_ratio for c in cells),
        ratio=geometric_mean(c.ratio for c in cells),
        least=worst.ratio,
        least_view=worst.view,
    )
