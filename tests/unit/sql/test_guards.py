"""CASE and COALESCE as guards."""

from __future__ import annotations

from headwater.algebra.expr import show, text
from headwater.sql.guards import both, missing, reached, read_case
from headwater.sql.lexer import tokenize, untokenize


def test_the_parts_of_a_case() -> None:
    said = "1 + CASE x WHEN f(CASE WHEN a THEN b END) THEN 2 ELSE CASE WHEN c THEN d END END || y"
    tokens = tokenize(said)
    case = read_case(tokens, 2)
    assert [(word.value, untokenize(part)) for word, part in case.parts] == [
        ("CASE", "x"),
        ("WHEN", "f(CASE WHEN a THEN b END)"),
        ("THEN", "2"),
        ("ELSE", "CASE WHEN c THEN d END"),
    ]
    assert untokenize(tokens[case.end :]) == "END || y"


def test_questions_are_asked_in_the_order_of_the_server() -> None:
    a, b, x = text("a"), text("b"), text("x")
    assert show(reached(None, [])) == "TRUE"
    assert show(reached(None, [], a)) == "CASE WHEN a THEN TRUE ELSE FALSE END"
    assert show(reached(x, [a], b)) == "CASE (x) WHEN a THEN FALSE WHEN b THEN TRUE ELSE FALSE END"
    assert show(reached(None, [a, b])) == "CASE WHEN a THEN FALSE WHEN b THEN FALSE ELSE TRUE END"
    assert show(missing([a, b])) == "COALESCE(a, b) IS NOT DISTINCT FROM NULL"
    assert show(both(None, a)) == "a"
    assert show(both(a, b)) == "CASE WHEN a THEN b ELSE FALSE END"
