"""The first rows of an order: what a filter on row_number() or rank() over all rows keeps."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headwater.algebra.expr import Expr, Ref, template, text
from headwater.algebra.keys import unique_keys
from headwater.algebra.ops import Filter, Op, Project, Timed, Whole, Window, schema
from headwater.algebra.walk import walk
from headwater.postgres.quote import expression

_NUMBERED = "row_number() OVER (ORDER BY "
_RANKED = "rank() OVER (ORDER BY "
_FRAME = re.compile(r"\b(?:ROWS|RANGE|GROUPS) ")
_NUMBER = re.compile(r"(?:^|, )\d")  # sorts by nothing in a window, by a column in a query
_LEAST = 100  # rows of a reserve; a long list has as many again as it shows


@dataclass(frozen=True, slots=True)
class Top:
    """The rows of `input`, of which only the first `last` by `order` can be shown.

    If `has_peers`, some may be equal in that order, as ties of WITH TIES or as copies of a row: of
    those all are among the first or none.
    """

    windows: tuple[Window, ...]
    input: Op
    order: Expr
    last: int
    has_peers: bool

    @property
    def kept(self) -> int:
        """How many rows are kept when the reserve is full."""
        return self.last + max(self.last, _LEAST)


def find_top(view: Op) -> Top | None:
    """Return what decides on the rows of a view, if that is ORDER BY … LIMIT.

    Not over a query that is computed as a whole: its change costs as much as the whole.
    """
    match view:
        case Project():
            return find_top(view.input)
        case Filter():
            return _top(view) or find_top(view.input)
    return None


def _top(op: Filter) -> Top | None:
    window = op.input
    if not isinstance(window, Window):
        return None
    last, ranked = _last(op, window), _order(window, _RANKED)
    order = ranked or _order(window, _NUMBERED)
    if not last or order is None or _NUMBER.search(expression(order)):
        return None
    windows = (window, *_numbering(window, order))
    rows = windows[-1].input
    is_followed = schema(rows) and not any(isinstance(below, Whole) for below in walk(rows))
    has_peers = ranked is not None or not unique_keys(rows)
    return Top(windows, rows, _sorted(window, order), last, has_peers) if is_followed else None


def _numbering(window: Window, order: Expr) -> tuple[Window, ...]:
    """Return the window below that numbers rows in the same order, for OFFSET beside WITH TIES."""
    below = window.input
    if not isinstance(below, Window):
        return ()
    said, number = expression(order), _order(below, _NUMBERED)
    is_same = number is not None and f"{expression(number)}, ".startswith(f"{said}, ")
    return (below,) if is_same else ()


def _sorted(window: Window, order: Expr) -> Expr:
    """Return the order in which the rows come, which leaves no ties where that matters."""
    parts: list[str | Expr] = []
    for one in window.order:
        parts += [", " if parts else "", one]
    return text(*parts) if parts else order


def first_rows(op: Filter | Timed) -> tuple[Window, str] | None:
    """Return a window, and ORDER BY and LIMIT, if a filter keeps the first rows by row_number().

    The server then keeps no more than those while it sorts.
    """
    window = op.input
    order = _order(window, _NUMBERED) if isinstance(window, Window) else None
    if order is None or not isinstance(window, Window):
        return None
    last = _last(op, window)
    return (window, f"ORDER BY {expression(order)} LIMIT {last}") if last is not None else None


def last_row(op: Filter | Timed) -> int | None:
    """Return the number of the last row that a filter on row_number() or rank() over all rows
    keeps."""
    window = op.input
    if not isinstance(window, Window) or not (_order(window, _NUMBERED) or _order(window, _RANKED)):
        return None
    return _last(op, window)


def _order(window: Window, call: str) -> Expr | None:
    """Return what a window over all rows sorts by, if that call is its only one."""
    if window.keys or len(window.calls) != 1:
        return None
    expr = window.calls[0].expr
    match expr.parts:
        case (str(first), *rest) if first.startswith(call) and not _FRAME.search(template(expr)):
            return _without_end(text(first.removeprefix(call), *rest))
    return None


def _without_end(expr: Expr) -> Expr:
    *parts, end = expr.parts
    assert isinstance(end, str)
    return text(*parts, end.removesuffix(")"))


def _last(op: Filter | Timed, window: Window) -> int | None:
    for conjunct in op.conjuncts:
        match conjunct.parts:
            case (Ref(name), str(rest)) if name == window.calls[-1].column.name:
                limit = rest.removeprefix(" <= ")
                if rest.startswith(" <= ") and limit.isdigit():
                    return int(limit)
    return None
