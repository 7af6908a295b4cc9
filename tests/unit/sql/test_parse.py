from __future__ import annotations

import pytest

from headwater.errors import UnsupportedQuery
from headwater.sql.lexer import untokenize
from headwater.sql.parse import parse_query
from headwater.sql.syntax import (
    JoinItem,
    Query,
    Select,
    SetOperation,
    SubqueryItem,
    TableItem,
    With,
    output_names,
)


def parsed(query: str) -> Query:
    return parse_query(f"SELECT * FROM ({query}) q;")


def select(query: str) -> Select:
    found = parsed(query)
    assert isinstance(found, Select)
    return found


def test_clauses_of_a_select() -> None:
    found = select(
        "SELECT DISTINCT t.a, count(*) AS n FROM s.t t WHERE (t.b > 1)"
        " GROUP BY t.a, (t.b + 1) HAVING (count(*) > 2)"
    )
    assert [(untokenize(t.tokens), t.name) for t in found.targets] == [
        ("t.a", "a"),
        ("count(*)", "n"),
    ]
    assert found.distinct
    assert found.from_items == (TableItem("s", "t", "t"),)
    assert found.where is not None
    assert untokenize(found.where) == "(t.b > 1)"
    assert [untokenize(g) for g in found.group_by or ()] == ["t.a", "(t.b + 1)"]
    assert found.having is not None
    assert untokenize(found.having) == "(count(*) > 2)"


def test_joins_nest_as_the_server_brackets_them() -> None:
    (item,) = select(
        "SELECT a.x FROM ((s.a a JOIN s.b b ON ((a.x = b.x))) LEFT JOIN s.c USING (x))"
    ).from_items
    assert isinstance(item, JoinItem)
    assert (item.kind, item.using, item.right) == ("LEFT", ("x",), TableItem("s", "c", "c"))
    assert isinstance(item.left, JoinItem)
    assert item.left.kind == "INNER"
    assert item.left.on is not None
    assert untokenize(item.left.on) == "((a.x = b.x))"


def test_an_alias_on_a_join_renames_its_columns() -> None:
    (item,) = select("SELECT j.y FROM (s.a CROSS JOIN s.b) j(x, y)").from_items
    assert isinstance(item, JoinItem)
    assert (item.alias, item.columns) == ("j", ("x", "y"))


def test_aliases_with_column_lists() -> None:
    (table, subquery) = select(
        "SELECT t.b FROM ONLY s.t t(b, c), ( SELECT 1 AS one) x(y)"
    ).from_items
    assert table == TableItem("s", "t", "t", ("b", "c"), only=True)
    assert isinstance(subquery, SubqueryItem)
    assert (subquery.alias, subquery.columns) == ("x", ("y",))


def test_intersect_binds_closer_and_the_rest_goes_left_to_right() -> None:
    found = parsed("SELECT 1 AS a UNION SELECT 2 INTERSECT ALL SELECT 3 EXCEPT SELECT 4")
    assert isinstance(found, SetOperation)
    assert (found.kind, found.all) == ("EXCEPT", False)
    union = found.left
    assert isinstance(union, SetOperation)
    assert union.kind == "UNION"
    assert isinstance(union.right, SetOperation)
    assert (union.right.kind, union.right.all) == ("INTERSECT", True)
    assert output_names(found) == ("a",)


def test_common_tables() -> None:
    found = parsed("WITH w(x) AS MATERIALIZED ( SELECT 1 AS a) SELECT w.x FROM w")
    assert isinstance(found, With)
    assert [(t.name, t.columns) for t in found.tables] == [("w", ("x",))]


def test_order_by_alone_is_dropped() -> None:
    assert select("SELECT t.a FROM s.t ORDER BY t.a") == select("SELECT t.a FROM s.t")


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT t.a FROM s.t LIMIT 3", "LIMIT and OFFSET"),
        ("SELECT t.a FROM s.t FOR UPDATE OF t", "FOR UPDATE and FOR SHARE"),
        ("SELECT DISTINCT ON (t.a) t.a FROM s.t", "DISTINCT ON"),
        ("SELECT t.a FROM s.t GROUP BY ROLLUP(t.a)", "GROUP BY with several grouping sets"),
        ("SELECT t.a FROM s.t GROUP BY ()", "an empty grouping set"),
        ("SELECT x.a FROM s.t, LATERAL ( SELECT t.a) x", "LATERAL"),
        ("SELECT x.x FROM generate_series(1, 3) x(x)", "the function generate_series() in FROM"),
        ("SELECT x.x FROM ROWS FROM(f(1), g(2)) x(x)", "ROWS FROM"),
        ("SELECT t.a FROM s.t TABLESAMPLE system (1)", "TABLESAMPLE"),
        ("SELECT v.a FROM (VALUES (1)) v(a)", "VALUES"),
        ("WITH RECURSIVE w AS ( SELECT 1) SELECT w.a FROM w", "WITH RECURSIVE"),
        ("SELECT t.a FROM s.t WINDOW w AS (ORDER BY t.a)", "WINDOW"),
    ],
)
def test_what_has_no_rule_is_refused_by_name(query: str, what: str) -> None:
    with pytest.raises(UnsupportedQuery) as error:
        parsed(query)
    assert error.value.what == f"{what} cannot be maintained incrementally yet"
