"""The rules for scales, against the server: what is said to be fixed is what every value shows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from headwater.algebra.ops import Aggregate, Op, Project, Scan
from headwater.algebra.walk import walk
from headwater.postgres.describe import Described
from headwater.sql.analyse import analyse
from headwater.sql.lower import lower
from headwater.sql.scales import Shape, shape
from tests.scale import scaled

Connection = psycopg.Connection[Any]

COLUMNS = {
    "n2": "numeric(6,2)",
    "n0": "numeric(4,0)",
    "n5": "numeric(3,5)",  # more digits after the point than there are
    "nn": "numeric(2,-2)",  # rounded to hundreds
    "s": "smallint",
    "i": "integer",
    "b": "bigint",
    "m": "numeric",
    "f": "double precision",
}
VALUES = {
    "n2": ("NULL", "0", "9999.99", "-9999.99", "0.01", "'NaN'"),
    "n0": ("NULL", "0", "9999", "-1"),
    "n5": ("NULL", "0", "0.00999", "-0.00001"),
    "nn": ("NULL", "0", "9900", "-100"),
    "s": ("NULL", "0", "-32768", "7"),
    "i": ("NULL", "0", "-2147483648", "7"),
    "b": ("NULL", "0", "-9223372036854775808", "7"),
    "m": ("NULL", "1.5", "'Infinity'"),
    "f": ("NULL", "1.5", "'NaN'"),
}


@pytest.fixture
def table(conn: Connection) -> Connection:
    """A table with awkward values in every column, mixed at random."""
    conn.execute(f"CREATE TABLE t ({', '.join(f'{c} {t}' for c, t in COLUMNS.items())})")
    rng = random.Random(20260101)
    rows = [[rng.choice(values) for values in VALUES.values()] for _ in range(60)]
    rows += [[values[min(i, len(values) - 1)] for values in VALUES.values()] for i in range(6)]
    for row in rows:
        conn.execute(f"INSERT INTO t VALUES ({', '.join(row)})")
    return conn


FIXED: tuple[tuple[str, Shape], ...] = (
    ("n2", (6, 2)),
    ("n5", (5, 5)),
    ("nn", (4, 0)),
    ("i::numeric", (10, 0)),
    ("(s * 0 + i)::numeric", (10, 0)),
    ("(i / 7 - b % 7)::numeric", (19, 0)),
    ("5::numeric", (1, 0)),
    ("-2.50", (3, 2)),
    ("0.050", (3, 3)),
    ("- n2", (6, 2)),
    ("n2 + n0", (7, 2)),
    ("n2 - n5", (10, 5)),
    ("n2 * n2", (12, 4)),
    ("n2 * (1 - n2)", (13, 4)),
    ("n2 * i", (16, 2)),
    ("n2 * 1.000", (10, 5)),
    ("abs(n2)", (6, 2)),
    ("@ n2", (6, 2)),
    ("nullif(n2, 0)", (6, 2)),
    ("coalesce(n2, 0.00)", (6, 2)),
    ("greatest(n2, n2 + 1)", (7, 2)),
    ("CASE WHEN i > 0 THEN n2 END", (6, 2)),
    ("CASE WHEN i > 0 THEN n0 ELSE nn END", (4, 0)),
    ("f::numeric(8,3)", (8, 3)),
    ("(n2 * n5)::numeric(9,1)", (9, 1)),
    ("n2::numeric", (6, 2)),
)
OPEN = (
    *("m", "m + n2", "f::numeric", "n2 / n2", "n2 / 2", "n2 % n0", "n2 ^ 2", "sqrt(n2)"),
    *("coalesce(n2, 0)", "CASE WHEN i > 0 THEN n2 ELSE n0 END", "greatest(n2, n5)"),
    *("round(n2)", "round(n2, i)", "'NaN'::numeric", "'Infinity'::numeric", "i", "i + 1", "f"),
    *("(length('x') + i)::numeric", "n2::text::numeric", "NULL::numeric"),
)


def test_a_fixed_shape_holds_for_every_value(table: Connection) -> None:
    assert dict(FIXED) == shapes(table, [sql for sql, _ in FIXED])
    assert {sql: misfits(table, sql, shape) for sql, shape in FIXED} == {
        sql: [] for sql, _ in FIXED
    }


def test_an_uncertain_scale_is_none(table: Connection) -> None:
    assert shapes(table, OPEN) == dict.fromkeys(OPEN)


def test_generated_expressions_show_what_is_promised(table: Connection) -> None:
    rng = random.Random(7)
    checked = 0
    for sql, promised in shapes(table, [generated(rng, 3) for _ in range(scaled(200))]).items():
        if promised is None:
            continue
        try:
            assert misfits(table, sql, promised) == [], sql
            checked += 1
        except psycopg.errors.NumericValueOutOfRange:  # too large for a cast: there is no value
            continue
    assert checked > scaled(50)


def test_sums_of_a_fixed_scale_need_no_bookkeeping(table: Connection) -> None:
    for argument, more in (
        ("n2 * n2", []),
        ("n2 * m", ["scales"]),
        ("coalesce(n2, 0)", ["scales"]),
    ):
        made = lowered(table, f"SELECT s, sum({argument}), avg({argument}) FROM t GROUP BY s")
        (grouped,) = (op for op in walk(made) if isinstance(op, Aggregate))
        names = [call.column.name.partition("_")[0] for call in grouped.calls]
        special = ["n"] * (3 if more else 1)
        assert sorted(names) == sorted(["n", "sum", *more, *special])


# --- helpers ---


def lowered(conn: Connection, query: str) -> Op:
    with conn.transaction():
        return lower(analyse(conn, query), Described(conn))


def shapes(conn: Connection, sqls: Sequence[str]) -> dict[str, Shape | None]:
    """Have the server print the expressions in canonical form, and ask for their shapes."""
    op = lowered(conn, f"SELECT {', '.join(f'{sql} AS c{i}' for i, sql in enumerate(sqls))} FROM t")
    assert isinstance(op, Project)
    assert isinstance(op.input, Project)
    assert isinstance(op.input.input, Scan)
    types = {c.name: c.type for c in op.input.input.columns}
    outputs = op.input.outputs
    return {sql: shape(output.expr, types) for sql, output in zip(sqls, outputs, strict=True)}


def misfits(conn: Connection, sql: str, promised: Shape) -> list[Any]:
    """Return values with another scale, with more digits, or infinite; NaN alone has no scale."""
    precision, scale = promised
    return conn.execute(
        f"SELECT DISTINCT x::text FROM (SELECT {sql} AS x FROM t OFFSET 0) AS q WHERE x <> 'NaN'"
        f" AND (scale(x) IS DISTINCT FROM {scale} OR abs(x) >= 10::numeric ^ {precision - scale})"
    ).fetchall()


def generated(rng: random.Random, depth: int) -> str:
    leaves = ("n2", "n0", "n5", "nn", "i::numeric", "b::numeric", "1.50", "2", "m")
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(leaves[:-1] if rng.random() < 0.9 else leaves)
    a, b = generated(rng, depth - 1), generated(rng, depth - 1)
    forms = [f"({a} {symbol} {b})" for symbol in "+-*"]
    forms += [f"(- {a})", f"abs({a})", f"nullif({a}, {b})", f"(({a})::numeric(30,3))"]
    forms += [f"coalesce({a}, {b})", f"greatest({a}, {b})"]
    forms += [f"CASE WHEN i > 0 THEN {a} ELSE {b} END", f"CASE WHEN s > 0 THEN {a} END"]
    return rng.choice(forms)
