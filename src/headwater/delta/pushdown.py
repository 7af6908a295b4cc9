"""Pushing keys towards the scans, where indexes or sorted files serve them.

(A ⋉ K) moves through every operator that keeps the key's columns: what it leaves out would only
have made rows that are left out later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from headwater.algebra.expr import as_column, matching
from headwater.algebra.ops import (
    After,
    Aggregate,
    AntiJoin,
    Delta,
    Expand,
    Filter,
    Join,
    Keys,
    Op,
    Project,
    Repeat,
    Restrict,
    SemiJoin,
    Timed,
    UnionAll,
    Whole,
    Window,
    schema,
)
from headwater.algebra.schema import Column, names
from headwater.algebra.walk import walk

_KEYED = (Aggregate, SemiJoin, AntiJoin, UnionAll, Window, Expand, Whole)
J = TypeVar("J", bound=Join | SemiJoin | AntiJoin)


def push_keys(op: Op, columns: tuple[str, ...], keys: Op) -> Op:  # noqa: C901, PLR0911
    """Return `op` ⋉ `keys` on `columns`, restricted as far down as the columns reach."""
    match op:
        case Project():
            source = {o.column.name: as_column(o.expr) for o in op.outputs}
            below = tuple(source[c] for c in columns)
            known = tuple(b for b in below if b is not None)
            if len(known) == len(columns):
                return replace(op, input=push_keys(op.input, known, keys))
        case Filter() | Timed() | Repeat():
            return replace(op, input=push_keys(op.input, columns, keys))
        case UnionAll():
            return replace(op, inputs=tuple(_arm(op, arm, columns, keys) for arm in op.inputs))
        case Aggregate() | Window() if columns and set(columns) <= set(op.keys):
            return replace(op, input=push_keys(op.input, columns, keys))
        case Expand() if set(columns) <= set(names(schema(op.input))):
            return replace(op, input=push_keys(op.input, columns, keys))
        case SemiJoin() | AntiJoin() if columns:
            return replace(op, left=push_keys(op.left, columns, keys))
        case Join() if columns:
            return _joined(op, columns, keys)
    return Restrict(op, columns, keys)


def _arm(union: UnionAll, arm: Op, columns: tuple[str, ...], keys: Op) -> Op:
    position = {name: i for i, name in enumerate(names(union.columns))}
    own = names(schema(arm))
    return push_keys(arm, tuple(own[position[c]] for c in columns), keys)


def _joined(op: Join, columns: tuple[str, ...], keys: Op) -> Op:
    """Push into the side that owns all the columns, and across the join's equalities."""
    partner = _partners(op)
    pushed = op
    for side in ("left", "right"):
        own = set(names(schema(getattr(op, side))))
        reach = tuple(c if c in own else partner.get(c) for c in columns)
        known = tuple(c for c in reach if c in own and c is not None)
        direct = set(columns) <= own
        if len(known) == len(columns) and (direct or _is_keyed(getattr(op, side))):
            pushed = with_side(pushed, side, push_keys(getattr(op, side), known, keys))
    return Restrict(op, columns, keys) if pushed is op else pushed


def opposite_of(side: str) -> str:
    """Return the other side of a join."""
    return "left" if side == "right" else "right"


def with_side(op: J, side: str, new: Op) -> J:
    """Return a join with one side replaced."""
    return replace(op, left=new) if side == "left" else replace(op, right=new)


def _partners(op: Join) -> dict[str, str]:
    of = {c.name: c for c in schema(op)}
    found: dict[str, str] = {}
    for a, b in filter(None, map(matching, op.on)):
        if _same_equality(of[a], of[b]):
            found[a], found[b] = b, a
    return found


def _same_equality(a: Column, b: Column) -> bool:
    """Only values of one type are sure to be compared alike by the join and by the key set."""
    return a.type == b.type and a.type.equality == "="


def restrict_joined(op: Join) -> Op:
    """In ΔA ⋈ B⁺ evaluate B⁺ only for the join keys of ΔA, where B is not just scans and joins.

    A plain join needs no help: the engine starts from the change and looks up the rest.
    """
    for side, other in (("left", "right"), ("right", "left")):
        state, change = getattr(op, side), getattr(op, other)
        if isinstance(state, After) and _is_keyed(state.input) and _has_delta(change):
            columns, matching = _equated(op, state, change)
            if columns:
                keys = Keys(change, matching)
                return with_side(op, side, After(push_keys(state.input, columns, keys)))
    return op


def restrict_filtering(op: J) -> J:
    """In ΔA ⋉ B⁺ and ΔA ▷ B⁺ likewise; of B⁻ = B⁺ ⊎ −ΔB it is B⁺ that is restricted.

    In A⁺ ⋉ ΔB it is A⁺, plain or not: the engine would not start a semi-join at its right side.
    """
    if isinstance(op, SemiJoin) and isinstance(op.left, After) and _has_delta(op.right):
        return replace(op, left=_looked_up(op, op.left))
    if not _has_delta(op.left):
        return op
    if not isinstance(op.right, UnionAll):
        return replace(op, right=_restricted(op, op.right))
    arms = op.right.inputs
    if any(names(schema(arm)) != names(op.right.columns) for arm in arms):
        return op
    inputs = tuple(_restricted(op, arm) for arm in arms)
    return replace(op, right=replace(op.right, inputs=inputs))


def _looked_up(op: SemiJoin, state: After) -> Op:
    columns, matching = _equated(op, state, op.right)
    if not columns or _has_delta(state):
        return state
    return After(push_keys(state.input, columns, Keys(op.right, matching)))


def _restricted(op: J, state: Op) -> Op:
    """Rows of other keys match nothing on the left; NULL counts as equal, which keeps more."""
    if not isinstance(state, After) or not _is_keyed(state.input) or _has_delta(state):
        return state
    columns, matching = _equated(op, state, op.left)
    if not columns:
        return state
    return After(push_keys(state.input, columns, Keys(op.left, matching)))


def _equated(
    op: Join | SemiJoin | AntiJoin, state: Op, change: Op
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    of = {c.name: c for c in (*schema(state), *schema(change))}
    own = set(names(schema(state)))
    pairs = [p for p in filter(None, map(matching, op.on)) if _same_equality(of[p[0]], of[p[1]])]
    across = [p for p in pairs if (p[0] in own) != (p[1] in own)]
    ordered = [p if p[0] in own else (p[1], p[0]) for p in across]
    others = dict.fromkeys(theirs for _, theirs in ordered)  # a key set names a column once
    first = {theirs: ours for ours, theirs in reversed(ordered)}
    return tuple(first[theirs] for theirs in others), tuple(others)


def _is_keyed(op: Op) -> bool:
    return any(isinstance(node, _KEYED) for node in walk(op))


def _has_delta(op: Op) -> bool:
    return any(isinstance(node, Delta) for node in walk(op))
