"""Which numeric expressions always show the same number of digits after the point.

A numeric value carries a display scale of its own. It is the same for every value of a column
numeric(p, s), and arithmetic passes it on:

    scale(a ± b)  =  max(scale(a), scale(b))
    scale(a × b)  =  scale(a) + scale(b)

A quotient's scale hangs on its digits, so division has no fixed one. NaN has no scale at all and
can be in any numeric; infinity has no place in numeric(p, s) and does not come out of sums and
products of finite values, so an expression with a fixed scale is never infinite.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from headwater.algebra.expr import Expr
from headwater.algebra.schema import SqlType
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
)

Shape = tuple[int, int]  # at most so many digits, of which so many after the point

_INTEGER_DIGITS = {"smallint": 5, "integer": 10, "bigint": 19}
_NULL: Shape = (0, -1)  # of an expression that has no value but NULL: it goes with any other
_LARGEST = 1000  # digits; far below the server's own limits, where it starts to round
_COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_TYPE = re.compile(r"numeric\((\d+),(-?\d+)\)")
_DIGITS = re.compile(r"-?(\d+)(?:\.(\d*))?")


def shape(expr: Expr, columns: Mapping[str, SqlType]) -> Shape | None:
    """Return precision and scale if every value of a numeric expression has that very scale.

    NULL and NaN are not counted as values. None if the scale is not certain, and for expressions
    of other types, integers among them.
    """
    node = parse(expr)
    if isinstance(node, NotParsed):
        return None
    found = node_shape(node, {name: type.name for name, type in columns.items()})
    return None if found == _NULL else found


def never_fails(expr: Expr, columns: Mapping[str, SqlType]) -> bool:
    """Tell whether an expression has a value, or NULL, for every row whatever it holds.

    Sums and products of numerics with fixed scales have one, far below the server's limits, and
    comparisons of these do. Integers overflow, and of other types nothing is known here.
    """
    node = parse(expr)
    types = {name: type.name for name, type in columns.items()}
    return not isinstance(node, NotParsed) and _is_total(node, types)


def _is_total(node: Node, types: Mapping[str, str]) -> bool:
    if isinstance(node, Column | Literal):
        return True
    parts = _parts(node, types)
    return bool(parts) and all(_is_total(part, types) for part in parts)


def _parts(node: Node, types: Mapping[str, str]) -> tuple[Node, ...]:
    """Return what a node is made of if it cannot fail by itself, else nothing."""
    match node:
        case Operator("+" | "-" | "*", args) if node_shape(node, types) is not None:
            return args
        case Cast(inner, "numeric") if node_shape(node, types) is not None:
            return (inner,)
        case Operator(symbol, args) if symbol in _COMPARISONS and _are_numbers(args, types):
            return args
        case Quantified(symbol, left, items) if symbol in _COMPARISONS:
            return (left, *items) if _are_numbers((left, *items), types) else ()
    return _branches(node)


def _are_numbers(nodes: Iterable[Node], types: Mapping[str, str]) -> bool:
    """Tell whether values are compared with each other, or with constants, as numerics."""
    some = [node for node in nodes if not isinstance(node, Literal)]
    return bool(some) and all(node_shape(node, types) is not None for node in some)


def _branches(node: Node) -> tuple[Node, ...]:
    """Return what is looked at by a choice or a condition, which cannot fail by itself."""
    match node:
        case And(args) | Or(args) | Call(None, "coalesce", args):
            return args
        case Not(inner) | IsTest(inner):
            return (inner,)
        case IsDistinctFrom(left, Literal(None, _)):
            return (left,)
        case Case(whens, otherwise):
            last = (otherwise,) if otherwise else ()
            return (*(part for when in whens for part in when), *last)
    return ()


def type_shape(name: str) -> Shape | None:
    """Return precision and scale of a type numeric(p, s), None for any other type.

    Digits that a negative scale rounds away are still shown, as zeros; a scale beyond the
    precision means zeros after the point.
    """
    found = _TYPE.fullmatch(name)
    if found is None:
        return None
    precision, scale = int(found[1]), int(found[2])
    return (precision - scale, 0) if scale < 0 else (max(precision, scale), scale)


def node_shape(node: Node, types: Mapping[str, str]) -> Shape | None:
    """Return the shape of a tree over columns of the named types."""
    if choices := _choices(node):
        return _common([node_shape(choice, types) for choice in choices])
    match node:
        case Column(name):
            return type_shape(types[name])
        case Literal():
            return _literal_shape(node)
        case Cast(inner, type):
            return type_shape(type) or (_as_numeric(inner, types) if type == "numeric" else None)
        case Operator(symbol, args):
            return _operator_shape(symbol, [node_shape(a, types) for a in args])
    return None


def _choices(node: Node) -> tuple[Node, ...]:
    """Return the values of which an expression gives one, or one without its sign; else none."""
    match node:
        case Case(whens, otherwise):
            return tuple(value for _, value in whens) + ((otherwise,) if otherwise else ())
        case Call(None, "coalesce" | "greatest" | "least", args):
            return args
        case Call(None, "nullif", (value, _)) | Call(None, "abs", (value,)):
            return (value,)
    return ()


def _literal_shape(literal: Literal) -> Shape | None:
    if literal.text is None:
        return _NULL
    if literal.type is None or literal.type.partition("(")[0] != "numeric":
        return None
    return type_shape(literal.type) or _digits(literal.text)


def _digits(text: str) -> Shape | None:
    """Count the digits of a number; NaN, infinity and powers of ten have none to count."""
    found = _DIGITS.fullmatch(text)
    if found is None:
        return None
    whole, scale = len(found[1].lstrip("0")), len(found[2] or "")
    return _within(max(whole + scale, 1), scale)


def _as_numeric(node: Node, types: Mapping[str, str]) -> Shape | None:
    """Return the shape after a cast to numeric, which changes no digit."""
    if isinstance(node, Literal) and node.text is not None and node.type in _INTEGER_DIGITS:
        return _digits(node.text)
    integer = _integer_type(node, types)
    return (_INTEGER_DIGITS[integer], 0) if integer else node_shape(node, types)


def _operator_shape(symbol: str, args: list[Shape | None]) -> Shape | None:
    match symbol, args:
        case (("-" | "+" | "@"), [one]):
            return one
        case (("+" | "-" | "*"), [left, right]) if left and right:
            return _NULL if _NULL in args else _arithmetic(symbol, left, right)
    return None


def _arithmetic(symbol: str, left: Shape, right: Shape) -> Shape | None:
    if symbol == "*":
        return _within(left[0] + right[0], left[1] + right[1])
    scale = max(left[1], right[1])
    whole = max(left[0] - left[1], right[0] - right[1])
    return _within(whole + scale + 1, scale)


def _common(shapes: Iterable[Shape | None]) -> Shape | None:
    """Return what covers all of the values that may be chosen, if they have one scale."""
    some = set(shapes) - {_NULL}
    known = [s for s in some if s is not None]
    if len(known) < len(some) or len({scale for _, scale in known}) > 1:
        return None
    return max(known, default=_NULL)


def _within(precision: int, scale: int) -> Shape | None:
    return (precision, scale) if precision <= _LARGEST else None


def _integer_type(node: Node, types: Mapping[str, str]) -> str | None:
    """Return the integer type of an expression, None if it has another or is not understood."""
    if choices := _choices(node):
        return _widest(choices, types)
    match node:
        case Column(name):
            return _integer(types[name])
        case Literal(_, type) | Cast(_, type):
            return _integer(type)
        case Operator("+" | "-" | "*" | "/" | "%" | "@", args) | Call(None, "mod", args):
            return _widest(args, types)
    return None


def _integer(type: str | None) -> str | None:
    return type if type in _INTEGER_DIGITS else None


def _widest(nodes: Iterable[Node], types: Mapping[str, str]) -> str | None:
    """Return the widest of the nodes' types, all of which must be integers."""
    found = [_integer_type(node, types) for node in nodes]
    known = [type for type in found if type is not None]
    if len(known) < len(found):
        return None
    return max(known, key=lambda type: _INTEGER_DIGITS[type])
