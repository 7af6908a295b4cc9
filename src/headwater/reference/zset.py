"""Z-sets: bags of rows with integer weights, which may be negative."""

from __future__ import annotations

from collections.abc import Iterable

Value = int | str | tuple["Value", ...] | None  # a tuple is an array
Row = tuple[Value, ...]
Zset = dict[Row, int]  # never a weight of 0, so that equal Z-sets are equal dicts


def collect(entries: Iterable[tuple[Row, int]]) -> Zset:
    """Sum the weights of equal rows and leave out the rows that cancel."""
    total: Zset = {}
    for row, weight in entries:
        total[row] = total.get(row, 0) + weight
    return {row: weight for row, weight in total.items() if weight}


def add(*zsets: Zset) -> Zset:
    """⊎: the weights of all, added."""
    return collect(entry for zset in zsets for entry in zset.items())


def negate(zset: Zset) -> Zset:
    """Return the same rows with opposite weights."""
    return {row: -weight for row, weight in zset.items()}


def difference(left: Zset, right: Zset) -> Zset:
    """Return the change that leads from `right` to `left`."""
    return add(left, negate(right))
