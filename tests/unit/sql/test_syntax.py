from __future__ import annotations

from headwater.sql.lexer import Token, untokenize
from headwater.sql.parse import parse_query
from headwater.sql.syntax import Query, expressions_of, mapped, tables_of

QUERY = (
    "WITH w AS ( SELECT v.a FROM v) SELECT t.a, ( SELECT 1 FROM hidden) AS one"
    " FROM ((s.t JOIN w ON ((w.a = t.a))) CROSS JOIN LATERAL ( SELECT f(t.b) AS x FROM u) q)"
    " WHERE (t.c > 0) GROUP BY ROLLUP(t.a) ORDER BY t.d LIMIT 5"
)


def parsed() -> Query:
    return parse_query(f"SELECT * FROM ({QUERY}) q")


def test_every_expression_is_found() -> None:
    said = [untokenize(tokens) for tokens in expressions_of(parsed())]
    for expected in ("v.a", "t.a", "((w.a = t.a))", "f(t.b)", "(t.c > 0)", "t.d", "5"):
        assert expected in said


def test_tables_without_a_schema_are_found_in_from_at_any_depth() -> None:
    assert set(tables_of(parsed())) == {"v", "w", "u"}


def test_every_token_is_changed_and_the_rest_stays() -> None:
    def upper(token: Token) -> Token:
        return Token(token.kind, token.value, token.text.upper(), token.spaced)

    changed = mapped(parsed(), upper)
    assert type(changed) is type(parsed())
    said = [untokenize(tokens) for tokens in expressions_of(changed)]
    assert said == [untokenize(tokens).upper() for tokens in expressions_of(parsed())]
    assert set(tables_of(changed)) == {"v", "w", "u"}
