"""Typed pieces of Spark SQL, and the whitelist applied to them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headwater.spark.functions import (
    EQUALITIES,
    INTEGER_SHAPES,
    INTEGERS,
    MAX_PRECISION,
    ORDERINGS,
    WHITELIST,
    Entry,
    Shape,
    covering,
)
from headwater.spark.literals import decimal_wire, literal_sql, literal_wire, pattern_sql
from headwater.spark.wire import Wire
from headwater.sql.nodes import Literal, Node

_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_NOT_DECIMAL = frozenset({"NaN", "Infinity", "-Infinity"})
_COMPARING = frozenset({*EQUALITIES, "~~", "!~~"})
BOOLEAN = Wire("boolean", "BOOLEAN", comparable=True, ordered=True)


class Refusal(Exception):
    """Ends the translation with the reason, which the caller returns."""


@dataclass(frozen=True, slots=True)
class Value:
    """A translated node; `literal` is the constant that it is, if it is one."""

    sql: str
    wire: Wire
    literal: Literal | None = None

    @property
    def shape(self) -> Shape:
        """Precision and scale of a number."""
        return number_shape(self.wire)

    @property
    def is_null(self) -> bool:
        """Tell whether it is the constant NULL."""
        return self.literal is not None and self.literal.text is None


def number_shape(wire: Wire) -> Shape:
    """Return precision and scale of the numbers of a form."""
    found = _DECIMAL.fullmatch(wire.spark)
    return (int(found[1]), int(found[2])) if found else INTEGER_SHAPES[wire.kind]


def literal_value(literal: Literal) -> Value:
    """Return a constant in Spark SQL."""
    if literal == Literal(None, None):
        return Value("NULL", Wire("null", "VOID", comparable=True, ordered=True), literal)
    wire = literal_wire(literal)
    sql = literal_sql(literal.text, wire) if wire else None
    if wire is None or sql is None:
        raise Refusal(f"the constant {literal.text!r} of type {literal.type or 'unknown'}")
    return Value(sql, wire, literal)


def is_no_decimal(node: Node) -> bool:
    """Tell whether a constant is a number that no decimal holds."""
    if not isinstance(node, Literal) or node.type not in (None, "numeric"):
        return False
    return node.text in _NOT_DECIMAL


def never_equal(value: Value) -> Value:
    """False, but NULL for NULL."""
    if value.wire.kind != "decimal":
        raise Refusal("a comparison with NaN or infinity")
    return Value(f"({value.sql} IS NULL AND NULL)", BOOLEAN)


def applied(name: str, values: Sequence[Value], target: Shape | None = None) -> Value:
    """Return the form of the entry that takes just these kinds; refuse if there is none."""
    found = _find(name, values)
    if found is None:
        kinds = ", ".join(value.wire.kind for value in values)
        raise Refusal(f"{name} on ({kinds}) is not known to be the same in Spark")
    entry, operands = found
    _check_comparison(name, values)
    shapes = tuple(v.shape for v in values) if "decimal" in entry.arguments or target else ()
    result = _result(entry, values, target or (entry.shape(shapes) if entry.shape else None))
    common = _decimal(entry.common(shapes)).spark if entry.common else ""
    sql = entry.form.format(*operands, type=result.spark, common=common)
    return Value(sql, result)


def _find(name: str, values: Sequence[Value]) -> tuple[Entry, list[str]] | None:
    """Return the entry and the operands' texts, which for constants the entry may prescribe."""
    kinds = tuple(value.wire.kind for value in values)
    if (name, kinds) in WHITELIST:
        return WHITELIST[name, kinds], [value.sql for value in values]
    for special in _constant_kinds(values):
        if (name, tuple(kind for kind, _ in special)) in WHITELIST:
            key = tuple(kind for kind, _ in special)
            return WHITELIST[name, key], [sql for _, sql in special]
    return None


