from __future__ import annotations

from headwater.algebra.ops import (
    After,
    AntiJoin,
    Before,
    Consolidate,
    Delta,
    Keys,
    Negate,
    Restrict,
    SemiJoin,
)
from headwater.delta.rules.keyed import diff_aggregate, diff_anti_join
from tests.unit.algebra.samples import CUSTOMERS, EVENTS, ORDERS, grouped, is_equal, union

ON = (is_equal("o_customer", "c_id"),)


def test_aggregate() -> None:
    touched = Keys(Delta(EVENTS), ("e_x",))
    after = grouped(Restrict(After(EVENTS), ("e_x",), touched), "e_x")
    before = grouped(Restrict(Before(EVENTS), ("e_x",), touched), "e_x")
    assert diff_aggregate(grouped(EVENTS, "e_x")) == Consolidate(union(after, Negate(before)))


def test_aggregate_without_keys() -> None:
    touched = Keys(Delta(EVENTS), ())
    after = grouped(Restrict(After(EVENTS), (), touched))
    before = grouped(Restrict(Before(EVENTS), (), touched))
    assert diff_aggregate(grouped(EVENTS)) == Consolidate(union(after, Negate(before)))


def test_anti_join() -> None:
    touched = SemiJoin(Before(ORDERS), Delta(CUSTOMERS), ON)
    assert diff_anti_join(AntiJoin(ORDERS, CUSTOMERS, ON)) == union(
        AntiJoin(Delta(ORDERS), After(CUSTOMERS), ON),
        AntiJoin(touched, After(CUSTOMERS), ON),
        Negate(AntiJoin(touched, Before(CUSTOMERS), ON)),
    )
