"""Set-returning functions in Spark SQL: as arrays, of whose items Spark makes rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headwater.algebra.expr import Expr
from headwater.algebra.ops import Expand
from headwater.spark.functions import INTEGERS
from headwater.spark.translate import Refused, Translated, translate
from headwater.spark.values import Refusal
from headwater.spark.wire import Wire, wire_of
from headwater.sql.calls import as_expr, call_at
from headwater.sql.expression import parse, tokens_of
from headwater.sql.nodes import Literal

Name = Callable[[str], str]
_LONGEST = 3  # arguments: from, to, step


def expanded_value(op: Expand, columns: Mapping[str, Wire], name: Name) -> Translated:
    """Return the array of what a function makes, and the form of an item.

    Raises Refusal where Spark has no function that is sure to make the same. NULL is no array and
    gives no rows.
    """
    if len(op.functions) > 1:
        raise Refusal("several set-returning functions side by side")
    tokens = tokens_of(op.functions[0])
    call = call_at(tokens, 0)
    if call is None or call.end < len(tokens):
        raise Refusal("a set-returning function that is no plain call")
    item = wire_of(op.columns[0].type)
    if call.name != (None, "generate_series") or item.kind not in INTEGERS:
        raise Refusal(f"the rows of {call.name[1]}, which only PostgreSQL makes")
    return _series([as_expr(argument) for argument in call.arguments], item, columns, name)


def _series(
    arguments: list[Expr], item: Wire, columns: Mapping[str, Wire], name: Name
) -> Translated:
    """GENERATE_SERIES over integers; Spark would count down where there is nothing to count."""
    step = _step(arguments[2]) if len(arguments) == _LONGEST else 1
    first, last = (_integer(argument, item, columns, name) for argument in arguments[:2])
    compared = "<=" if step > 0 else ">="
    width = f"CAST({step} AS {item.spark})"
    return Translated(
        f"CASE WHEN {first} {compared} {last} THEN sequence({first}, {last}, {width}) END", item
    )


def _integer(expr: Expr, item: Wire, columns: Mapping[str, Wire], name: Name) -> str:
    made = translate(expr, columns, name)
    if isinstance(made, Refused):
        raise Refusal(made.reason)
    return f"CAST({made.sql} AS {item.spark})"


def _step(expr: Expr) -> int:
    """Return a constant step; the server prints one below zero as a string with its type."""
    node = parse(expr)
    if isinstance(node, Literal) and node.type in INTEGERS and int(node.text or 0) != 0:
        return int(node.text or 0)
    raise Refusal("generate_series with a step that is no constant")
