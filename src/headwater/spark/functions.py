"""What Spark computes exactly as PostgreSQL does: one entry for an operator and its argument kinds.

An entry is here because a test compared both engines on awkward values. What is not here, with
exactly these kinds, is refused. The session must run with ANSI mode on, so that overflow and
division by zero raise as they do in PostgreSQL, and with the time zone UTC.

Left out, because the results differ: upper and lower (not the same beyond ASCII), division of
decimals (the scale hangs on the digits), anything on floats, order of strings under a collation
other than C, whatever depends on TimeZone or on char(n), regular expressions, intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations, product

Shape = tuple[int, int]  # precision and scale of a DECIMAL
Shaper = Callable[[tuple[Shape, ...]], Shape]

MAX_PRECISION = 38
WIDTHS = {"smallint": "SMALLINT", "integer": "INT", "bigint": "BIGINT"}
INTEGERS = tuple(WIDTHS)
INTEGER_SHAPES = {"smallint": (5, 0), "integer": (10, 0), "bigint": (19, 0)}
TIMES = ("date", "timestamp", "timestamp_ntz")
# opaque is missing: it may be a composite, which IS NULL looks into
KINDS = ("boolean", *INTEGERS, "decimal", "string", *TIMES, "binary")
EQUALITIES, ORDERINGS = ("=", "<>"), ("<", "<=", ">", ">=")
# Printed by name, with any number of values of one kind; `translate` knows their forms.
CONDITIONALS = ("CASE", "COALESCE", "NULLIF", "GREATEST", "LEAST", "ANY", "ALL", "DISTINCT")


@dataclass(frozen=True, slots=True)
class Entry:
    """An operator, function or cast, the kinds it takes and gives, and how Spark writes it.

    In `form`, {0} and {1} are the operands and {type} is the result's type. Where `common` is set,
    {common} is the type that it makes of the operands' shapes; `shape` makes that of the result.
    Kinds that only constants can have: *positive* and *natural* integers, and a LIKE *pattern*.
    """

    name: str
    arguments: tuple[str, ...]
    result: str
    form: str
    shape: Shaper | None = None
    common: Shaper | None = None

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """What an expression must have for this entry to apply."""
        return self.name, self.arguments


def covering(shapes: tuple[Shape, ...]) -> Shape:
    """Return the shape that holds all values of the shapes without loss."""
    scale = max(scale for _, scale in shapes)
    return max(precision - scale for precision, scale in shapes) + scale, scale


def _sum(shapes: tuple[Shape, ...]) -> Shape:
    precision, scale = covering(shapes)
    return precision + 1, scale


def _product(shapes: tuple[Shape, ...]) -> Shape:
    (a, b), (c, d) = shapes
    return a + c, b + d


def _spark_product(shapes: tuple[Shape, ...]) -> Shape:
    """Return what Spark makes of a product before it is cast; beyond 38 digits it would round."""
    precision, scale = _product(shapes)
    return precision + 1, scale


def _first(shapes: tuple[Shape, ...]) -> Shape:
    return shapes[0]


def _constant(precision: int, scale: int) -> Shaper:
    return lambda _: (precision, scale)


def _wider(a: str, b: str) -> str:
    return max(a, b, key=INTEGERS.index)


# --- comparisons and logic ---


def _comparisons() -> Iterator[Entry]:
    for symbol in (*EQUALITIES, *ORDERINGS):
        for kind in ("boolean", "string", *TIMES, "binary"):
            yield Entry(symbol, (kind, kind), "boolean", f"({{0}} {symbol} {{1}})")
        for pair in product(INTEGERS, INTEGERS):
            yield Entry(symbol, pair, "boolean", f"({{0}} {symbol} {{1}})")
        cast = f"(CAST({{0}} AS {{common}}) {symbol} CAST({{1}} AS {{common}}))"
        yield Entry(symbol, ("decimal", "decimal"), "boolean", cast, common=covering)
    for symbol in EQUALITIES:  # types that differ have no operator in common without a cast
        yield Entry(symbol, ("opaque", "opaque"), "boolean", f"({{0}} {symbol} {{1}})")


_TWO = ("boolean", "boolean")
_LOGIC = (
    Entry("AND", _TWO, "boolean", "({0} AND {1})"),
    Entry("OR", _TWO, "boolean", "({0} OR {1})"),
    Entry("NOT", ("boolean",), "boolean", "(NOT {0})"),
    Entry("IS TRUE", ("boolean",), "boolean", "({0} <=> TRUE)"),
    Entry("IS FALSE", ("boolean",), "boolean", "({0} <=> FALSE)"),
    Entry("IS UNKNOWN", ("boolean",), "boolean", "({0} IS NULL)"),
    Entry("IS NOT TRUE", ("boolean",), "boolean", "(NOT ({0} <=> TRUE))"),
    Entry("IS NOT FALSE", ("boolean",), "boolean", "(NOT ({0} <=> FALSE))"),
    Entry("IS NOT UNKNOWN", ("boolean",), "boolean", "({0} IS NOT NULL)"),
)


def _null_tests() -> Iterator[Entry]:
    for kind in KINDS:
        yield Entry("IS NULL", (kind,), "boolean", "({0} IS NULL)")
        yield Entry("IS NOT NULL", (kind,), "boolean", "({0} IS NOT NULL)")


# --- numbers ---


def _integer_arithmetic() -> Iterator[Entry]:
    """As wide as the wider operand; Spark's `div` is always BIGINT, and the cast back raises."""
    for a, b in product(INTEGERS, INTEGERS):
        wide = _wider(a, b)
        x, y = (f"CAST({{{i}}} AS {WIDTHS[wide]})" for i in (0, 1))
        for symbol in ("+", "-", "*"):
            yield Entry(symbol, (a, b), wide, f"({x} {symbol} {y})")
        yield Entry("/", (a, b), wide, f"CAST(({x} div {y}) AS {WIDTHS[wide]})")
    for kind in INTEGERS:
        yield Entry("%", (kind, kind), kind, "({0} % {1})")
        yield Entry("mod", (kind, kind), kind, "({0} % {1})")
        yield Entry("-", (kind,), kind, "(- {0})")
        yield Entry("+", (kind,), kind, "{0}")
        yield Entry("abs", (kind,), kind, "abs({0})")
        yield Entry("@", (kind,), kind, "abs({0})")


