"""Operator trees as indented text, for people: one line per node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headwater.algebra.calls import WRITTEN_OUT, Kind
from headwater.algebra.expr import Expr, show
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
    Itself,
    Join,
    Keys,
    Negate,
    OneWay,
    Op,
    Picked,
    Project,
    Repeat,
    Restrict,
    Scan,
    SemiJoin,
    Single,
    Timed,
    UnionAll,
    Whole,
    Window,
)
from headwater.algebra.outside import Outside
from headwater.algebra.walk import children
from headwater.errors import bug


def pretty(op: Op) -> str:
    """Return the tree as text, two spaces of indent per level; a repeated part is printed once."""
    repeated: Counter[Op] = Counter()
    _count(op, repeated)
    return "\n".join(_lines(op, 0, repeated, {}))


def _count(op: Op, repeated: Counter[Op]) -> None:
    repeated[op] += 1
    if repeated[op] == 1:
        for child in _shown(op):
            _count(child, repeated)


def _shown(op: Op) -> tuple[Op, ...]:
    is_leaf = isinstance(op, Delta | Before | After) and isinstance(op.input, Scan)
    return () if is_leaf else children(op)


def _lines(op: Op, depth: int, repeated: Counter[Op], numbers: dict[Op, int]) -> Iterator[str]:
    indent, mark = "  " * depth, ""
    if op in numbers:
        yield f"{indent}{type(op).__name__} #{numbers[op]}, as above"
        return
    if repeated[op] > 1 and _shown(op):
        numbers[op] = len(numbers) + 1
        mark = f"#{numbers[op]}: "
    yield indent + mark + label(op)
    for child in _shown(op):
        yield from _lines(child, depth + 1, repeated, numbers)


def label(op: Op) -> str:  # noqa: C901, PLR0911, PLR0912 - one line per node
    """Return the one-line description of a node without its inputs."""
    match op:
        case Scan():
            return f"Scan {op.source.name} ({', '.join(op.attributes)})"
        case Single():
            return "One row"
        case Project():
            return "Project " + ", ".join(_output(o.column.name, o.expr) for o in op.outputs)
        case Filter():
            return "Filter " + _conjunction(op.conjuncts)
        case Timed():
            return "Filter by time " + _conjunction(op.conjuncts)
        case Repeat():
            return f"Repeat {show(op.times)} times"
        case UnionAll():
            return "Union all"
        case Join():
            return "Join on " + _conjunction(op.on) if op.on else "Cross join"
        case SemiJoin():
            return "Semi-join on " + _conjunction(op.on)
        case AntiJoin():
            return "Anti-join on " + _conjunction(op.on)
        case Aggregate():
            calls = ", ".join(_call(c.column.name, c.kind, c.expr) for c in op.calls)
            return f"Aggregate by ({', '.join(op.keys)})" + (f": {calls}" if calls else "")
        case Window():
            calls = ", ".join(_output(c.column.name, c.expr) for c in op.calls)
            return f"Window by ({', '.join(op.keys)}): {calls}"
        case Expand():
            return "Expand " + ", ".join(show(function) for function in op.functions)
        case Whole():
            return "Whole query " + _whole(op.sql)
        case Itself(name=name) | Fixpoint(itself=Itself(name=name)):
            return f"{type(op).__name__} {name}"
        case OneWay():
            return "Going" if op.going else "Coming"
        case Delta(Scan() as scan):
            return f"Δ {scan.source.name}"
        case Before(Scan() as scan):
            return f"{scan.source.name} before"
        case After(Scan() as scan):
            return f"{scan.source.name} after"
        case Delta() | Before() | After() | Negate() | Consolidate() | Outside():
            return type(op).__name__
        case Empty():
            return "Nothing"
        case Keys():
            return f"Keys ({', '.join(op.columns)})"
        case Restrict():
            return f"Restrict ({', '.join(op.columns)}) to"
        case Picked(arrived=True):
            return f"Arrived {op.column}" + (f", not {', '.join(op.values)}" * bool(op.values))
        case Picked():
            return f"Picked {op.column}: {', '.join(op.values)}"
    raise bug(f"{type(op).__name__} has no label", "the node is not known to `label`")


def _output(name: str, expr: Expr) -> str:
    shown = show(expr)
    return name if shown == name else f"{shown} AS {name}"


def _whole(sql: tuple[str | int, ...]) -> str:
    """The text on one line, with numbers for the inputs."""
    return " ".join("".join(f"#{p}" if isinstance(p, int) else p for p in sql).split())


def _call(name: str, kind: Kind, expr: Expr) -> str:
    return f"{name} := " + (show(expr) if kind in WRITTEN_OUT else f"{kind.value}({show(expr)})")


def _conjunction(conjuncts: tuple[Expr, ...]) -> str:
    return " AND ".join(show(c) for c in conjuncts) or "true"
