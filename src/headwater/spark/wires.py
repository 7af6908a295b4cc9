"""What each column of a boundary is in Spark, and whether Spark can compute what is asked."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from headwater.algebra.calls import WRITTEN_OUT, Call, Kind
from headwater.algebra.expr import Expr, as_column, only_value
from headwater.algebra.ops import (
    Aggregate,
    AntiJoin,
    Expand,
    Filter,
    Join,
    Op,
    Project,
    Repeat,
    Scan,
    SemiJoin,
    Single,
    UnionAll,
    Window,
    schema,
)
from headwater.algebra.schema import names
from headwater.errors import bug
from headwater.spark.expanding import expanded_value
from headwater.spark.translate import Refused, translate
from headwater.spark.values import Refusal
from headwater.spark.windows import window_value
from headwater.spark.wire import BIGINT, Wire, sum_wire, wire_of
from headwater.sql.expression import is_null

Wires = Mapping[str, Wire]


class NotOnSpark(Exception):
    """The reason why a query, or a cut of it, cannot run on Spark exactly."""


def expression_fault(expr: Expr, columns: Mapping[str, Wire]) -> str | None:
    """Say why Spark cannot evaluate an expression; None if it can."""
    made = translate(expr, columns, quoted)
    return made.reason if isinstance(made, Refused) else None


@lru_cache(maxsize=4096)  # a tree of outer joins has few different subtrees, many times each
def wires(op: Op) -> Wires:  # noqa: C901, PLR0911 - one case per node
    """Return the form of each output column; raises NotOnSpark where Spark cannot follow."""
    match op:
        case Scan():
            return {c.name: wire_of(c.type) for c in op.columns}
        case Single():
            return {}
        case Project():
            return _projected(op)
        case Filter():
            return _tested(wires(op.input), op.conjuncts)
        case Repeat():
            return _tested(wires(op.input), (op.times,))
        case Join():
            return _tested({**wires(op.left), **wires(op.right)}, op.on)
        case SemiJoin() | AntiJoin():
            _tested({**wires(op.left), **wires(op.right)}, op.on)
            return wires(op.left)
        case UnionAll():
            return _united(op)
        case Aggregate():
            return _aggregated(op)
        case Window():
            return _windowed(op)
        case Expand():
            return _expanded(op)
    raise bug(f"{type(op).__name__} in a boundary", "only view trees are placed")


def quoted(name: str) -> str:
    """Return a name as Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def _projected(op: Project) -> Wires:
    below: Wires = wires(op.input)
    found: dict[str, Wire] = {}
    for output in op.outputs:
        bare = as_column(output.expr)
        if bare is not None:
            found[output.column.name] = below[bare]
            continue
        made = translate(output.expr, below, quoted)
        if isinstance(made, Refused):
            raise NotOnSpark(made.reason)
        found[output.column.name] = made.wire
    return found


def _tested(columns: Wires, exprs: tuple[Expr, ...]) -> Wires:
    for expr in exprs:
        fault = expression_fault(expr, columns)
        if fault is not None:
            raise NotOnSpark(fault)
    return columns


def _united(op: UnionAll) -> Wires:
    """Branches have equal forms, but for columns that are NULL in one and so of any form."""
    found: dict[str, Wire] = {}
    for arm in op.inputs:
        forms, nulls = wires(arm), _nulls(arm)
        for own, name in zip(names(schema(arm)), names(op.columns), strict=True):
            if own not in nulls and found.setdefault(name, forms[own]) != forms[own]:
                raise NotOnSpark("the branches of a UNION give Spark columns of different types")
    first = zip(names(op.columns), wires(op.inputs[0]).values(), strict=True)
    return {name: found.get(name, wire) for name, wire in first}


def _nulls(op: Op) -> frozenset[str]:
    """Columns that are NULL in every row, as an outer join pads them."""
    outputs = op.outputs if isinstance(op, Project) else ()
    return frozenset(o.column.name for o in outputs if is_null(o.expr))


def _aggregated(op: Aggregate) -> Wires:
    """Groups inside the tree; that at the root is PostgreSQL's."""
    below = _keyed(op)
    found = {key: below[key] for key in op.keys} | {op.count.name: BIGINT}
    return found | {call.column.name: called(call, below) for call in op.calls}


def _keyed(op: Aggregate | Window) -> Wires:
    below = wires(op.input)
    for key in op.keys:
        if not below[key].comparable:
            raise NotOnSpark(f"values of {key} cannot be compared in Spark as PostgreSQL does")
    return below


def _windowed(op: Window) -> Wires:
    below = _keyed(op)
    try:
        made = {c.column.name: window_value(op, c, below, quoted).wire for c in op.calls}
    except Refusal as refusal:
        raise NotOnSpark(str(refusal)) from None
    return {**below, **made}


def _expanded(op: Expand) -> Wires:
    below = wires(op.input)
    try:
        made = expanded_value(op, below, quoted).wire
    except Refusal as refusal:
        raise NotOnSpark(str(refusal)) from None
    numbers = {c.name: BIGINT for c in op.columns[1:]}
    return {**below, op.columns[0].name: made, **numbers}


def called(call: Call, below: Mapping[str, Wire]) -> Wire:
    """Return the form of an aggregate; raises NotOnSpark if Spark cannot compute it exactly."""
    only = only_value(call.expr)
    if only is not None:
        return below[only[0]]
    if call.kind in WRITTEN_OUT:
        raise NotOnSpark(f"Spark has no aggregate that is certain to equal {call.column.name}")
    wire = below[str(as_column(call.expr))]
    if call.kind is Kind.SUM:
        summed = sum_wire(wire, call.column)
        if summed is None:
            raise NotOnSpark(f"{call.column.name} sums values that have no exact sum in Spark")
        return summed
    if not wire.ordered:
        raise NotOnSpark(f"values of {call.column.name} are ordered otherwise in Spark")
    return wire
