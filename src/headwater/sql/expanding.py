"""Set-returning functions, in FROM and in SELECT, to the Expand operator.

In FROM they may read what stands to their left. In SELECT all calls of one level run side by side,
the shorter ones padded with NULLs, as in ROWS FROM; calls in the arguments of others run before.
Those that GROUP BY or a window asks for run before there are groups or windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.algebra.expr import column
from headwater.algebra.ops import Expand, Op
from headwater.algebra.schema import Schema, names
from headwater.sql.calls import CallTokens, find_set_calls, hole
from headwater.sql.lexer import Tokens, spliced, swapped, untokenize
from headwater.sql.parse import refuse
from headwater.sql.scope import Scope, both, to_expr
from headwater.sql.syntax import FunctionItem

if TYPE_CHECKING:
    from headwater.sql.from_clause import Bound, Common
    from headwater.sql.lower import Lowering


def lower_functions(low: Lowering, left: Bound, item: FunctionItem, common: Common) -> Bound:
    """Return the rows to the left, each with the rows that the functions make of it."""
    op, scope = left
    functions = []
    for tokens in item.functions:
        op, plain = low.without_subqueries(op, scope, tokens, common)
        functions.append(to_expr(plain, scope))
    columns = low.rows(op, functions, numbered=item.numbered)
    made = tuple(low.fresh(c.name, c.type) for c in columns)
    shown = item.columns + names(columns)[len(item.columns) :]
    order = tuple((n, column(c.name)) for n, c in zip(shown, made, strict=True))
    own = Scope({item.alias: dict(order)}, {}, order)
    return Expand(op, tuple(functions), made, item.numbered), both(scope, own)


def expanded(low: Lowering, op: Op, scope: Scope, runs: list[Tokens]) -> tuple[Op, list[Tokens]]:
    """Return the rows of all set-returning calls in some expressions, and those with holes."""
    calls = [find_set_calls(tokens, low.analysis.set_functions) for tokens in runs]
    if not any(calls):
        return op, runs
    pairs = list(zip(runs, calls, strict=True))
    # the arguments first: what is left of a call is its own
    op, inside = expanded(low, op, scope, [t[c.start + 1 : c.end] for t, own in pairs for c in own])
    rest = iter(inside)
    said = [[[t[c.start], *next(rest)] for c in own] for t, own in pairs]
    functions = {untokenize(one): to_expr(one, scope) for own in said for one in own}
    rows = {name: low.rows(op, [f], numbered=False) for name, f in functions.items()}
    made = {name: _Rows.of(low, columns) for name, columns in rows.items()}
    op = Expand(op, tuple(functions.values()), tuple(c for m in made.values() for c in m.columns))
    replaced = [
        _replaced(tokens, [(c, made[untokenize(one)]) for c, one in zip(own, ones, strict=True)])
        for (tokens, own), ones in zip(pairs, said, strict=True)
    ]
    return op, replaced


def expanded_first(
    low: Lowering, bound: Bound, parts: Sequence[Tokens], runs: list[Tokens]
) -> tuple[Op, list[Tokens]]:
    """Return the rows of set-returning calls in some parts, and expressions with holes for those.

    What is repeated elsewhere is the same call, which runs once.
    """
    op, scope = bound
    calls = [said for tokens in parts for said in _said(low, tokens)]
    op, made = expanded(low, op, scope, calls)
    for old, new in zip(calls, made, strict=True):
        runs = [swapped(tokens, old, new) for tokens in runs]
    return op, runs


def _said(low: Lowering, tokens: Tokens) -> Iterator[Tokens]:
    """Yield the calls of an expression; of one that makes rows, with the field that is taken."""
    for call in find_set_calls(tokens, low.analysis.set_functions):
        match tokens[call.end : call.end + 2]:
            case [closing, dot] if closing.is_punct(")") and dot.is_punct("."):
                yield tokens[call.start - 1 : call.end + 3]
            case _:
                yield tokens[call.start : call.end]


@dataclass(frozen=True)
class _Rows:
    """What a call makes: its columns in the tree, and their own names."""

    columns: Schema
    fields: tuple[str, ...]

    @classmethod
    def of(cls, low: Lowering, columns: Schema) -> _Rows:
        return cls(tuple(low.fresh(c.name, c.type) for c in columns), names(columns))


def _replaced(tokens: Tokens, calls: list[tuple[CallTokens, _Rows]]) -> Tokens:
    """Put a hole for each call; of a call that makes rows, for the field that is taken of it."""
    pieces = []
    for call, made in calls:
        start, end, field = call.start, call.end, 0
        if len(made.columns) > 1:
            start, end, field = _field(tokens, call, made)
        kept = hole(made.columns[field].name, spaced=tokens[start].spaced)
        pieces.append((start, end, [kept]))
    return spliced(tokens, pieces)


def _field(tokens: Tokens, call: CallTokens, made: _Rows) -> tuple[int, int, int]:
    """Return where `(call).field` stands, and which field it is."""
    match tokens[call.end : call.end + 3]:
        case [closing, dot, name] if closing.is_punct(")") and dot.is_punct("."):
            return call.start - 1, call.end + 3, made.fields.index(name.value)
    raise refuse(
        f"the rows of {call.name[1]}() as one value", "only their fields can be kept in columns"
    )
