"""Aggregate calls to the calls of the Aggregate operator.

COUNT, SUM and AVG over exact types are taken apart into sums, which add; what the user wrote is
computed from the sums above the aggregate:

    count(x)  =  Σ [x is not NULL]
    sum(x)    =  Σ x, NULL if count(x) = 0
    avg(x)    =  Σ x / count(x)

count(DISTINCT x) counts different values, each of which has a count of its rows; sum(DISTINCT x)
and avg(DISTINCT x) over integers follow. Of equal numbers that show different digits, 1.0 and 1.00,
any may be the one that DISTINCT keeps: their sums are opaque.

Variances come from Σ x and Σ x², bool_and and bool_or from counts of true and false; the formulas
are in `statistics.py`, those of bit_and and its kin in `bits.py`. Covariances, correlations and
regressions are opaque: PostgreSQL computes them in float8, where the result hangs on the order of
the rows.

NaN and ±Infinity of numeric would poison a sum for ever: they are counted apart. Floats drift when
added and taken away again, so their sums are opaque: the group is recomputed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.algebra.calls import Call, Kind
from headwater.algebra.expr import Expr, as_column, column, refs, text
from headwater.algebra.ops import Aggregate, Op, schema
from headwater.algebra.schema import BIGINT, NUMERIC, Column, SqlType
from headwater.sql import bits
from headwater.sql.calls import CallTokens
from headwater.sql.lexer import Tokens, untokenize
from headwater.sql.scales import shape, type_shape
from headwater.sql.scope import Scope, to_expr
from headwater.sql.statistics import BOOLEANS, VARIANCES, varied

if TYPE_CHECKING:
    from headwater.sql.lower import Lowering

_BOOLEAN = SqlType("boolean")
_SUMS = frozenset({"sum", "avg", *VARIANCES})
_UNCHANGED = frozenset(  # by copies of a value
    {"min", "max", "bool_and", "bool_or", "every", "bit_and", "bit_or"}
)
_DIFFERENT = frozenset({"count", "sum", "avg"})
_COUNTED = frozenset(
    {
        *(
            "smallint",
            "integer",
            "bigint",
            "numeric",
            "real",
            "double precision",
            "boolean",
            "uuid",
        ),
        *("text", "character varying", "character", "bytea", "date", "interval", "inet", "oid"),
        *("timestamp without time zone", "timestamp with time zone", "time without time zone"),
    }
)
_INTEGERS = {"smallint": BIGINT, "integer": BIGINT, "bigint": NUMERIC}


class Calls:
    """The aggregate calls of one SELECT, over the rows of `op`.

    `there` names the column that is false in rows which only pad the input; `is_keyed` says that no
    group is empty. `values` are projected below the aggregate, `finals` computed above it.
    """

    def __init__(
        self, low: Lowering, op: Op, scope: Scope, there: str | None, *, is_keyed: bool
    ) -> None:
        self._low, self._op, self._scope, self._there = low, op, scope, there
        self._is_keyed = is_keyed
        self._of = {c.name: c for c in schema(op)}
        self.count = low.fresh("count", BIGINT, nullable=False)
        self.values: dict[Expr, Column] = {}
        self.calls: dict[tuple[Kind, Expr], Call] = {}
        self.finals: dict[str, tuple[Column, Expr]] = {}  # text of a call -> its value

    def final(self, call: CallTokens, tokens: Tokens) -> str:
        """Return the name of the column that will hold the value of the call."""
        said = untokenize(tokens[call.start : call.end])
        if said not in self.finals:
            self.finals[said] = self._decomposed(call, tokens)
        return self.finals[said][0].name

    def _decomposed(self, call: CallTokens, tokens: Tokens) -> tuple[Column, Expr]:
        schema_name, function = call.name
        made = None
        if schema_name is None and call.is_plain:
            made = self._added(function, call)
        elif schema_name is None and call.is_distinct:
            made = self._different(function, call)
        return made or self._opaque(function, self._whole_call(call, tokens))

    def _added(self, function: str, call: CallTokens) -> tuple[Column, Expr] | None:
        """Take a call apart into what adds; None if nothing is known that does."""
        match function:
            case "count":
                return self._made(function, BIGINT, self._counted(call))
            case "regr_count":
                return self._made(function, BIGINT, self._pairs_counted(call))
            case "bool_and" | "bool_or" | "every":
                return self._made(function, _BOOLEAN, self._all_or_any(function, call))
            case "min" | "max":
                return self._extremum(function, call)
            case "bit_and" | "bit_or" | "bit_xor":
                return self._bits(function, call)
        return self._exact(function, call) if function in _SUMS else None

    def _different(self, function: str, call: CallTokens) -> tuple[Column, Expr] | None:
        """Take a call with DISTINCT apart: what copies do not change, and counts of values."""
        if function in _UNCHANGED:
            return self._added(function, call)
        argument = to_expr(call.arguments[0], self._scope)
        type = self.type_of(argument)
        if function not in _DIFFERENT or len(call.arguments) > 1 or not _is_counted(type):
            return None
        values = self._filtered(call, argument, "NULL")
        if function != "count" and type.name not in _INTEGERS:
            return None
        count = self._call(Kind.DISTINCT, "different", values, BIGINT, "count(DISTINCT {})")
        if function == "count":
            return self._made(function, BIGINT, column(count.name))
        wide = _INTEGERS[type.name]
        total = self._call(Kind.DISTINCT, "sum", values, wide, "coalesce(sum(DISTINCT {}), 0)")
        sum_, number = column(total.name), column(count.name)
        shown = _average(sum_, number) if function == "avg" else sum_
        value = text("CASE WHEN ", number, " = 0 THEN NULL ELSE ", shown, " END")
        return self._made(function, NUMERIC if function == "avg" else wide, value)

    def _exact(self, function: str, call: CallTokens) -> tuple[Column, Expr] | None:
        """Take a call apart whose argument is exact; floats are not."""
        argument = to_expr(call.arguments[0], self._scope)
        type = self.type_of(argument)
        if type.name not in _INTEGERS and not type.name.startswith("numeric"):
            return None
        if function in VARIANCES:
            return self._made(function, NUMERIC, self._varied(function, call, argument, type))
        return self._summed(function, call, argument, type)

    def _whole_call(self, call: CallTokens, tokens: Tokens) -> Expr:
        """The call as it stands, but for padding that it must not see."""
        if self._there is None:
            return to_expr(tokens[call.start : call.end], self._scope)
        parts: list[str | Expr] = [" FILTER (WHERE ", column(self._there)]
        if call.filter is not None:
            parts += [" AND (", to_expr(call.filter, self._scope), ")"]
        return text(to_expr(tokens[call.start : call.bare], self._scope), *parts, ")")

    def _made(self, name: str, type: SqlType, expr: Expr) -> tuple[Column, Expr]:
        return self._low.fresh(name, type), expr

    def type_of(self, expr: Expr) -> SqlType:
        """Return the type of an expression over the input."""
        bare = as_column(expr)
        return self._of[bare].type if bare else self._low.types(self._op, [expr])[0]

    def _counted(self, call: CallTokens) -> Expr:
        star = call.arguments[0][0].text == "*"
        if star:
            return self._indicator(None, call)
        return self._indicator(to_expr(call.arguments[0], self._scope), call)

    def _pairs_counted(self, call: CallTokens) -> Expr:
        """regr_count: the rows in which neither of two values is NULL."""
        one, other = (to_expr(tokens, self._scope) for tokens in call.arguments)
        test = text("(", one, ") IS NOT NULL AND (", other, ") IS NOT NULL")
        return self._rows_where(call, test)

    def _all_or_any(self, function: str, call: CallTokens) -> Expr:
        """bool_and, bool_or: by the numbers of rows that are true and that are false."""
        argument = to_expr(call.arguments[0], self._scope)
        decisive, other = BOOLEANS[function]
        first, second = (
            self._rows_where(call, text("(", argument, f") IS {value}"))
            for value in (decisive, other)
        )
        cases = (" WHEN ", first, f" > 0 THEN {decisive} WHEN ", second, f" > 0 THEN {other}")
        return text("CASE", *cases, " END")

    def _bits(self, function: str, call: CallTokens) -> tuple[Column, Expr] | None:
        """bit_and, bit_or, bit_xor: by the number of values in which each bit is set."""
        argument = to_expr(call.arguments[0], self._scope)
        type = self.type_of(argument)
        if bits.width(type.name) is None:
            return None
        value = self._filtered(call, bits.packed(argument, type.name), "0")
        total = column(self._call(Kind.SUM, "bits", value, NUMERIC).name)
        count = self._indicator(argument, call)
        shown = bits.unpacked(function, total, count, type.name)
        own = self._type_of_call(text(f"{function}(", argument, ")"))
        return self._made(function, own, text("CASE WHEN ", count, " > 0 THEN ", shown, " END"))

    def _rows_where(self, call: CallTokens, test: Expr) -> Expr:
        """Σ [test holds and the filter too]."""
        value = self._filtered(call, text("CASE WHEN ", test, " THEN 1 ELSE 0 END"), "0")
        return column(self._call(Kind.SUM, "n", value, BIGINT).name)

    def _indicator(self, argument: Expr | None, call: CallTokens) -> Expr:
        """Σ [argument is not NULL and the filter holds]; the count of rows where that is certain.

        IS DISTINCT FROM NULL, since a composite of NULLs is not NULL to an aggregate.
        """
        bare = as_column(argument) if argument else None
        certain = argument is None or (bare is not None and not self._of[bare].nullable)
        if certain and call.filter is None and self._there is None:
            return column(self.count.name)
        if argument is None:
            return self._rows_where(call, text("TRUE"))
        return self._rows_where(call, text("(", argument, ") IS DISTINCT FROM NULL"))

    def _filtered(self, call: CallTokens, value: Expr, otherwise: str) -> Expr:
        """Look at the value only where the filter holds, as FILTER does."""
        tests = [] if self._there is None else [column(self._there)]
        tests += [] if call.filter is None else [to_expr(call.filter, self._scope)]
        for condition in tests:
            value = text("CASE WHEN ", condition, " THEN ", value, f" ELSE {otherwise} END")
        return value

    def _call(self, kind: Kind, name: str, value: Expr, type: SqlType, said: str = "{}") -> Column:
        """Add a call on a value that is projected below the aggregate; equal ones are shared."""
        if value not in self.values:
            bare = as_column(value)
            known = self._of[bare] if bare else None
            below = known or Column(self._low.namer.unique("value"), self.type_of(value))
            self.values[value] = below
        before, _, after = said.partition("{}")
        key = kind, text(before, column(self.values[value].name), after)
        if key not in self.calls:
            made = self._low.fresh(name, type, nullable=kind in (Kind.MIN, Kind.MAX))
            self.calls[key] = Call(made, kind, key[1])
        return self.calls[key].column

    def _extremum(self, function: str, call: CallTokens) -> tuple[Column, Expr]:
        argument = to_expr(call.arguments[0], self._scope)
        type = self.type_of(argument)
        if "." in type.name:  # the extremum of a composite is a record, which the server refuses
            self._type_of_call(text(f"{function}(", argument, ")"))
        value = self._filtered(call, argument, "NULL")
        made = self._call(Kind(function), function, value, type)
        return self._made(function, type, column(made.name))

    def _summed(
        self, function: str, call: CallTokens, argument: Expr, type: SqlType
    ) -> tuple[Column, Expr]:
        count = self._indicator(argument, call)
        total, special = self._finite_sum(call, argument, type)
        final = NUMERIC if function == "avg" else _INTEGERS.get(type.name, NUMERIC)
        value = _average(total, count) if function == "avg" else total
        never_empty = as_column(count) == self.count.name and self._is_keyed
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
        total = self._numeric_sum(call, argument, type, power=1)
        special = self._specials(call, argument, type)
        nan = special.pop("NaN")
        if not special:
            return total, [" WHEN ", nan, " > 0 THEN 'NaN'::numeric"]
        up, down = special["Infinity"], special["-Infinity"]
        both = text(nan, " > 0 OR ", up, " > 0 AND ", down, " > 0")
        cases: list[str | Expr] = [" WHEN ", both, " THEN 'NaN'::numeric"]
        cases += [" WHEN ", up, " > 0 THEN 'Infinity'::numeric"]
        cases += [" WHEN ", down, " > 0 THEN '-Infinity'::numeric"]
        return total, cases

    def _numeric_sum(self, call: CallTokens, argument: Expr, type: SqlType, power: int) -> Expr:
        """Σ xᵖ over the finite values, with the digits that PostgreSQL shows."""
        scale = self._fixed_scale(argument, type)
        zero = f"'{0:.{(scale or 0) * power}f}'::numeric"
        value = text(
            "COALESCE((", argument, ")", *(" * (", argument, ")") * (power - 1), f", {zero})"
        )
        finite = text("CASE WHEN ", _is_special(argument), f" THEN {zero} ELSE ", value, " END")
        total = self._call(Kind.SUM, "sum", self._filtered(call, finite, zero), NUMERIC)
        shown = column(total.name)
        return shown if scale is not None else self._scaled(call, argument, shown, power)

    def _specials(self, call: CallTokens, argument: Expr, type: SqlType) -> dict[str, Expr]:
        """The numbers of NaN and infinities; an expression of fixed scale is never infinite."""
        fixed = self._fixed_scale(argument, type) is not None
        values = ("NaN",) if fixed else ("NaN", "Infinity", "-Infinity")
        return {v: self._rows_where(call, text("(", argument, f") = '{v}'")) for v in values}

    def _varied(self, function: str, call: CallTokens, argument: Expr, type: SqlType) -> Expr:
        """A variance, or its root: any NaN or infinity makes it NaN."""
        count = self._indicator(argument, call)
        cases: list[str | Expr] = [" WHEN ", count, f" <= {VARIANCES[function]} THEN NULL"]
        if type.name in _INTEGERS:
            total = self._integer_sum(call, argument, _INTEGERS[type.name])
            squares = self._integer_squares(call, argument, type)
        else:
            total, squares = (self._numeric_sum(call, argument, type, power=n) for n in (1, 2))
            for special in self._specials(call, argument, type).values():
                cases += [" WHEN ", special, " > 0 THEN 'NaN'::numeric"]
        value = varied(function, count, total, squares)
        return text("CASE", *cases, " ELSE ", value, " END")

    def _integer_squares(self, call: CallTokens, argument: Expr, type: SqlType) -> Expr:
        wide = "numeric" if type.name == "bigint" else "bigint"
        factor = text("(", argument, f")::{wide}")
        value = self._filtered(call, text("COALESCE(", factor, " * ", factor, ", 0)"), "0")
        return column(self._call(Kind.SUM, "squares", value, NUMERIC).name)

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

    def _scaled(self, call: CallTokens, argument: Expr, total: Expr, power: int) -> Expr:
        """Give a sum the digits that PostgreSQL shows: as many as the value with the most has.

        Σ 10¹⁵ˢ over the scales s adds like any sum, and its length tells the largest s that is
        left when values go. Beyond 8,000 digits, where the power would be too large for numeric,
        the sum keeps those that it has seen.
        """
        tens = text("('1e' || 15 * LEAST(scale(", argument, "), 8000))::numeric")
        none = text("(", argument, ") IS NULL OR ", _is_special(argument))
        value = text("CASE WHEN ", none, " THEN 0 ELSE ", tens, " END")
        made = self._call(Kind.SUM, "scales", self._filtered(call, value, "0"), NUMERIC)
        scales = column(made.name)
        digits = text(f"{power} * ((length((", scales, ")::text) - 1) / 15)")
        rounded = text("round(", total, ", ", digits, ")")
        return text("(CASE WHEN ", scales, " < 1e120000 THEN ", rounded, " ELSE ", total, " END)")

    def _opaque(self, function: str, expr: Expr) -> tuple[Column, Expr]:
        for name in refs(expr):
            self.values.setdefault(column(name), self._of[name])
        made = self._low.fresh(function, self._type_of_call(expr))
        self.calls[Kind.OPAQUE, expr] = Call(made, Kind.OPAQUE, expr)
        return made, column(made.name)

    def _type_of_call(self, expr: Expr) -> SqlType:
        probe = Call(Column("x", NUMERIC), Kind.OPAQUE, expr)
        grouped = Aggregate(self._op, (), Column("n", BIGINT), (probe,))
        return self._low.types(grouped, [column("x")])[0]


def _average(total: Expr, count: Expr) -> Expr:
    return text(total, "::numeric / ", count, "::numeric")


def _is_counted(type: SqlType) -> bool:
    """Tell whether different values of a type can be counted: they are found by their hash."""
    return type.name.partition("(")[0] in _COUNTED


def _is_special(argument: Expr) -> Expr:
    return text("(", argument, ") IN ('NaN', 'Infinity', '-Infinity')")
