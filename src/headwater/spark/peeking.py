"""Looking into the few rows of a change without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import compute, parquet

from headwater.spark.batches import EPOCH, WEIGHT
from headwater.spark.traces import Trace, TraceFile, physical


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of some rows: the sum of those above 0 and of those below."""

    came: int
    went: int


def values_of(trace: Trace, files: Iterable[TraceFile], position: int) -> frozenset[Any]:
    """Return the different values of a column in files; NULL is none."""
    found: set[Any] = set()
    for file in files:
        found.update(_read(trace, file, [physical(position)])[0].unique().to_pylist())
    return frozenset(found - {None})


def weights_of(
    trace: Trace, files: Sequence[TraceFile], position: int, span: tuple[int, int]
) -> dict[Any, Weights]:
    """Return for the values of a column what weights their rows of some epochs have."""
    if not files:
        return {}
    after, upto = span
    columns = [physical(position), WEIGHT, EPOCH]
    epoch = compute.field(EPOCH)
    rows = pa.concat_tables(_read(trace, file, columns) for file in files)
    rows = rows.filter((epoch > after) & (epoch <= upto))
    zero = pa.scalar(0, rows[WEIGHT].type)
    came = compute.max_element_wise(rows[WEIGHT], zero)
    went = compute.min_element_wise(rows[WEIGHT], zero)
    signed = pa.table({"value": rows[columns[0]], "came": came, "went": went})
    sums = signed.group_by("value").aggregate([("came", "sum"), ("went", "sum")])
    found = zip(*(sums[n].to_pylist() for n in ("value", "came_sum", "went_sum")), strict=True)
    return {value: Weights(*weights) for value, *weights in found if value is not None}


def _read(trace: Trace, file: TraceFile, columns: list[str]) -> pa.Table:
    return parquet.ParquetFile(trace.storage().open_input_file(file.name)).read(columns)
