"""Names in scope, and tokens to expressions: column references become holes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from headwater.algebra.expr import Expr, Ref, refs, text
from headwater.errors import UnsupportedQuery, bug
from headwater.sql.clock import has_clock
from headwater.sql.lexer import Token, Tokens, split, stripped, untokenize
from headwater.sql.parse import refuse

WHOLE_ROW = "*"
_SYSTEM_COLUMNS = {"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"}


@dataclass(frozen=True, slots=True)
class Scope:
    """What a FROM clause offers: for each alias its column names, and where their values are.

    `merged` are the unqualified columns of USING; `order` lists the columns of `*`, which an alias
    on a whole join renames by position.
    """

    aliases: Mapping[str, Mapping[str, Expr]]
    merged: Mapping[str, Expr] = field(default_factory=dict)
    order: tuple[tuple[str, Expr], ...] = ()

    def columns_of(self, alias: str) -> Mapping[str, Expr]:
        """Return the columns of an alias by name."""
        if alias not in self.aliases:
            raise bug(f"unknown alias {alias}", f"in scope are {sorted(self.aliases)}")
        return self.aliases[alias]


NOTHING = Scope({})


def both(left: Scope, right: Scope) -> Scope:
    """Return the names of both sides."""
    return Scope(
        {**left.aliases, **right.aliases},
        {**left.merged, **right.merged},
        left.order + right.order,
    )


def to_expr(tokens: Tokens, scope: Scope) -> Expr:
    """Return the expression with every column reference resolved in `scope`.

    A token of kind `hole` stands for something computed before: its value is a column's name.
    """
    _refuse_subqueries(tokens)
    if has_clock(tokens):
        raise refuse(
            "now() or one of its kin outside the conditions of WHERE, HAVING and inner joins",
            "the value of every row would change with each refresh",
        )
    tokens = stripped(tokens)
    parts: list[str | Ref | Expr] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.spaced and at:
            parts.append(" ")
        if token.kind == "hole":
            parts.append(Ref(token.value))
            at += 1
            continue
        found, taken = _reference(tokens, at, scope)
        parts.append(token.text if found is None else found)
        at += taken
    return text(*parts)


def conjuncts(tokens: Tokens) -> list[Tokens]:
    """Return the conditions that AND joins at the top level; TRUE or nothing gives none.

    Canonical text has no BETWEEN and brackets every operand, so AND outside brackets joins
    conditions and nothing else.
    """
    pieces = split(stripped(tokens), word="AND")
    if len(pieces) == 1:
        piece = stripped(tokens)
        is_true = len(piece) == 1 and piece[0].is_word("TRUE")
        return [] if is_true or not piece else [piece]
    return [c for piece in pieces for c in conjuncts(piece)]


def has_subquery(tokens: Tokens) -> bool:
    """Tell whether a query stands in an expression, also as the whole of it."""
    return any(
        opening.is_punct("(") and first.is_word("SELECT", "WITH", "VALUES")
        for opening, first in pairwise(tokens)
    )


def _refuse_subqueries(tokens: Tokens) -> None:
    """Refuse what was not taken out of an expression before."""
    if has_subquery(tokens):
        raise refuse("a subquery in this place", f"it stands in {untokenize(tokens)}")


def free_columns(parts: Iterable[Tokens], scope: Scope) -> frozenset[str]:
    """Return the columns behind the names of `scope` that stand in some runs of tokens.

    The server gives no name inside a subquery that stands for something outside already. Holes are
    columns of what is outside.
    """
    found: set[str] = set()
    for tokens in parts:
        at = 0
        while at < len(tokens):
            expr, taken = column_at(tokens, at, scope)
            found |= refs(expr) if expr is not None else set()
            at += taken
    return frozenset(found)


def column_at(tokens: Tokens, at: int, scope: Scope) -> tuple[Expr | None, int]:
    """Return the column of `scope` that stands at a place, or the hole; None if there is none."""
    if tokens[at].kind == "hole":
        return text(Ref(tokens[at].value)), 1
    return _reference(tokens, at, scope)


def _reference(tokens: Tokens, at: int, scope: Scope) -> tuple[Expr | None, int]:
    """Return the column that starts at `at` and how many tokens it takes; None if it is none."""
    token = tokens[at]
    if not token.is_name or not may_start_name(tokens, at):
        return None, 1
    dotted = at + 2 < len(tokens) and tokens[at + 1].is_punct(".")
    if not dotted:
        called = at + 1 < len(tokens) and tokens[at + 1].is_punct("(", ".", "=>")
        return (None if called or _is_keyword(tokens, at) else scope.merged.get(token.value)), 1
    if token.value not in scope.aliases or is_call(tokens, at + 3):
        return None, 1
    return _column(scope, token.value, tokens[at + 2]), 3


def _is_keyword(tokens: Tokens, at: int) -> bool:
    """Tell words that are no names: keywords in capitals, constants, the rest of a type's name.

    A column of such a name is printed in quotes, or stands where no type can.
    """
    if tokens[at].kind != "word":
        return False
    if not _is_lower(tokens[at]) or tokens[at].is_word("TRUE", "FALSE"):
        return True
    before = tokens[:at]
    while before and (_is_lower(before[-1]) or before[-1].is_punct(")")):
        before = before[: _opening(before)] if before[-1].is_punct(")") else before[:-1]
    return bool(before) and before[-1].is_punct("::")


def _is_lower(token: Token) -> bool:
    return token.kind == "word" and token.value == token.value.lower()


def _opening(tokens: Tokens) -> int:
    """Return the index of the bracket that the last token closes, as of a type's length."""
    return max(at for at, token in enumerate(tokens) if token.is_punct("("))


def may_start_name(tokens: Tokens, at: int) -> bool:
    """Names after these are types, collations, fields or the field of EXTRACT, not columns."""
    if at == 0:
        return True
    previous = tokens[at - 1]
    if previous.is_punct("::", ".") or previous.is_word("COLLATE"):
        return False
    before = tokens[at - 2] if at > 1 else None
    opens_special = previous.is_punct("(") and before and before.is_word("EXTRACT", "OPERATOR")
    return not opens_special


def is_call(tokens: Tokens, at: int) -> bool:
    """Tell whether arguments open here."""
    return at < len(tokens) and tokens[at].is_punct("(")


def _column(scope: Scope, alias: str, token: Token) -> Expr:
    columns = scope.columns_of(alias)
    name = WHOLE_ROW if token.text == "*" else token.value
    if name in columns:
        return columns[name]
    if name in _SYSTEM_COLUMNS:
        raise UnsupportedQuery(
            f"the system column {alias}.{name} cannot be used in a stream table",
            "its value tells where a row is stored and changes without any write to the row",
            "leave it out, or use the table's own key",
        )
    if name == WHOLE_ROW:
        raise refuse(
            f"the whole row of {alias}", "only a table's own row can be carried as one value"
        )
    raise bug(f"unknown column {alias}.{name}", f"{alias} has {sorted(columns)}")
