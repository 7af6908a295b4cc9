"""Subqueries as values: joins with an aggregate over what the subquery gives.

For every row of its domain D (`sql/correlate.py`) the subquery is an aggregate over what it gives
there, padded with one row of D so that none is missing:

    EXISTS q     Σ 1 > 0
    x op ANY q   true if Σ [x op y] > 0, else NULL if Σ [x op y is NULL] > 0, else false
    x op ALL q   false if Σ [not x op y] > 0, else NULL if Σ [x op y is NULL] > 0, else true
    ARRAY q      array_agg(y)
    (q)          the only value, NULL if there is none; with two PostgreSQL's own error

Where CASE or COALESCE keep PostgreSQL from looking at a subquery, D is what its guard lets through
and all of D pads: of other rows nothing is computed that could fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headwater.algebra.calls import Call, Kind
from headwater.algebra.expr import Expr, column, refs, substitute, text
from headwater.algebra.ops import Aggregate, Join, Op, Output, Project, UnionAll, passing, schema
from headwater.algebra.schema import BIGINT, Column, Schema, SqlType, names
from headwater.sql.blanks import null_of
from headwater.sql.calls import find_aggregates, find_windows, hole, with_holes
from headwater.sql.clock import has_clock
from headwater.sql.correlate import Outer, correlate, guarded
from headwater.sql.from_clause import Common, reads_outside, renamed_holes
from headwater.sql.guards import Case, both, missing, reached, read_case
from headwater.sql.lexer import Token, Tokens, closing, split, tokenize, untokenize
from headwater.sql.parse import opens_query, parse_tokens, refuse
from headwater.sql.quantified import Quantified, find_quantified
from headwater.sql.scope import NOTHING, Scope, has_subquery, to_expr
from headwater.sql.syntax import Ordered, Query, Select

if TYPE_CHECKING:
    from headwater.sql.lower import Lowering

_INTEGER = SqlType("integer")
_COMMA = tokenize(",")
_ALWAYS = text("TRUE")


def without_subqueries(
    low: Lowering, op: Op, scope: Scope, runs: Sequence[Tokens], common: Common
) -> tuple[Op, list[Tokens]]:
    """Return the rows with the values of all subqueries, and expressions with holes for them."""
    values = _Values(low, op, scope, common)
    replaced = [values.replaced(t) if has_subquery(t) else t for t in runs]
    return values.op, replaced


def any_row(query: Query) -> Query:
    """Return a query that has rows if this one has: the first few of an order are as good."""
    if not isinstance(query, Ordered) or query.offset is not None:
        return query
    is_some = query.limit is None or untokenize(query.limit).lstrip("0").isdigit()
    return query.query if is_some else query


class _Values:
    """Joins the rows with one subquery after the other while expressions are rewritten."""

    def __init__(self, low: Lowering, op: Op, scope: Scope, common: Common) -> None:
        self._low, self._scope, self._common = low, scope, common
        self._base = self.op = op
        self._known: dict[tuple[str, Expr | None], Tokens] = {}
        self._guard: Expr | None = None

    def replaced(self, tokens: Tokens) -> Tokens:
        """Return the tokens with a value for each subquery."""
        compared = find_quantified(tokens)
        if compared is not None:
            return self._once(tokens, lambda: self._compared(compared))
        out: list[Token] = []
        at = 0
        while at < len(tokens):
            if tokens[at].is_word("CASE"):
                case = read_case(tokens, at)
                out += [*self._case(case), tokens[case.end]]
                at = case.end + 1
                continue
            if not tokens[at].is_punct("(", "["):
                out.append(tokens[at])
                at += 1
                continue
            end = closing(tokens, at)
            inside = tokens[at + 1 : end]
            if opens_query(inside):
                out += self._value(out, inside)
            elif out and out[-1].is_word("COALESCE") and has_subquery(inside):
                out += [tokens[at], *self._coalesced(inside), tokens[end]]
            else:
                out += [tokens[at], *self.replaced(inside), tokens[end]]
            at = end + 1
        return out

    def _case(self, case: Case) -> Tokens:
        """Look at each part of a CASE only where the server does."""
        asked = [t for word, t in case.parts if word.is_word("CASE", "WHEN")]
        if not all(map(_can_be_asked, asked)):
            return [t for word, tokens in case.parts for t in (word, *self.replaced(tokens))]
        out: list[Token] = []
        subject: Expr | None = None
        passed: list[Expr] = []
        for word, tokens in case.parts:
            if word.is_word("THEN"):
                made = self._within(reached(subject, passed[:-1], passed[-1]), tokens)
            else:
                made = self._within(reached(subject, passed), tokens)
            if word.is_word("CASE"):
                subject = self._asked(made) if made else None
            elif word.is_word("WHEN"):
                passed.append(self._asked(made))
            out += [word, *made]
        return out

    def _coalesced(self, inside: Tokens) -> Tokens:
        """Look at each argument of COALESCE only where those before it are NULL."""
        out: list[Token] = []
        values: list[Expr] = []
        arguments = split(inside, mark=",")
        if not all(map(_can_be_asked, arguments[:-1])):
            return self.replaced(inside)
        for tokens in arguments:
            made = self._within(missing(values), tokens) if values else self.replaced(tokens)
            values.append(self._asked(made))
            out += [*(_COMMA if out else ()), *made]
        return out

    def _within(self, guard: Expr, tokens: Tokens) -> Tokens:
        if not has_subquery(tokens):
            return tokens
        before = self._guard
        if guard != _ALWAYS:
            self._guard = both(before, guard)
        made = self.replaced(tokens)
        self._guard = before
        return made

    def _asked(self, tokens: Tokens) -> Expr:
        return to_expr(tokens, self._scope)

    def _value(self, before: list[Token], inside: Tokens) -> Tokens:
        """Return the value of a query; the word before it says what it is."""
        if before and before[-1].is_word("EXISTS"):
            word = before.pop()
            return self._once([word, *inside], lambda: self._exists(any_row(parse_tokens(inside))))
        if before and before[-1].is_word("ARRAY"):
            word = before.pop()
            return self._once([word, *inside], lambda: self._array(parse_tokens(inside)))
        if before and before[-1].is_word("IN", "ANY", "SOME", "ALL"):
            raise refuse("a comparison with a subquery in this place", untokenize(before))
        return self._once(inside, lambda: self._scalar(parse_tokens(inside)))

    def _once(self, tokens: Tokens, make: Callable[[], Tokens]) -> Tokens:
        said = untokenize(tokens)
        always, here = (said, None), (said, self._guard)
        if always not in self._known and here not in self._known:
            self._known[here] = make()
        return self._known[always if always in self._known else here]

    # --- kinds of subquery ---

    def _exists(self, query: Query) -> Tokens:
        outer, query = self._domain(query)
        sub = self._low.query(query, self._common, outer)
        (n,) = self._gathered(sub, outer, [text("1")])
        return with_holes("(", hole(n), " > 0)")

    def _compared(self, test: Quantified) -> Tokens:
        plain = [self.replaced(tokens) for tokens in test.left]
        ours = [to_expr(tokens, self._scope) for tokens in plain]
        outer, query = self._domain(parse_tokens(test.query), refs(*ours))
        sub = self._low.query(query, self._common, outer)
        if outer is not None:
            ours = [substitute(expr, outer.read) for expr in ours]
        theirs = names(schema(sub))[len(outer.params) if outer else 0 :]
        compared = test.compared(ours, [column(name) for name in theirs])
        decisive = text("NOT (", compared, ")") if test.is_all else compared
        sums = [_indicator(decisive), _indicator(text("(", compared, ") IS NULL"))]
        decided, unknown = self._gathered(sub, outer, sums)
        found, otherwise = ("FALSE", "TRUE") if test.is_all else ("TRUE", "FALSE")
        return with_holes(
            "(CASE WHEN ", hole(decided), f" > 0 THEN {found} WHEN ",
            hole(unknown), f" > 0 THEN NULL ELSE {otherwise} END)",
        )  # fmt: skip

    def _array(self, query: Query) -> Tokens:
        outer, query = self._domain(query)
        made = self._low.sorted(query, self._common, outer)
        sub = made.op
        value = schema(sub)[made.width - 1]
        by: list[str | Expr] = []
        for expr in made.by or (_sortable(value),):
            by += [", " if by else "", expr]
        there, rows = self._present(sub, outer)
        ordered = text("array_agg(", column(value.name), " ORDER BY ", *by, ")")
        called = text(ordered, _where(there))
        call = Call(self._low.fresh("array", self._type(rows, called)), Kind.OPAQUE, called)
        self._join(rows, outer, (call,))
        return with_holes(
            " COALESCE(", hole(call.column.name), f", '{{}}'::{call.column.type.name})"
        )

    def _scalar(self, query: Query) -> Tokens:
        outer, query = self._domain(query)
        sub = self._low.query(query, self._common, outer)
        params = outer.params if outer else ()
        values = schema(sub)[len(params) :]
        found: list[Tokens]
        if self._is_single(query) and (outer is None or outer.everything is None):
            self.op = Join(self.op, sub, outer.matches if outer else ())
            found = [[hole(c.name)] for c in values]
        else:
            found = self._only(sub, outer, values)
        if len(found) == 1:
            return found[0]
        listed: list[str | Token] = []
        for one in found:
            listed += [", " if listed else "ROW(", *one]
        return with_holes(*listed, ")")

    def _is_single(self, query: Query) -> bool:
        """Tell whether a query always gives one row: an aggregate without GROUP BY."""
        while isinstance(query, Ordered) and query.limit is None and query.offset is None:
            query = query.query
        if not isinstance(query, Select) or query.group_by is not None or query.having is not None:
            return False
        runs = (t.tokens for t in query.targets)
        return any(find_aggregates(t, self._low.analysis.aggregates, NOTHING) for t in runs)

    def _only(self, sub: Op, outer: Outer | None, values: Schema) -> list[Tokens]:
        """Return the only values of a subquery; of two, to ask raises the server's own error."""
        there, rows = self._present(sub, outer)
        calls = [
            Call(self._low.fresh("value", v.type), Kind.OPAQUE, _first(v, there)) for v in values
        ]
        n = Call(self._low.fresh("n", BIGINT, nullable=False), Kind.SUM, column(there.name))
        self._join(rows, outer, (*calls, n))
        return [_checked(call.column, n.column) for call in calls]

    # --- aggregates per row of the domain ---

    def _domain(
        self, query: Query, more: frozenset[str] = frozenset()
    ) -> tuple[Outer | None, Query]:
        """Return the domain of a query, and the query over it; None if it reads nothing outside."""
        wanted = reads_outside(query, self._scope, self._common) | more
        if not wanted:
            return None, query
        guard = self._guard
        read = wanted | (refs(guard) if guard is not None else frozenset())
        rows = self._base if read <= set(names(schema(self._base))) else self.op
        if guard is None:
            outer = correlate(self._low, rows, self._scope, wanted)
        else:
            outer = guarded(self._low, rows, self._scope, wanted, guard)
        return outer, renamed_holes(query, outer.renamed)

    def _gathered(self, sub: Op, outer: Outer | None, sums: Sequence[Expr]) -> tuple[str, ...]:
        """Join the rows with sums over what the subquery gives; returns their names."""
        values = [(self._low.fresh("value", _INTEGER, nullable=False), expr) for expr in sums]
        rows = self._padded(sub, outer, [(c, e, text("0")) for c, e in values])
        calls = tuple(
            Call(self._low.fresh("n", BIGINT, nullable=False), Kind.SUM, column(c.name))
            for c, _ in values
        )
        self._join(rows, outer, calls)
        return tuple(call.column.name for call in calls)

    def _present(self, sub: Op, outer: Outer | None) -> tuple[Column, Op]:
        """Return what the subquery gives, padded, and the column that tells it from the padding."""
        there = self._low.fresh("there", _INTEGER, nullable=False)
        kept = [
            (c, column(c.name), null_of(c))
            for c in schema(sub)[len(outer.params) if outer else 0 :]
        ]
        return there, self._padded(sub, outer, [(there, text("1"), text("0")), *kept])

    def _type(self, rows: Op, called: Expr) -> SqlType:
        probe = Call(Column("probe", _INTEGER), Kind.OPAQUE, called)
        grouped = Aggregate(rows, (), Column("n", BIGINT), (probe,))
        return self._low.types(grouped, [column("probe")])[0]

    def _padded(
        self, sub: Op, outer: Outer | None, values: Sequence[tuple[Column, Expr, Expr]]
    ) -> Op:
        """Return values over what the subquery gives, and one row of others for each of D."""
        params = schema(outer.domain) if outer else ()
        made = Project(sub, (*passing(params), *(Output(c, e) for c, e, _ in values)))
        if outer is None:
            return made
        blanks = (Output(self._low.fresh(c.name, c.type), blank) for c, _, blank in values)
        all_of_it = outer.everything or outer.domain
        pad = Project(all_of_it, (*passing(schema(all_of_it)), *blanks))
        return UnionAll((made, pad), schema(made))

    def _join(self, rows: Op, outer: Outer | None, calls: tuple[Call, ...]) -> None:
        params = outer.params if outer else ()
        count = self._low.fresh("count", BIGINT, nullable=False)
        grouped = Aggregate(rows, params, count, calls)
        self.op = Join(self.op, grouped, outer.matches if outer else ())


