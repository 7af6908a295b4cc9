from __future__ import annotations

import pytest

from headwater.algebra.expr import column
from headwater.sql.calls import (
    find_aggregates,
    find_set_calls,
    find_windows,
    hole,
    with_holes,
)
from headwater.sql.lexer import tokenize, untokenize
from headwater.sql.scope import Scope

SCOPE = Scope({"t": {"a": column("a_1")}})
AGGREGATES = frozenset({(None, "count"), ("my", "agg"), (None, "percentile_cont"), (None, "sum")})
SETS = frozenset({(None, "unnest"), (None, "generate_series")})


def aggregates(sql: str) -> list[str]:
    tokens = tokenize(sql)
    found = find_aggregates(tokens, AGGREGATES, SCOPE)
    return [untokenize(tokens[call.start : call.end]) for call in found]


def test_aggregate_calls_are_found_with_all_their_clauses() -> None:
    tokens = tokenize(
        "(count(DISTINCT t.a) FILTER (WHERE (t.a > 1)) + my.agg(t.a, t.a ORDER BY t.a)"
        " + lower(t.a) + percentile_cont(0.5) WITHIN GROUP (ORDER BY t.a) + sum(t.a))"
    )
    calls = find_aggregates(tokens, AGGREGATES, SCOPE)
    assert [untokenize(tokens[c.start : c.end]) for c in calls] == [
        "count(DISTINCT t.a) FILTER (WHERE (t.a > 1))",
        "my.agg(t.a, t.a ORDER BY t.a)",
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY t.a)",
        "sum(t.a)",
    ]
    assert [c.is_plain for c in calls] == [False, False, False, True]
    assert calls[0].filter is not None
    assert untokenize(calls[0].filter) == "(t.a > 1)"


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("( SELECT count(u.b) AS count FROM s.u)", []),  # of the subquery
        ("( SELECT count(*) AS count FROM s.u)", []),
        ("( SELECT sum(t.a) AS sum FROM s.u)", ["sum(t.a)"]),  # of the query around it
        ("( SELECT sum((t.a + u.b)) AS sum FROM s.u)", []),
        ("(count(*) + ( SELECT count(*) AS count FROM s.u))", ["count(*)"]),
        ("((((count(*)))))", ["count(*)"]),
        ("count(*) OVER (PARTITION BY t.a)", []),
        ("sum(sum(t.a)) OVER (ORDER BY count(*))", ["sum(t.a)", "count(*)"]),
        ("sum(t.a) FILTER (WHERE (t.a > 1)) OVER w", []),
        ("my.count(t.a)", []),
    ],
)
def test_whose_aggregate_it_is(sql: str, found: list[str]) -> None:
    assert aggregates(sql) == found


def test_set_returning_calls_are_found_from_outside_in() -> None:
    tokens = tokenize("(unnest(t.a) + generate_series(1, unnest(t.b)) + ( SELECT unnest(u.c)))")
    found = find_set_calls(tokens, SETS)
    assert [untokenize(tokens[c.start : c.end]) for c in found] == [
        "unnest(t.a)",
        "generate_series(1, unnest(t.b))",
    ]


def test_window_calls_are_found_with_their_windows() -> None:
    tokens = tokenize("(rank() OVER (ORDER BY t.a) + (sum(t.a) FILTER (WHERE t.b) OVER w))")
    said = [
        (untokenize(tokens[start:over]), untokenize(tokens[over:end]))
        for start, over, end in find_windows(tokens)
    ]
    assert said == [
        ("rank()", "OVER (ORDER BY t.a)"),
        ("sum(t.a) FILTER (WHERE t.b)", "OVER w"),
    ]


def test_text_with_holes() -> None:
    tokens = with_holes("(", hole("n_1"), " > 0)")
    assert [token.kind for token in tokens] == ["punct", "hole", "operator", "number", "punct"]
    assert untokenize(tokens) == "(n_1 > 0)"
