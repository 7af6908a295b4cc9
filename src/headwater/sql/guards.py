"""What stands before a value that may not be looked at: the arms of CASE, the rest of COALESCE.

PostgreSQL computes an arm of CASE only where its condition is the first that is true, and an
argument of COALESCE only where those before it are NULL. Nothing else in SQL says an order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.algebra.expr import Expr, text
from headwater.sql.lexer import Token, Tokens


@dataclass(frozen=True, slots=True)
class Case:
    """The parts of a CASE: each begins with its word, CASE, WHEN, THEN or ELSE; END is at `end`."""

    parts: tuple[tuple[Token, Tokens], ...]
    end: int


def read_case(tokens: Tokens, start: int) -> Case:
    """Read the CASE that begins at `start`."""
    parts: list[tuple[Token, Tokens]] = []
    begin, at, depth = start, start + 1, 0
    while True:
        token = tokens[at]
        if depth == 0 and token.is_word("WHEN", "THEN", "ELSE", "END"):
            parts.append((tokens[begin], tokens[begin + 1 : at]))
            begin = at
            if token.is_word("END"):
                return Case(tuple(parts), at)
        depth += token.is_punct("(", "[") or token.is_word("CASE")
        depth -= token.is_punct(")", "]") or token.is_word("END")
        at += 1


def reached(subject: Expr | None, passed: Sequence[Expr], taken: Expr | None = None) -> Expr:
    """Tell whether a CASE comes by the conditions `passed`, and then takes the next one if given.

    Itself a CASE, since a condition may fail where one before it is true.
    """
    parts: list[str | Expr] = ["CASE"]
    parts += [" (", subject, ")"] if subject is not None else []
    for condition in passed:
        parts += [" WHEN ", condition, " THEN FALSE"]
    parts += [" WHEN ", taken, " THEN TRUE"] if taken is not None else []
    if not passed and taken is None:
        return text("TRUE")
    return text(*parts, f" ELSE {'FALSE' if taken is not None else 'TRUE'} END")


def missing(values: Sequence[Expr]) -> Expr:
    """Tell whether COALESCE goes on after these values."""
    parts: list[str | Expr] = []
    for value in values:
        parts += [", " if parts else "COALESCE(", value]
    return text(*parts, ") IS NOT DISTINCT FROM NULL")


def both(first: Expr | None, then: Expr) -> Expr:
    """Ask the second question only where the first is true."""
    return then if first is None else text("CASE WHEN ", first, " THEN ", then, " ELSE FALSE END")
