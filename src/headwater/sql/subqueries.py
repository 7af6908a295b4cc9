"""Conditions with subqueries to semi- and anti-joins, where they stand among conditions that AND
joins and so keep rows:

    EXISTS q        ⋉ q                 x IN q, x op ANY q    ⋉ q on x op y
    NOT EXISTS q    ▷ q                 x op ALL q            ▷ q on (x op y) IS NOT TRUE
    x NOT IN q      ▷ q on x = y, then where y is NULL, then where x is

Anywhere else a subquery is a value (`sql/subquery_values.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.algebra.expr import Expr, as_column, column, refs, text
from headwater.algebra.ops import AntiJoin, Filter, Op, SemiJoin, Timed, schema
from headwater.algebra.schema import names
from headwater.sql.calls import find_aggregates, find_set_calls, find_windows
from headwater.sql.clock import BEFORE, NOW, has_clock, read_clock
from headwater.sql.correlate import correlate
from headwater.sql.from_clause import Common, lower_from, reads_outside, renamed_holes
from headwater.sql.lexer import Tokens, closing, stripped
from headwater.sql.parse import parse_tokens
from headwater.sql.quantified import Quantified, find_quantified, operand
from headwater.sql.scope import NOTHING, Scope, both, conjuncts, free_columns, has_subquery, to_expr
from headwater.sql.subquery_values import any_row, without_subqueries
from headwater.sql.syntax import Ordered, Query, Select

if TYPE_CHECKING:
    from headwater.sql.lower import Lowering


def filtered(low: Lowering, op: Op, scope: Scope, tokens: Tokens, common: Common) -> Op:
    """Return the rows for which a condition holds; plain conditions are looked at first."""
    tests = conjuncts(tokens)
    plain = [t for t in tests if not has_subquery(t)]
    fixed = tuple(to_expr(t, scope) for t in plain if not has_clock(t))
    op = Filter(op, fixed) if fixed else op
    op = _timed(op, scope, [t for t in plain if has_clock(t)])
    for test in tests:
        if has_subquery(test):
            op = _Condition(low, op, scope, common).applied(test)
    return op


def _timed(op: Op, scope: Scope, tests: list[Tokens]) -> Op:
    """Return the rows for which conditions on the time hold."""
    now, past = (
        tuple(to_expr(read_clock(t, setting), scope) for t in tests) for setting in (NOW, BEFORE)
    )
    return Timed(op, now, past) if tests else op


@dataclass(frozen=True)
class _Right:
    """What a subquery becomes as the right side of a join: how it joins, and its outputs."""

    op: Op
    on: tuple[Expr, ...]
    outputs: tuple[str, ...]


class _Condition:
    """One condition with a subquery, over some rows."""

    def __init__(self, low: Lowering, op: Op, scope: Scope, common: Common) -> None:
        self._low, self._op, self._scope, self._common = low, op, scope, common

    def applied(self, tokens: Tokens) -> Op:
        """Return the rows for which the condition is true."""
        test, negated = stripped(tokens), False
        while test[0].is_word("NOT") and test[1].is_punct("(") and _ends(test, 1):
            test, negated = stripped(test[1:]), not negated
        if test[0].is_word("EXISTS") and _ends(test, 1):
            right = self._right(any_row(parse_tokens(test[2:-1])))
            return (AntiJoin if negated else SemiJoin)(self._op, right.op, right.on)
        compared = find_quantified(test)
        if compared is not None:
            return self._compared(compared, negated=negated)
        op, (plain,) = without_subqueries(self._low, self._op, self._scope, [tokens], self._common)
        return Filter(op, (to_expr(plain, self._scope),))

    def _compared(self, test: Quantified, *, negated: bool) -> Op:
        self._op, plain = without_subqueries(
            self._low, self._op, self._scope, list(test.left), self._common
        )
        ours = [to_expr(tokens, self._scope) for tokens in plain]
        right = self._right(parse_tokens(test.query))
        theirs = [column(name) for name in right.outputs]
        compared = test.compared(ours, theirs)
        match test.is_all, negated:
            case False, False:
                same = [text(a, " = ", b) for a, b in zip(ours, theirs, strict=True)]
                tests = tuple(same) if test.operator == "=" and _are_columns(ours) else (compared,)
                return SemiJoin(self._op, right.op, right.on + tests)
            case True, False:
                return self._without(right, text("(", compared, ") IS NOT TRUE"))
            case True, True:
                false = text("(", compared, ") IS FALSE")
                return SemiJoin(self._op, right.op, (*right.on, false))
        if len(ours) > 1 or test.operator != "=":
            return self._without(right, text("(", compared, ") IS NOT FALSE"))
        return self._not_in(right, ours[0], theirs[0])

    def _without(self, right: _Right, test: Expr) -> Op:
        return AntiJoin(self._op, right.op, (*right.on, test))

    def _not_in(self, right: _Right, ours: Expr, theirs: Expr) -> Op:
        """Three joins, of which the first can hash, instead of one by (x = y) IS NOT FALSE.

        NULL itself is asked for: IS NULL also holds for a composite whose fields are all NULL.
        """
        of = {c.name: c for c in (*schema(self._op), *schema(right.op))}
        self._op = self._without(right, text(operand(ours), " = ", theirs))
        for value in (theirs, ours):
            bare = as_column(value)
            if bare is None or of[bare].nullable:
                self._op = self._without(right, text(operand(value), " IS NOT DISTINCT FROM NULL"))
        return self._op

    # --- the right side ---

    def _right(self, query: Query) -> _Right:
        if isinstance(query, Ordered) and query.limit is None and query.offset is None:
            query = query.query
        if isinstance(query, Select) and self._is_simple(query):
            return self._simple(query)
        wanted = reads_outside(query, self._scope, self._common)
        if not wanted:
            op = self._low.query(query, self._common)
            return _Right(op, (), names(schema(op)))
        outer = correlate(self._low, self._op, self._scope, wanted)
        op = self._low.query(renamed_holes(query, outer.renamed), self._common, outer)
        return _Right(op, outer.matches, names(schema(op))[len(outer.params) :])

    def _is_simple(self, query: Select) -> bool:
        """Tell whether a query is a join whose conditions alone read from outside."""
        low = self._low
        grouped = query.group_by is not None or query.having is not None or query.distinct_on
        if grouped or not query.from_items:
            return False
        runs = [t.tokens for t in query.targets]
        is_more = any(
            bool(find_aggregates(t, low.analysis.aggregates, NOTHING))
            or bool(find_set_calls(t, low.analysis.set_functions))
            or any(True for _ in find_windows(t))
            or has_subquery(t)
            or bool(free_columns([t], self._scope))
            for t in runs
        )
        if is_more or reads_outside(query.from_items, self._scope, self._common):
            return False
        tests = conjuncts(query.where) if query.where is not None else []
        nested = (t for t in tests if has_subquery(t) or has_clock(t))
        return not any(free_columns([t], self._scope) for t in nested)

    def _simple(self, query: Select) -> _Right:
        op, scope = lower_from(self._low, query.from_items, self._common, None)
        everything = both(self._scope, scope)
        on: list[Expr] = []
        for test in conjuncts(query.where) if query.where is not None else []:
            if has_subquery(test) or has_clock(test):
                op = filtered(self._low, op, scope, test, self._common)
                continue
            expr = to_expr(test, everything)
            if refs(expr) <= set(names(schema(op))):
                op = Filter(op, (expr,))
            else:
                on.append(expr)
        exprs = [to_expr(t.tokens, scope) for t in query.targets]
        outputs: list[str] = []
        for target, expr in zip(query.targets, exprs, strict=True):
            name = as_column(expr)
            if name is None:
                name = self._low.namer.unique(target.name)
                op = self._low.extended(op, [(name, expr)])
            outputs.append(name)
        return _Right(op, tuple(on), tuple(outputs))


def _ends(tokens: Tokens, opening: int) -> bool:
    return tokens[opening].is_punct("(") and closing(tokens, opening) == len(tokens) - 1


def _are_columns(exprs: list[Expr]) -> bool:
    return all(as_column(expr) is not None for expr in exprs)