# Spark's own minus and abs keep 34 digits of a DECIMAL and round the rest away without a word.
_NEGATED = "(CAST(0 AS {type}) - {0})"
_ABSOLUTE = f"CAST(IF({{0}} < CAST(0 AS {{type}}), {_NEGATED}, {{0}}) AS {{type}})"
_D, _DD = ("decimal",), ("decimal", "decimal")
_DECIMALS = (
    Entry("+", _DD, "decimal", "CAST(({0} + {1}) AS {type})", _sum),
    Entry("-", _DD, "decimal", "CAST(({0} - {1}) AS {type})", _sum),
    Entry("*", _DD, "decimal", "CAST(({0} * {1}) AS {type})", _product, _spark_product),
    Entry("-", _D, "decimal", f"CAST({_NEGATED} AS {{type}})", _first, _sum),
    Entry("+", _D, "decimal", "{0}", _first),
    Entry("abs", _D, "decimal", _ABSOLUTE, _first, _sum),
    Entry("@", _D, "decimal", _ABSOLUTE, _first, _sum),
)


# --- casts ---


def _casts() -> Iterator[Entry]:
    """A decimal is rounded half away from zero on its way to an integer; Spark would cut it off."""
    for source, target in permutations(INTEGERS, 2):
        yield Entry(f"::{target}", (source,), target, f"CAST({{0}} AS {WIDTHS[target]})")
    for kind in INTEGERS:
        whole = f"CAST(round({{0}}, 0) AS {WIDTHS[kind]})"
        yield Entry(f"::{kind}", _D, kind, whole)
        yield Entry(
            "::numeric", (kind,), "decimal", "CAST({0} AS {type})", _constant(*INTEGER_SHAPES[kind])
        )
        yield Entry("::numeric(p,s)", (kind,), "decimal", "CAST({0} AS {type})")
        yield Entry("::text", (kind,), "string", "CAST({0} AS STRING)")
    for name in ("text", "character varying"):
        yield Entry(f"::{name}", ("string",), "string", "{0}")


_OTHER_CASTS = (
    Entry("::numeric", _D, "decimal", "{0}", _first),
    Entry("::numeric(p,s)", _D, "decimal", "CAST({0} AS {type})"),
    Entry("::integer", ("boolean",), "integer", "CAST({0} AS INT)"),
    Entry("::boolean", ("integer",), "boolean", "CAST({0} AS BOOLEAN)"),
    Entry("::text", ("boolean",), "string", "CAST({0} AS STRING)"),
    Entry("::text", _D, "string", "CAST({0} AS STRING)"),
    Entry("::date", ("timestamp_ntz",), "date", "CAST({0} AS DATE)"),
    Entry("::timestamp without time zone", ("date",), "timestamp_ntz",
          "CAST({0} AS TIMESTAMP_NTZ)"),
)  # fmt: skip


