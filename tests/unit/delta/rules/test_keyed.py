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
    UnionAll,
    schema,
)
from headwater.delta.rules.keyed import (
    diff_aggregate,
    diff_anti_join,
    diff_semi_join,
    diff_whole,
    diff_window,
)
from tests.unit.algebra.samples import (
    CUSTOMERS,
    EVENTS,
    ORDERS,
    grouped,
    is_equal,
    ranked,
    recursive,
    union,
)

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


def test_window() -> None:
    view, touched = ranked(EVENTS, "e_x", by="e_y"), Keys(Delta(EVENTS), ("e_x",))
    after = ranked(Restrict(After(EVENTS), ("e_x",), touched), "e_x", by="e_y")
    before = ranked(Restrict(Before(EVENTS), ("e_x",), touched), "e_x", by="e_y")
    assert diff_window(view) == Consolidate(UnionAll((after, Negate(before)), schema(view)))


def test_window_over_all_rows() -> None:
    view, touched = ranked(EVENTS, by="e_y"), Keys(Delta(EVENTS), ())
    after = ranked(Restrict(After(EVENTS), (), touched), by="e_y")
    before = ranked(Restrict(Before(EVENTS), (), touched), by="e_y")
    assert diff_window(view) == Consolidate(UnionAll((after, Negate(before)), schema(view)))


def test_query_as_a_whole() -> None:
    after = recursive(After(EVENTS), After(CUSTOMERS))
    before = recursive(Before(EVENTS), Before(CUSTOMERS))
    assert diff_whole(recursive(EVENTS, CUSTOMERS)) == Consolidate(union(after, Negate(before)))


def test_semi_join() -> None:
    touched = SemiJoin(Before(ORDERS), Delta(CUSTOMERS), ON)
    assert diff_semi_join(SemiJoin(ORDERS, CUSTOMERS, ON)) == union(
        SemiJoin(Delta(ORDERS), After(CUSTOMERS), ON),
        AntiJoin(touched, Before(CUSTOMERS), ON),
        Negate(AntiJoin(touched, After(CUSTOMERS), ON)),
    )


def test_anti_join() -> None:
    touched = SemiJoin(Before(ORDERS), Delta(CUSTOMERS), ON)
    assert diff_anti_join(AntiJoin(ORDERS, CUSTOMERS, ON)) == union(
        AntiJoin(Delta(ORDERS), After(CUSTOMERS), ON),
        AntiJoin(touched, After(CUSTOMERS), ON),
        Negate(AntiJoin(touched, Before(CUSTOMERS), ON)),
    )
