"""What the figures must show, as sentences about what they do not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.bench.capture import TEXT, Case
from headwater.bench.refresh import Cell

TARGET_ROWS = 1_000_000
FULL_RATIO, NO_DATA_MS = 1.3, 3.0
SINGLE_RATIO, BULK_RATIO, BULK_ROWS = 1.4, 1.8, 10_000


@dataclass(frozen=True, slots=True)
class Speedup:
    """How much faster than REFRESH MATERIALIZED VIEW, at one share of changed rows."""

    changed: float
    mean: float
    least: float


SPEEDUPS = (Speedup(0.1, mean=20, least=5), Speedup(1, mean=4, least=1.5))


@dataclass(frozen=True, slots=True)
class Summary:
    """All shapes at one size and one share of changed rows."""

    rows: int
    changed: float
    mean: float
    least: float
    least_shape: str
    full_ratio: float
    no_data_ms: float


def summarise(cells: Sequence[Cell]) -> tuple[Summary, ...]:
    """Return the geometric mean and the least speed-up, the worst FULL and the worst NO_DATA."""
    return tuple(
        _summary([c for c in cells if (c.rows, c.changed) == group])
        for group in dict.fromkeys((c.rows, c.changed) for c in cells)
    )


def _summary(cells: Sequence[Cell]) -> Summary:
    worst = min(cells, key=lambda c: c.speedup)
    return Summary(
        rows=worst.rows,
        changed=worst.changed,
        mean=geometric_mean(c.speedup for c in cells),
        least=worst.speedup,
        least_shape=worst.shape,
        full_ratio=max(c.full_ratio for c in cells),
        no_data_ms=max(c.no_data_ms for c in cells),
    )


def geometric_mean(values: Iterable[float]) -> float:
    """Return the mean of ratios."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms))


def missed_by_refresh(cells: Sequence[Cell]) -> list[str]:
    """Say which targets the refreshes miss; they hold at a million rows."""
    large = [cell for cell in cells if cell.rows == TARGET_ROWS]
    faults = [fault for target in SPEEDUPS for fault in _missed_speedup(target, large)]
    for c in large:
        where = f"{c.shape}, {c.changed:g} % changed"
        if c.full_ratio > FULL_RATIO:
            faults.append(f"{where}: FULL / view {c.full_ratio:.2f} > {FULL_RATIO}")
        if c.no_data_ms > NO_DATA_MS:
            faults.append(f"{where}: NO_DATA {c.no_data_ms:.2f} ms > {NO_DATA_MS} ms")
    return faults


def _missed_speedup(target: Speedup, cells: Sequence[Cell]) -> list[str]:
    found = [cell for cell in cells if cell.changed == target.changed]
    where = f"{target.changed:g} % changed"
    if not found:
        return [f"{where} of {TARGET_ROWS:,} rows was not measured"]
    mean = geometric_mean(c.speedup for c in found)
    faults = [f"{where}: mean speed-up {mean:.2f} < {target.mean:g}"] if mean < target.mean else []
    return faults + [
        f"{where}, {c.shape}: speed-up {c.speedup:.2f} < {target.least:g}"
        for c in found
        if c.speedup < target.least
    ]


def missed_by_capture(cases: Sequence[Case]) -> list[str]:
    """Say which targets the writes miss; those of one row are judged as most clients send them."""
    limits = {1: SINGLE_RATIO, BULK_ROWS: BULK_RATIO}
    measured = {case.statement_rows for case in cases}
    faults = [f"statements of {n:,} rows were not measured" for n in limits if n not in measured]
    return faults + [
        f"{c.write} of {c.statement_rows:,} rows, {c.width} table: ratio {c.ratio:.2f} > {limit}"
        for c in cases
        if (limit := limits.get(c.statement_rows)) is not None
        and c.ratio > limit
        and (c.statement_rows > 1 or c.sent == TEXT)
    ]


def linearity(cases: Sequence[Case]) -> dict[str, float]:
    """Return how much more a row costs in statements of 100,000 rows than of 10,000."""
    of = {(c.width, c.write, c.statement_rows): c.captured_us for c in cases}
    return {
        f"{width} {write}": of[width, write, 100_000] / us
        for (width, write, rows), us in of.items()
        if rows == BULK_ROWS and (width, write, 100_000) in of
    }
