"""Counts of NaN that are 0 on Spark, since no NaN passes the ingest into a decimal.

A sum of numeric is NaN if it met one, so the query counts them apart:

    CASE WHEN nans > 0 THEN 'NaN'::numeric ELSE sum END

Spark has no such constant. Where what is counted are decimals of a trace, or are made of these, the
count is 0 and the branch is never taken.
"""

from __future__ import annotations

from headwater.algebra.calls import Kind
from headwater.algebra.expr import Expr, as_column, refs, substitute, text
from headwater.algebra.ops import (
    Aggregate,
    AntiJoin,
    Expand,
    Filter,
    Join,
    Op,
    Project,
    Repeat,
    SemiJoin,
    Window,
)
from headwater.spark.values import is_no_decimal
from headwater.spark.wires import expression_fault, wires
from headwater.sql.expression import parse
from headwater.sql.nodes import Case, Literal, Operator

_ONE, _ZERO = Literal("1", "integer"), Literal("0", "integer")


def without_nans(expr: Expr, *below: Op) -> Expr:
    """Return an expression over these relations with 0 for counts of NaN that can be nothing else.

    `translate` leaves out the branch of a CASE that this makes impossible.
    """
    counts = frozenset[str]().union(*map(_zeros, below)) & refs(expr)
    return substitute(expr, dict.fromkeys(counts, text("0"))) if counts else expr


def _zeros(op: Op) -> frozenset[str]:
    """Return columns that are 0 in every row."""
    match op:
        case Project():
            below = _zeros(op.input)
            found = (
                o.column.name
                for o in op.outputs
                if as_column(o.expr) in below or _is_test(o.expr, op.input)
            )
            return frozenset(found)
        case Aggregate():
            below = _zeros(op.input)
            sums = (call for call in op.calls if call.kind is Kind.SUM)
            return frozenset(call.column.name for call in sums if as_column(call.expr) in below)
        case Filter() | Repeat() | Window() | Expand():
            return _zeros(op.input)
        case Join():
            return _zeros(op.left) | _zeros(op.right)
        case SemiJoin() | AntiJoin():
            return _zeros(op.left)
    return frozenset()


def _is_test(expr: Expr, below: Op) -> bool:
    """Tell whether an expression is 1 for NaN and 0 for the rest, of a value that has no NaN."""
    node = parse(expr)
    match node:
        case Case(((Operator("=", (_, other)), then),), otherwise):
            is_test = is_no_decimal(other) and (then, otherwise) == (_ONE, _ZERO)
            return is_test and expression_fault(expr, wires(below)) is None
    return False
