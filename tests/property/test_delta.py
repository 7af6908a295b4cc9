"""The change of a view is what its delta says, for random views, data and changes."""

from __future__ import annotations

from hypothesis import assume, given, settings

from headwater.algebra.ops import Empty, Op, schema
from headwater.delta.differentiate import differentiate
from headwater.delta.ordering import gather, start_from_change
from headwater.delta.registry import derive
from headwater.delta.verify import check_delta_plan
from headwater.reference.evaluate import evaluate
from headwater.reference.zset import add, difference
from tests.property.check import delta_of, is_exact
from tests.property.data import between, is_possible, shifted
from tests.property.trees import Case, cases, views
from tests.scale import scaled


@settings(max_examples=scaled(500))
@given(cases())
def test_delta_leads_from_before_to_after(case: Case) -> None:
    assert is_exact(case.view, *case.states)


@settings(max_examples=scaled(100))
@given(cases(clocks=True))
def test_delta_follows_the_time(case: Case) -> None:
    assert is_exact(case.view, *case.states)


@settings(max_examples=scaled(180))
@given(cases())
def test_terms_of_unchanged_sources_are_not_needed(case: Case) -> None:
    before, after = case.states
    changed = frozenset(oid for oid in before if before[oid] != after[oid])
    db = between(before, after)
    pruned = evaluate(differentiate(case.view, changed), db)
    assert pruned == evaluate(differentiate(case.view), db)


@settings(max_examples=scaled(120))
@given(views())
def test_nothing_changed_is_known_without_data(view: Op) -> None:
    assert isinstance(differentiate(view, frozenset()), Empty)


@settings(max_examples=scaled(180))
@given(cases())
def test_simplification_keeps_the_meaning(case: Case) -> None:
    db = between(*case.states)
    assert evaluate(differentiate(case.view), db) == evaluate(derive(case.view), db)


@settings(max_examples=scaled(200))
@given(cases())
def test_the_order_of_joins_does_not_matter(case: Case) -> None:
    before, after = case.states
    changed = frozenset(oid for oid in before if before[oid] != after[oid])
    db = between(before, after)
    gathered = gather(case.view, changed)
    assert schema(gathered) == schema(case.view)
    ordered = start_from_change(differentiate(gathered, changed))
    check_delta_plan(ordered, case.view)
    assert evaluate(ordered, db) == evaluate(differentiate(case.view), db)


@settings(max_examples=scaled(100))
@given(cases(changes=2))
def test_one_big_change_is_many_small_ones(case: Case) -> None:
    first, second, third = case.states
    small = add(delta_of(case.view, first, second), delta_of(case.view, second, third))
    assert small == delta_of(case.view, first, third)


@settings(max_examples=scaled(100))
@given(cases())
def test_undo_takes_everything_back(case: Case) -> None:
    before, after = case.states
    assert add(delta_of(case.view, before, after), delta_of(case.view, after, before)) == {}


@settings(max_examples=scaled(100))
@given(cases(changes=2))
def test_the_order_of_changes_does_not_matter(case: Case) -> None:
    first, second, third = case.states
    other = shifted(first, {oid: difference(third[oid], second[oid]) for oid in first})
    assume(is_possible(other))
    one_way = add(delta_of(case.view, first, second), delta_of(case.view, second, third))
    other_way = add(delta_of(case.view, first, other), delta_of(case.view, other, third))
    assert one_way == other_way
