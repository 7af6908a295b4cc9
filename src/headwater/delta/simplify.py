"""Algebraic simplification of delta trees.

Δ(unchanged source) = ∅, and ∅ spreads:  π(∅) = ∅,  ∅ ⋈ A = ∅,  A ⊎ ∅ = A,  A ▷ ∅ = A
A⁻ = A⁺ ⊎ −ΔA, as a signed union; A⁻ = A⁺ where ΔA = ∅
joins distribute over that union, so that each term starts from a change
⋉K is pushed to the scans
"""

from __future__ import annotations

from dataclasses import replace

from headwater.algebra.expr import column
from headwater.algebra.ops import (
    After,
    Aggregate,
    AntiJoin,
    Before,
    Consolidate,
    Delta,
    Empty,
    Expand,
    Filter,
    Fixpoint,
    Join,
    Keys,
    Negate,
    OneWay,
    Op,
    Output,
    Project,
    Repeat,
    Restrict,
    Scan,
    SemiJoin,
    UnionAll,
    Window,
    schema,
)
from headwater.algebra.outside import Outside
from headwater.algebra.schema import names
from headwater.algebra.walk import rebuild
from headwater.delta.pushdown import (
    J,
    push_keys,
    restrict_filtering,
    restrict_joined,
    with_side,
)
from headwater.delta.registry import derive


def simplify(plan: Op, changed: frozenset[int] | None = None) -> Op:
    """Simplify a delta tree, given the sources that have changes (None: any may).

    Equal subtrees become one object: the tree of a deep join would otherwise double with each
    level, while the number of different subtrees grows with the depth only.
    """
    return _Simplifier(changed).simplified(plan)


class _Simplifier:
    """One simplification, with what it found out so far."""

    def __init__(self, changed: frozenset[int] | None) -> None:
        self._changed = changed
        self._known: dict[Op, Op] = {}

    def simplified(self, plan: Op) -> Op:
        if plan not in self._known:
            self._known[plan] = self._simplify(plan)
        return self._known[plan]

    def _simplify(self, plan: Op) -> Op:
        match plan:
            case Delta(Scan() as scan):
                is_empty = self._changed is not None and scan.source.oid not in self._changed
                return Empty(schema(plan)) if is_empty else plan
            case After():
                return plan
            case Before(input=op):
                return self._before(op)
        return _step(rebuild(plan, self.simplified))

    def _before(self, op: Op) -> Op:
        """A⁻ = A⁺ ⊎ −ΔA."""
        change = self.simplified(derive(op))
        if isinstance(change, Empty):
            return After(op)
        return UnionAll((After(op), Negate(change)), schema(op))


def _step(op: Op) -> Op:  # noqa: C901, PLR0911 - one case per node
    """Simplify one node whose inputs are simple already."""
    match op:
        case UnionAll():
            return _union(op)
        case Negate(input=Negate(input=inner)):
            return inner
        case Join():
            return _join(op)
        case SemiJoin() | AntiJoin():
            return _filtering_join(op)
        case Restrict():
            return _restrict(op)
        case Aggregate(input=Empty(), keys=keys) if not keys:
            return op
        case Window() | Expand() | Project() | Filter() | Repeat():
            return Empty(schema(op)) if isinstance(op.input, Empty) else op
        case Fixpoint():
            return Empty(schema(op)) if isinstance(op.base, Empty) else op
        case Outside():
            return Empty(schema(op)) if isinstance(op.input, Empty) else op
        case OneWay() | Negate() | Consolidate() | Keys() | Aggregate():
            return Empty(schema(op)) if isinstance(op.input, Empty) else op
    return op


def _union(op: UnionAll) -> Op:
    """Flatten, drop empty arms, cancel A ⊎ −A."""
    arms: list[Op] = []
    for arm in op.inputs:
        nested = isinstance(arm, UnionAll) and names(arm.columns) == names(op.columns)
        arms += arm.inputs if isinstance(arm, UnionAll) and nested else [arm]
    arms = [arm for arm in arms if not isinstance(arm, Empty)]
    for arm in list(arms):
        opposite = Negate(arm)
        if arm in arms and opposite in arms:
            arms.remove(arm)
            arms.remove(opposite)
    if not arms:
        return Empty(op.columns)
    if len(arms) == 1:
        return _renamed(arms[0], op)
    return UnionAll(tuple(arms), op.columns, op.disjoint)


def _renamed(arm: Op, union: UnionAll) -> Op:
    if names(schema(arm)) == names(union.columns):
        return arm
    pairs = zip(union.columns, schema(arm), strict=True)
    return Project(arm, tuple(Output(new, column(old.name)) for new, old in pairs))


def _arms(op: Op) -> tuple[Op, ...] | None:
    """The arms of a signed union over the same column names, else None."""
    if isinstance(op, UnionAll) and all(names(schema(a)) == names(op.columns) for a in op.inputs):
        return op.inputs
    return None


def _distributed(op: J, side: str, arms: tuple[Op, ...]) -> Op:
    """(A ⊎ −B) ⋈ C = (A ⋈ C) ⊎ −(B ⋈ C)."""
    terms: list[Op] = []
    for arm in arms:
        if isinstance(arm, Negate):
            terms.append(Negate(_step(with_side(op, side, arm.input))))
        else:
            terms.append(_step(with_side(op, side, arm)))
    return _step(UnionAll(tuple(terms), schema(op)))


def _join(op: Join) -> Op:
    if isinstance(op.left, Empty) or isinstance(op.right, Empty):
        return Empty(schema(op))
    for side in ("left", "right"):
        arms = _arms(getattr(op, side))
        if arms is not None and any(isinstance(arm, After) for arm in arms):
            return _distributed(op, side, arms)
    return restrict_joined(op)


def _filtering_join(op: SemiJoin | AntiJoin) -> Op:
    """Both are linear in the left side; nothing on the right keeps all or no rows."""
    if isinstance(op.left, Empty):
        return Empty(schema(op))
    if isinstance(op.right, Empty):
        return op.left if isinstance(op, AntiJoin) else Empty(schema(op))
    arms = _arms(op.left)
    if arms is None or not any(isinstance(arm, After) for arm in arms):
        return restrict_filtering(op)
    return _distributed(op, "left", arms)


def _restrict(op: Restrict) -> Op:
    """A change needs no restriction to its own keys; a state is restricted at its scans."""
    if isinstance(op.keys, Empty) or isinstance(op.input, Empty):
        return Empty(schema(op))
    if isinstance(op.keys, Keys) and op.keys.input == op.input and op.keys.columns == op.columns:
        return op.input
    match op.input:
        case UnionAll():
            arms = _arms(op.input)
            if arms is not None:
                return _step(
                    replace(op.input, inputs=tuple(_restrict(replace(op, input=a)) for a in arms))
                )
        case Negate(input=inner):
            return Negate(_restrict(replace(op, input=inner)))
        case After(input=state):
            return After(push_keys(state, op.columns, op.keys))
    return op
