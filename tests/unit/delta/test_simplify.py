from __future__ import annotations

import pytest

from headwater.algebra.expr import column
from headwater.algebra.ops import (
    After,
    AntiJoin,
    Before,
    Consolidate,
    Delta,
    Empty,
    Filter,
    Join,
    Keys,
    Negate,
    Op,
    Repeat,
    Restrict,
    Scan,
    SemiJoin,
    Single,
    Source,
    UnionAll,
    schema,
)
from headwater.algebra.schema import Column
from headwater.algebra.walk import children
from headwater.delta.differentiate import differentiate
from headwater.delta.registry import derive
from headwater.delta.simplify import simplify
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

ON = (is_equal("o_customer", "c_id"),)
NONE = frozenset[int]()
D_EVENTS, D_ORDERS, D_CUSTOMERS = Delta(EVENTS), Delta(ORDERS), Delta(CUSTOMERS)
LOOKED_UP = After(Restrict(ORDERS, ("o_customer",), Keys(D_CUSTOMERS, ("c_id",))))


# --- unchanged sources vanish ---


@pytest.mark.parametrize(
    "plan",
    [
        D_EVENTS,
        keep(D_EVENTS, "e_x"),
        Filter(D_EVENTS, (is_positive("e_x"),)),
        Repeat(D_EVENTS, column("e_x")),
        Negate(D_EVENTS),
        Consolidate(D_EVENTS),
        Keys(D_EVENTS, ("e_x",)),
        grouped(D_EVENTS, "e_x"),
        ranked(D_EVENTS, "e_x", by="e_y"),
        ranked(D_EVENTS, by="e_y"),
        series(D_EVENTS, "e_x"),
        Join(D_ORDERS, After(CUSTOMERS), ON),
        Join(Before(ORDERS), D_CUSTOMERS, ON),
        SemiJoin(D_ORDERS, After(CUSTOMERS), ON),
        SemiJoin(LOOKED_UP, D_CUSTOMERS, ON),
        AntiJoin(D_ORDERS, After(CUSTOMERS), ON),
        Restrict(D_EVENTS, ("e_x",), Keys(After(CUSTOMERS), ("c_id",))),
        Restrict(After(EVENTS), ("e_x",), Keys(D_CUSTOMERS, ("c_id",))),
        union(D_EVENTS, Negate(D_CUSTOMERS), names=("a", "b")),
    ],
)
def test_nothing_spreads(plan: Op) -> None:
    assert simplify(plan, NONE) == Empty(schema(plan))


def test_a_changed_source_stays() -> None:
    assert simplify(D_EVENTS, frozenset({3})) == D_EVENTS
    assert simplify(D_EVENTS) == D_EVENTS


def test_an_arm_without_changes_is_left_out() -> None:
    plan = union(D_EVENTS, D_CUSTOMERS, After(EVENTS), names=("a", "b"))
    assert simplify(plan, frozenset({3})) == union(D_EVENTS, After(EVENTS), names=("a", "b"))


def test_a_single_arm_needs_no_union() -> None:
    same = union(D_CUSTOMERS, Negate(D_CUSTOMERS), D_EVENTS, names=("e_x", "e_y"))
    assert simplify(same, frozenset({3})) == D_EVENTS
    other = union(D_CUSTOMERS, D_EVENTS, names=("a", "b"))
    assert simplify(other, frozenset({3})) == rename(D_EVENTS, e_x="a", e_y="b")


def test_an_anti_join_with_nothing_keeps_all() -> None:
    assert simplify(AntiJoin(After(ORDERS), D_CUSTOMERS, ON), NONE) == After(ORDERS)


def test_a_grand_total_of_nothing_is_a_row() -> None:
    assert simplify(grouped(D_EVENTS), NONE) == grouped(Empty(schema(EVENTS)))


# --- A⁻ = A⁺ ⊎ −ΔA ---


def test_before() -> None:
    assert simplify(Before(EVENTS)) == union(After(EVENTS), Negate(D_EVENTS))
    assert simplify(Before(EVENTS), NONE) == After(EVENTS)
    assert simplify(Before(Single())) == After(Single())


