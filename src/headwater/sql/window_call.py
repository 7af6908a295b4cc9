"""The text of a window function call, with its OVER, taken apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headwater.algebra.expr import Expr, column, text
from headwater.sql.calls import CallTokens, as_expr, call_at
from headwater.sql.expression import NotParsed, tokens_of
from headwater.sql.lexer import Token, Tokens, split

_UNITS = ("ROWS", "RANGE", "GROUPS")
_DIRECTIONS = ("ASC", "DESC")


@dataclass(frozen=True, slots=True)
class Sort:
    """One item of ORDER BY; which end NULLs stand at is always said."""

    expr: Expr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a frame: so many rows after the current one, None for all there are."""

    offset: int | None
    is_start: bool

    def __str__(self) -> str:
        """As SQL writes it."""
        if self.offset is None:
            return f"UNBOUNDED {'PRECEDING' if self.is_start else 'FOLLOWING'}"
        if self.offset == 0:
            return "CURRENT ROW"
        return f"{abs(self.offset)} {'PRECEDING' if self.offset < 0 else 'FOLLOWING'}"


FIRST, LAST = Bound(None, is_start=True), Bound(None, is_start=False)
_HERE = Bound(0, is_start=False)


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows that a call looks at, counted by rows or, with RANGE, by equal values."""

    unit: str
    start: Bound
    end: Bound


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A call: function, arguments, FILTER, and what of OVER goes beyond the partition."""

    name: str
    arguments: tuple[Expr, ...]
    condition: Expr | None
    order: tuple[Sort, ...]
    frame: Frame


def spelled(call: WindowCall, keys: tuple[str, ...]) -> Expr:
    """Return the text of a call over partitions by the keys."""
    condition = () if call.condition is None else (" FILTER (WHERE ", call.condition, ")")
    frame = f"{call.frame.unit} BETWEEN {call.frame.start} AND {call.frame.end}"
    return text(
        *(call.name, "(", *_listed(call.arguments), ")", *condition, " OVER ("),
        *(("PARTITION BY ", *_listed(map(column, keys)), " ") if keys else ()),
        *(("ORDER BY ", *_listed(map(sorting, call.order)), " ") if call.order else ()),
        *(frame, ")"),
    )


def sorting(sort: Sort) -> Expr:
    """Return the text of an item of ORDER BY."""
    way = " DESC" if sort.descending else " ASC"
    return text(sort.expr, way, " NULLS FIRST" if sort.nulls_first else " NULLS LAST")


def _listed(exprs: Iterable[Expr]) -> Iterator[str | Expr]:
    for at, expr in enumerate(exprs):
        yield ", " if at else ""
        yield expr


class _Stop(Exception):
    """Ends the parse with the reason, which `parse_window` returns."""


def parse_window(expr: Expr) -> WindowCall | NotParsed:
    """Return the parts of a call with OVER (…), or what in it is not known here."""
    tokens = tokens_of(expr)
    call = call_at(tokens, 0)
    if call is None or not _is_over(tokens, call.end):
        return NotParsed("no plain call of a window function")
    try:
        return _window(call, tokens[call.end + 2 : -1])
    except _Stop as stop:
        return NotParsed(str(stop))


def parse_sort(expr: Expr) -> Sort | NotParsed:
    """Return the parts of an item of ORDER BY."""
    try:
        return _sort(tokens_of(expr))
    except _Stop as stop:
        return NotParsed(str(stop))


def _is_over(tokens: Tokens, at: int) -> bool:
    return at + 1 < len(tokens) and tokens[at].is_word("OVER") and tokens[at + 1].is_punct("(")


def _window(call: CallTokens, said: Tokens) -> WindowCall:
    schema, name = call.name
    if schema is not None:
        raise _Stop(f"the function {schema}.{name} exists in PostgreSQL only")
    if not call.is_plain:
        raise _Stop(f"{name} has more than plain arguments")
    (before, *frames), unit = _cut(said)
    _, *orders = split(before, word="ORDER")
    order = split(orders[0][1:], mark=",") if orders else []
    return WindowCall(
        name,
        tuple(map(as_expr, call.arguments)),
        None if call.filter is None else as_expr(call.filter),
        tuple(map(_sort, order)),
        _frame(unit, frames[0]) if frames else Frame("RANGE", FIRST, _HERE),
    )


def _cut(said: Tokens) -> tuple[list[Tokens], str]:
    """Cut off the frame, which begins with its unit."""
    for unit in _UNITS:
        pieces = split(said, word=unit)
        if len(pieces) > 1:
            return pieces, unit
    return [said], ""


def _sort(tokens: Tokens) -> Sort:
    """Read an item; NULL is larger than everything, unless something else is said."""
    items, descending, nulls_first = list(tokens), False, None
    if len(items) > 1 and items[-2].is_word("NULLS"):
        nulls_first = items[-1].is_word("FIRST")
        items = items[:-2]
    if len(items) > 1 and items[-1].is_word(*_DIRECTIONS):
        descending = items.pop().is_word("DESC")
    if len(split(items, word="USING")) > 1:
        raise _Stop("an order by an operator of its own")
    return Sort(as_expr(items), descending, descending if nulls_first is None else nulls_first)


def _frame(unit: str, tokens: Tokens) -> Frame:
    if unit == "GROUPS":
        raise _Stop("a frame that counts groups of equal rows")
    if len(split(tokens, word="EXCLUDE")) > 1:
        raise _Stop("a frame that leaves rows out")
    if not tokens[0].is_word("BETWEEN"):
        return Frame(unit, _bound(tokens, is_start=True), _HERE)
    start, end = split(tokens[1:], word="AND")
    return Frame(unit, _bound(start, is_start=True), _bound(end, is_start=False))


def _bound(tokens: Tokens, *, is_start: bool) -> Bound:
    if tokens[0].is_word("UNBOUNDED"):
        return FIRST if is_start else LAST
    if tokens[0].is_word("CURRENT"):
        return Bound(0, is_start)
    match tokens:
        case [Token(kind="number", text=digits), way] if digits.isdigit():
            return Bound(-int(digits) if way.is_word("PRECEDING") else int(digits), is_start)
    raise _Stop("a frame whose ends are no whole numbers")
