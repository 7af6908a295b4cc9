"""Calls of every aggregate that PostgreSQL has, by family, and the table that they read.

What SQL leaves open is pinned: where the order of rows shows, the call sorts, or its argument is
the same in the whole group; sums of floats are of quarters, what floats round is rounded again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

SETUP = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (a int, b text);
CREATE TABLE t (
    id int PRIMARY KEY, g int, i int, s smallint, b bigint, n numeric, f float8, r real, m money,
    iv interval, d date, ts timestamp, tz timestamptz, ti time, tt timetz, tx text, c char(3),
    e mood, p pair, o oid, ip inet, lsn pg_lsn, x8 xid8, td tid, bt boolean, bits bit(4), by bytea,
    arr int[], j jsonb, x xml, ra int4range, mr int4multirange
);
CREATE FUNCTION int4_larger_of(state int, a int, b int) RETURNS int IMMUTABLE
    RETURN greatest(state, a - b);
CREATE FUNCTION joined_step(state text, a text, VARIADIC more text[]) RETURNS text IMMUTABLE
    RETURN concat(state, a, array_to_string(more, '+'));
CREATE AGGREGATE product (numeric) (SFUNC = numeric_mul, STYPE = numeric, INITCOND = '1');
CREATE AGGREGATE widest (int, int) (SFUNC = int4_larger_of, STYPE = int);
CREATE AGGREGATE joined (text, VARIADIC text[]) (SFUNC = joined_step, STYPE = text);
"""


def rows(ids: Iterable[int], xml: bool) -> str:
    """Return the statement that inserts rows with these ids: ten to a group, NULLs among them."""
    document = "format('<r>%s</r>', n)::xml" if xml else "NULL"
    return f"""
INSERT INTO t SELECT n, n / 10, v, v, v * 1000000007::bigint, round(v * 1.25, n % 3), v / 4.0,
    v / 4.0, v::money, make_interval(n % 3, 0, 0, v), date '2024-01-01' + v,
    timestamp '2024-01-01' + v * interval '1 h', timestamptz '2024-01-01+00' + v * interval '1 h',
    time '12:00' + v * interval '1 min', timetz '12:00+00' + v * interval '1 min', chr(97 + n % 7),
    chr(97 + n % 5), (enum_range(NULL::mood))[n % 3 + 1], ROW(v, NULL)::pair, abs(v)::oid,
    inet '10.0.0.1' + abs(v), '0/1'::pg_lsn + abs(v), abs(v)::text::xid8,
    format('(%s,1)', abs(v))::tid, v % 3 = 0, v::bit(4), sha256(v::text::bytea),
    ARRAY[v, NULL], jsonb_build_object('v', v), {document}, int4range(abs(v), abs(v) + 9),
    int4multirange(int4range(0, abs(v)), int4range(200, 300))
    FROM (SELECT n, CASE WHEN n % 6 <> 5 THEN n * 37 % 23 - 11 END AS v
          FROM unnest(ARRAY{list(ids)}) AS n) AS q
"""


CHANGES = (
    "UPDATE t SET i = i + 1, s = NULL, n = n * 1.10, f = -f, tx = tx || 'z', bt = NOT bt,"
    " b = b - 1, bits = ~ bits, iv = iv * 2, arr = arr || 1, mr = mr * '{[1,250)}', d = d - 40"
    " WHERE id % 4 = 1",
    "UPDATE t SET g = g + 1 WHERE id % 10 = 3",
    "UPDATE t SET g = NULL WHERE id % 10 = 7",
    "DELETE FROM t WHERE id IN"
    " (SELECT DISTINCT ON (g) id FROM t ORDER BY g, i DESC NULLS LAST, id)",
    "DELETE FROM t WHERE g = 2",
    "UPDATE t SET i = NULL, n = 'NaN', f = 'NaN', tx = NULL, bt = NULL, x = NULL WHERE g = 1",
    "DELETE FROM t",
)

_INTEGERS = ("s", "i", "b")
_FLOATS = ("f", "r")
_VARIANCES = ("var_pop", "var_samp", "variance", "stddev_pop", "stddev_samp", "stddev")
_REGRESSIONS = (
    *("corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy", "regr_intercept", "regr_r2"),
    *("regr_slope", "regr_sxx", "regr_sxy", "regr_syy"),
)
_SORTED = (
    *("s", "i", "b", "n", "f", "r", "m", "iv", "d", "ts", "tz", "ti", "tt", "tx", "c", "e", "o"),
    *("ip", "lsn", "x8", "td", "arr"),
)
_COUNTED = "count(*)", "count(*) FILTER (WHERE i > 0)", "regr_count(i, s)", "regr_count(n, f)"
_HYPOTHETICAL = ("rank", "dense_rank", "percent_rank", "cume_dist")


