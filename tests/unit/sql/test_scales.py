"""Which expressions have a value for every row."""

from __future__ import annotations

import pytest

from headwater.algebra.expr import Expr, column, text
from headwater.algebra.schema import SqlType
from headwater.sql.scales import never_fails

TYPES = {
    "a": SqlType("numeric(15,2)"), "b": SqlType("numeric(15,2)"), "i": SqlType("integer"),
    "n": SqlType("numeric"), "t": SqlType("text"),
}  # fmt: skip
A, B, INT, N, T = map(column, TYPES)


@pytest.mark.parametrize("expr", [
    A,
    text(A, " * ((1)::numeric - ", B, ")"),
    text("CASE WHEN (", A, " * ", B, ") = 'NaN' THEN 1 ELSE 0 END"),
    text("CASE WHEN ", A, " = ANY (ARRAY['NaN'::numeric]) THEN 0.0 ELSE COALESCE(", A, ", 0) END"),
    text("(", INT, ")::numeric * ", A),
    text("(", A, " + ", B, ") IS DISTINCT FROM NULL"),
    text(A, " > ", B, " AND NOT ", A, " IS NULL"),
])  # fmt: skip
def test_what_never_fails(expr: Expr) -> None:
    assert never_fails(expr, TYPES)


@pytest.mark.parametrize("expr", [
    text(A, " / ", B),
    text(INT, " + 1"),
    text("(", INT, " * 2)::numeric"),
    text(A, "::numeric(5,2)"),
    text(A, "::integer"),
    text(N, " * ", A),
    text(T, "::numeric"),
    text("length(", T, ")"),
    text("CASE WHEN ", T, " = 'a' THEN 1 ELSE 0 END"),
    text("CASE WHEN ", A, " > 0.0 THEN ", A, " / ", B, " END"),
])  # fmt: skip
def test_what_may_fail(expr: Expr) -> None:
    assert not never_fails(expr, TYPES)
