from __future__ import annotations

import pytest

from headwater.errors import UnsupportedQuery
from headwater.sql.lexer import Tokens, tokenize, untokenize
from headwater.sql.parse import opens_query, parse_query
from headwater.sql.syntax import (
    FunctionItem,
    JoinItem,
    Ordered,
    Query,
    Select,
    SetOperation,
    SubqueryItem,
    TableItem,
    Values,
    With,
    output_names,
)


def parsed(query: str) -> Query:
    return parse_query(f"SELECT * FROM ({query}) q;")


def select(query: str) -> Select:
    found = parsed(query)
    assert isinstance(found, Select)
    return found


def ordered(query: str) -> Ordered:
    found = parsed(query)
    assert isinstance(found, Ordered)
    return found


def said(tokens: Tokens | None) -> str | None:
    return None if tokens is None else untokenize(tokens)


def said_sets(found: Select) -> list[list[str]]:
    return [[untokenize(key) for key in keys] for keys in found.group_by or ()]


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
    assert said_sets(found) == [["t.a", "(t.b + 1)"]]
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


def test_recursion() -> None:
    found = parsed(
        "WITH RECURSIVE w(n) AS ( SELECT 1 UNION ALL SELECT (w_1.n + 1) FROM w w_1),"
        " v AS ( SELECT 2 AS a) SELECT w.n FROM w"
    )
    assert isinstance(found, With)
    assert found.recursive
    first, second = found.tables
    assert (first.name, first.columns, second.name) == ("w", ("n",), "v")
    assert isinstance(first.query, SetOperation)
    assert said(second.tokens) == "v AS ( SELECT 2 AS a)"


def test_search_and_cycle_are_part_of_a_common_table() -> None:
    found = parsed(
        "WITH RECURSIVE w(n) AS ( SELECT 1 UNION SELECT w_1.n FROM w w_1)"
        " SEARCH DEPTH FIRST BY n SET place CYCLE n SET again USING path SELECT w.n FROM w"
    )
    assert isinstance(found, With)
    (table,) = found.tables
    assert untokenize(table.tokens[-10:]) == "BY n SET place CYCLE n SET again USING path"
    assert isinstance(found.body, Select)


@pytest.mark.parametrize(
    ("ending", "order", "limit", "offset", "with_ties"),
    [
        ("ORDER BY t.a", ["t.a"], None, None, False),
        ("ORDER BY t.a DESC NULLS LAST, t.b", ["t.a DESC NULLS LAST", "t.b"], None, None, False),
        ("LIMIT 3", [], "3", None, False),
        ("ORDER BY t.a OFFSET 2 LIMIT (1 + 1)", ["t.a"], "(1 + 1)", "2", False),
        ("ORDER BY t.a FETCH FIRST 2 ROWS WITH TIES", ["t.a"], "2", None, True),
        ("ORDER BY t.a LIMIT ALL", ["t.a"], None, None, False),
    ],
)
def test_how_a_query_ends(
    ending: str, order: list[str], limit: str | None, offset: str | None, with_ties: bool
) -> None:
    found = ordered(f"SELECT t.a FROM s.t {ending}")
    assert found.query == select("SELECT t.a FROM s.t")
    assert [untokenize(item) for item in found.order_by] == order
    assert (said(found.limit), said(found.offset), found.with_ties) == (limit, offset, with_ties)
    assert output_names(found) == ("a",)


def test_distinct_on() -> None:
    found = select("SELECT DISTINCT ON (t.a, (t.b + 1)) t.c FROM s.t")
    assert not found.distinct
    assert [untokenize(key) for key in found.distinct_on] == ["t.a", "(t.b + 1)"]


def test_named_windows() -> None:
    found = select("SELECT rank() OVER w AS r FROM s.t WINDOW w AS (ORDER BY t.a), v AS (w)")
    assert [(name, untokenize(tokens)) for name, tokens in found.windows] == [
        ("w", "ORDER BY t.a"),
        ("v", "w"),
    ]


def test_grouping_sets() -> None:
    assert said_sets(select("SELECT t.a FROM s.t GROUP BY ROLLUP(t.a)")) == [["t.a"], []]
    assert said_sets(select("SELECT t.a FROM s.t GROUP BY ()")) == [[]]


def test_values() -> None:
    (item,) = select("SELECT v.a FROM (VALUES (1,'a, b'::text), (2,NULL::text)) v(a, b)").from_items
    assert isinstance(item, SubqueryItem)
    assert isinstance(item.query, Values)
    rows = [[untokenize(value) for value in row] for row in item.query.rows]
    assert rows == [["1", "'a, b'::text"], ["2", "NULL::text"]]
    assert output_names(item.query) == ("column1", "column2")


def test_a_lateral_subquery_looks_like_any_other() -> None:
    _, item = select("SELECT x.a FROM s.t, LATERAL ( SELECT t.a) x").from_items
    assert isinstance(item, SubqueryItem)
    assert item.alias == "x"


@pytest.mark.parametrize(
    ("item", "functions", "alias", "columns", "numbered"),
    [
        ("generate_series(1, 3) x(y)", ["generate_series(1, 3)"], "x", ("y",), False),
        ("s.f(t.a)", ["s.f(t.a)"], "f", (), False),
        ("LATERAL unnest(t.a) WITH ORDINALITY u(v, n)", ["unnest(t.a)"], "u", ("v", "n"), True),
        ("ROWS FROM(f(1), g(2)) x(y, z)", ["f(1)", "g(2)"], "x", ("y", "z"), False),
        ("UNNEST(t.a, t.b) u(v, w)", ["unnest(t.a)", "unnest( t.b)"], "u", ("v", "w"), False),
        ("f(1) x(a integer, b text)", ["f(1) AS(a integer, b text)"], "x", ("a", "b"), False),
    ],
)
def test_functions_in_from(
    item: str, functions: list[str], alias: str, columns: tuple[str, ...], numbered: bool
) -> None:
    *_, found = select(f"SELECT 1 AS one FROM s.t, {item}").from_items
    assert isinstance(found, FunctionItem)
    assert [untokenize(tokens) for tokens in found.functions] == functions
    assert (found.alias, found.columns, found.numbered) == (alias, columns, numbered)


@pytest.mark.parametrize(
    ("inside", "is_query"),
    [
        ("SELECT 1", True),
        ("VALUES (1)", True),
        ("WITH w AS ( SELECT 1) SELECT 2", True),
        ("( SELECT 1) UNION ( SELECT 2)", True),
        ("( SELECT 1) + 2", False),
        ("t.a", False),
        ("((t.a))", False),
        ("", False),
    ],
)
def test_what_opens_a_query(inside: str, is_query: bool) -> None:
    assert opens_query(tokenize(inside)) is is_query


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT t.a FROM s.t FOR UPDATE OF t", "FOR UPDATE and FOR SHARE"),
        ("SELECT t.a FROM s.t TABLESAMPLE system (1)", "TABLESAMPLE"),
    ],
)
def test_what_has_no_rule_is_refused_by_name(query: str, what: str) -> None:
    with pytest.raises(UnsupportedQuery) as error:
        parsed(query)
    assert error.value.what == f"{what} cannot be maintained incrementally yet"