def _forms(name: str, argument: str, show: str = "{}") -> Iterator[str]:
    """Yield a call plain, with DISTINCT, sorted and filtered."""
    yield show.format(f"{name}({argument})")
    yield show.format(f"{name}(DISTINCT {argument})")
    yield show.format(f"{name}({argument} ORDER BY id)")
    yield show.format(f"{name}({argument}) FILTER (WHERE i > 0)")
    yield show.format(f"{name}(DISTINCT {argument}) FILTER (WHERE tx <> 'b')")


def _listed(name: str, argument: str, same: str) -> Iterator[str]:
    """Yield a call whose value shows the order of the rows; `same` is one value in a group."""
    yield f"{name}({same})"
    yield f"{name}(DISTINCT {argument})"
    yield f"{name}({argument} ORDER BY id DESC)"
    yield f"{name}({argument} ORDER BY tx, id) FILTER (WHERE i > 0)"


def _within(name: str, arguments: Iterable[str]) -> Iterator[str]:
    for argument in arguments:
        yield f"{name} WITHIN GROUP (ORDER BY {argument})"
        yield f"{name} WITHIN GROUP (ORDER BY {argument}) FILTER (WHERE i > 0)"


def _plain(name: str, argument: str) -> Iterator[str]:
    yield f"{name}({argument})"
    yield f"{name}({argument}) FILTER (WHERE i > 0)"


def _each(names: Iterable[str], arguments: Iterable[str]) -> Iterator[str]:
    some = tuple(arguments)
    return (call for name in names for argument in some for call in _plain(name, argument))


ROUNDED = "round(({})::numeric, 6)"
ONE = "FILTER (WHERE id % 10 = 0)"  # one row of a group at most

