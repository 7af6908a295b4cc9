"""Unique keys of an operator's result, derived from those that the server enforces.

A key may contain NULLs (the padded side of an outer join): uniqueness is meant with NULL equal
to NULL, as in a UNIQUE NULLS NOT DISTINCT index.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from headwater.algebra.expr import Expr, as_column, matching
from headwater.algebra.ops import (
    Aggregate,
    AntiJoin,
    Expand,
    Filter,
    Join,
    Loop,
    Op,
    Project,
    Scan,
    SemiJoin,
    Single,
    Timed,
    UnionAll,
    Whole,
    Window,
    schema,
)
from headwater.algebra.schema import FIXED_SIZE, compare_alike, names

Key = frozenset[str]
_ENOUGH = 8  # keys kept per operator: a wide join of tables with many keys has a product of them


def unique_keys(op: Op) -> tuple[Key, ...]:  # noqa: C901, PLR0911 - one line per node
    """Return column sets that are unique in the result, shortest first; none if it is a bag."""
    match op:
        case Scan():
            of = dict(zip(op.attributes, names(op.columns), strict=True))
            wanted = [k for k in op.source.keys if set(k) <= set(of)]
            return _best(frozenset(of[a] for a in key) for key in wanted)
        case Single():
            return (frozenset(),)
        case Filter() | Timed() | Window():
            return unique_keys(op.input)
        case Expand(numbered=True):
            return _best(key | {op.columns[-1].name} for key in unique_keys(op.input))
        case SemiJoin() | AntiJoin():
            return unique_keys(op.left)
        case Aggregate():
            return (frozenset(op.keys),)
        case Project():
            return _projected(op)
        case Join():
            return _joined(op)
        case Whole(loop=Loop()) if all(c.type.name in FIXED_SIZE for c in op.columns):
            return (frozenset(names(op.columns)),)  # a set, whose rows fit into an index
        case UnionAll(disjoint=key) if key:
            return (frozenset(key),)
    return ()


def choose_key(op: Op) -> tuple[str, ...] | None:
    """Return the key to index the result by, in column order, or None if the result is a bag."""
    keys = unique_keys(op)
    if not keys:
        return None
    return tuple(name for name in names(schema(op)) if name in keys[0])


def _best(keys: Iterable[Key]) -> tuple[Key, ...]:
    found = sorted(set(keys), key=lambda k: (len(k), sorted(k)))
    minimal = [k for k in found if not any(other < k for other in found)]
    return tuple(minimal[:_ENOUGH])


def _projected(op: Project) -> tuple[Key, ...]:
    kept: dict[str, str] = {}
    for output in op.outputs:
        source = as_column(output.expr)
        if source is not None:
            kept.setdefault(source, output.column.name)
    keys = [k for k in unique_keys(op.input) if k <= kept.keys()]
    return _best(frozenset(kept[name] for name in key) for key in keys)


def _joined(op: Join) -> tuple[Key, ...]:
    """A side that is joined by one of its keys adds no rows, so the other side's keys stand."""
    left, right = unique_keys(op.left), unique_keys(op.right)
    found: set[Key] = {a | b for a, b in product(left, right)}
    if any(key <= _equated(op.on, op.right, op.left) for key in right):
        found |= set(left)
    if any(key <= _equated(op.on, op.left, op.right) for key in left):
        found |= set(right)
    return _best(found)


def _equated(on: tuple[Expr, ...], side: Op, other: Op) -> Key:
    """Columns of `side` that the condition sets equal to a column of the other side.

    Only if both are compared alike: one timestamp with time zone equals two local timestamps in the
    hour in which clocks go forward, so a key of those is no key of the join.
    """
    own = set(names(schema(side)))
    of = {c.name: c for c in (*schema(side), *schema(other))}
    pairs = (pair for pair in map(matching, on) if pair is not None)
    across = [(a, b) for a, b in pairs if (a in own) != (b in own)]
    alike = [(a, b) for a, b in across if compare_alike(of[a].type, of[b].type)]
    return frozenset(a if a in own else b for a, b in alike)
