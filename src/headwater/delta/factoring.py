"""Common factors of the terms of a change.

(A ⋈ X) ⊎ −(A ⋈ Y) = A ⋈ (X ⊎ −Y): the terms of a join share a side, which is then read and sent
once, and whatever the join itself is joined with meets one relation instead of several.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from headwater.algebra.expr import Expr
from headwater.algebra.ops import After, Join, Negate, Op, UnionAll, schema
from headwater.algebra.schema import names
from headwater.algebra.walk import rebuild
from headwater.delta.pushdown import opposite_of, with_side


@dataclass(frozen=True, slots=True)
class _Factor:
    """One side of a join, and how it is joined."""

    side: str
    op: Op
    on: tuple[Expr, ...]


def factored(plan: Op) -> Op:
    """Return the same change with common sides of joins taken out of unions."""
    known: dict[Op, Op] = {}

    def of(op: Op) -> Op:
        if op not in known:
            below = op if isinstance(op, After) else rebuild(op, of)
            known[op] = _united(below) if isinstance(below, UnionAll) else below
        return known[op]

    return of(plan)


def _united(op: UnionAll) -> Op:
    """Take out the factor that most arms have, as long as two have one."""
    arms = list(op.inputs)
    if any(names(schema(arm)) != names(op.columns) for arm in arms):
        return op
    while True:
        shared = Counter(factor for arm in arms for factor in _factors(arm))
        factor, count = next(iter(shared.most_common(1)), (None, 0))
        if factor is None or count == 1:
            break
        members = [arm for arm in arms if factor in _factors(arm)]
        arms = [_joined(members, factor), *(arm for arm in arms if arm not in members)]
    return arms[0] if len(arms) == 1 else UnionAll(tuple(arms), op.columns)


def _factors(arm: Op) -> tuple[_Factor, ...]:
    join = _unsigned(arm)
    if not isinstance(join, Join):
        return ()
    return _Factor("left", join.left, join.on), _Factor("right", join.right, join.on)


def _joined(arms: list[Op], factor: _Factor) -> Op:
    """Join the factor with the union of the other sides, signed as their arms."""
    opposite = opposite_of(factor.side)
    others: list[Op] = []
    for arm in arms:
        other = getattr(_unsigned(arm), opposite)
        others.append(Negate(other) if isinstance(arm, Negate) else other)
    first = _unsigned(arms[0])
    assert isinstance(first, Join)
    columns = schema(getattr(first, opposite))
    return with_side(first, opposite, UnionAll(tuple(others), columns))


def _unsigned(arm: Op) -> Op:
    return arm.input if isinstance(arm, Negate) else arm
