"""Calls of aggregates, window and set-returning functions in the tokens of an expression."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headwater.algebra.expr import Expr, Ref, text
from headwater.sql.lexer import Token, Tokens, closing, split, tokenize
from headwater.sql.parse import opens_query
from headwater.sql.scope import Scope, is_call, may_start_name

Names = frozenset[tuple[str | None, str]]
_MODIFIERS = ("DISTINCT", "VARIADIC", "ALL")


@dataclass(frozen=True, slots=True)
class CallTokens:
    """A call in an expression: where it stands and what it says; `bare` ends before FILTER."""

    start: int
    bare: int
    end: int
    name: tuple[str | None, str]
    arguments: tuple[Tokens, ...]
    filter: Tokens | None
    is_plain: bool  # no DISTINCT, ORDER BY, WITHIN GROUP, VARIADIC
    is_distinct: bool = False  # DISTINCT, and none of the others; it is not part of an argument


def find_aggregates(tokens: Tokens, aggregates: Names, scope: Scope) -> list[CallTokens]:
    """Return the aggregate calls of an expression that belong to this query, left to right.

    One inside a subquery belongs to this query if all columns that it reads do. One with OVER is a
    window function, but may have aggregates inside.
    """

    def is_ours(call: CallTokens, nested: bool) -> bool:
        over = call.end < len(tokens) and tokens[call.end].is_word("OVER")
        return not over and (not nested or _reads_only(tokens[call.start : call.end], scope))

    return list(_found(tokens, aggregates, is_ours))


def find_set_calls(tokens: Tokens, functions: Names) -> list[CallTokens]:
    """Return the calls of set-returning functions, the outermost of nested ones."""
    return list(_found(tokens, functions, lambda call, nested: not nested))


def find_windows(tokens: Tokens) -> Iterator[tuple[int, int, int]]:
    """Yield (start, OVER, end) of each window function call."""
    at = 0
    while at < len(tokens):
        call = call_at(tokens, at)
        if call is not None and call.end < len(tokens) and tokens[call.end].is_word("OVER"):
            over = call.end
            named = not tokens[over + 1].is_punct("(")
            end = over + 2 if named else closing(tokens, over + 1) + 1
            yield at, over, end
            at = end
        else:
            at += 1


def hole(name: str, *, spaced: bool = False) -> Token:
    """Return the token that stands for a column which is computed before."""
    return Token("hole", name, name, spaced)


def with_holes(*parts: str | Token) -> Tokens:
    """Return the tokens of text with holes in it."""
    return [t for part in parts for t in ([part] if isinstance(part, Token) else tokenize(part))]


def as_expr(tokens: Tokens) -> Expr:
    """Return the expression of tokens in which every column is a hole."""
    parts: list[str | Ref] = []
    for at, token in enumerate(tokens):
        parts.append(" " if token.spaced and at else "")
        parts.append(Ref(token.value) if token.kind == "hole" else token.text)
    return text(*parts)


def _found(
    tokens: Tokens, names: Names, is_ours: Callable[[CallTokens, bool], bool]
) -> Iterator[CallTokens]:
    at = nested_until = 0
    while at < len(tokens):
        if tokens[at].is_punct("(") and at >= nested_until:
            end = closing(tokens, at)
            nested_until = end if opens_query(tokens[at + 1 : end]) else nested_until
        call = call_at(tokens, at)
        if call is not None and call.name in names and is_ours(call, at < nested_until):
            yield call
            at = call.end
        else:
            at += 1


def _reads_only(tokens: Tokens, scope: Scope) -> bool:
    """Tell whether columns are read, and none from anywhere else."""
    aliases = {
        token.value
        for at, token in enumerate(tokens[:-2])
        if token.is_name and tokens[at + 1].is_punct(".") and may_start_name(tokens, at)
        if not is_call(tokens, at + 3)
    }
    reads = bool(aliases) or any(token.kind == "hole" for token in tokens)
    return reads and aliases <= scope.aliases.keys()


def call_at(tokens: Tokens, at: int) -> CallTokens | None:
    """Return the call that starts here, of whatever function; None if none does."""
    if not tokens[at].is_name or not may_start_name(tokens, at):
        return None
    schema, opening = None, at + 1
    if opening + 1 < len(tokens) and tokens[opening].is_punct("."):
        schema, opening = tokens[at].value, at + 3
    if not is_call(tokens, opening):
        return None
    name = tokens[opening - 1]
    folded = name.value if name.kind == "quoted" else name.value.lower()
    return _call(tokens, at, opening, (schema, folded))


def _call(tokens: Tokens, at: int, opening: int, name: tuple[str | None, str]) -> CallTokens:
    end = closing(tokens, opening) + 1
    inside = tokens[opening + 1 : end - 1]
    word = inside[0].value.upper() if inside and inside[0].is_word(*_MODIFIERS) else ""
    plain = not word and len(split(inside, word="ORDER")) == 1
    distinct = word == "DISTINCT" and len(split(inside, word="ORDER")) == 1
    if end < len(tokens) and tokens[end].is_word("WITHIN"):
        plain, distinct, end = False, False, closing(tokens, end + 2) + 1
    bare, condition = end, None
    if end < len(tokens) and tokens[end].is_word("FILTER"):
        condition_end = closing(tokens, end + 1)
        condition, end = tokens[end + 3 : condition_end], condition_end + 1
    arguments = tuple(split(inside[distinct:], mark=",")) if inside else ()
    return CallTokens(at, bare, end, name, arguments, condition, plain, distinct)
