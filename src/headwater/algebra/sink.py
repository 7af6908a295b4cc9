"""Conditions moved down to where their columns come from.

PostgreSQL's planner does this by itself. An engine that keeps parts of a tree apart cannot, and
would join everything before it looks at a condition. SQL promises no order among conditions.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.algebra.expr import Expr, refs
from headwater.algebra.ops import AntiJoin, Filter, Join, Op, SemiJoin, schema
from headwater.algebra.schema import names
from headwater.algebra.walk import rebuild


def sink(op: Op) -> Op:
    """Return the same relation with every condition as far down the joins as its columns reach."""
    op = rebuild(op, sink)
    match op:
        case Filter():
            return _sunk(op)
        case Join():
            return _spread(op)
    return op


def _sunk(op: Filter) -> Op:
    """σ(A ⋈ B): a condition on one side moves there, one on both joins them."""
    below, left = op.input, []
    for conjunct in op.conjuncts:
        moved = _into(below, conjunct)
        if moved is None:
            left.append(conjunct)
        else:
            below = moved
    return Filter(below, tuple(left)) if left else below


def _spread(op: Join) -> Op:
    """A condition of a join that looks at one side only is a filter of that side."""
    joined: Op = replace(op, on=())
    for conjunct in op.on:
        joined = _into(joined, conjunct) or joined
    return joined


def _into(op: Op, conjunct: Expr) -> Op | None:
    """Return the operator with the condition inside it; None if it has no place for it."""
    match op:
        case Filter():
            below = _into(op.input, conjunct)
            return Filter(below, op.conjuncts) if below else _filtered(op, conjunct)
        case Join():
            for side in ("left", "right"):
                if refs(conjunct) <= set(names(schema(getattr(op, side)))):
                    sunk = _onto(getattr(op, side), conjunct)
                    return replace(op, **{side: sunk})  # type: ignore[arg-type]
            return replace(op, on=(*op.on, conjunct))
        case SemiJoin() | AntiJoin():
            return replace(op, left=_onto(op.left, conjunct))
    return None


def _onto(op: Op, conjunct: Expr) -> Op:
    return _into(op, conjunct) or Filter(op, (conjunct,))


def _filtered(op: Filter, conjunct: Expr) -> Op:
    return replace(op, conjuncts=(*op.conjuncts, conjunct))
