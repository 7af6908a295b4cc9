"""Set-returning functions, in FROM and in SELECT, to the Expand operator.

In FROM they may read what stands to their left. In SELECT all calls of one level run side by side,
the shorter ones padded with NULLs, as in ROWS FROM; calls in the arguments of others run before.
Those that GROUP BY or a window asks for run before there are groups or windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.algebra.expr import Expr, column, text
from headwater.algebra.ops import Expand, Op
from headwater.algebra.schema import Schema, names
from headwater.sql.calls import CallTokens, find_set_calls, hole, with_holes
from headwater.sql.lexer import Tokens, spliced, swapped, untokenize
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
    wanted = {
        (untokenize(one), _is_value(tokens, call)): to_expr(one, scope)
        for (tokens, own), ones in zip(pairs, said, strict=True)
        for call, one in zip(own, ones, strict=True)
    }
    rows = {key: _rows(low, op, call, as_value=key[1]) for key, call in wanted.items()}
    functions = tuple(made.function for made in rows.values())
    op = Expand(op, functions, tuple(c for made in rows.values() for c in made.columns))
    replaced = []
    for (tokens, own), ones in zip(pairs, said, strict=True):
        keys = [(untokenize(one), _is_value(tokens, c)) for c, one in zip(own, ones, strict=True)]
        replaced.append(_replaced(tokens, [(c, rows[k]) for c, k in zip(own, keys, strict=True)]))
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
        if _is_value(tokens, call):
            yield tokens[call.start : call.end]
        else:
            yield tokens[call.start - 1 : call.end + 3]


@dataclass(frozen=True)
class _Rows:
    """What a call makes: its columns in the tree, and their own names.

    Rows that are taken as one value are a single column of their text, to be read as `type`.
    """

    function: Expr
    columns: Schema
    fields: tuple[str, ...]
    type: str | None = None


def _rows(low: Lowering, op: Op, function: Expr, *, as_value: bool) -> _Rows:
    columns, type = low.rows(op, [function], numbered=False), None
    if as_value and len(columns) > 1:
        (array,) = low.types(op, [text("ARRAY(SELECT ", function, ")")])
        type = array.name.removesuffix("[]")
        function = text("unnest(ARRAY(SELECT (", function, ")::text))")
        columns = low.rows(op, [function], numbered=False)
    made = tuple(low.fresh(c.name, c.type) for c in columns)
    return _Rows(function, made, names(columns), type)


def _is_value(tokens: Tokens, call: CallTokens) -> bool:
    """Tell whether what a call makes is taken as it is, and not one field: `(call).field`."""
    match tokens[call.end : call.end + 2]:
        case [closing, dot] if closing.is_punct(")") and dot.is_punct("."):
            return False
    return True


def _replaced(tokens: Tokens, calls: list[tuple[CallTokens, _Rows]]) -> Tokens:
    """Put a hole for each call; of a call that makes rows, for the field that is taken of it."""
    pieces: list[tuple[int, int, Tokens]] = []
    for call, made in calls:
        spaced = tokens[call.start].spaced
        if made.type is not None:
            kept = hole(made.columns[0].name)
            value = with_holes(" (" if spaced else "(", kept, f")::{made.type}")
            pieces.append((call.start, call.end, value))
        elif _is_value(tokens, call):
            pieces.append((call.start, call.end, [hole(made.columns[0].name, spaced=spaced)]))
        else:
            field = made.fields.index(tokens[call.end + 2].value)
            spaced = tokens[call.start - 1].spaced
            kept = hole(made.columns[field].name, spaced=spaced)
            pieces.append((call.start - 1, call.end + 3, [kept]))
    return spliced(tokens, pieces)
