from __future__ import annotations

import pytest

from headwater.algebra.expr import Expr, column, text
from headwater.algebra.keys import choose_key, unique_keys
from headwater.algebra.ops import (
    AntiJoin,
    Expand,
    Filter,
    Join,
    Op,
    Output,
    Project,
    Repeat,
    Scan,
    SemiJoin,
    Single,
    Source,
    UnionAll,
    schema,
)
from headwater.algebra.schema import Column, SqlType
from tests.unit.algebra.samples import (
    CUSTOMERS,
    EVENTS,
    INTEGER,
    ORDERS,
    grouped,
    ints,
    is_equal,
    is_positive,
    keep,
    ranked,
    recursive,
    rename,
    series,
    union,
)

TWO_KEYS = Scan(Source(4, "t", (("a", "b"), ("c",))), ints("t_a", "t_b", "t_c"), ("a", "b", "c"))


def keys(op: Op) -> list[set[str]]:
    return [set(key) for key in unique_keys(op)]


def test_scan() -> None:
    assert keys(EVENTS) == []
    assert keys(ORDERS) == [{"o_id"}]
    assert keys(TWO_KEYS) == [{"t_c"}, {"t_a", "t_b"}]


def test_a_scan_without_a_column_of_the_key_has_lost_the_key() -> None:
    assert keys(Scan(TWO_KEYS.source, ints("t_a", "t_c"), ("a", "c"))) == [{"t_c"}]
    assert keys(Scan(TWO_KEYS.source, ints("t_a"), ("a",))) == []


def test_a_longer_key_beside_a_shorter_one_is_left_out() -> None:
    source = Source(4, "t", (("a", "b"), ("a",)))
    assert keys(Scan(source, ints("t_a", "t_b"), ("a", "b"))) == [{"t_a"}]


def test_one_row_has_the_empty_key() -> None:
    assert keys(Single()) == [set()]
    assert keys(grouped(EVENTS)) == [set()]


def test_what_leaves_rows_out_keeps_keys() -> None:
    on = (is_equal("o_customer", "c_id"),)
    assert keys(Filter(ORDERS, (is_positive("o_id"),))) == [{"o_id"}]
    assert keys(SemiJoin(ORDERS, CUSTOMERS, on)) == [{"o_id"}]
    assert keys(AntiJoin(ORDERS, CUSTOMERS, on)) == [{"o_id"}]


def test_windows_keep_rows_and_so_keys() -> None:
    assert keys(ranked(ORDERS, "o_customer", by="o_amount")) == [{"o_id"}]
    assert keys(ranked(EVENTS, "e_x", by="e_y")) == []


def test_rows_made_of_a_row_are_told_apart_by_their_number() -> None:
    assert keys(series(ORDERS, "o_amount")) == []
    numbered = Expand(ORDERS, (text("f(", column("o_id"), ")"),), ints("v", "at"), numbered=True)
    assert keys(numbered) == [{"at", "o_id"}]


def test_nothing_is_known_about_a_query_as_a_whole() -> None:
    assert keys(recursive(CUSTOMERS, CUSTOMERS)) == []


def test_repeat_makes_a_bag() -> None:
    assert keys(Repeat(ORDERS, column("o_id"))) == []


def test_groups_are_unique_by_their_keys() -> None:
    assert keys(grouped(EVENTS, "e_y", "e_x")) == [{"e_x", "e_y"}]


def test_projection() -> None:
    assert keys(keep(TWO_KEYS, "t_a", "t_b")) == [{"t_a", "t_b"}]
    assert keys(keep(TWO_KEYS, "t_a")) == []
    assert keys(rename(TWO_KEYS, t_b="y", t_a="x")) == [{"x", "y"}]


def test_an_expression_over_a_key_is_no_key() -> None:
    half = Output(Column("half", INTEGER), text(column("o_id"), " / 2"))
    assert keys(Project(ORDERS, (half,))) == []


def test_a_column_that_is_output_twice_counts_by_its_first_name() -> None:
    outputs = [Output(Column(name, INTEGER), column("o_id")) for name in ("a", "b")]
    assert keys(Project(ORDERS, tuple(outputs))) == [{"a"}]


def test_a_cross_join_needs_the_keys_of_both() -> None:
    assert keys(Join(ORDERS, TWO_KEYS)) == [{"o_id", "t_c"}, {"o_id", "t_a", "t_b"}]
    assert keys(Join(ORDERS, EVENTS)) == []


