"""A value times the weight of its row, which is what Spark sums."""

from __future__ import annotations

from headwater.postgres.quote import WEIGHT
from headwater.spark.values import number_shape
from headwater.spark.wire import MAX_PRECISION, Wire, decimal_wire

_WEIGHT_DIGITS = 10  # of an INT


def weighted(value: str, wire: Wire, total: Wire) -> str:
    """Return a number times the weight of its row, for a sum of that form.

    A product of decimals has a type of its own, with as few digits as hold it: those that fit into
    a long are added many times faster than those of 38 digits. Where 38 are too few, it raises.
    Spark's own minus is not used: it keeps 34 digits and rounds the rest away without a word.
    """
    if total.kind != "decimal":
        return f"CAST({value} AS {total.spark}) * {WEIGHT}"
    precision, scale = number_shape(wire)
    product = decimal_wire(min(precision + _WEIGHT_DIGITS, MAX_PRECISION), scale).spark
    own = f"CAST({value} AS {decimal_wire(precision, scale).spark})"
    times = f"CAST({own} * CAST({WEIGHT} AS DECIMAL({_WEIGHT_DIGITS},0)) AS {product})"
    return f"CASE WHEN {WEIGHT} = 1 THEN CAST({value} AS {product}) ELSE {times} END"
