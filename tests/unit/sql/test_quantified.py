from __future__ import annotations

import pytest

from headwater.algebra.expr import column, show, text
from headwater.sql.lexer import tokenize, untokenize
from headwater.sql.quantified import Quantified, find_quantified


def found(sql: str) -> Quantified:
    test = find_quantified(tokenize(sql))
    assert test is not None
    return test


@pytest.mark.parametrize(
    ("sql", "left", "operator", "is_all"),
    [
        ("(t.a IN ( SELECT u.b FROM s.u))", ["t.a"], "=", False),
        ("((t.a + 1) = ANY ( SELECT 1))", ["(t.a + 1)"], "=", False),
        ("(t.a <> ALL ( SELECT 1))", ["t.a"], "<>", True),
        ("((t.a, t.b) IN ( SELECT 1, 2))", ["t.a", "t.b"], "=", False),
        ("(ROW(t.a, t.b) < ANY ( SELECT 1, 2))", ["t.a", "t.b"], "<", False),
        ("(t.a OPERATOR(s.=) ANY ( SELECT 1))", ["t.a"], "OPERATOR(s.=)", False),
        ("(t.a ~~ ANY (VALUES ('x'::text)))", ["t.a"], "~~", False),
        (
            "(CASE WHEN ((t.a > 1) OR (NOT t.b)) THEN 1 ELSE 2 END = ALL ( SELECT 1))",
            ["CASE WHEN ((t.a > 1) OR (NOT t.b)) THEN 1 ELSE 2 END"],
            "=",
            True,
        ),
    ],
)
def test_comparisons_with_a_query(sql: str, left: list[str], operator: str, is_all: bool) -> None:
    test = found(sql)
    assert [untokenize(tokens) for tokens in test.left] == left
    assert (test.operator, test.is_all) == (operator, is_all)
    assert test.query[0].is_word("SELECT", "VALUES")


@pytest.mark.parametrize(
    "sql",
    [
        "(t.a = ANY (t.b))",
        "(t.a = 1)",
        "(EXISTS ( SELECT 1))",
        "( SELECT 1)",
        "(NOT (t.a IN ( SELECT 1)))",
        "((t.a = 1) AND (t.b IN ( SELECT 1)))",
        "((t.a IN ( SELECT 1)) OR (t.b IN ( SELECT 1)))",
        "(t.a = ( SELECT 1))",
    ],
)
def test_what_is_no_comparison_with_a_query(sql: str) -> None:
    assert find_quantified(tokenize(sql)) is None


def test_one_row_is_compared() -> None:
    plus = text(column("a"), " + 1")
    assert show(found("(t.a < ANY ( SELECT 1))").compared([plus], [column("b")])) == "(a + 1) < b"
    two = found("((t.a, t.b) IN ( SELECT 1, 2))")
    compared = two.compared([column("a"), column("b")], [column("c"), column("d")])
    assert show(compared) == "ROW(a, b) = ROW(c, d)"
