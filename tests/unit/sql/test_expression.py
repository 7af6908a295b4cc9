from __future__ import annotations

import pytest

from headwater.algebra.expr import Expr, Ref, text
from headwater.sql.expression import NotParsed, is_null, parse
from headwater.sql.nodes import (
    And,
    Call,
    Case,
    Cast,
    Column,
    IsDistinctFrom,
    IsTest,
    Literal,
    Node,
    Not,
    Operator,
    Or,
    Quantified,
)

A, B, C = Column("a"), Column("b"), Column("c")
ONE, TWO = Literal("1", "integer"), Literal("2", "integer")


def expr(said: str) -> Expr:
    """Put a hole wherever a letter stands in angle brackets."""
    parts: list[str | Ref] = []
    for i, piece in enumerate(said.replace("⟨", "⟩").split("⟩")):
        parts.append(Ref(piece) if i % 2 else piece)
    return text(*parts)


def op(symbol: str, *args: Node) -> Operator:
    return Operator(symbol, args)


@pytest.mark.parametrize(
    ("said", "tree"),
    [
        ("⟨a⟩", A),
        ("⟨a b⟩", Column("a b")),
        ("1", ONE),
        ("2.50", Literal("2.50", "numeric")),
        ("1e3", Literal("1e3", "numeric")),
        ("4294967296", Literal("4294967296", "numeric")),
        ("true", Literal("true", "boolean")),
        ("NULL", Literal(None, None)),
        ("'NaN'", Literal("NaN", None)),
        ("'it''s \\n'::text", Literal("it's \\n", "text")),
        ("'-3'::integer", Literal("-3", "integer")),
        ("'x'::character varying(3)", Literal("x", "character varying(3)")),
        ("NULL::timestamp(3) without time zone", Literal(None, "timestamp(3) without time zone")),
        ('NULL::text COLLATE pg_catalog."C"', Literal(None, "text", 'pg_catalog."C"')),
        ("(SELECT NULL::shop.mood WHERE FALSE)", Literal(None, "shop.mood")),
        ("(1)::bigint", Cast(ONE, "bigint")),
        ("('x'::text)::character varying", Cast(Literal("x", "text"), "character varying")),
        ("(⟨a⟩)::numeric(10,2)", Cast(A, "numeric(10,2)")),
        ("(⟨a⟩)::numeric(3,-2)", Cast(A, "numeric(3,-2)")),
        ("(⟨a⟩)::double precision", Cast(A, "double precision")),
        ('(⟨a⟩)::"char"', Cast(A, '"char"')),
        ("(⟨a⟩)::shop.mood[]", Cast(A, "shop.mood[]")),
        ("⟨a⟩::numeric / ⟨b⟩::numeric", op("/", Cast(A, "numeric"), Cast(B, "numeric"))),
    ],
)
def test_leaves_and_casts(said: str, tree: Node) -> None:
    assert parse(expr(said)) == tree


@pytest.mark.parametrize(
    ("said", "tree"),
    [
        ("⟨a⟩ + ⟨b⟩ * ⟨c⟩", op("+", A, op("*", B, C))),
        ("⟨a⟩ - ⟨b⟩ - ⟨c⟩", op("-", op("-", A, B), C)),
        ("(⟨a⟩ + ⟨b⟩) * ⟨c⟩", op("*", op("+", A, B), C)),
        ("⟨a⟩ || ⟨b⟩ + ⟨c⟩", op("||", A, op("+", B, C))),
        ("⟨a⟩ * ⟨b⟩ ^ ⟨c⟩", op("*", A, op("^", B, C))),
        ("- ⟨a⟩ * ⟨b⟩", op("*", op("-", A), B)),
        ("- ⟨a⟩::bigint", op("-", Cast(A, "bigint"))),
        ("@ ⟨a⟩ + ⟨b⟩", op("@", op("+", A, B))),
        ("⟨a⟩ + 1 < ⟨b⟩ || ⟨c⟩", op("<", op("+", A, ONE), op("||", B, C))),
        ("⟨a⟩ != ⟨b⟩", op("<>", A, B)),
        ("⟨a⟩ ~~ 'x%'::text", op("~~", A, Literal("x%", "text"))),
        ("⟨a⟩ OR ⟨b⟩ AND ⟨c⟩", Or((A, And((B, C))))),
        ("⟨a⟩ AND ⟨b⟩ AND ⟨c⟩", And((A, B, C))),
        ("NOT ⟨a⟩ AND ⟨b⟩", And((Not(A), B))),
        ("NOT ⟨a⟩ = ⟨b⟩", Not(op("=", A, B))),
        ("NOT ⟨a⟩ IS NULL", Not(IsTest(A, "NULL", False))),
        ("⟨a⟩ = ⟨b⟩ IS NOT TRUE", IsTest(op("=", A, B), "TRUE", True)),
        ("(⟨a⟩ IS UNKNOWN) IS FALSE", IsTest(IsTest(A, "UNKNOWN", False), "FALSE", False)),
        ("⟨a⟩ IS DISTINCT FROM ⟨b⟩ + 1", IsDistinctFrom(A, op("+", B, ONE))),
        ("⟨a⟩ IS NOT DISTINCT FROM ⟨b⟩ AND ⟨c⟩", And((Not(IsDistinctFrom(A, B)), C))),
    ],
)
def test_precedence(said: str, tree: Node) -> None:
    assert parse(expr(said)) == tree


