"""GROUP BY and aggregate calls to the Aggregate operator.

COUNT, SUM and AVG over exact types are taken apart into sums, which add; what the user wrote is
computed from the sums above the aggregate:

    count(x)  =  Σ [x is not NULL]
    sum(x)    =  Σ x, NULL if count(x) = 0
    avg(x)    =  Σ x / count(x)

NaN and ±Infinity of numeric would poison a sum for ever: they are counted apart. Floats drift when
added and taken away again, so their sums are opaque: the group is recomputed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.algebra.expr import Expr, as_column, column, refs, text
from headwater.algebra.ops import Aggregate, Call, Kind, Op, Output, Project, schema
from headwater.algebra.schema import BIGINT, NUMERIC, Column, SqlType, names
from headwater.errors import UnsupportedQuery
from headwater.sql.lexer import Token, Tokens, stripped, untokenize
from headwater.sql.scales import shape, type_shape
from headwater.sql.scope import CallTokens, Scope, find_calls, to_expr
from headwater.sql.syntax import Select, Target

if TYPE_CHECKING:
    from headwater.sql.lower import Lowering

_INTEGERS = {"smallint": BIGINT, "integer": BIGINT, "bigint": NUMERIC}


def lower_grouped(low: Lowering, op: Op, scope: Scope, select: Select) -> tuple[Op, Select, Scope]:
    """Return the grouped input, the SELECT with holes for what it computed, and the scope."""
    grouping = _Grouping(low, op, scope)
    for tokens in sorted(select.group_by or (), key=len, reverse=True):
        grouping.add_key(tokens)
    targets = tuple(Target(grouping.replaced(t.tokens), t.name) for t in select.targets)
    having = grouping.replaced(select.having) if select.having is not None else None
    left = [t.tokens for t in targets] + ([having] if having is not None else [])
    grouping.add_dependents([to_expr(tokens, scope) for tokens in left])
    select = dataclasses.replace(select, targets=targets, having=having, group_by=None)
    return grouping.build(), select, scope


@dataclasses.dataclass(frozen=True)
class _Sum:
    """A column that adds: what to sum, and the type of the sum."""

    name: str
    value: Expr
    type: SqlType


@dataclasses.dataclass(frozen=True)
class _Pattern:
    """How a grouped expression looks where the SELECT repeats it, and the name of its column.

    Brackets around it stay where they are, since they may be those of a call.
    """

    texts: list[str]
    name: str
    is_bracketed: bool


class _Grouping:
    """Collects keys and calls while the SELECT is rewritten, then builds the operators."""

    def __init__(self, low: Lowering, op: Op, scope: Scope) -> None:
        self._low, self._op, self._scope = low, op, scope
        self._of = {c.name: c for c in schema(op)}
        self._keys: list[tuple[str, Expr]] = []  # name, expression over the input
        self._patterns: list[_Pattern] = []
        self._count = low.fresh("count", BIGINT, nullable=False)
        self._values: dict[Expr, Column] = {}  # projected below the aggregate
        self._calls: dict[tuple[Kind, Expr], Call] = {}
        self._finals: dict[str, tuple[Column, Expr]] = {}  # text of a call -> its value

    # --- keys ---

    def add_key(self, tokens: Tokens) -> None:
        """Group by an expression, and know it again where the SELECT repeats it."""
        expr = to_expr(tokens, self._scope)
        bare = as_column(expr)
        known = next((n for n, e in self._keys if e == expr), None)
        name = known or bare or self._low.namer.unique("key")
        if known is None:
            self._keys.append((name, expr))
        inner = [t.text for t in stripped(tokens)]
        self._patterns.append(_Pattern(["(", *inner, ")"], name, True))
        if _is_atomic(stripped(tokens)):
            self._patterns.append(_Pattern(inner, name, False))

    def add_dependents(self, exprs: Sequence[Expr]) -> None:
        """Columns that a grouped primary key determines: grouping by them too changes no group."""
        keys = {name for name, _ in self._keys}
        for name in sorted(refs(*exprs) & self._of.keys() - keys):
            if self._of[name].type.equality is None:
                raise UnsupportedQuery(
                    f"column {name} is selected beside GROUP BY but is not grouped",
                    f"values of type {self._of[name].type.name} cannot be compared or grouped",
                    f"select it through an aggregate, such as (array_agg({name}))[1]",
                )
            self._keys.append((name, column(name)))

    # --- calls ---

    def replaced(self, tokens: Tokens) -> Tokens:
        """Put a hole for each aggregate call and each grouped expression."""
        out: list[Token] = []
        at = 0
        for call in find_calls(tokens, self._low.analysis.aggregates):
            out += self._keys_replaced(tokens[at : call.start])
            out.append(self._hole(self._final(call, tokens), tokens[call.start]))
            at = call.end
        return out + self._keys_replaced(tokens[at:])

    def _keys_replaced(self, tokens: Tokens) -> list[Token]:
        out: list[Token] = []
        at = 0
        while at < len(tokens):
            pattern = self._pattern_at(tokens, at)
            if pattern is None:
                out.append(tokens[at])
                at += 1
            else:
                end = at + len(pattern.texts)
                hole = self._hole(pattern.name, tokens[at])
                out += [tokens[at], hole, tokens[end - 1]] if pattern.is_bracketed else [hole]
                at = end
        return out

    def _pattern_at(self, tokens: Tokens, at: int) -> _Pattern | None:
        if at and tokens[at - 1].is_punct(".", "::"):
            return None
        for pattern in self._patterns:
            size = len(pattern.texts)
            following = tokens[at + size] if at + size < len(tokens) else None
            if following is not None and following.is_punct(".", "("):
                continue
            if [t.text for t in tokens[at : at + size]] == pattern.texts:
                return pattern
        return None

    @staticmethod
    def _hole(name: str, instead: Token) -> Token:
        return Token("hole", name, name, instead.spaced)

    def _final(self, call: CallTokens, tokens: Tokens) -> str:
        """Return the name of the column that will hold the value of the call."""
        said = untokenize(tokens[call.start : call.end])
        if said not in self._finals:
            self._finals[said] = self._decomposed(call, tokens)
        return self._finals[said][0].name

    def _decomposed(self, call: CallTokens, tokens: Tokens) -> tuple[Column, Expr]:
        schema_name, function = call.name
        simple = schema_name is None and call.is_plain and len(call.arguments) == 1
        if simple and function == "count":
            return self._made("count", BIGINT, self._counted(call))
        if simple and function in ("sum", "avg", "min", "max"):
            argument = to_expr(call.arguments[0], self._scope)
            type = self._type_of(argument)
            if function in ("min", "max"):
                return self._extremum(function, call, argument, type)
            if type.name in _INTEGERS or type.name.startswith("numeric"):
                return self._summed(function, call, argument, type)
        return self._opaque(function, to_expr(tokens[call.start : call.end], self._scope))

    def _made(self, name: str, type: SqlType, expr: Expr) -> tuple[Column, Expr]:
        return self._low.fresh(name, type), expr

    def _type_of(self, expr: Expr) -> SqlType:
        bare = as_column(expr)
        return self._of[bare].type if bare else self._low.types(self._op, [expr])[0]

    def _counted(self, call: CallTokens) -> Expr:
        star = call.arguments[0][0].text == "*"
        if star:
            return self._indicator(None, call)
        return self._indicator(to_expr(call.arguments[0], self._scope), call)

    def _indicator(self, argument: Expr | None, call: CallTokens) -> Expr:
        """Σ [argument is not NULL and the filter holds]; the count of rows where that is certain.

        IS DISTINCT FROM NULL, since a composite of NULLs is not NULL to an aggregate.
        """
        bare = as_column(argument) if argument else None
        certain = argument is None or (bare is not None and not self._of[bare].nullable)
        if certain and call.filter is None:
            return column(self._count.name)
        test = "TRUE" if argument is None else text("(", argument, ") IS DISTINCT FROM NULL")
        value = self._filtered(call, text("CASE WHEN ", test, " THEN 1 ELSE 0 END"), "0")
        return column(self._call(Kind.SUM, "n", value, BIGINT).name)

    def _filtered(self, call: CallTokens, value: Expr, otherwise: str) -> Expr:
        """Look at the value only where the filter holds, as FILTER does."""
        if call.filter is None:
            return value
        condition = to_expr(call.filter, self._scope)
        return text("CASE WHEN ", condition, " THEN ", value, f" ELSE {otherwise} END")

    def _call(self, kind: Kind, name: str, value: Expr, type: SqlType) -> Column:
        """Add a call on a value that is projected below the aggregate; equal ones are shared."""
        if value not in self._values:
            bare = as_column(value)
            known = self._of[bare] if bare else None
            below = known or Column(self._low.namer.unique("value"), self._type_of(value))
            self._values[value] = below
        key = kind, column(self._values[value].name)
        if key not in self._calls:
            made = self._low.fresh(name, type, nullable=kind is not Kind.SUM)
            self._calls[key] = Call(made, kind, key[1])
        return self._calls[key].column

    def _extremum(
        self, function: str, call: CallTokens, argument: Expr, type: SqlType
    ) -> tuple[Column, Expr]:
        value = self._filtered(call, argument, "NULL")
        made = self._call(Kind(function), function, value, type)
        return self._made(function, type, column(made.name))

    def _summed(
        self, function: str, call: CallTokens, argument: Expr, type: SqlType
    ) -> tuple[Column, Expr]:
        count = self._indicator(argument, call)
        total, special = self._finite_sum(call, argument, type)
        final = NUMERIC if function == "avg" else _INTEGERS.get(type.name, NUMERIC)
        value = text(total, "::numeric / ", count, "::numeric") if function == "avg" else total
        never_empty = as_column(count) == self._count.name and bool(self._keys)
        cases: list[str | Expr] = [] if never_empty else [" WHEN ", count, " = 0 THEN NULL"]
        cases += special
        if cases:
            value = text("CASE", *cases, " ELSE ", value, " END")
        return self._made(function, final, value)

    def _finite_sum(
        self, call: CallTokens, argument: Expr, type: SqlType
    ) -> tuple[Expr, list[str | Expr]]:
        """Σ of the finite values, and the cases for the others."""
        if type.name in _INTEGERS:
            return self._integer_sum(call, argument, _INTEGERS[type.name]), []
        scale = self._fixed_scale(argument, type)
        zero = f"'{0:.{scale or 0}f}'::numeric"
        test = text("(", argument, ") IN ('NaN', 'Infinity', '-Infinity')")
        value = text("COALESCE(", argument, f", {zero})")
        finite = text("CASE WHEN ", test, f" THEN {zero} ELSE ", value, " END")
        total = self._call(Kind.SUM, "sum", self._filtered(call, finite, zero), NUMERIC)
        nan, up, down = (
            self._special(call, argument, value) for value in ("NaN", "Infinity", "-Infinity")
        )
        if scale is not None:  # such an expression may be NaN but is never infinite
            return column(total.name), [" WHEN ", nan(), " > 0 THEN 'NaN'::numeric"]
        both = text(nan(), " > 0 OR ", up(), " > 0 AND ", down(), " > 0")
        cases: list[str | Expr] = [" WHEN ", both, " THEN 'NaN'::numeric"]
        cases += [" WHEN ", up(), " > 0 THEN 'Infinity'::numeric"]
        cases += [" WHEN ", down(), " > 0 THEN '-Infinity'::numeric"]
        return self._scaled(call, argument, test, column(total.name)), cases

    def _integer_sum(self, call: CallTokens, argument: Expr, type: SqlType) -> Expr:
        bare = as_column(argument)
        plain = bare is not None and not self._of[bare].nullable
        value = argument if plain else text("COALESCE(", argument, ", 0)")
        return column(self._call(Kind.SUM, "sum", self._filtered(call, value, "0"), type).name)

    def _fixed_scale(self, argument: Expr, type: SqlType) -> int | None:
        """Return the scale that every value has, by its type or by the arithmetic; else None."""
        types = {name: self._of[name].type for name in refs(argument)}
        fixed = type_shape(type.name) or shape(argument, types)
        return fixed[1] if fixed else None

    def _scaled(self, call: CallTokens, argument: Expr, is_special: Expr, total: Expr) -> Expr:
        """Give a sum the digits that PostgreSQL shows: as many as the value with the most has.

        Σ 10¹⁵ˢ over the scales s adds like any sum, and its length tells the largest s that is
        left when values go. Beyond a hundred digits the sum keeps those that it has seen.
        """
        power = text("('1e' || 15 * LEAST(scale(", argument, "), 100))::numeric")
        none = text("(", argument, ") IS NULL OR ", is_special)
        value = text("CASE WHEN ", none, " THEN 0 ELSE ", power, " END")
        made = self._call(Kind.SUM, "scales", self._filtered(call, value, "0"), NUMERIC)
        scales = column(made.name)
        digits = text("(length((", scales, ")::text) - 1) / 15")
        rounded = text("round(", total, ", ", digits, ")")
        return text("(CASE WHEN ", scales, " < 1e1500 THEN ", rounded, " ELSE ", total, " END)")

    def _special(self, call: CallTokens, argument: Expr, value: str):  # type: ignore[no-untyped-def]
        def count() -> Expr:
            test = text("CASE WHEN (", argument, f") = '{value}' THEN 1 ELSE 0 END")
            filtered = self._filtered(call, test, "0")
            return column(self._call(Kind.SUM, "special", filtered, BIGINT).name)

        return count

    def _opaque(self, function: str, expr: Expr) -> tuple[Column, Expr]:
        for name in refs(expr):
            self._values.setdefault(column(name), self._of[name])
        type = self._low.types(self._grouped_sql(expr), [column("x")])[0]
        made = self._low.fresh(function, type)
        self._calls[Kind.OPAQUE, expr] = Call(made, Kind.OPAQUE, expr)
        return made, column(made.name)

    def _grouped_sql(self, expr: Expr) -> Op:
        probe = Call(Column("x", NUMERIC), Kind.OPAQUE, expr)
        return Aggregate(self._op, (), Column("n", BIGINT), (probe,))

    # --- the operators ---

    def build(self) -> Op:
        """π(values over sums) over γ over π(keys and values)."""
        below = [Output(Column(n, self._key_type(e), self._key_null(e)), e) for n, e in self._keys]
        seen = {o.column.name for o in below}
        below += [Output(c, v) for v, c in self._values.items() if c.name not in seen]
        keys = tuple(name for name, _ in self._keys)
        calls = tuple(self._calls.values())
        grouped = Aggregate(Project(self._op, tuple(below)), keys, self._count, calls)
        passing = [Output(c, column(c.name)) for c in schema(grouped)]
        known = set(names(schema(grouped)))
        finals = [Output(c, e) for c, e in self._finals.values() if c.name not in known]
        return Project(grouped, (*passing, *finals))

    def _key_type(self, expr: Expr) -> SqlType:
        return self._type_of(expr)

    def _key_null(self, expr: Expr) -> bool:
        bare = as_column(expr)
        return self._of[bare].nullable if bare else True


def _is_atomic(tokens: Tokens) -> bool:
    """Tell whether an expression binds as one without brackets: a name, call, cast or CASE."""
    if tokens[0].is_word("CASE"):
        return True
    depth = 0
    loose = ("AND", "OR", "NOT", "IS", "AT", "COLLATE", "LIKE", "IN", "SIMILAR")
    for token in tokens:
        depth += token.is_punct("(", "[") - token.is_punct(")", "]")
        if depth == 0 and (token.kind == "operator" or token.is_word(*loose)):
            return False
    return True