def test_before_of_a_view() -> None:
    view = Filter(EVENTS, (is_positive("e_x"),))
    change = Filter(D_EVENTS, (is_positive("e_x"),))
    assert simplify(Before(view)) == union(After(view), Negate(change))


def test_a_join_starts_from_changes() -> None:
    assert simplify(Join(Before(ORDERS), D_CUSTOMERS, ON)) == union(
        Join(After(ORDERS), D_CUSTOMERS, ON),
        Negate(Join(D_ORDERS, D_CUSTOMERS, ON)),
    )
    assert simplify(Join(D_ORDERS, Before(CUSTOMERS), ON)) == union(
        Join(D_ORDERS, After(CUSTOMERS), ON),
        Negate(Join(D_ORDERS, D_CUSTOMERS, ON)),
    )


def test_a_semi_join_starts_from_changes() -> None:
    assert simplify(SemiJoin(Before(ORDERS), D_CUSTOMERS, ON)) == union(
        SemiJoin(LOOKED_UP, D_CUSTOMERS, ON),
        Negate(SemiJoin(D_ORDERS, D_CUSTOMERS, ON)),
    )


def test_an_anti_join_is_not_linear_in_its_right_side() -> None:
    before = union(After(CUSTOMERS), Negate(D_CUSTOMERS))
    assert simplify(AntiJoin(D_ORDERS, Before(CUSTOMERS), ON)) == AntiJoin(D_ORDERS, before, ON)


# --- x ⊎ −x ---


def test_opposites_cancel() -> None:
    assert simplify(union(D_EVENTS, Negate(D_EVENTS))) == Empty(schema(EVENTS))
    assert simplify(union(Negate(D_EVENTS), After(EVENTS), D_EVENTS)) == After(EVENTS)


def test_opposites_cancel_in_pairs() -> None:
    plan = union(D_EVENTS, Negate(D_EVENTS), D_EVENTS)
    assert simplify(plan) == D_EVENTS
    plan = union(D_EVENTS, D_EVENTS, Negate(D_EVENTS), Negate(D_EVENTS))
    assert simplify(plan) == Empty(schema(EVENTS))


def test_equal_rows_do_not_cancel() -> None:
    plan = union(D_EVENTS, D_EVENTS)
    assert simplify(plan) == plan


def test_two_signs_are_none() -> None:
    assert simplify(Negate(Negate(D_EVENTS))) == D_EVENTS


def test_unions_of_the_same_columns_are_flattened() -> None:
    plan = union(union(D_EVENTS, After(EVENTS)), Negate(D_EVENTS))
    assert simplify(plan) == After(EVENTS)
    renamed = union(union(D_EVENTS, D_CUSTOMERS), After(EVENTS), names=("a", "b"))
    assert simplify(renamed) == renamed


# --- ⋉K ---


def test_a_change_is_not_restricted_to_its_own_keys() -> None:
    assert simplify(Restrict(D_EVENTS, ("e_x",), Keys(D_EVENTS, ("e_x",)))) == D_EVENTS
    other = Restrict(D_EVENTS, ("e_y",), Keys(D_EVENTS, ("e_x",)))
    assert simplify(other) == other


def test_a_restriction_goes_through_signs_and_unions() -> None:
    keys = Keys(D_EVENTS, ("e_x",))
    assert simplify(Restrict(Before(EVENTS), ("e_x",), keys)) == union(
        After(Restrict(EVENTS, ("e_x",), keys)),
        Negate(D_EVENTS),
    )


def test_a_state_is_restricted_at_its_scans() -> None:
    keys = Keys(D_CUSTOMERS, ("c_id",))
    view = Filter(EVENTS, (is_positive("e_y"),))
    assert simplify(Restrict(After(view), ("e_x",), keys)) == After(
        Filter(Restrict(EVENTS, ("e_x",), keys), (is_positive("e_y"),))
    )


def test_a_union_of_other_names_is_restricted_as_a_whole() -> None:
    plan = Restrict(
        UnionAll((D_EVENTS, D_CUSTOMERS), ints("a", "b")), ("a",), Keys(D_ORDERS, ("o_id",))
    )
    assert simplify(plan) == plan


# --- whole deltas ---