# --- strings: by code points in both ---

_STRINGS = (
    Entry("||", ("string", "string"), "string", "({0} || {1})"),
    Entry("length", ("string",), "integer", "char_length({0})"),
    Entry("char_length", ("string",), "integer", "char_length({0})"),
    Entry("character_length", ("string",), "integer", "char_length({0})"),
    Entry("substring", ("string", "positive"), "string", "substring({0}, {1})"),
    Entry("substring", ("string", "positive", "natural"), "string", "substring({0}, {1}, {2})"),
    Entry("substr", ("string", "positive"), "string", "substring({0}, {1})"),
    Entry("substr", ("string", "positive", "natural"), "string", "substring({0}, {1}, {2})"),
    Entry("left", ("string", "natural"), "string", "left({0}, {1})"),
    Entry("right", ("string", "natural"), "string", "right({0}, {1})"),
    Entry("~~", ("string", "pattern"), "boolean", "({0} LIKE {1})"),
    Entry("!~~", ("string", "pattern"), "boolean", "(NOT ({0} LIKE {1}))"),
)


# --- dates and times ---


def _shifted(days: str) -> str:
    """Return the date at a day number; beyond PostgreSQL's calendar both raise.

    Spark's own date_add goes on beyond it, and around at the end of its integers.
    """
    outside = f"{days} NOT BETWEEN -2440588 AND 2145031948"  # not true for NULL, so NULL is NULL
    failed = "CAST(raise_error('date out of range') AS DATE)"
    return f"IF({outside}, {failed}, date_from_unix_date(CAST({days} AS INT)))"


_PLUS_DAYS = _shifted("(CAST(unix_date({0}) AS BIGINT) + {1})")
_DAYS_PLUS = _shifted("(CAST(unix_date({1}) AS BIGINT) + {0})")
_MINUS_DAYS = _shifted("(CAST(unix_date({0}) AS BIGINT) - {1})")
_DATES = (
    Entry("+", ("date", "integer"), "date", _PLUS_DAYS),
    Entry("+", ("integer", "date"), "date", _DAYS_PLUS),
    Entry("-", ("date", "integer"), "date", _MINUS_DAYS),
    Entry("-", ("date", "date"), "integer", "datediff({0}, {1})"),
)
# PostgreSQL has no year 0; its weeks start on Monday, as Spark's do.
_FIELDS = {
    "year": "IF(year({0}) > 0, year({0}), year({0}) - 1)",
    "quarter": "quarter({0})",
    "month": "month({0})",
    "day": "day({0})",
    "dow": "(dayofweek({0}) - 1)",
    "isodow": "(weekday({0}) + 1)",
    "doy": "dayofyear({0})",
}
_TIME_FIELDS = {"hour": "hour({0})", "minute": "minute({0})"}
_TRUNCATIONS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


def _fields() -> Iterator[Entry]:
    """EXTRACT gives a numeric; that of a whole field has no digits after the point."""
    for field, form in _FIELDS.items():
        for kind in ("date", "timestamp_ntz"):
            yield _field(field, kind, form)
    for field, form in _TIME_FIELDS.items():
        yield _field(field, "timestamp_ntz", form)
    second = "CAST(extract(SECOND FROM {0}) AS {type})"
    yield Entry("extract(second)", ("timestamp_ntz",), "decimal", second, _constant(8, 6))


def _field(field: str, kind: str, form: str) -> Entry:
    cast = f"CAST({form} AS {{type}})"
    return Entry(f"extract({field})", (kind,), "decimal", cast, _constant(10, 0))


def _truncations() -> Iterator[Entry]:
    for field in _TRUNCATIONS:
        form = f"CAST(date_trunc('{field.upper()}', CAST({{0}} AS TIMESTAMP)) AS TIMESTAMP_NTZ)"
        yield Entry(f"date_trunc({field})", ("timestamp_ntz",), "timestamp_ntz", form)


ENTRIES: tuple[Entry, ...] = (
    *_comparisons(),
    *_LOGIC,
    *_null_tests(),
    *_integer_arithmetic(),
    *_DECIMALS,
    *_casts(),
    *_OTHER_CASTS,
    *_STRINGS,
    *_DATES,
    *_fields(),
    *_truncations(),
)
WHITELIST = {entry.key: entry for entry in ENTRIES}