@pytest.mark.parametrize(
    ("said", "tree"),
    [
        ("⟨a⟩ = ANY (ARRAY[1, 2])", Quantified("=", A, (ONE, TWO), False)),
        ("⟨a⟩ <> ALL (ARRAY[1, 2])", Quantified("<>", A, (ONE, TWO), True)),
        (
            "(⟨a⟩)::text = ANY ((ARRAY['x'::character varying])::text[])",
            Quantified(
                "=",
                Cast(A, "text"),
                (Cast(Literal("x", "character varying"), "text"),),
                False,
            ),
        ),
        (
            "(⟨a⟩) IN ('NaN', 1) OR ⟨b⟩",
            Or((Quantified("=", A, (Literal("NaN", None), ONE), False), B)),
        ),
        ("CASE WHEN ⟨a⟩ THEN 1 END", Case(((A, ONE),), None)),
        (
            "CASE ⟨a⟩ WHEN 1 THEN ⟨b⟩ WHEN 2 THEN ⟨c⟩ ELSE NULL::integer END",
            Case(((op("=", A, ONE), B), (op("=", A, TWO), C)), Literal(None, "integer")),
        ),
        ("COALESCE(⟨a⟩, 1)", Call(None, "coalesce", (A, ONE))),
        (
            "NULLIF(⟨a⟩, GREATEST(1, 2))",
            Call(None, "nullif", (A, Call(None, "greatest", (ONE, TWO)))),
        ),
        ("shop.f(⟨a⟩)", Call("shop", "f", (A,))),
        ('shop."F"()', Call("shop", "F", ())),
        ('"left"(⟨a⟩, 1)', Call(None, "left", (A, ONE))),
        ("EXTRACT(year FROM ⟨a⟩)", Call(None, "extract", (Literal("year", "text"), A))),
        ("SUBSTRING(⟨a⟩ FROM 1 FOR 2)", Call(None, "substring", (A, ONE, TWO))),
        ("SUBSTRING(⟨a⟩ FROM 1)", Call(None, "substring", (A, ONE))),
    ],
)
def test_forms_with_words(said: str, tree: Node) -> None:
    assert parse(expr(said)) == tree


@pytest.mark.parametrize(
    "said",
    [
        "",
        "(",
        "⟨a⟩ ⟨b⟩",
        "⟨a⟩ +",
        "⟨a⟩ = ⟨b⟩ = ⟨c⟩",
        '⟨a⟩ COLLATE "C"',
        "⟨a⟩ OPERATOR(shop.+) 1",
        "(⟨a⟩).field",
        "⟨a⟩[1]",
        "⟨a⟩ AT TIME ZONE 'UTC'::text",
        "ARRAY[1, 2]",
        "ROW(1, 2)",
        "⟨a⟩ = ANY (⟨b⟩)",
        "(⟨a⟩)::interval day to second",
        "E'x'::text",
        "B'101'",
        "CURRENT_DATE",
        "f(VARIADIC ⟨a⟩)",
        "f(x => 1)",
        "count(*)",
        "count(DISTINCT ⟨a⟩)",
        "TRIM(BOTH FROM ⟨a⟩)",
        "⟨a⟩ IS JSON",
        "⟨a⟩ IS OF (integer)",
        "(SELECT 1)",
        "(SELECT NULL::integer)",
        "EXTRACT('year' FROM ⟨a⟩)",
        "CASE 1 END 2",
        "'x'::",
        "'x'::numeric(",
        "(" * 50 + "1" + ")" * 50,
    ],
)
def test_what_is_not_in_the_grammar_has_a_reason(said: str) -> None:
    found = parse(expr(said))
    assert isinstance(found, NotParsed)
    assert found.reason


def test_a_long_condition_is_not_deep() -> None:
    assert parse(expr(" OR ".join(["⟨a⟩"] * 500))) == Or((A,) * 500)


def test_null_is_known_as_such() -> None:
    assert is_null(expr("NULL::numeric"))
    assert is_null(expr("(SELECT NULL::shop.mood WHERE FALSE)"))
    assert not is_null(expr("'NULL'::text"))
    assert not is_null(expr("⟨a⟩"))
    assert not is_null(expr("f(*)"))
