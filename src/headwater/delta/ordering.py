"""The order of joins around a change.

Inner joins commute and associate, weights and all, so their order is a matter of cost alone. An
engine that plans by indexes finds it by itself; one that reads files does what it is told.

connect             in a view: every relation is joined where a condition leads to it
gather              in a view: relations that change are joined first, so that the others meet the
                    change once, above the union of its terms
joined_from         in what several views have in common: the same
start_from_change   in a delta tree: every join begins with the change, which stays small
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.algebra.expr import Expr, column, refs
from headwater.algebra.ops import After, Delta, Join, Op, Output, Project, Scan, schema
from headwater.algebra.schema import Schema, names
from headwater.algebra.walk import children, rebuild
from headwater.delta.sharing import Sharing

_Parts = tuple[Op, Op, tuple[Expr, ...]]  # of a join: both sides and the conditions


def connect(view: Op) -> Op:
    """Return the same relation with no two relations paired that no condition joins, if it can be.

    SQL lists them in any order, and conditions apart.
    """
    return _Orderer(lambda leaf: True, _joined).ordered(view)


def gather(view: Op, changed: frozenset[int]) -> Op:
    """Return the same relation with the changed sources of each join joined first."""
    return _Orderer(lambda leaf: _reads(leaf, changed), _joined).ordered(view)


def joined_from(relations: Sequence[Op], on: tuple[Expr, ...], changed: frozenset[int]) -> Op:
    """Join relations, those that read changed sources first."""
    return chained(_sequence(relations, on, lambda leaf: _reads(leaf, changed)), on)


def start_from_change(plan: Op) -> Op:
    """Return the same change with every join begun at a change, and led on by its conditions.

    What occurs more than once stays whole, so that it can be computed once.
    """
    changing: dict[Op, bool] = {}

    def has_delta(op: Op) -> bool:
        if op not in changing:
            changing[op] = isinstance(op, Delta) or any(map(has_delta, children(op)))
        return changing[op]

    sharing = Sharing()
    sharing.count(plan)

    def parts(op: Op) -> _Parts | None:
        return None if sharing.is_shared(op) else _joined_states(op)

    return _Orderer(has_delta, parts).ordered(plan)


@dataclass(frozen=True, slots=True)
class _Tree:
    """A tree of joins, flat: what is joined, and all conditions."""

    leaves: tuple[Op, ...]
    on: tuple[Expr, ...]


def _joined(op: Op) -> _Parts | None:
    return (op.left, op.right, op.on) if isinstance(op, Join) else None


def _joined_states(op: Op) -> _Parts | None:
    """The state of a join is the join of the states."""
    if isinstance(op, After) and isinstance(op.input, Join):
        return After(op.input.left), After(op.input.right), op.input.on
    return _joined(op)


class _Orderer:
    """Orders all joins of a tree; subtrees that are equal stay one object."""

    def __init__(
        self,
        is_first: Callable[[Op], bool],
        parts: Callable[[Op], _Parts | None],
    ) -> None:
        self._is_first, self._parts = is_first, parts
        self._known: dict[Op, Op] = {}

    def ordered(self, op: Op) -> Op:
        if op not in self._known:
            self._known[op] = self._order(op)
        return self._known[op]

    def _order(self, op: Op) -> Op:
        if not isinstance(op, Join):
            return op if isinstance(op, After) else rebuild(op, self.ordered)
        tree = self._split((op.left, op.right, op.on))
        leaves = [self.ordered(leaf) for leaf in tree.leaves]
        if not any(map(self._is_first, leaves)):
            return rebuild(op, self.ordered)
        order = _sequence(leaves, tree.on, self._is_first)
        return _restored(chained(order, tree.on), schema(op))

    def _flat(self, op: Op) -> _Tree:
        parts = self._parts(op)
        return _Tree((op,), ()) if parts is None else self._split(parts)

    def _split(self, parts: _Parts) -> _Tree:
        left, right = self._flat(parts[0]), self._flat(parts[1])
        return _Tree(left.leaves + right.leaves, (*left.on, *right.on, *parts[2]))


def _sequence(
    leaves: Sequence[Op], on: tuple[Expr, ...], is_first: Callable[[Op], bool]
) -> list[Op]:
    """Begin with one of the first, then always what a condition leads to, the first before."""
    rest = sorted(leaves, key=lambda leaf: not is_first(leaf))
    found = [rest.pop(0)]
    while rest:
        known = {name for leaf in found for name in names(schema(leaf))}
        led = [leaf for leaf in rest if _leads(on, known, leaf)]
        found.append((led or rest)[0])
        rest.remove(found[-1])
    return found


def _reads(op: Op, sources: frozenset[int]) -> bool:
    if isinstance(op, Scan):
        return op.source.oid in sources
    return any(_reads(child, sources) for child in children(op))


def _leads(on: tuple[Expr, ...], known: set[str], leaf: Op) -> bool:
    """Tell whether a condition joins the leaf with what is known."""
    own = set(names(schema(leaf)))
    return any(refs(test) & own and refs(test) & known and refs(test) <= own | known for test in on)


def chained(leaves: Sequence[Op], on: tuple[Expr, ...]) -> Op:
    """Join from left to right; a condition stands where its last column comes in."""
    joined, pending = leaves[0], list(on)
    for leaf in leaves[1:]:
        known = {*names(schema(joined)), *names(schema(leaf))}
        here = tuple(test for test in pending if refs(test) <= known)
        pending = [test for test in pending if test not in here]
        joined = Join(joined, leaf, here)
    return joined


def _restored(op: Op, wanted: Schema) -> Op:
    """Put the columns back in order: branches of a union are matched by position."""
    if names(schema(op)) == names(wanted):
        return op
    return Project(op, tuple(Output(c, column(c.name)) for c in wanted))