def _can_be_asked(tokens: Tokens) -> bool:
    """Tell whether a condition can stand below the windows of its SELECT, without a clock."""
    return not has_clock(tokens) and next(find_windows(tokens), None) is None


def _indicator(test: Expr) -> Expr:
    return text("CASE WHEN ", test, " THEN 1 ELSE 0 END")


def _where(there: Column) -> Expr:
    """Return the FILTER that leaves the padding out."""
    return text(" FILTER (WHERE ", column(there.name), " = 1)")


def _first(value: Column, there: Column) -> Expr:
    own = column(value.name)
    if value.type.name.endswith("[]"):  # an array of arrays has no first one
        return text("min(", own, ")", _where(there))
    return text("(array_agg(", own, ")", _where(there), ")[1]")


def _checked(value: Column, n: Column) -> Tokens:
    """The value if it is the only one; else a subquery that raises the server's error.

    It stands where the value is used, so that a CASE may ask before.
    """
    opening = f"(SELECT NULL::{value.type.name} FROM generate_series(1, "
    fails = Token("raw", opening, opening, True), hole(n.name), Token("raw", "))", "))", False)
    number, kept = hole(n.name, spaced=True), hole(value.name, spaced=True)
    return with_holes("(CASE WHEN", number, " <= 1 THEN", kept, " ELSE", *fails, " END)")


def _sortable(value: Column) -> Expr:
    """What sorts the values of an array without ORDER BY, so that it is the same each time."""
    return text("(", column(value.name), ')::text COLLATE "C"')
