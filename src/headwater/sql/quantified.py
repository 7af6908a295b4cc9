"""Comparisons with a subquery: IN, ANY and ALL, as tokens."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.algebra.expr import Expr, as_column, text
from headwater.sql.lexer import Tokens, closing, split, stripped, untokenize
from headwater.sql.parse import opens_query


@dataclass(frozen=True, slots=True)
class Quantified:
    """`left` compared with any or all rows of a query; several columns are compared as a row."""

    left: tuple[Tokens, ...]
    operator: str
    is_all: bool
    query: Tokens

    def compared(self, ours: list[Expr], theirs: list[Expr]) -> Expr:
        """Return the comparison of one row."""
        if len(ours) == 1:
            return text(operand(ours[0]), f" {self.operator} ", theirs[0])
        return text(_row(ours), f" {self.operator} ", _row(theirs))


def operand(expr: Expr) -> Expr:
    """Return an expression that binds as one: a column, or anything in brackets."""
    return expr if as_column(expr) is not None else text("(", expr, ")")


def _row(exprs: list[Expr]) -> Expr:
    parts: list[str | Expr] = []
    for expr in exprs:
        parts += [", " if parts else "ROW(", expr]
    return text(*parts, ")")


def find_quantified(tokens: Tokens) -> Quantified | None:
    """Read a comparison with a subquery that is the whole of an expression."""
    tokens = stripped(tokens)
    opening = _last_group(tokens)
    if opening is None or opening == 0 or not opens_query(tokens[opening + 1 : -1]):
        return None
    word, left = tokens[opening - 1], tokens[: opening - 1]
    if not left or any(len(split(left, word=w)) > 1 for w in ("AND", "OR", "NOT")):
        return None
    query = tokens[opening + 1 : -1]
    if word.is_word("IN"):
        return Quantified(_items(left), "=", False, query)
    if not word.is_word("ANY", "SOME", "ALL"):
        return None
    start = len(left) - 1
    if left[-1].is_punct(")"):  # OPERATOR(schema.op)
        start = (_last_group(left) or 1) - 1
    return Quantified(_items(left[:start]), untokenize(left[start:]), word.is_word("ALL"), query)


def _last_group(tokens: Tokens) -> int | None:
    """Return where the bracket opens that the last token closes."""
    if not tokens or not tokens[-1].is_punct(")"):
        return None
    at = 0
    while at < len(tokens):
        if tokens[at].is_punct("(", "["):
            end = closing(tokens, at)
            if end == len(tokens) - 1:
                return at
            at = end
        at += 1
    return None


def _items(left: Tokens) -> tuple[Tokens, ...]:
    """Return the columns of a row, or the one value."""
    inside = stripped(left[1:] if left[0].is_word("ROW") else left)
    pieces = split(inside, mark=",")
    return tuple(pieces) if len(pieces) > 1 else (left,)
