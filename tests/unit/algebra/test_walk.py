from __future__ import annotations

from headwater.algebra.ops import AntiJoin, Filter, Join, Op, Restrict, Scan, Single
from headwater.algebra.walk import bottom_up, children, rebuild, scans, walk
from tests.unit.algebra.samples import (
    CUSTOMERS,
    EVENTS,
    ORDERS,
    is_equal,
    is_positive,
    keep,
    union,
)

JOIN = Join(ORDERS, CUSTOMERS, (is_equal("o_customer", "c_id"),))
FILTER = Filter(JOIN, (is_positive("o_amount"),))


def test_children() -> None:
    assert children(Single()) == ()
    assert children(FILTER) == (JOIN,)
    assert children(JOIN) == (ORDERS, CUSTOMERS)
    arms = keep(ORDERS, "o_id", "o_customer"), CUSTOMERS, EVENTS
    assert children(union(*arms)) == arms
    keys = keep(CUSTOMERS, "c_id")
    assert children(Restrict(ORDERS, ("o_id",), keys)) == (ORDERS, keys)


def test_walk_goes_from_the_root() -> None:
    assert list(walk(FILTER)) == [FILTER, JOIN, ORDERS, CUSTOMERS]


def test_scans_come_from_left_to_right() -> None:
    assert scans(AntiJoin(FILTER, EVENTS, ())) == (ORDERS, CUSTOMERS, EVENTS)


def test_rebuild_keeps_what_did_not_change() -> None:
    assert rebuild(FILTER, lambda op: op) is FILTER
    assert rebuild(ORDERS, lambda op: EVENTS) is ORDERS


def test_rebuild_changes_the_direct_inputs() -> None:
    swapped = rebuild(Join(EVENTS, CUSTOMERS), lambda op: ORDERS if op == EVENTS else op)
    assert swapped == Join(ORDERS, CUSTOMERS)
    wide = union(EVENTS, CUSTOMERS)
    assert rebuild(wide, lambda op: EVENTS) == union(EVENTS, EVENTS)


def test_bottom_up_sees_changed_inputs() -> None:
    seen: list[Op] = []

    def without_filters(op: Op) -> Op:
        seen.append(op)
        return op.input if isinstance(op, Filter) else op

    tree = Filter(Filter(ORDERS, (is_positive("o_id"),)), (is_positive("o_amount"),))
    assert bottom_up(tree, without_filters) == ORDERS
    assert [type(op) for op in seen] == [Scan, Filter, Filter]
    assert seen[2] == Filter(ORDERS, (is_positive("o_amount"),))
