from __future__ import annotations

import pytest

from headwater.errors import InvalidPlan
from headwater.sql.lexer import closing, split, stripped, tokenize, untokenize


@pytest.mark.parametrize(
    "text",
    [
        'SELECT t.a, \'it\'\'s\' AS "Odd ""name""" FROM s.t',
        r"(b ~~ E'a\\_%\'x'::text)",
        "((j #>> '{a,b}'::text[]) ?| ARRAY['x'::text])",
        "(n * 1.5e-3) <@ '[1,2)'::int4range",
        "make_interval(days => 3)",
        "json_object('k' : t.a)",
        "arr[1:2]",
        "größe",
    ],
)
def test_text_survives(text: str) -> None:
    assert untokenize(tokenize(text)) == text


def test_white_space_is_folded_and_remembered() -> None:
    tokens = tokenize("a\n   + b")
    assert untokenize(tokens) == "a + b"
    assert [t.spaced for t in tokens] == [False, True, True]


def test_quoted_names_lose_their_quotes_and_are_no_keywords() -> None:
    (token,) = tokenize('"from"')
    assert (token.kind, token.value, token.is_word("FROM"), token.is_name) == (
        "quoted",
        "from",
        False,
        True,
    )


def test_split_ignores_brackets() -> None:
    pieces = split(tokenize("f(a, b), c[1, 2], 'x, y'"), mark=",")
    assert [untokenize(p) for p in pieces] == ["f(a, b)", "c[1, 2]", "'x, y'"]


def test_stripped_removes_only_brackets_around_the_whole() -> None:
    assert untokenize(stripped(tokenize("((a) + (b))"))) == "(a) + (b)"
    assert untokenize(stripped(tokenize("(a) + (b)"))) == "(a) + (b)"


def test_unbalanced_brackets_are_a_bug() -> None:
    with pytest.raises(InvalidPlan):
        closing(tokenize("(a"), 0)