def test_delta_of_an_aggregate() -> None:
    keys = Keys(D_EVENTS, ("e_x",))
    after = After(Restrict(EVENTS, ("e_x",), keys))
    before = union(after, Negate(D_EVENTS))
    assert simplify(derive(grouped(EVENTS, "e_x"))) == Consolidate(
        union(grouped(after, "e_x"), Negate(grouped(before, "e_x")))
    )


def test_delta_of_a_window_computes_the_partitions_that_are_touched() -> None:
    keys = Keys(D_EVENTS, ("e_x",))
    after = After(Restrict(EVENTS, ("e_x",), keys))
    before = union(after, Negate(D_EVENTS))
    assert simplify(derive(ranked(EVENTS, "e_x", by="e_y"))) == Consolidate(
        UnionAll(
            (ranked(after, "e_x", by="e_y"), Negate(ranked(before, "e_x", by="e_y"))),
            schema(ranked(EVENTS, "e_x", by="e_y")),
        )
    )


def test_delta_of_a_query_as_a_whole_computes_it_twice_if_a_source_changed() -> None:
    view = recursive(EVENTS, CUSTOMERS)
    after = recursive(After(EVENTS), After(CUSTOMERS))
    before = recursive(union(After(EVENTS), Negate(D_EVENTS)), After(CUSTOMERS))
    assert simplify(derive(view), frozenset({3})) == Consolidate(union(after, Negate(before)))
    assert simplify(derive(view), NONE) == Empty(schema(view))


def test_delta_of_a_semi_join_by_the_sources_that_changed() -> None:
    view = SemiJoin(ORDERS, CUSTOMERS, ON)
    touched = SemiJoin(LOOKED_UP, D_CUSTOMERS, ON)
    before = union(After(CUSTOMERS), Negate(D_CUSTOMERS))
    right = union(AntiJoin(touched, before, ON), Negate(AntiJoin(touched, After(CUSTOMERS), ON)))
    assert simplify(derive(view), frozenset({1})) == SemiJoin(D_ORDERS, After(CUSTOMERS), ON)
    assert simplify(derive(view), frozenset({2})) == right


def test_delta_of_a_grand_total_of_an_unchanged_source() -> None:
    view = grouped(EVENTS)
    assert simplify(derive(view), NONE) == Empty(schema(view))


def test_delta_of_an_anti_join_by_the_sources_that_changed() -> None:
    view = AntiJoin(ORDERS, CUSTOMERS, ON)
    left = AntiJoin(D_ORDERS, After(CUSTOMERS), ON)
    touched = SemiJoin(LOOKED_UP, D_CUSTOMERS, ON)
    before = union(After(CUSTOMERS), Negate(D_CUSTOMERS))
    right = union(AntiJoin(touched, After(CUSTOMERS), ON), Negate(AntiJoin(touched, before, ON)))
    assert simplify(derive(view), frozenset({1})) == left
    assert simplify(derive(view), frozenset({2})) == right


def test_delta_of_a_self_join() -> None:
    again = rename(EVENTS, e_x="f_x", e_y="f_y")
    view = Join(EVENTS, again, (is_equal("e_x", "f_x"),))
    change = rename(D_EVENTS, e_x="f_x", e_y="f_y")
    assert simplify(derive(view), frozenset({3})) == union(
        Join(D_EVENTS, After(again), view.on),
        Join(After(EVENTS), change, view.on),
        Negate(Join(D_EVENTS, change, view.on)),
    )


def test_a_deep_join_stays_small() -> None:
    """Each level needs the change of all below it twice; equal subtrees must be one object."""
    scans = [Scan(Source(i, f"t{i}"), (Column(f"a{i}", INTEGER),), ("a",)) for i in range(1, 13)]
    view: Op = scans[0]
    for scan in scans[1:]:
        view = Join(view, scan, (is_equal("a1", scan.columns[0].name),))
    assert len(_distinct(differentiate(view), {})) < 200


def _distinct(op: Op, seen: dict[int, Op]) -> dict[int, Op]:
    if id(op) not in seen:
        seen[id(op)] = op
        for child in children(op):
            _distinct(child, seen)
    return seen
