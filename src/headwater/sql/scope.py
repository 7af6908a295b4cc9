"""Names in scope, and tokens to expressions: column references become holes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from headwater.algebra.expr import Expr, Ref, text
from headwater.errors import UnsupportedQuery, bug
from headwater.sql.lexer import Token, Tokens, closing, split, stripped, untokenize
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


def to_expr(tokens: Tokens, scope: Scope) -> Expr:
    """Return the expression with every column reference resolved in `scope`.

    A token of kind `hole` stands for something computed before: its value is a column's name.
    """
    refuse_subqueries(tokens)
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
        _refuse_inside(tokens, at)
        found, taken = _reference(tokens, at, scope)
        parts.append(token.text if found is None else found)
        at += taken
    return text(*parts)


def conjuncts(tokens: Tokens, scope: Scope) -> tuple[Expr, ...]:
    """Return the conditions that AND joins at the top level; TRUE alone gives none.

    Canonical text has no BETWEEN and brackets every operand, so AND outside brackets joins
    conditions and nothing else.
    """
    pieces = split(stripped(tokens), word="AND")
    if len(pieces) == 1:
        piece = stripped(tokens)
        return () if len(piece) == 1 and piece[0].is_word("TRUE") else (to_expr(piece, scope),)
    return tuple(c for piece in pieces for c in conjuncts(piece, scope))


def refuse_subqueries(tokens: Tokens) -> None:
    """Refuse a subquery in an expression, also one that is the whole of it."""
    for opening, first in pairwise(tokens):
        if opening.is_punct("(") and first.is_word("SELECT", "WITH", "VALUES"):
            raise refuse("a subquery inside an expression", "its result changes with other rows")


def _refuse_inside(tokens: Tokens, at: int) -> None:
    token = tokens[at]
    following = tokens[at + 1] if at + 1 < len(tokens) else None
    if token.is_word("OVER") and following and following.kind in ("punct", "word", "quoted"):
        previous = tokens[at - 1] if at else None
        if previous and previous.is_punct(")"):
            raise refuse("a window function", "its value depends on other rows of the partition")
    if token.is_word("GROUPING") and following and following.is_punct("("):
        raise refuse("GROUPING()", "it is a case of GROUPING SETS")


def _reference(tokens: Tokens, at: int, scope: Scope) -> tuple[Expr | None, int]:
    """Return the column that starts at `at` and how many tokens it takes; None if it is none."""
    token = tokens[at]
    if not token.is_name or not _may_start_name(tokens, at):
        return None, 1
    dotted = at + 2 < len(tokens) and tokens[at + 1].is_punct(".")
    if not dotted:
        called = at + 1 < len(tokens) and tokens[at + 1].is_punct("(", ".", "=>")
        return (None if called or _is_keyword(tokens, at) else scope.merged.get(token.value)), 1
    if token.value not in scope.aliases or _is_call(tokens, at + 3):
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


def _may_start_name(tokens: Tokens, at: int) -> bool:
    """Names after these are types, collations, fields or the field of EXTRACT, not columns."""
    if at == 0:
        return True
    previous = tokens[at - 1]
    if previous.is_punct("::", ".") or previous.is_word("COLLATE"):
        return False
    before = tokens[at - 2] if at > 1 else None
    opens_special = previous.is_punct("(") and before and before.is_word("EXTRACT", "OPERATOR")
    return not opens_special


def _is_call(tokens: Tokens, at: int) -> bool:
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


@dataclass(frozen=True, slots=True)
class CallTokens:
    """An aggregate call in an expression: where it stands and what it says."""

    start: int
    end: int
    name: tuple[str | None, str]
    arguments: tuple[Tokens, ...]
    filter: Tokens | None
    is_plain: bool  # no DISTINCT, ORDER BY, WITHIN GROUP, VARIADIC


def find_calls(tokens: Tokens, aggregates: frozenset[tuple[str | None, str]]) -> list[CallTokens]:
    """Return the aggregate calls of an expression, left to right."""
    refuse_subqueries(tokens)
    found: list[CallTokens] = []
    at = 0
    while at < len(tokens):
        call = _call_at(tokens, at, aggregates)
        if call is None:
            at += 1
        else:
            found.append(call)
            at = call.end
    return found


def _call_at(
    tokens: Tokens, at: int, aggregates: frozenset[tuple[str | None, str]]
) -> CallTokens | None:
    if not tokens[at].is_name or not _may_start_name(tokens, at):
        return None
    schema, opening = None, at + 1
    if opening + 1 < len(tokens) and tokens[opening].is_punct("."):
        schema, opening = tokens[at].value, at + 3
    if not _is_call(tokens, opening):
        return None
    name = tokens[opening - 1]
    folded = name.value if name.kind == "quoted" else name.value.lower()
    if (schema, folded) not in aggregates:
        return None
    return _call(tokens, at, opening, (schema, folded))


def _call(tokens: Tokens, at: int, opening: int, name: tuple[str | None, str]) -> CallTokens:
    end = closing(tokens, opening) + 1
    inside = tokens[opening + 1 : end - 1]
    plain = not (inside and inside[0].is_word("DISTINCT", "VARIADIC", "ALL"))
    plain = plain and len(split(inside, word="ORDER")) == 1
    if end < len(tokens) and tokens[end].is_word("WITHIN"):
        plain, end = False, closing(tokens, end + 2) + 1
    condition: Tokens | None = None
    if end < len(tokens) and tokens[end].is_word("FILTER"):
        condition_end = closing(tokens, end + 1)
        condition, end = tokens[end + 3 : condition_end], condition_end + 1
    if end < len(tokens) and tokens[end].is_word("OVER"):
        raise refuse("a window function", "its value depends on other rows of the partition")
    arguments = tuple(split(inside, mark=",")) if inside else ()
    return CallTokens(at, end, name, arguments, condition, plain)


def same(left: Tokens, right: Tokens) -> bool:
    """Tell whether two token runs are the same text."""
    return untokenize(stripped(left)) == untokenize(stripped(right))
