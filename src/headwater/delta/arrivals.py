"""States that need not be read, since what a change finds there came with the change.

Let L⁺ be joined with ΔO by a column, and let k be a value of it.
If ΔO has k only with weights above 0, and L⁻ has no row with k, then L⁺ has of k what ΔL brought.
If ΔO has k only with weights below 0, and L⁺ has no row with k, then there is nothing to find.
So, with the values for which neither is known as the rest,

    L⁺ ⋈ ΔO  =  (ΔL ⋈ what arrived in ΔO)  ⊎  (L⁺ ⋈ the rest of ΔO)

A foreign key from L to O promises both for every key that comes or goes. The promise is not relied
on: foreign keys are not checked for a session of the replica role, nor for a subscription. Whoever
calls this has looked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from headwater.algebra.expr import as_column, equality
from headwater.algebra.ops import (
    After,
    Delta,
    Filter,
    Join,
    Negate,
    Op,
    Picked,
    Project,
    Repeat,
    Scan,
    UnionAll,
    schema,
)
from headwater.algebra.schema import names
from headwater.algebra.walk import distinct, rebuild
from headwater.delta.pushdown import opposite_of, with_side
from headwater.delta.registry import derive
from headwater.delta.simplify import simplify


@dataclass(frozen=True, slots=True)
class Meeting:
    """A column of a state that a join compares with a column of a change."""

    state: Scan
    state_column: str
    change: Scan
    change_column: str


def meetings(plan: Op) -> tuple[Meeting, ...]:
    """Return where the change meets a state by a column, each once."""
    return tuple(dict.fromkeys(found.meeting for op in distinct(plan) for found in _found(op)))


def skip_states(plan: Op, rests: Mapping[Meeting, tuple[str, ...]], changed: frozenset[int]) -> Op:
    """Return the same change, with states read only for the rest of the values of a meeting.

    `rests` has the meetings of which a rest is known.
    """
    known: dict[Op, Op] = {}

    def skipped(op: Op) -> Op:
        if op not in known:
            known[op] = op if isinstance(op, After) else split(rebuild(op, skipped))
        return known[op]

    def split(op: Op) -> Op:
        found = next((f for f in _found(op) if f.meeting in rests), None)
        return op if found is None else found.split(rests[found.meeting], changed)

    return simplify(skipped(plan), changed)


@dataclass(frozen=True, slots=True)
class _Found:
    """A join with a meeting: which side is the state, and the name of the change's column there."""

    join: Join
    side: str
    name: str
    meeting: Meeting

    def split(self, rest: tuple[str, ...], changed: frozenset[int]) -> Op:
        """Return the two terms of the join."""
        state = getattr(self.join, self.side)
        other = getattr(self.join, opposite_of(self.side))
        column = self.meeting.change_column

        def of(picked: bool) -> Op:
            def pick(origin: Op, _: str) -> Op:
                return Picked(origin, column, rest, arrived=not picked)

            return _follow(other, self.name, pick)

        opposite = opposite_of(self.side)
        came = with_side(with_side(self.join, self.side, derive(state.input)), opposite, of(False))
        terms: list[Op] = [simplify(came, changed)]
        if rest:
            terms.append(with_side(self.join, opposite, of(True)))
        return UnionAll(tuple(terms), schema(self.join))


def _found(op: Op) -> Iterator[_Found]:
    """Yield the meetings of a join of a state with a change."""
    if not isinstance(op, Join):
        return
    for side in ("left", "right"):
        state = getattr(op, side)
        if isinstance(state, After):
            yield from _met(op, side, state)


def _met(op: Join, side: str, state: After) -> Iterator[_Found]:
    own, other = set(names(schema(state))), getattr(op, opposite_of(side))
    for pair in filter(None, map(equality, op.on)):
        ours, theirs = pair if pair[0] in own else pair[::-1]
        if ours not in own or theirs in own:
            continue
        left, right = _origin(state.input, ours), _origin(other, theirs)
        match left, right:
            case (Scan() as scan, column), (Delta(input=Scan() as source), compared):
                yield _Found(op, side, theirs, Meeting(scan, column, source, compared))


def _origin(op: Op, name: str) -> tuple[Op, str] | None:
    """Return the scan, or its change, that a column is taken from as it is."""
    found: list[tuple[Op, str]] = []

    def note(origin: Op, column: str) -> Op:
        found.append((origin, column))
        return origin

    _follow(op, name, note)
    return found[0] if found else None


def _follow(op: Op, name: str, change: Callable[[Op, str], Op]) -> Op:
    """Go down to where a column comes from, through operators that are linear in it."""
    match op:
        case Scan() | Delta(input=Scan()):
            return change(op, name)
        case Filter() | Repeat() | Negate() | Picked():
            return replace(op, input=_follow(op.input, name, change))
        case Project():
            source = next(as_column(o.expr) for o in op.outputs if o.column.name == name)
            if source is None:
                return op
            return replace(op, input=_follow(op.input, source, change))
        case Join():
            side = "left" if name in names(schema(op.left)) else "right"
            return with_side(op, side, _follow(getattr(op, side), name, change))
    return op
