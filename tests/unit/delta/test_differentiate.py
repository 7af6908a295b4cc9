from __future__ import annotations

import pytest

from headwater.algebra.ops import After, Delta, Empty, Filter, Join, Negate, Op, Scan, schema
from headwater.delta.differentiate import RULES, differentiate
from headwater.errors import InvalidPlan
from tests.unit.algebra.samples import CUSTOMERS, ORDERS, is_equal, is_positive, keep, union

ON = (is_equal("o_customer", "c_id"),)
JOIN = Join(ORDERS, CUSTOMERS, ON)
VIEW = keep(Filter(JOIN, (is_positive("o_amount"),)), "o_id", "c_name")


def viewed(change: Op) -> Op:
    return keep(Filter(change, (is_positive("o_amount"),)), "o_id", "c_name")


def test_all_sources_may_have_changed() -> None:
    assert differentiate(VIEW) == viewed(
        union(
            Join(Delta(ORDERS), After(CUSTOMERS), ON),
            Join(After(ORDERS), Delta(CUSTOMERS), ON),
            Negate(Join(Delta(ORDERS), Delta(CUSTOMERS), ON)),
        )
    )


def test_one_source_has_changed() -> None:
    orders = viewed(Join(Delta(ORDERS), After(CUSTOMERS), ON))
    customers = viewed(Join(After(ORDERS), Delta(CUSTOMERS), ON))
    assert differentiate(VIEW, frozenset({1})) == orders
    assert differentiate(VIEW, frozenset({2})) == customers


def test_no_source_of_the_view_has_changed() -> None:
    assert differentiate(VIEW, frozenset({3})) == Empty(schema(VIEW))


def test_a_wrong_rule_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, Scan, lambda op: op)
    with pytest.raises(InvalidPlan) as caught:
        differentiate(ORDERS)
    assert caught.value.what == "the scan of orders has no state"
