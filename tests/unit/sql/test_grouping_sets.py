from __future__ import annotations

import pytest

from headwater.sql.grouping_sets import grouping_sets
from headwater.sql.lexer import tokenize, untokenize


def sets(clause: str) -> list[list[str]]:
    return [[untokenize(key) for key in keys] for keys in grouping_sets(tokenize(clause))]


@pytest.mark.parametrize(
    ("clause", "found"),
    [
        ("t.a", [["t.a"]]),
        ("t.a, (t.b + 1)", [["t.a", "(t.b + 1)"]]),
        ("()", [[]]),
        ("t.a, ()", [["t.a"]]),
        ("ROLLUP(t.a, t.b)", [["t.a", "t.b"], ["t.a"], []]),
        ("ROLLUP((t.a, t.b), t.c)", [["t.a", "t.b", "t.c"], ["t.a", "t.b"], []]),
        ("CUBE(t.a, t.b)", [["t.a", "t.b"], ["t.a"], ["t.b"], []]),
        ("CUBE((t.a, t.b))", [["t.a", "t.b"], []]),
        ("GROUPING SETS ((t.a, t.b), (t.a), ())", [["t.a", "t.b"], ["t.a"], []]),
        ("GROUPING SETS (t.a, ((t.b + 1)))", [["t.a"], ["t.b + 1"]]),
        ("GROUPING SETS (ROLLUP(t.a), CUBE(t.b))", [["t.a"], [], ["t.b"], []]),
        ("GROUPING SETS (GROUPING SETS (t.a, t.b), ())", [["t.a"], ["t.b"], []]),
        ("t.a, ROLLUP(t.b)", [["t.a", "t.b"], ["t.a"]]),
        ("ROLLUP(t.a), ROLLUP(t.b)", [["t.a", "t.b"], ["t.a"], ["t.b"], []]),
        ("DISTINCT ROLLUP(t.a), ROLLUP(t.a)", [["t.a"], []]),
        ("ROLLUP(( SELECT f(1, 2)))", [["( SELECT f(1, 2))"], []]),
        ("rollup.a, t.cube", [["rollup.a", "t.cube"]]),  # columns of such names
    ],
)
def test_sets(clause: str, found: list[list[str]]) -> None:
    assert sets(clause) == found


def test_a_set_may_come_twice_unless_distinct() -> None:
    assert sets("ROLLUP(t.a), ROLLUP(t.a)") == [["t.a", "t.a"], ["t.a"], ["t.a"], []]
