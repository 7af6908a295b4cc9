from __future__ import annotations

import pytest

from headwater.algebra.expr import Expr, column, equality, show, text
from headwater.errors import UnsupportedQuery
from headwater.sql.lexer import tokenize, untokenize
from headwater.sql.scope import Scope, conjuncts, find_calls, to_expr

SCOPE = Scope(
    {"t": {"a": column("a_1"), "B": column("b_1"), "date": column("d_1")}},
    merged={"id": text("COALESCE(", column("l"), ", ", column("r"), ")")},
)


def shown(sql: str) -> str:
    return show(to_expr(tokenize(sql), SCOPE), lambda name: f"<{name}>")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("t.a", "<a_1>"),
        ('(t.a + t."B")', "<a_1> + <b_1>"),
        ("s.t(t.a)", "s.t(<a_1>)"),  # a function in a schema, not a column
        ("(t.a)::t.a", "(<a_1>)::t.a"),  # a type in a schema
        ('(t.a COLLATE t."B")', '<a_1> COLLATE t."B"'),
        ("(t.a OPERATOR(t.+) 1)", "<a_1> OPERATOR(t.+) 1"),
        ("(t.a).b", "(<a_1>).b"),
        ("(id = 1)", "COALESCE(<l>, <r>) = 1"),
        ("id(1)", "id(1)"),
        ("EXTRACT(id FROM t.date)", "EXTRACT(id FROM <d_1>)"),
        ("'t.a'::text", "'t.a'::text"),
        ("x.a", "x.a"),
    ],
)
def test_columns_become_holes_and_nothing_else_does(sql: str, expected: str) -> None:
    assert shown(sql) == expected


def test_conjuncts_are_split_at_every_level_and_true_is_none() -> None:
    found = conjuncts(tokenize('((t.a = t."B") AND ((t.a > 1) AND (t.date IS NULL)))'), SCOPE)
    assert [show(c) for c in found] == ["a_1 = b_1", "a_1 > 1", "d_1 IS NULL"]
    assert equality(found[0]) == ("a_1", "b_1")
    assert conjuncts(tokenize("true"), SCOPE) == ()
    assert conjuncts(tokenize("(true OR (t.a > 1))"), SCOPE) == (
        Expr(("true OR (", *column("a_1").parts, " > 1)")),
    )


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("(t.a = ( SELECT 1))", "a subquery inside an expression"),
        ("(rank() OVER (ORDER BY t.a))", "a window function"),
        ("GROUPING(t.a)", "GROUPING()"),
        ("to_json(t.*)", "the whole row of t"),
    ],
)
def test_what_has_no_rule_is_refused(sql: str, what: str) -> None:
    with pytest.raises(UnsupportedQuery) as error:
        to_expr(tokenize(sql), SCOPE)
    assert error.value.what == f"{what} cannot be maintained incrementally yet"


def test_system_columns_are_refused() -> None:
    with pytest.raises(UnsupportedQuery) as error:
        to_expr(tokenize("t.ctid"), SCOPE)
    assert error.value.what == "the system column t.ctid cannot be used in a stream table"


def test_aggregate_calls_are_found_with_all_their_clauses() -> None:
    tokens = tokenize(
        "(count(DISTINCT t.a) FILTER (WHERE (t.a > 1)) + my.agg(t.a, t.a ORDER BY t.a)"
        " + lower(t.a) + percentile_cont(0.5) WITHIN GROUP (ORDER BY t.a) + sum(t.a))"
    )
    names = frozenset({(None, "count"), ("my", "agg"), (None, "percentile_cont"), (None, "sum")})
    calls = find_calls(tokens, names)
    assert [untokenize(tokens[c.start : c.end]) for c in calls] == [
        "count(DISTINCT t.a) FILTER (WHERE (t.a > 1))",
        "my.agg(t.a, t.a ORDER BY t.a)",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY t.a)",
        "sum(t.a)",
    ]
    assert [c.is_plain for c in calls] == [False, False, False, True]
    assert calls[0].filter is not None
    assert untokenize(calls[0].filter) == "(t.a > 1)"
