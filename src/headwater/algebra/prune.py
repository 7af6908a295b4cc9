"""Dropping columns that nothing above reads, so that scans hold only the columns used."""

from __future__ import annotations

from dataclasses import replace

from headwater.algebra.expr import column, refs
from headwater.algebra.ops import (
    Aggregate,
    AntiJoin,
    Expand,
    Filter,
    Itself,
    Join,
    Op,
    Output,
    Project,
    Repeat,
    Scan,
    SemiJoin,
    Single,
    Timed,
    UnionAll,
    Whole,
    Window,
    schema,
)
from headwater.algebra.schema import names
from headwater.errors import bug


def prune(op: Op, needed: frozenset[str] | None = None) -> Op:  # noqa: C901, PLR0911
    """Return a view tree that produces at least the needed columns, by default all of its own.

    Rows and weights stay as they are; a scan may end with no column at all, as under count(*).
    """
    if needed is None:
        needed = frozenset(names(schema(op)))
    match op:
        case Scan():
            pairs = zip(op.columns, op.attributes, strict=True)
            kept = [(c, a) for c, a in pairs if c.name in needed]
            return Scan(op.source, tuple(c for c, _ in kept), tuple(a for _, a in kept))
        case Single() | Whole() | Itself():
            return op
        case Project():
            outputs = tuple(o for o in op.outputs if o.column.name in needed)
            return Project(prune(op.input, refs(*(o.expr for o in outputs))), outputs)
        case Filter():
            return replace(op, input=prune(op.input, needed | refs(*op.conjuncts)))
        case Timed():
            wanted = needed | refs(*op.conjuncts, *op.past)
            return replace(op, input=prune(op.input, wanted))
        case Repeat():
            return replace(op, input=prune(op.input, needed | refs(op.times)))
        case Join() | SemiJoin() | AntiJoin():
            wanted = needed | refs(*op.on)
            left = prune(op.left, wanted & set(names(schema(op.left))))
            right = prune(op.right, wanted & set(names(schema(op.right))))
            return replace(op, left=left, right=right)
        case Aggregate():
            calls = tuple(c for c in op.calls if c.column.name in needed)
            wanted = refs(*(c.expr for c in calls)) | set(op.keys)
            return replace(op, input=prune(op.input, wanted), calls=calls)
        case Window():
            return _window(op, needed)
        case Expand():
            wanted = needed & set(names(schema(op.input))) | refs(*op.functions)
            return replace(op, input=prune(op.input, wanted))
        case UnionAll():
            return _union(op, needed)
    raise bug(f"{type(op).__name__} cannot be pruned", "it is no node of a view tree")


def _window(op: Window, needed: frozenset[str]) -> Op:
    calls = tuple(c for c in op.calls if c.column.name in needed)
    below = needed & set(names(schema(op.input)))
    if not calls:
        return prune(op.input, below)
    wanted = below | set(op.keys) | refs(*op.order, *(c.expr for c in calls))
    return replace(op, input=prune(op.input, wanted), calls=calls)


def _union(op: UnionAll, needed: frozenset[str]) -> UnionAll:
    """Keep a column in all inputs or in none, by position."""
    needed = needed | set(op.disjoint)
    kept = [i for i, c in enumerate(op.columns) if c.name in needed]
    inputs = []
    for arm in op.inputs:
        wanted = [names(schema(arm))[i] for i in kept]
        inputs.append(_exactly(prune(arm, frozenset(wanted)), wanted))
    return UnionAll(tuple(inputs), tuple(op.columns[i] for i in kept), op.disjoint)


def _exactly(op: Op, wanted: list[str]) -> Op:
    """Narrow an input that still produces more, since inputs are matched by position."""
    if list(names(schema(op))) == wanted:
        return op
    of = {c.name: c for c in schema(op)}
    return Project(op, tuple(Output(of[name], column(name)) for name in wanted))
