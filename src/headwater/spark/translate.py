"""An expression to Spark SQL, if every part of it is known to mean the same there.

The tree is rendered from the leaves up; at each node the kinds of the operands choose an entry of
the whitelist. A decimal's scale is that of PostgreSQL at every step, so that what comes back shows
the same digits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.algebra.expr import Expr
from headwater.spark.functions import INTEGERS
from headwater.spark.values import (
    BOOLEAN,
    Refusal,
    Value,
    applied,
    comparable,
    is_no_decimal,
    literal_value,
    never_equal,
    unified,
)
from headwater.spark.wire import Wire
from headwater.sql.expression import NotParsed, parse
from headwater.sql.nodes import (
    And,
    Call,
    Case,
    Cast,
    Column,
    IsDistinctFrom,
    IsTest,
    Literal,
    Node,
    Not,
    Operator,
    Or,
    Quantified,
    TooMany,
)

_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
_TOO_MANY = "raise_error('more than one row returned by a subquery used as an expression')"
_FIELD_CALLS = frozenset({"extract", "date_trunc"})


@dataclass(frozen=True, slots=True)
class Translated:
    """An expression in Spark SQL, bracketed where needed, and the form of its values."""

    sql: str
    wire: Wire


@dataclass(frozen=True, slots=True)
class Refused:
    """Why an expression cannot run in Spark."""

    reason: str


def translate(
    expr: Expr, columns: Mapping[str, Wire], name: Callable[[str], str]
) -> Translated | Refused:
    """Return the expression in Spark SQL with columns written by `name`, or why there is none.

    NULLs, overflow and division by zero behave as in PostgreSQL. Decimal columns hold no NaN:
    such values do not pass the ingest, so a comparison with NaN is false.
    """
    node = parse(expr)
    if isinstance(node, NotParsed):
        return Refused(f"the expression is not understood: {node.reason}")
    try:
        value = _Translation(columns, name).value(node)
    except Refusal as refusal:
        return Refused(str(refusal))
    if value.wire.kind == "null":
        return Refused("NULL without a type")
    return Translated(value.sql, value.wire)


class _Translation:
    """One expression over typed columns."""

    def __init__(self, columns: Mapping[str, Wire], name: Callable[[str], str]) -> None:
        self._columns, self._name = columns, name

    def value(self, node: Node) -> Value:  # noqa: PLR0911, PLR0912, C901 - a table
        """Return a node in Spark SQL."""
        match node:
            case Column(name):
                return Value(self._name(name), self._columns[name])
            case Literal(str(text), str(type)) if type.startswith("numeric("):
                return self._cast(Literal(text, "numeric"), type)
            case Literal():
                return literal_value(node)
            case Cast(inner, type):
                return self._cast(inner, type)
            case Operator(symbol, args):
                return self._operator(symbol, args)
            case Call(schema, name, args):
                return self._call(schema, name, args)
            case And(args):
                return self._folded("AND", args)
            case Or(args):
                return self._folded("OR", args)
            case Not(IsDistinctFrom(left, right)):
                return self._same(left, right)
            case Not(inner):
                return applied("NOT", [self.value(inner)])
            case IsTest(inner, what, negated):
                return applied(f"IS {'NOT ' if negated else ''}{what}", [self.value(inner)])
            case IsDistinctFrom(left, right):
                return self._distinct(left, right)
            case Quantified():
                return self._quantified(node)
            case Case(whens, otherwise):
                return self._case(whens, otherwise)
            case TooMany():
                return replace(literal_value(Literal(None, None)), sql=_TOO_MANY)

    def _values(self, nodes: Sequence[Node]) -> list[Value]:
        return [self.value(node) for node in nodes]

    def _folded(self, name: str, args: Sequence[Node]) -> Value:
        """Return AND or OR over any number of conditions, without brackets in brackets."""
        values = self._values(args)
        for value in values:
            applied(name, [value, value])  # refuses what is no condition
        return Value(f"({f' {name} '.join(value.sql for value in values)})", BOOLEAN)

    def _operator(self, symbol: str, args: Sequence[Node]) -> Value:
        if symbol == "=" and len(args) == 2:  # noqa: PLR2004
            for value, other in (args, args[::-1]):
                if is_no_decimal(other):
                    return never_equal(self.value(value))
        return applied(symbol, self._values(args))

    def _call(self, schema: str | None, name: str, args: Sequence[Node]) -> Value:
        if schema is not None:
            raise Refusal(f"the function {schema}.{name} exists in PostgreSQL only")
        if name == "coalesce":
            return self._chosen("coalesce", args)
        if name in ("greatest", "least"):
            return self._extreme(name, args)
        if name == "nullif":
            return self._nullif(*self._values(args))
        if name in _FIELD_CALLS and isinstance(args[0], Literal):
            return applied(f"{name}({args[0].text})", self._values(args[1:]))
        return applied(name, self._values(args))

    def _cast(self, inner: Node, type: str) -> Value:
        if type == "numeric" and isinstance(inner, Literal) and inner.type in INTEGERS:
            return literal_value(Literal(inner.text, type))  # no more digits than it has
        value = self.value(inner)
        target = _NUMERIC.fullmatch(type)
        if target is None or int(target[2]) > int(target[1]):
            return applied(f"::{type}", [value])
        return applied("::numeric(p,s)", [value], (int(target[1]), int(target[2])))

    # --- forms with any number of values of one kind ---

    def _case(self, whens: Sequence[tuple[Node, Node]], otherwise: Node | None) -> Value:
        whens = [when for when in whens if not _is_never(when[0])]
        if not whens:
            return self.value(otherwise or Literal(None, None))
        tests = [self.value(test) for test, _ in whens]
        if any(test.wire.kind != "boolean" for test in tests):
            raise Refusal("a condition of CASE is no boolean")
        nodes = [value for _, value in whens] + [otherwise or Literal(None, None)]
        values, wire = unified(self._values(nodes))
        pairs = zip(tests, values, strict=False)  # the last value is that of ELSE
        body = " ".join(f"WHEN {test.sql} THEN {value}" for test, value in pairs)
        return Value(f"(CASE {body} ELSE {values[-1]} END)", wire)

    def _chosen(self, function: str, args: Sequence[Node]) -> Value:
        values, wire = unified(self._values(args))
        if len(values) == 1:
            return Value(values[0], wire)
        return Value(f"{function}({', '.join(values)})", wire)

    def _extreme(self, function: str, args: Sequence[Node]) -> Value:
        """GREATEST and LEAST: both engines leave NULLs out."""
        made = self._chosen(function, args)
        if not made.wire.ordered:
            raise Refusal(f"{function} over an order that Spark does not share")
        return made

    @staticmethod
    def _nullif(value: Value, other: Value) -> Value:
        test = applied("=", [value, other])
        return Value(f"(CASE WHEN {test.sql} THEN NULL ELSE {value.sql} END)", value.wire)

    def _distinct(self, left: Node, right: Node) -> Value:
        """IS DISTINCT FROM; from NULL also for what cannot be compared."""
        for node, other in ((left, right), (right, left)):
            if isinstance(other, Literal) and other.text is None:
                return Value(f"({self.value(node).sql} IS NOT NULL)", BOOLEAN)
        return Value(f"(NOT {self._same(left, right).sql})", BOOLEAN)

    def _same(self, left: Node, right: Node) -> Value:
        """IS NOT DISTINCT FROM, by which Spark joins as it does by `=`."""
        for node, other in ((left, right), (right, left)):
            if isinstance(other, Literal) and other.text is None:
                return Value(f"({self.value(node).sql} IS NULL)", BOOLEAN)
        a, b = self.value(left), self.value(right)
        applied("=", [a, b])  # refuses what cannot be compared
        x, y = comparable([a, b])
        return Value(f"({x} <=> {y})", BOOLEAN)

    def _quantified(self, node: Quantified) -> Value:
        if (node.symbol, node.is_all) not in (("=", False), ("<>", True)):
            return self._each(node)
        value = self.value(node.left)
        items = self._values([item for item in node.items if not is_no_decimal(item)])
        if len(items) < len(node.items):
            if node.is_all:
                raise Refusal("a comparison with NaN or infinity")
            never_equal(value)
        if not items:
            return never_equal(value)
        for item in items:
            applied("=", [value, item])  # refuses what cannot be compared
        first, *rest = comparable([value, *items])
        negation = "NOT " if node.is_all else ""
        return Value(f"({first} {negation}IN ({', '.join(rest)}))", BOOLEAN)

    def _each(self, node: Quantified) -> Value:
        tests: list[Node] = [Operator(node.symbol, (node.left, item)) for item in node.items]
        return self._folded("AND" if node.is_all else "OR", tests)


def _is_never(test: Node) -> bool:
    """Tell a condition that no row meets: a constant above itself."""
    match test:
        case Operator(">", (Literal() as one, Literal() as other)):
            return one == other
    return False
