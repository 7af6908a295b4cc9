"""Window functions to the Window operator, one for each different partition and order.

Ties: row_number, ROWS frames, first_value and others depend on the order of rows that ORDER BY does
not tell apart, which SQL leaves open. It must fall the same way each time, or a row that goes could
not be found again: so the rows come sorted by all that the window asks for and then by a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.algebra.expr import Expr, as_column, column, template, text
from headwater.algebra.keys import unique_keys
from headwater.algebra.ops import Op, Output, Window, schema
from headwater.algebra.schema import Column
from headwater.sql.calls import find_windows, hole
from headwater.sql.lexer import Tokens, outside, spliced, split
from headwater.sql.scope import to_expr

if TYPE_CHECKING:
    from headwater.sql.from_clause import Bound
    from headwater.sql.lower import Lowering

_Group = tuple[tuple[str, ...], tuple[Expr, ...]]  # what a window partitions and orders by

_NO_TIES = {"rank", "dense_rank", "percent_rank", "cume_dist", "count", "min", "max"}
_FRAMES = ("ROWS", "RANGE", "GROUPS")
_IMAGE = ')::text COLLATE "C"'


@dataclass(frozen=True)
class _Spec:
    """A window: what it partitions and orders by, and its frame, as tokens."""

    partition: tuple[Tokens, ...] = ()
    order: tuple[Tokens, ...] = ()
    frame: Tokens = ()


def lower_windows(
    low: Lowering,
    bound: Bound,
    runs: list[Tokens],
    named: Sequence[tuple[str, Tokens]],
    params: tuple[str, ...],
) -> tuple[Op, list[Tokens]]:
    """Return the rows with the values of all window functions, and expressions with holes."""
    specs: dict[str, _Spec] = {}
    for name, tokens in named:
        specs[name] = _spec(tokens, specs)
    lowering = _Windows(low, bound, specs, params)
    replaced = [lowering.replaced(tokens) for tokens in runs]
    return lowering.build(), replaced


def _spec(tokens: Tokens, named: dict[str, _Spec]) -> _Spec:
    """Read what OVER encloses; a name in front stands for another window."""
    base = _Spec()
    if tokens and tokens[0].is_name and not tokens[0].is_word("PARTITION", "ORDER", *_FRAMES):
        base, tokens = named[tokens[0].value], tokens[1:]
    rest = list(tokens)
    frame_at = next((i for i in outside(rest) if rest[i].is_word(*_FRAMES)), len(rest))
    frame, rest = rest[frame_at:], rest[:frame_at]
    order_at = next((i for i in outside(rest) if rest[i].is_word("ORDER")), len(rest))
    order, rest = rest[order_at + 2 :], rest[:order_at]
    partition = rest[2:]
    return _Spec(
        tuple(split(partition, mark=",")) if partition else base.partition,
        tuple(split(order, mark=",")) if order else base.order,
        frame or base.frame,
    )


class _Windows:
    """Collects calls by partition and order while expressions are rewritten."""

    def __init__(
        self, low: Lowering, bound: Bound, named: dict[str, _Spec], params: tuple[str, ...]
    ) -> None:
        self._low, (self._op, self._scope) = low, bound
        self._named, self._params = named, params
        self._extra: dict[Expr, str] = {}  # partitions by expressions, computed below
        self._groups: dict[_Group, dict[Expr, str]] = {}
        self._tied: set[_Group] = set()

    def replaced(self, tokens: Tokens) -> Tokens:
        """Put a hole for each window function call."""
        pieces = []
        for start, word, end in find_windows(tokens):
            name = self._call(tokens, start, word, end)
            pieces.append((start, end, [hole(name, spaced=tokens[start].spaced)]))
        return spliced(tokens, pieces)

    def _call(self, tokens: Tokens, start: int, word: int, end: int) -> str:
        """Return the column of a call; `word` is where its OVER stands."""
        said = tokens[word + 1]
        named = not said.is_punct("(")
        spec = self._named[said.value] if named else _spec(tokens[word + 2 : end - 1], self._named)
        keys = (*self._params, *dict.fromkeys(map(self._key, spec.partition)))
        order = tuple(to_expr(item, self._scope) for item in spec.order)
        name = tokens[start].value.lower()
        if name not in _NO_TIES or (spec.frame and not spec.frame[0].is_word("RANGE")):
            self._tied.add((keys, order))
        call = to_expr(tokens[start:word], self._scope)
        frame = to_expr(spec.frame, self._scope) if spec.frame else None
        calls = self._groups.setdefault((keys, order), {})
        whole = over(call, keys, order, frame)
        return calls.setdefault(whole, self._low.namer.unique(name))

    def _key(self, tokens: Tokens) -> str:
        expr = to_expr(tokens, self._scope)
        bare = as_column(expr)
        if bare is not None:
            return bare
        if expr not in self._extra:
            self._extra[expr] = self._low.namer.unique("partition")
        return self._extra[expr]

    def build(self) -> Op:
        """Stack one operator per partition and order on the input."""
        op = self._op
        if self._extra:
            op = self._low.extended(op, [(name, expr) for expr, name in self._extra.items()])
        for (keys, order), calls in self._groups.items():
            sorts = self._sorts(op, keys, order) if (keys, order) in self._tied else ()
            types = self._low.types(Window(op, keys, sorts, ()), list(calls))
            outputs = (
                Output(Column(name, type), expr)
                for (expr, name), type in zip(calls.items(), types, strict=True)
            )
            op = Window(op, keys, sorts, tuple(outputs))
        return op

    def _sorts(self, op: Op, keys: tuple[str, ...], order: tuple[Expr, ...]) -> tuple[Expr, ...]:
        ties = tie_break(op, keys, order)
        return order + ties if ties else ()


def tie_break(op: Op, keys: tuple[str, ...], order: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return what sorts rows of equal keys that an order leaves equal: a key, or all they show.

    Nothing, if keys and order tell all rows apart.
    """
    unique, columns = unique_keys(op), schema(op)
    known = {*keys, *(c for c in map(as_column, order) if c)}
    if any(key <= known for key in unique):
        return ()
    if unique:
        return tuple(column(c.name) for c in columns if c.name in unique[0])
    parts: list[str | Expr] = []
    for c in columns:
        parts += [", " if parts else "", column(c.name)]
    return (text("ROW(", *parts, _IMAGE),)


def is_row_image(expr: Expr) -> bool:
    """Tell whether an expression sorts rows by all that they show."""
    said = template(expr)
    return said.startswith("ROW(") and said.endswith(_IMAGE)


def over(
    call: Expr, keys: tuple[str, ...], order: tuple[Expr, ...], frame: Expr | None = None
) -> Expr:
    """Return a call over a window."""
    parts: list[str | Expr] = []
    for word, items in (("PARTITION BY ", [column(k) for k in keys]), ("ORDER BY ", [*order])):
        for n, item in enumerate(items):
            parts += [", " if n else (" " if parts else "") + word, item]
    if frame is not None:
        parts += [" " if parts else "", frame]
    return text(call, " OVER (", *parts, ")")
