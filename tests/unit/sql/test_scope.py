from __future__ import annotations

import pytest

from headwater.algebra.expr import column, equality, show, text
from headwater.errors import UnsupportedQuery
from headwater.sql.calls import hole, with_holes
from headwater.sql.lexer import tokenize, untokenize
from headwater.sql.scope import Scope, conjuncts, free_columns, has_subquery, to_expr

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
    found = conjuncts(tokenize('((t.a = t."B") AND ((t.a > 1) AND (t.date IS NULL)))'))
    exprs = [to_expr(tokens, SCOPE) for tokens in found]
    assert [show(expr) for expr in exprs] == ["a_1 = b_1", "a_1 > 1", "d_1 IS NULL"]
    assert equality(exprs[0]) == ("a_1", "b_1")
    assert conjuncts(tokenize("true")) == []
    assert [untokenize(t) for t in conjuncts(tokenize("(true OR (t.a > 1))"))] == [
        "true OR (t.a > 1)"
    ]


def test_holes_are_columns_that_were_computed_before() -> None:
    tokens = with_holes("(", hole("n_1"), " > ", hole("m_1", spaced=True), ")")
    assert show(to_expr(tokens, SCOPE)) == "n_1 > m_1"


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("(t.a + x.a)", {"a_1"}),
        ("(id = 1)", {"l", "r"}),
        ("( SELECT u.a FROM s.u WHERE (u.b = t.date))", {"d_1"}),
        ("(x.a)::t.a", set()),
    ],
)
def test_columns_that_are_read(sql: str, columns: set[str]) -> None:
    assert free_columns([tokenize(sql)], SCOPE) == columns


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("(t.a = ( SELECT 1))", True),
        ("( SELECT 1)", True),
        ("(t.a IN (VALUES (1)))", True),
        ("ARRAY( WITH w AS ( SELECT 1) SELECT 2)", True),
        ("(t.a = 1)", False),
    ],
)
def test_subqueries_are_seen_anywhere(sql: str, found: bool) -> None:
    assert has_subquery(tokenize(sql)) is found


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("(t.a = ( SELECT 1))", "a subquery in this place"),
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
