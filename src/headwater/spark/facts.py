"""What is known of the rows before a statement runs: how many there are, and which keys changed.

Spark knows the bytes of files and nothing of keys. It would sort both sides of a join with a
change, and read all of a large file for a handful of keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from headwater.algebra.expr import as_column, equality, matching
from headwater.algebra.ops import (
    After,
    Aggregate,
    AntiJoin,
    Consolidate,
    Delta,
    Expand,
    Filter,
    Join,
    Keys,
    Negate,
    Op,
    Picked,
    Project,
    Repeat,
    Restrict,
    Scan,
    SemiJoin,
    UnionAll,
    schema,
)
from headwater.algebra.schema import names
from headwater.delta.pushdown import opposite_of


class Facts(Protocol):
    """What a renderer may ask about the traces that it reads."""

    def rows(self, scan: Scan, is_delta: bool) -> int:
        """Return how many rows a scan has: of its changes, or of its state."""

    def keys(self, scan: Scan, name: str) -> frozenset[str] | None:
        """Return the values of a column among the changes, as Spark SQL; None if they are many."""

    def listed(self, scan: Scan, name: str, values: tuple[str, ...]) -> frozenset[str]:
        """Return values of a column, given as text, as Spark SQL."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A column of a state, with the only values that match: Spark SQL, and NULL if `null`."""

    name: str
    values: frozenset[str]
    null: bool = False


def wanted(op: Join, side: str, facts: Facts) -> Iterator[Wanted]:
    """Yield what is wanted of a state that is joined with a change.

    By `=` NULL matches nothing; by IS NOT DISTINCT FROM it may match.
    """
    state, other = getattr(op, side), getattr(op, opposite_of(side))
    if not _has_state(state):
        return
    own = set(names(schema(state)))
    pairs = [(pair, equality(c) is None) for c in op.on if (pair := matching(c)) is not None]
    for pair, null in pairs:
        ours, theirs = pair if pair[0] in own else pair[::-1]
        if ours in own and theirs not in own:
            values = _values(other, theirs, facts)
            if values is not None:
                yield Wanted(ours, values, null)


def _has_state(op: Op) -> bool:
    return isinstance(op, After) or (isinstance(op, UnionAll) and any(map(_has_state, op.inputs)))


def _values(op: Op, name: str, facts: Facts) -> frozenset[str] | None:  # noqa: C901, PLR0911
    """Return all values that a column can have, if it comes from changes alone."""
    match op:
        case Delta(input=Scan() as scan):
            return facts.keys(scan, name)
        case Picked(input=Delta(input=Scan() as scan), arrived=False) if op.column == name:
            return facts.listed(scan, name, op.values)
        case Filter() | Repeat() | Negate() | Consolidate() | Restrict() | Picked():
            return _values(op.input, name, facts)
        case Keys():
            return _values(op.input, name, facts)
        case Aggregate() if name in op.keys:
            return _values(op.input, name, facts)
        case Expand() if name in names(schema(op.input)):
            return _values(op.input, name, facts)
        case SemiJoin() | AntiJoin():
            return _values(op.left, name, facts)
        case Join():
            side = op.left if name in names(schema(op.left)) else op.right
            return _values(side, name, facts)
        case Project():
            source = next(as_column(o.expr) for o in op.outputs if o.column.name == name)
            return None if source is None else _values(op.input, source, facts)
        case UnionAll():
            return _united(op, name, facts)
    return None


def _united(op: UnionAll, name: str, facts: Facts) -> frozenset[str] | None:
    at, found = names(op.columns).index(name), frozenset[str]()
    for arm in op.inputs:
        values = _values(arm, names(schema(arm))[at], facts)
        if values is None:
            return None
        found |= values
    return found