def test_a_side_that_is_joined_by_its_key_adds_no_rows() -> None:
    assert keys(Join(ORDERS, CUSTOMERS, (is_equal("o_customer", "c_id"),))) == [{"o_id"}]
    assert keys(Join(CUSTOMERS, ORDERS, (is_equal("c_id", "o_customer"),))) == [{"o_id"}]
    assert keys(Join(ORDERS, CUSTOMERS, (is_equal("o_id", "c_id"),))) == [{"c_id"}, {"o_id"}]


def test_a_key_may_be_joined_with_null_equal_to_null() -> None:
    on = (text(column("o_customer"), " IS NOT DISTINCT FROM ", column("c_id")),)
    assert keys(Join(ORDERS, CUSTOMERS, on)) == [{"o_id"}]


def test_a_key_must_be_joined_as_a_whole() -> None:
    half = Join(ORDERS, TWO_KEYS, (is_equal("o_customer", "t_a"),))
    assert keys(half) == [{"o_id", "t_c"}, {"o_id", "t_a", "t_b"}]
    whole = (is_equal("o_customer", "t_a"), is_equal("t_b", "o_amount"))
    assert keys(Join(ORDERS, TWO_KEYS, whole)) == [{"o_id"}]


@pytest.mark.parametrize(
    "on",
    [
        text(column("o_customer"), " < ", column("c_id")),
        is_equal("c_id", "c_name"),
        is_equal("o_customer", "c_name"),
    ],
    ids=["inequality", "one side", "another column"],
)
def test_other_conditions_prove_nothing(on: Expr) -> None:
    assert keys(Join(ORDERS, CUSTOMERS, (on,))) == [{"c_id", "o_id"}]


def test_no_more_keys_than_are_useful() -> None:
    source = Source(4, "t", tuple((name,) for name in "abc"))
    left, right = (
        Scan(source, ints(*(f"{side}_{n}" for n in "abc")), tuple("abc")) for side in "lr"
    )
    found = keys(Join(left, right))
    assert len(found) == 8
    assert found[0] == {"l_a", "r_a"}


def test_union_is_a_bag() -> None:
    assert keys(union(CUSTOMERS, EVENTS)) == []


def test_outer_join_is_unique_by_the_key_that_its_arms_share() -> None:
    on = (is_equal("o_customer", "c_id"),)
    inner = keep(Join(ORDERS, CUSTOMERS, on), "o_id", "c_name")
    null = Output(Column("p_name", INTEGER), text("NULL::integer"))
    left = AntiJoin(ORDERS, CUSTOMERS, on)
    padded = Project(left, (Output(Column("p_id", INTEGER), column("o_id")), null))
    outer = UnionAll((inner, padded), ints("id", "name"), disjoint=("id",))
    assert keys(outer) == [{"id"}]
    assert keys(rename(outer, id="x")) == [{"x"}]


def test_choose_key_is_in_column_order() -> None:
    assert choose_key(EVENTS) is None
    assert choose_key(Single()) == ()
    assert choose_key(grouped(EVENTS, "e_y", "e_x")) == ("e_y", "e_x")
    assert choose_key(keep(grouped(EVENTS, "e_y", "e_x"), "n", "e_x", "e_y")) == ("e_x", "e_y")
    assert choose_key(TWO_KEYS) == ("t_c",)


def test_keys_are_columns_of_the_result() -> None:
    for op in (ORDERS, TWO_KEYS, Join(ORDERS, TWO_KEYS), grouped(EVENTS, "e_x")):
        own = {c.name for c in schema(op)}
        assert all(key <= own for key in unique_keys(op))


def test_a_column_compared_with_itself_proves_nothing() -> None:
    crossed = Join(ORDERS, CUSTOMERS, (is_equal("c_id", "c_id"),))
    assert unique_keys(crossed) == (frozenset({"o_id", "c_id"}),)


def test_types_that_compare_otherwise_prove_nothing() -> None:
    local = Column("k", SqlType("timestamp without time zone"), nullable=False)
    zoned = Column("z", SqlType("timestamp with time zone"), nullable=False)
    hours = Scan(Source(8, "hours", (("k",),)), (local,), ("k",))
    events = Scan(Source(9, "zoned", (("z",),)), (zoned,), ("z",))
    assert unique_keys(Join(hours, events, (is_equal("k", "z"),))) == (frozenset({"k", "z"}),)
