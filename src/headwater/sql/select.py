"""A SELECT block to operators, with its order where that decides which rows there are.

FROM, WHERE, GROUP BY, HAVING, window functions, set-returning functions, the outputs, DISTINCT,
DISTINCT ON, LIMIT: each takes the rows of the one before. An order alone means nothing in a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.algebra.expr import Expr, column, text
from headwater.algebra.ops import Filter, Op, Output, Project, Window, passing, schema
from headwater.algebra.schema import BIGINT, names
from headwater.sql.calls import find_aggregates, find_windows
from headwater.sql.correlate import Outer
from headwater.sql.expanding import expanded, expanded_first
from headwater.sql.from_clause import Common, lower_from
from headwater.sql.grouping import lower_grouped
from headwater.sql.lexer import Tokens, outside, untokenize
from headwater.sql.parse import refuse
from headwater.sql.scope import NOTHING, Scope, to_expr
from headwater.sql.subquery_values import without_subqueries
from headwater.sql.syntax import Ordered, Query, Select, output_names
from headwater.sql.windows import lower_windows, over, tie_break

if TYPE_CHECKING:
    from headwater.sql.lower import Lowering

_HOW = ("ASC", "DESC", "NULLS", "USING")


@dataclass(frozen=True)
class _Sort:
    """One item of ORDER BY: what it sorts by, and how."""

    value: Tokens
    how: str

    @classmethod
    def of(cls, tokens: Tokens) -> _Sort:
        at = next((n for n in outside(tokens) if tokens[n].is_word(*_HOW)), None)
        return cls(tokens, "") if at is None else cls(tokens[:at], f" {untokenize(tokens[at:])}")

    @property
    def number(self) -> int | None:
        """The number of an output column, if that is what it sorts by."""
        is_number = len(self.value) == 1 and self.value[0].kind == "number"
        return int(self.value[0].text) if is_number else None


@dataclass(frozen=True)
class Sorted:
    """Rows with the columns that they are sorted by after their own; `width` are their own."""

    op: Op
    by: tuple[Expr, ...]
    width: int

    def plain(self) -> Op:
        """Forget the order."""
        columns = schema(self.op)
        if len(columns) == self.width:
            return self.op
        return Project(self.op, passing(columns[: self.width]))


def lower_select(low: Lowering, select: Select, common: Common, outer: Outer | None) -> Op:
    """Return the rows of a SELECT without an order."""
    return _Block(low, select, (), common, outer).made().plain()


def lower_sorted(low: Lowering, query: Query, common: Common, outer: Outer | None) -> Sorted:
    """Return the rows of a query with what they are sorted by."""
    if not isinstance(query, Ordered):
        op = low.query(query, common, outer)
        return Sorted(op, (), len(schema(op)))
    sorts = [_Sort.of(tokens) for tokens in query.order_by]
    inner = query.query
    if isinstance(inner, Select):
        made = _Block(low, inner, tuple(sorts), common, outer).made()
    else:
        op = low.query(inner, common, outer)
        made = Sorted(op, tuple(_by_output(s, inner, op) for s in sorts), len(schema(op)))
    if query.limit is None and query.offset is None:
        return made
    return _limited(low, query, made, common, outer)


def _by_output(sort: _Sort, query: Query, op: Op) -> Expr:
    """A set operation is sorted by its output columns, by number or name."""
    titles = output_names(query)
    at = sort.number - 1 if sort.number is not None else titles.index(sort.value[-1].value)
    own = names(schema(op))[len(schema(op)) - len(titles) :]
    return text(column(own[at]), sort.how)


@dataclass(frozen=True)
class _Block:
    """One SELECT, what it is sorted by, and what stands around it."""

    low: Lowering
    select: Select
    sorts: tuple[_Sort, ...]
    common: Common
    outer: Outer | None

    @property
    def params(self) -> tuple[str, ...]:
        return self.outer.params if self.outer else ()

    def made(self) -> Sorted:
        """Go through the clauses in the order in which they take effect."""
        low, select = self.low, self.select
        op, scope = lower_from(low, select.from_items, self.common, self.outer)
        if select.where is not None:
            op = low.filtered(op, scope, select.where, self.common)
        runs = self._expressions()
        if self._is_grouped(runs, scope):
            around = self.common, self.outer
            op, runs, having = lower_grouped(low, (op, scope), select, runs, around)
            if having is not None:
                op = low.filtered(op, scope, having, self.common)
        op, runs = without_subqueries(low, op, scope, runs, self.common)
        op, runs = expanded_first(low, (op, scope), self._windows(runs), runs)
        count = len(runs) - len(select.windows)
        named = [(n, tokens) for (n, _), tokens in zip(select.windows, runs[count:], strict=True)]
        op, runs = lower_windows(low, (op, scope), runs[:count], named, self.params)
        op, runs = expanded(low, op, scope, runs)
        return self._outputs(op, [to_expr(tokens, scope) for tokens in runs])

    def _expressions(self) -> list[Tokens]:
        """The outputs, what sorts them, DISTINCT ON, and named windows."""
        runs: list[Tokens] = [t.tokens for t in self.select.targets]
        runs += [runs[s.number - 1] if s.number is not None else s.value for s in self.sorts]
        return [*runs, *self.select.distinct_on, *(tokens for _, tokens in self.select.windows)]

    def _windows(self, runs: list[Tokens]) -> list[Tokens]:
        """What windows partition and sort by."""
        count = len(runs) - len(self.select.windows)
        calls = (t[over:end] for t in runs[:count] for _, over, end in find_windows(t))
        return [*calls, *runs[count:]]

    def _is_grouped(self, runs: list[Tokens], scope: Scope) -> bool:
        aggregates = self.low.analysis.aggregates
        said = self.select.group_by is not None or self.select.having is not None
        return said or any(find_aggregates(tokens, aggregates, scope) for tokens in runs)

    def _outputs(self, op: Op, exprs: list[Expr]) -> Sorted:
        """Compute the outputs and what sorts them; then DISTINCT or DISTINCT ON."""
        count, sorts = len(self.select.targets), len(self.sorts)
        width = len(self.params) + count
        targets, by, on = exprs[:count], exprs[count : count + sorts], exprs[count + sorts :]
        wanted = [(p, column(p)) for p in self.params]
        wanted += [(t.name, e) for t, e in zip(self.select.targets, targets, strict=True)]
        if self.select.distinct:
            op = self.low.distinct(self.low.compute(op, wanted))
            own = names(schema(op))[len(self.params) :]
            keys = [column(own[targets.index(expr)]) for expr in by]
        else:
            more = [*(("sort", e) for e in by), *(("on", e) for e in on)]
            op = self.low.compute(op, [*wanted, *more])
            keys = [column(name) for name in names(schema(op))[width : width + sorts]]
        order = tuple(text(key, sort.how) for key, sort in zip(keys, self.sorts, strict=True))
        if self.select.distinct_on:
            groups = names(schema(op))[width + sorts :]
            op, number = _numbered(self.low, op, (*self.params, *groups), order)
            op = Filter(op, (text(number, " = 1"),))
        return Sorted(op, order, width)


def _numbered(
    low: Lowering, op: Op, keys: tuple[str, ...], order: tuple[Expr, ...]
) -> tuple[Op, Expr]:
    """Number the rows of equal keys in an order that leaves no ties."""
    made = low.fresh("row_number", BIGINT, nullable=False)
    whole = order + tie_break(op, keys, order)
    call = Output(made, over(text("row_number()"), keys, whole))
    return Window(op, keys, (), (call,)), column(made.name)


@dataclass(frozen=True)
class _Bound:
    """What LIMIT or OFFSET says: a number, or an expression that may be NULL, which means nothing.

    Both take a bigint; the server leaves out the cast where it prints them.
    """

    expr: Expr
    is_number: bool

    @classmethod
    def of(cls, tokens: Tokens, scope: Scope) -> _Bound:
        expr = to_expr(tokens, scope)
        is_number = len(tokens) == 1 and tokens[0].text.isdigit()
        return cls(expr if is_number else text("(", expr, ")::bigint"), is_number)

    def compared(self, *test: str | Expr) -> Expr:
        """Return a test that holds if this is NULL."""
        return text(*test) if self.is_number else text("COALESCE(", *test, ", TRUE)")

    def before(self, limit: _Bound) -> Expr:
        """Return the number of the last row, if this is the offset; a number, where both are."""
        match self.expr.parts, limit.expr.parts:
            case (str(first),), (str(more),) if self.is_number and limit.is_number:
                return text(str(int(first) + int(more)))
        start = self.expr if self.is_number else text("COALESCE(", self.expr, ", 0)")
        return text(start, " + ", limit.expr)


def _limited(
    low: Lowering, query: Ordered, made: Sorted, common: Common, outer: Outer | None
) -> Sorted:
    """Keep the rows whose number is in the range; with ties, also those that sort as the last."""
    if not made.by:
        raise refuse("LIMIT or OFFSET without ORDER BY", "which rows they keep is left open")
    params = outer.params if outer else ()
    scope = outer.scope if outer else NOTHING
    op = made.op
    bounds: list[_Bound | None] = [None, None]
    for at, tokens in enumerate((query.limit, query.offset)):
        if tokens is not None:
            op, plain = low.without_subqueries(op, scope, tokens, common)
            bounds[at] = _Bound.of(plain, scope)
    limit, offset = bounds
    op, number = _numbered(low, op, params, made.by)
    tests = [] if offset is None else [offset.compared(number, " > ", offset.expr)]
    if limit is not None and query.with_ties:
        rank = low.fresh("rank", BIGINT, nullable=False)
        op = Window(op, params, (), (Output(rank, over(text("rank()"), params, made.by)),))
        number = column(rank.name)
        tests.append(limit.compared(limit.expr, " > 0"))  # the ties of no row are none
    if limit is not None:
        last = limit.expr if offset is None else offset.before(limit)
        tests.append(limit.compared(number, " <= ", last))
    return Sorted(Filter(op, tuple(tests)), made.by, made.width)