# Families whose calls all follow by addition come first.
FAMILIES: dict[str, tuple[str, ...]] = {
    "counts": (*_COUNTED, *_plain("count", "i"), *_plain("count", "p"), *_plain("count", "x")),
    "sums": tuple(_each(("sum", "avg"), (*_INTEGERS, "n"))),
    "variances": tuple(_each(_VARIANCES, (*_INTEGERS, "n"))),
    "booleans": tuple(_each(("bool_and", "bool_or", "every"), ("bt", "i > 0", "NULL::boolean"))),
    "extrema": tuple(_each(("min", "max"), _SORTED)),
    "distinct": tuple(
        call
        for name, arguments in {
            "count": ("i", "p"),
            "sum": ("i", "n"),
            "avg": ("b", "n"),
            "stddev": ("n",),
            "min": ("tx",),
            "bool_or": ("bt",),
        }.items()
        for argument in arguments
        for call in _forms(name, argument)
    ),
    "floats": (
        *_each(("sum",), (*_FLOATS, "m", "iv")),
        *_forms("avg", "f"),
        *_plain("avg", "r"),
        *_plain("avg", "iv"),
        *(ROUNDED.format(f"{name}({argument})") for name in _VARIANCES for argument in _FLOATS),
    ),
    "regressions": tuple(
        ROUNDED.format(f"NULLIF({name}(i, s) FILTER (WHERE f > -9)::text, 'NaN')")
        for name in _REGRESSIONS
    ),
    "bits": tuple(
        call
        for name in ("bit_and", "bit_or", "bit_xor")
        for argument in (*_INTEGERS, "bits")
        for call in (*_plain(name, argument), f"{name}(DISTINCT {argument})")
    ),
    "lists": (
        *_listed("array_agg", "i", "g"),
        *_listed("array_agg", "ARRAY[i]", "ARRAY[g]"),
        "string_agg(g::text, ',')",
        "string_agg(DISTINCT tx, ',')",
        "string_agg(tx, ',' ORDER BY tx DESC, id)",
        "string_agg(tx, tx ORDER BY id) FILTER (WHERE i > 0)",
        r"string_agg(by, '\x00' ORDER BY id)",
        "xmlagg(x ORDER BY id)",
        f"xmlagg(x) {ONE}",
    ),
    "json": (
        *_listed("json_agg", "i", "g"),
        *_listed("jsonb_agg", "i", "g"),
        "jsonb_agg(j ORDER BY id)",
        "jsonb_object_agg(id, i)",
        "jsonb_object_agg(id, i) FILTER (WHERE i > 0)",
        "jsonb_object_agg(coalesce(tx, '-'), i ORDER BY id)",
        "json_object_agg(id, i ORDER BY id)",
        f"json_object_agg(id, i) {ONE}",
    ),
    "ordered_sets": (
        *_within("percentile_cont(0.5)", ("f", "i", "iv")),
        *_within("percentile_cont(ARRAY[0.25, NULL, 1])", ("f", "iv")),
        *_within("percentile_disc(0.3)", ("i", "tx", "e")),
        *_within("percentile_disc(ARRAY[0.25, 0.75])", ("n", "tx")),
        *_within("mode()", ("tx", "i", "bt")),
    ),
    "hypothetical_sets": (
        *(call for name in _HYPOTHETICAL for call in _within(f"{name}(1)", ("i",))),
        *(f"{name}(1, 'b') WITHIN GROUP (ORDER BY i DESC, tx)" for name in _HYPOTHETICAL),
    ),
    "ranges": (
        *_forms("range_agg", "ra"),
        *_forms("range_agg", "mr"),
        *_forms("range_intersect_agg", "ra"),
        *_forms("range_intersect_agg", "mr"),
    ),
    "own": (
        *_forms("product", "i::numeric"),
        "widest(i, s)",
        "widest(i, s) FILTER (WHERE i > 0)",
        "joined(tx, 'a', 'b' ORDER BY id)",
        "joined(tx, VARIADIC ARRAY['c'] ORDER BY id)",
    ),
    "expressions": (
        "sum(i) * 2 + coalesce(max(s), 0)",
        "CASE WHEN bool_or(bt) THEN stddev(n) ELSE var_pop(i) END",
        "every(i > 0) AND count(*) > 1",
    ),
}
# Since PostgreSQL 16.
NEWER = {
    "json_clauses": (
        "any_value(g)",
        "any_value(g) FILTER (WHERE i > 0)",
        "json_agg_strict(i ORDER BY id)",
        "jsonb_agg_strict(i ORDER BY id)",
        "json_object_agg_strict(id, i ORDER BY id)",
        "json_object_agg_unique(id, i ORDER BY id)",
        "json_object_agg_unique_strict(id, i ORDER BY id)",
        "jsonb_object_agg_strict(id, i)",
        "jsonb_object_agg_unique(id, i)",
        "jsonb_object_agg_unique_strict(id, i)",
        "JSON_ARRAYAGG(i ORDER BY id)",
        "JSON_ARRAYAGG(i ORDER BY id NULL ON NULL)",
        "JSON_ARRAYAGG(i ORDER BY id ABSENT ON NULL RETURNING jsonb)",
        "JSON_ARRAYAGG(g RETURNING text) FILTER (WHERE i > 0)",
        f"JSON_OBJECTAGG(id: i) {ONE}",
        f"JSON_OBJECTAGG(id: i ABSENT ON NULL WITH UNIQUE KEYS) {ONE}",
        "JSON_OBJECTAGG(id VALUE i NULL ON NULL RETURNING jsonb)",
        "JSON_OBJECTAGG(id: i ABSENT ON NULL WITH UNIQUE RETURNING jsonb) FILTER (WHERE i > 0)",
    ),
}
# Since PostgreSQL 18. The extremum of a composite is a record, which no table can hold.
NEWEST = {"more_extrema": tuple(_each(("min", "max"), ("by",)))}
REFUSED = tuple(
    f"{name}({argument})::text" for name in ("min", "max") for argument in ("p", "ROW(i)")
)


def families(version: int) -> dict[str, tuple[str, ...]]:
    """Return the families that a server of a major version has."""
    newer = NEWER if version >= 16 else {}
    return FAMILIES | newer | (NEWEST if version >= 18 else {})


def query(calls: Iterable[str], key: str = "g") -> str:
    """Return the grouped query of some calls; without a key, over all rows."""
    shown = ", ".join(f"{call} AS c{at}" for at, call in enumerate(calls))
    return f"SELECT {key}, {shown} FROM t GROUP BY {key}" if key else f"SELECT {shown} FROM t"
