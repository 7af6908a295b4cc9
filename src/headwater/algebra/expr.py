"""Scalar expressions: PostgreSQL's own text with holes for the columns.

For PostgreSQL an expression is never parsed, translated or re-printed. The server printed it in
canonical form; we only cut out the column references, so that an operator can be moved to other
inputs. `sql/expression.py` reads it where Spark is to evaluate it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ref:
    """A hole in an expression: the column of that name in the operator's input."""

    name: str


@dataclass(frozen=True, slots=True)
class Expr:
    """A scalar expression, as pieces of text and column references in order."""

    parts: tuple[str | Ref, ...]


def column(name: str) -> Expr:
    """Return the expression that is just a column."""
    return Expr((Ref(name),))


def text(*parts: str | Ref | Expr) -> Expr:
    """Build an expression from text, columns and other expressions, in order."""
    flat: list[str | Ref] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Expr) else (part,))
    return Expr(_merged(flat))


def _merged(parts: list[str | Ref]) -> tuple[str | Ref, ...]:
    out: list[str | Ref] = []
    for part in parts:
        if isinstance(part, str) and out and isinstance(out[-1], str):
            out[-1] += part
        elif part != "":
            out.append(part)
    return tuple(out)


def refs(*exprs: Expr) -> frozenset[str]:
    """Return the names of the columns that the expressions read."""
    return frozenset(p.name for e in exprs for p in e.parts if isinstance(p, Ref))


def as_column(expr: Expr) -> str | None:
    """Return the column's name if the expression is a bare column, else None."""
    match expr.parts:
        case (Ref(name),):
            return name
    return None


def substitute(expr: Expr, replacement: Mapping[str, Expr]) -> Expr:
    """Replace columns by expressions; names that are not in the mapping stay.

    What is put in is wrapped in parentheses unless it is a bare column, so that it binds as one.
    """
    parts: list[str | Ref | Expr] = []
    for part in expr.parts:
        new = replacement.get(part.name) if isinstance(part, Ref) else None
        if new is None:
            parts.append(part)
        elif as_column(new) is not None:
            parts.append(new)
        else:
            parts.extend(("(", new, ")"))
    return text(*parts)


def template(expr: Expr) -> str:
    """Return the text with every column written as `{}`: what the expression does, not to what."""
    return "".join("{}" if isinstance(p, Ref) else p for p in expr.parts)


def show(expr: Expr, name: Callable[[str], str] = str) -> str:
    """Return the text with every column written by `name`."""
    return "".join(name(p.name) if isinstance(p, Ref) else p for p in expr.parts)


def equality(conjunct: Expr) -> tuple[str, str] | None:
    """Return both columns if the conjunct is `column = column`, else None.

    Plain `=` is NULL-rejecting: a pair found here never matches NULL with NULL.
    """
    match conjunct.parts:
        case (Ref(left), " = ", Ref(right)):
            return left, right
    return None


def matching(conjunct: Expr) -> tuple[str, str] | None:
    """Return both columns if the conjunct sets them equal, with or without NULL equal to NULL."""
    match conjunct.parts:
        case (Ref(left), " IS NOT DISTINCT FROM ", Ref(right)):
            return left, right
    return equality(conjunct)


def only_value(call: Expr) -> tuple[str, str] | None:
    """Return the column and the mark of an aggregate that takes the only value that is marked.

    It is how a subquery's value is taken from among the padding; of several values it takes any.
    """
    match call.parts:
        case ("(array_agg(", Ref(value), ") FILTER (WHERE ", Ref(mark), " = 1))[1]"):
            return value, mark
    return None
