"""Recursions whose change can be told from their parts: which are such, and all others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headwater.algebra.calls import Kind
from headwater.algebra.expr import as_column, matching
from headwater.algebra.ops import (
    Aggregate,
    AntiJoin,
    Expand,
    Filter,
    Itself,
    Join,
    Loop,
    Op,
    Project,
    Scan,
    SemiJoin,
    Single,
    UnionAll,
    Whole,
    schema,
)
from headwater.algebra.schema import Schema
from headwater.algebra.walk import bottom_up, children, walk

_ROWWISE = (Scan, Single, Itself, Project, Filter, Expand, UnionAll, Join, SemiJoin, AntiJoin)


def is_followed(loop: Loop, columns: Schema) -> bool:
    """Tell whether the parts of a recursion say all of it, and its step is linear in itself.

    Rows must be told apart by equality alone, and nothing may be left to choose: of equal values
    that look different, or of rows that sort alike, the server would keep any.
    """
    parts = (schema(loop.base), schema(loop.step), loop.itself.columns)
    exact = all(c.type.is_image and c.type.equality == "=" for c in columns)
    alike = all([c.type for c in part] == [c.type for c in columns] for part in parts)
    sure = all(map(_is_sure, (*walk(loop.base), *walk(loop.step))))
    return exact and alike and sure and _is_linear(loop)


def _is_sure(op: Op) -> bool:
    if isinstance(op, Aggregate):
        return all(call.kind is not Kind.OPAQUE for call in op.calls)
    return isinstance(op, _ROWWISE)


def _is_linear(loop: Loop) -> bool:
    """The step reads the recursion once, by operators that treat each of its rows for itself."""
    reads = [sum(op == loop.itself for op in walk(part)) for part in (loop.base, loop.step)]
    return reads == [0, 1] and _reaches(loop.step, loop.itself)


def _reaches(op: Op, itself: Itself) -> bool:
    match op:
        case Itself():
            return True
        case Project() | Filter() | Expand():
            return _reaches(op.input, itself)
        case Join() | UnionAll():
            return all(_reaches(c, itself) for c in children(op) if itself in walk(c))
        case SemiJoin() | AntiJoin():
            return itself not in walk(op.right) and _reaches(op.left, itself)
    return False


def cannot_fail(loop: Loop) -> bool:
    """Tell whether a step over any rows, also of different states, raises no error.

    It does none if it passes columns on and compares them, and computes nothing.
    """
    return all(map(_is_harmless, (*walk(loop.base), *walk(loop.step))))


def _is_harmless(op: Op) -> bool:
    match op:
        case Scan() | Single() | Itself() | UnionAll():
            return True
        case Project():
            return all(as_column(output.expr) is not None for output in op.outputs)
        case Filter():
            return all(matching(conjunct) is not None for conjunct in op.conjuncts)
        case Join() | SemiJoin() | AntiJoin():
            return all(matching(conjunct) is not None for conjunct in op.on)
    return False


def loops_of(view: Op) -> tuple[Loop, ...]:
    """Return the parts of each recursion in a view."""
    found = (op.loop for op in walk(view) if isinstance(op, Whole))
    return tuple(loop for loop in found if loop is not None)


def with_loops(view: Op, change: Callable[[Op], Op]) -> Op:
    """Change the parts of each recursion in a view."""

    def changed(op: Op) -> Op:
        if not isinstance(op, Whole) or op.loop is None:
            return op
        base, step = change(op.loop.base), change(op.loop.step)
        return replace(op, loop=replace(op.loop, base=base, step=step))

    return bottom_up(view, changed)


def without_loops(view: Op) -> Op:
    """Forget the parts: every recursion is computed as a whole."""
    return bottom_up(view, lambda op: replace(op, loop=None) if isinstance(op, Whole) else op)
