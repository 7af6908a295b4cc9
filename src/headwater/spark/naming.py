"""A tree in which a name means one column: the user's names for the result may mean others below,
where a source has a column of that name and another type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headwater.algebra.expr import Expr, column, substitute
from headwater.algebra.ops import (
    Aggregate,
    AntiJoin,
    Expand,
    Filter,
    Join,
    Op,
    Output,
    Project,
    Repeat,
    Scan,
    SemiJoin,
    Single,
    UnionAll,
    Window,
    schema,
)
from headwater.algebra.schema import Column
from headwater.algebra.walk import walk
from headwater.errors import bug
from headwater.spark.wires import wires

Names = dict[str, str]  # new names by old ones


def unambiguous(boundary: Op) -> Op:
    """Return the same relation, in which no two columns of one name have different forms."""
    if not _is_ambiguous(boundary):
        return boundary
    inner, names = _Namer().renamed(boundary)
    outputs = (Output(c, column(names[c.name])) for c in schema(boundary))
    return Project(inner, tuple(outputs))


def _is_ambiguous(boundary: Op) -> bool:
    found: dict[str, object] = {}
    for op in dict.fromkeys(walk(boundary)):
        for name, wire in wires(op).items():
            if found.setdefault(name, wire) != wire:
                return True
    return False


class _Namer:
    """Gives every column a name of its own where it is made; equal subtrees stay equal."""

    def __init__(self) -> None:
        self._done: dict[Op, tuple[Op, Names]] = {}
        self._number = 0

    def renamed(self, op: Op) -> tuple[Op, Names]:
        """Return the tree under new names, and those of its columns."""
        if op not in self._done:
            self._done[op] = self._made(op)
        return self._done[op]

    def _made(self, op: Op) -> tuple[Op, Names]:  # noqa: C901, PLR0911 - one case per node
        match op:
            case Scan():
                columns, names = self._fresh(op.columns)
                return replace(op, columns=columns), names
            case Single():
                return op, {}
            case Project():
                return self._project(op)
            case Filter():
                below, names = self.renamed(op.input)
                return Filter(below, _over(op.conjuncts, names)), names
            case Repeat():
                below, names = self.renamed(op.input)
                return Repeat(below, *_over([op.times], names)), names
            case Join() | SemiJoin() | AntiJoin():
                return self._join(op)
            case UnionAll():
                columns, names = self._fresh(op.columns)
                arms = tuple(self.renamed(arm)[0] for arm in op.inputs)
                return UnionAll(arms, columns, tuple(names[n] for n in op.disjoint)), names
            case Aggregate():
                return self._aggregate(op)
            case Window():
                return self._window(op)
            case Expand():
                below, names = self.renamed(op.input)
                columns, made = self._fresh(op.columns)
                return Expand(below, _over(op.functions, names), columns, op.numbered), names | made
        raise bug(f"{type(op).__name__} in a boundary", "only view trees are placed")

    def _project(self, op: Project) -> tuple[Op, Names]:
        below, inner = self.renamed(op.input)
        columns, names = self._fresh(o.column for o in op.outputs)
        exprs = _over((o.expr for o in op.outputs), inner)
        return Project(below, tuple(map(Output, columns, exprs))), names

    def _join(self, op: Join | SemiJoin | AntiJoin) -> tuple[Op, Names]:
        left, names = self.renamed(op.left)
        right, others = self.renamed(op.right)
        both = {**names, **others}
        made = replace(op, left=left, right=right, on=_over(op.on, both))
        return made, both if isinstance(op, Join) else names

    def _aggregate(self, op: Aggregate) -> tuple[Op, Names]:
        below, inner = self.renamed(op.input)
        (count, *columns), names = self._fresh([op.count, *(c.column for c in op.calls)])
        exprs = _over((c.expr for c in op.calls), inner)
        calls = tuple(
            replace(call, column=made, expr=expr)
            for call, made, expr in zip(op.calls, columns, exprs, strict=True)
        )
        keys = {key: inner[key] for key in op.keys}
        return Aggregate(below, tuple(keys.values()), count, calls), keys | names

    def _window(self, op: Window) -> tuple[Op, Names]:
        below, inner = self.renamed(op.input)
        columns, names = self._fresh(c.column for c in op.calls)
        exprs = _over((c.expr for c in op.calls), inner)
        keys = tuple(inner[key] for key in op.keys)
        calls = tuple(map(Output, columns, exprs))
        return Window(below, keys, _over(op.order, inner), calls), inner | names

    def _fresh(self, columns: Iterable[Column]) -> tuple[tuple[Column, ...], Names]:
        self._number += 1
        old = tuple(columns)
        names = {c.name: f"__{self._number} {c.name}" for c in old}
        return tuple(replace(c, name=names[c.name]) for c in old), names


def _over(exprs: Iterable[Expr], names: Names) -> tuple[Expr, ...]:
    new = {name: column(other) for name, other in names.items()}
    return tuple(substitute(expr, new) for expr in exprs)
