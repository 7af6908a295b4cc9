from __future__ import annotations

import pytest

from headwater.algebra.expr import column
from headwater.algebra.ops import Delta, Empty, Filter, Op, Repeat, Single, UnionAll
from headwater.delta.rules.linear import (
    diff_expand,
    diff_filter,
    diff_project,
    diff_repeat,
    diff_scan,
    diff_single,
    diff_union_all,
)
from tests.unit.algebra.samples import CUSTOMERS, EVENTS, ints, is_positive, rename, series

POSITIVE = (is_positive("e_x"),)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (diff_scan(EVENTS), Delta(EVENTS)),
        (diff_single(Single()), Empty(())),
        (diff_project(rename(EVENTS, e_x="a")), rename(Delta(EVENTS), e_x="a")),
        (diff_filter(Filter(EVENTS, POSITIVE)), Filter(Delta(EVENTS), POSITIVE)),
        (diff_expand(series(EVENTS, "e_x")), series(Delta(EVENTS), "e_x")),
        (diff_repeat(Repeat(EVENTS, column("e_x"))), Repeat(Delta(EVENTS), column("e_x"))),
    ],
)
def test_the_change_goes_through(made: Op, expected: Op) -> None:
    assert made == expected


def test_changes_of_disjoint_inputs_may_share_rows() -> None:
    view = UnionAll((EVENTS, CUSTOMERS), ints("a", "b"), disjoint=("a",))
    assert diff_union_all(view) == UnionAll((Delta(EVENTS), Delta(CUSTOMERS)), ints("a", "b"))


def test_rules_go_all_the_way_down() -> None:
    view = rename(Filter(Repeat(EVENTS, column("e_y")), POSITIVE), e_x="a")
    change = Filter(Repeat(Delta(EVENTS), column("e_y")), POSITIVE)
    assert diff_project(view) == rename(change, e_x="a")
