"""Awkward values of every kind, and expressions in PostgreSQL for every entry of the whitelist."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.spark.functions import Entry

TYPES = {
    "boolean": "boolean",
    "smallint": "smallint",
    "integer": "integer",
    "bigint": "bigint",
    "decimal": "numeric(12,2)",
    "string": 'text COLLATE "C"',
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "binary": "bytea",
    "opaque": "mood",
}
OTHER_DECIMALS = (
    "numeric(15,5)",
    "numeric(18,0)",
    "numeric(19,19)",
    "numeric(37,10)",
    "numeric(38,0)",
)
_BIG = "9" * 38
VALUES = {
    "boolean": ("true", "false"),
    "smallint": ("-32768", "-32767", "-7", "-1", "0", "1", "2", "7", "182", "32767"),
    "integer": ("-2147483648", "-46341", "-7", "-1", "0", "1", "2", "7", "46341", "2147483647"),
    "bigint": (
        *("-9223372036854775808", "-3037000500", "-7", "-1", "0", "1", "2", "7"),
        *("2147483648", "3037000500", "9223372036854775807"),
    ),
    "numeric(12,2)": (
        *("0", "0.01", "-0.01", "0.50", "-0.50", "1.5", "2.5", "-2.5", "7", "127.49", "32767.5"),
        *("2147483647.50", "9999999999.99", "-9999999999.99"),
    ),
    "numeric(15,5)": ("0", "0.00001", "-1.5", "2.5", "0.01", "9999999999.99999", "-9999999999.5"),
    "numeric(18,0)": ("0", "1", "-1", "999999999999999999", "-999999999999999999"),
    "numeric(19,19)": ("0", f"0.{'9' * 19}", f"-0.{'9' * 19}", "0.0000000000000000001"),
    "numeric(37,10)": ("0", "-0.0000000001", f"{'9' * 27}.{'9' * 10}", f"-{'9' * 27}.{'9' * 10}"),
    "numeric(38,0)": ("0", "1", "-1", _BIG, f"-{_BIG}"),
    "string": (
        *("", " ", "  ", "a", "A", "ab", "a ", " a", "b", "ä", "Ä", "e\u0301", "é", "ß", "İ"),
        *("😀", "x😀y", "line\nbreak", "tab\t", "a\\b", "a\\", "%", "_", "a%b_c", "it's", '"q"'),
        *("${spark.sql.ansi.enabled}", "$", "zz", "Z", "true", "\u200b", "日本語", "1"),
    ),
    "date": (
        *("0001-01-01", "0099-12-31", "1500-02-28", "1582-10-04", "1582-10-15", "1899-12-31"),
        *("1900-02-28", "1900-03-01", "1969-12-31", "1970-01-01", "2000-02-29", "2020-12-31"),
        *("2021-01-01", "2021-01-03", "2023-12-31", "2024-02-29", "2024-12-30", "9999-12-31"),
    ),
    "timestamp_ntz": (
        *("0001-01-01 00:00:00", "1582-10-10 12:00:00", "1899-12-31 23:59:59.999999"),
        *("1969-12-31 23:59:59.999999", "1970-01-01 00:00:00", "2000-02-29 00:00:00.000001"),
        *("2021-01-03 23:59:59.5", "2024-02-29 12:34:56.789012", "2024-03-31 02:30:00"),
        "9999-12-31 23:59:59.999999",
    ),
    "timestamp": (
        *("0001-01-01 00:00:00+00", "1969-12-31 23:59:59.999999+00", "2024-03-31 01:00:00+00"),
        *("2024-03-31 03:00:00+02", "2024-10-27 00:30:00.000001+00", "9999-12-31 23:59:59+00"),
    ),
    "binary": ("\\x", "\\x00", "\\x0000", "\\x7f", "\\x80", "\\xff00"),
    "opaque": ("sad", "ok", "it's"),
}
VALUES["decimal"] = VALUES["numeric(12,2)"]

PATTERNS = (
    *("", "%", "_", "a%", "%a", "%b%", "a_", "a\\%b\\_c", "a\\\\", "%\\\\%", "\\a", "\\ä%", "__"),
    *("line%", "%\nbreak", "it''s", "%$%", "${%", "_😀_", "%😀%", ".*", "[a]", "a|b", "é", "日%"),
)
_CONSTANTS = {
    ("natural",): ("0", "1", "2", "100"),
    ("positive",): ("1", "2", "100"),
    ("positive", "natural"): ("1, 0", "1, 1", "2, 3", "3, 100", "2147483647, 1"),
    ("pattern",): tuple(f"'{pattern}'" for pattern in PATTERNS),
}
_NEED_ONE_MORE_DIGIT = ("-", "abs", "@")
_CAST_TYPES = ("numeric(10,1)", "numeric(14,4)", "numeric(38,6)", "numeric(3,3)")


@dataclass(frozen=True)
class Sample:
    """An expression over columns a and b of the named types."""

    types: tuple[str, ...]
    sql: str


def samples(entry: Entry) -> list[Sample]:
    """Return what exercises an entry; the first argument is `a`, the second `b`."""
    constants = tuple(k for k in entry.arguments if k in ("natural", "positive", "pattern"))
    kinds = entry.arguments[: len(entry.arguments) - len(constants)]
    return [
        Sample(types, sql)
        for types in _column_types(kinds)
        if types != ("numeric(38,0)",) or entry.name not in _NEED_ONE_MORE_DIGIT
        for sql in _written(entry.name, len(kinds), _CONSTANTS.get(constants, ()))
    ]


def _column_types(kinds: tuple[str, ...]) -> list[tuple[str, ...]]:
    if kinds == ("decimal",):
        return [("numeric(12,2)",), *((other,) for other in OTHER_DECIMALS)]
    if kinds == ("decimal", "decimal"):
        return [
            ("numeric(12,2)", "numeric(12,2)"),
            ("numeric(12,2)", "numeric(15,5)"),
            ("numeric(18,0)", "numeric(19,19)"),
        ]
    return [tuple(TYPES[kind] for kind in kinds)]


def _written(name: str, arity: int, constants: tuple[str, ...]) -> list[str]:
    if name.startswith("::"):
        return _casts(name)
    if name.startswith("IS "):
        return [f"a {name}"]
    if name[0].islower():
        return _calls(name, ["a", "b"][:arity], constants)
    if constants:
        return [f"a {name} {constant}" for constant in constants]
    return [f"{name} a"] if arity == 1 else [f"a {name} b"]


def _casts(name: str) -> list[str]:
    if name == "::numeric(p,s)":
        return [f"a::{type}" for type in _CAST_TYPES]
    return [f"a{name}", *(["v::text"] if name == "::text" else [])]


def _calls(name: str, arguments: list[str], constants: tuple[str, ...]) -> list[str]:
    function, _, field = name.rstrip(")").partition("(")
    if function == "extract":
        return [f"extract({field} FROM a)"]
    if function == "date_trunc":
        return [f"date_trunc('{field}', a)"]
    given = [[*arguments, constant] for constant in constants] or [arguments]
    return [f'pg_catalog."{name}"({", ".join(arguments)})' for arguments in given]


_LITERALS = {
    "boolean": ("true", "false"),
    "smallint": ("'7'::smallint", "'-32768'::smallint"),
    "integer": ("7", "-2147483648"),
    "bigint": ("7::bigint", "-9223372036854775808"),
    "numeric(12,2)": ("7.00", "-2.50", "9999999999.99"),
    "string": ("'a'", "'é'", "'a\\b'", "'it''s'", "'${spark.sql.ansi.enabled}'", "'line\nbreak'"),
    "date": ("'2000-02-29'::date", "'0001-01-01'::date"),
    "timestamp": (
        "'2024-03-31 01:00:00+00'::timestamptz",
        "'2024-10-27 00:30:00.000001+00'::timestamptz",
    ),
    "timestamp_ntz": (
        "'2000-02-29 00:00:00.000001'::timestamp",
        "'0001-01-01 00:00:00'::timestamp",
    ),
    "binary": ("'\\x00'::bytea", "'\\x'::bytea"),
}
_CHOICES = {
    "CASE": ("CASE WHEN a = b THEN a ELSE b END", "CASE a WHEN b THEN 1 END"),
    "COALESCE": ("COALESCE(a, b)",),
    "NULLIF": ("NULLIF(a, b)",),
    "GREATEST": ("GREATEST(a, b)",),
    "LEAST": ("LEAST(b, a)",),
    "DISTINCT": ("a IS DISTINCT FROM b", "a IS NOT DISTINCT FROM b", "NULL IS DISTINCT FROM a"),
}
_LISTS = {"ANY": ("a IN ({})", "a = ANY (ARRAY[{}])"), "ALL": ("a NOT IN ({})",)}
_ORDERED_LISTS = {"ANY": ("a > ANY (ARRAY[{}])",), "ALL": ("a <= ALL (ARRAY[{}])",)}
_MORE = {
    "CASE": (
        (("integer", "numeric(12,2)"), "CASE WHEN a > 0 THEN b WHEN a < -1 THEN 0.00 END"),
        (("integer", "numeric(12,2)"), "CASE WHEN a <> 0 THEN 7 / a END"),
    ),
    "COALESCE": (
        (("integer", "numeric(18,0)"), "COALESCE(b, a)"),
        (("smallint", "bigint"), "COALESCE(a, b, 0)"),
        (("numeric(12,2)",), "COALESCE(a, 0.00)"),
        (("mood", "mood"), "COALESCE(a, b)"),
    ),
    "DISTINCT": (
        (("numeric(12,2)", "numeric(15,5)"), "a IS DISTINCT FROM b"),
        (("mood", "mood"), "a IS DISTINCT FROM b"),
    ),
    "NULLIF": (
        (("smallint",), "NULLIF(a, 0)"),
        (("numeric(12,2)", "numeric(15,5)"), "NULLIF(a, b)"),
    ),
    "ANY": (
        (("numeric(12,2)",), "a IN (1, 2.5, 7.000, -0.01)"),
        (("smallint",), "a IN (1, 2, NULL)"),
        (("numeric(12,2)",), "a IN ('NaN', 'Infinity', '-Infinity')"),
        (("numeric(12,2)",), "a IN (1, 'NaN')"),
    ),
}


def conditional_samples(form: str) -> list[Sample]:
    """Return what exercises COALESCE and its kin, over every kind that has one literal form."""
    made = [Sample(types, sql) for types, sql in _MORE.get(form, ())]
    for kind, literals in _LITERALS.items():
        type = TYPES.get(kind, kind)
        made += [Sample((type, type), sql) for sql in _CHOICES.get(form, ())]
        lists = [*_LISTS.get(form, ()), *_ORDERED_LISTS.get(form, ())]
        made += [Sample((type,), sql.format(", ".join(literals))) for sql in lists]
    return made


NESTED = (
    Sample(("integer", "bigint"), "a IS NULL OR (b > 0 AND NOT a < 7) OR a = 1"),
    Sample(("numeric(12,2)", "numeric(15,5)"), "a * (1 - b) + 2.5 > b AND a IN (1.5, 2.50)"),
    Sample(("numeric(12,2)", "integer"), "- a * b + 0.125"),
    Sample(("date", "integer"), "(a - 7 < a OR b = 1) AND extract(year FROM a + 1) = 2000"),
    Sample(('text COLLATE "C"', 'text COLLATE "C"'), "length(a || b) > 2 AND left(a, 1) < b"),
)
REFUSED = (
    ("upper(t)", "upper on (string)"),
    ("t < u", "< over an order"),
    ("greatest(t, u)", "greatest over an order"),
    ("t || a", "|| on (string, integer)"),
    ("t LIKE u", "~~ on (string, string)"),
    ("t LIKE 'a\\'", "~~ on (string, string)"),
    ("t ~ 'a'", "~ on (string, string)"),
    ("t ILIKE 'a'", "~~* on (string, string)"),
    ("substring(t, 0)", "substring on (string, integer)"),
    ("substring(t, a)", "substring on (string, integer)"),
    ("substring(t, 'a+')", "substring on (string, string)"),
    ("left(t, -1)", "left on (string, integer)"),
    ('t COLLATE "C" < u', "'COLLATE' stands"),
    ("c = 'ab'", "'ab' of type bpchar"),
    ("c::text = t", "::text on (opaque)"),
    ("t::varchar(3) = u", "::character varying(3) on (string)"),
    ("n / n", "/ on (decimal, decimal)"),
    ("n % n", "% on (decimal, decimal)"),
    ("n * n * n * n", "a number of"),
    ("- w", "a number of 39 digits"),
    ("abs(w)", "a number of 39 digits"),
    ("w + 1", "a number of 39 digits"),
    ("w > 0.5", "a number of 39 digits"),
    ("coalesce(n, 0)", "different digits"),
    ("n + m", "+ on (decimal, opaque)"),
    ("m + 1", "+ on (opaque, decimal)"),
    ("n::numeric(3,-1)", "::numeric(3,-1)"),
    ("n > 'NaN'", "'NaN' of type numeric"),
    ("r + r", "+ on (opaque, opaque)"),
    ("a::float8", "::double precision on (integer)"),
    ("n::float8", "::double precision on (decimal)"),
    ("date_trunc('month', z)", "date_trunc(month) on (timestamp)"),
    ("date_trunc('month', d)", "::timestamp with time zone on (date)"),
    ("date_trunc('decade', s)", "date_trunc(decade)"),
    ("extract(epoch FROM s)", "extract(epoch)"),
    ("z::date", "::date on (timestamp)"),
    ("s < z", "< on (timestamp_ntz, timestamp)"),
    ("d + interval '1 day'", "'1 day' of type interval"),
    ("d = 'infinity'", "'infinity' of type date"),
    ("d > '0044-03-15 BC'", "BC' of type date"),
    ("p IS NULL", "IS NULL on (opaque)"),  # a composite of NULLs is NULL
    ("e < 'ok'", "'ok' of type public.mood"),
    ("e < f", "< on (opaque, opaque)"),
    ("twice(a)", "public.twice exists in PostgreSQL only"),
    ("a OPERATOR(public.@+@) a", "'OPERATOR'"),
    ("j -> 'a' IS NULL", "-> on (opaque, string)"),
    ("ARRAY[a] = ARRAY[a]", "'ARRAY'"),
)