def _constant_kinds(values: Sequence[Value]) -> list[list[tuple[str, str]]]:
    """Return the operands with constants after the first taken as numbers or as a pattern."""
    head = [(value.wire.kind, value.sql) for value in values[:1]]
    tail = [value.literal for value in values[1:]]
    if any(literal is None or literal.text is None for literal in tail):
        return []
    texts = [literal.text or "" for literal in tail if literal is not None]
    if all(literal is not None and literal.type == "integer" for literal in tail):
        numbers = [int(text) for text in texts]
        return [
            [*head, *((kind, str(n)) for kind, n in zip(kinds, numbers, strict=True))]
            for kinds in (["natural"], ["positive"], ["positive", "natural"])
            if len(kinds) == len(numbers) and all(map(_is_in, kinds, numbers))
        ]
    pattern = pattern_sql(texts[0]) if len(texts) == 1 else None
    return [[*head, ("pattern", pattern)]] if pattern is not None else []


def _is_in(kind: str, number: int) -> bool:
    return number > 0 if kind == "positive" else number >= 0


def _check_comparison(name: str, values: Sequence[Value]) -> None:
    wires = [value.wire for value in values if value.literal is None]
    if name in _COMPARING and not all(wire.comparable for wire in wires):
        raise Refusal(f"{name} on values that Spark does not tell apart as PostgreSQL does")
    if name in ORDERINGS and not (wires and all(wire.ordered for wire in wires)):
        raise Refusal(f"{name} over an order that Spark does not share")


def _result(entry: Entry, values: Sequence[Value], shape: Shape | None) -> Wire:
    if entry.result == "decimal":
        assert shape is not None
        return _decimal(shape)
    if entry.result == "string":
        return _string_wire(values)
    return _WIRES[entry.result]


def _string_wire(values: Sequence[Value]) -> Wire:
    """A string made of others has their collation; one made of something else, the default."""
    wires = [v.wire for v in values if v.wire.kind == "string" and v.literal is None]
    return Wire(
        "string",
        "STRING",
        comparable=all(wire.comparable for wire in wires),
        ordered=bool(wires) and all(wire.ordered for wire in wires),
    )


def _decimal(shape: Shape) -> Wire:
    wire = decimal_wire(shape)
    if wire is None:
        raise Refusal(f"a number of {shape[0]} digits, where Spark has {MAX_PRECISION}")
    return wire


_WIRES = {
    kind: Wire(kind, spark, comparable=True, ordered=True)
    for kind, spark in (
        ("boolean", "BOOLEAN"),
        ("smallint", "SMALLINT"),
        ("integer", "INT"),
        ("bigint", "BIGINT"),
        ("date", "DATE"),
        ("timestamp", "TIMESTAMP"),
        ("timestamp_ntz", "TIMESTAMP_NTZ"),
        ("binary", "BINARY"),
    )
}


def unified(values: Sequence[Value]) -> tuple[list[str], Wire]:
    """Return the values in the one type that a choice among them has; NULL has that of the others.

    Decimals must have one scale, since PostgreSQL shows each value with its own.
    """
    some = [value for value in values if not value.is_null] or values
    if _are_numbers(some) and len({value.shape[1] for value in some}) > 1:
        raise Refusal("a choice among numbers with different digits after the point")
    wire = _common_wire(some)
    return [_as(value, wire) for value in values], wire


def comparable(values: Sequence[Value]) -> list[str]:
    """Return the values in one type that holds all of them."""
    wire = _common_wire(values)
    return [_as(value, wire) for value in values]


def _are_numbers(values: Sequence[Value]) -> bool:
    return {value.wire.kind for value in values} <= {"decimal", *INTEGERS}


def _common_wire(values: Sequence[Value]) -> Wire:
    kinds = {value.wire.kind for value in values}
    if kinds <= set(INTEGERS):
        return _WIRES[max(kinds, key=INTEGERS.index)]
    if _are_numbers(values):
        return _decimal(covering(tuple(value.shape for value in values)))
    if len(kinds) > 1:
        raise Refusal(f"values of the kinds {', '.join(sorted(kinds))} in one place")
    if kinds == {"string"}:
        return _string_wire(values)
    comparable = all(value.wire.comparable for value in values)
    return replace(values[0].wire, comparable=comparable)


def _as(value: Value, wire: Wire) -> str:
    return value.sql if value.wire.spark == wire.spark else f"CAST({value.sql} AS {wire.spark})"
