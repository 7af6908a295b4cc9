from __future__ import annotations

from headwater.algebra.ops import After, Before, Delta, Filter, Join
from headwater.delta.rules.bilinear import diff_join
from tests.unit.algebra.samples import CUSTOMERS, ORDERS, is_equal, is_positive, union

ON = (is_equal("o_customer", "c_id"),)


def test_join() -> None:
    assert diff_join(Join(ORDERS, CUSTOMERS, ON)) == union(
        Join(Delta(ORDERS), After(CUSTOMERS), ON),
        Join(Before(ORDERS), Delta(CUSTOMERS), ON),
    )


def test_states_are_those_of_the_whole_side() -> None:
    positive = Filter(ORDERS, (is_positive("o_amount"),))
    assert diff_join(Join(positive, CUSTOMERS, ON)) == union(
        Join(Filter(Delta(ORDERS), (is_positive("o_amount"),)), After(CUSTOMERS), ON),
        Join(Before(positive), Delta(CUSTOMERS), ON),
    )
