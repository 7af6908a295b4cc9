"""A state need not be read for what came with the change, whatever the data."""

from __future__ import annotations

from hypothesis import Phase, find, given, settings

from headwater.algebra.ops import After, Before, Delta, Op, schema
from headwater.algebra.schema import names
from headwater.delta.arrivals import Meeting, meetings, skip_states
from headwater.delta.differentiate import differentiate
from headwater.delta.factoring import factored
from headwater.delta.ordering import connect, gather, start_from_change
from headwater.delta.verify import check_delta_plan
from headwater.reference.evaluate import Database, evaluate
from headwater.reference.zset import Zset
from tests.property.check import state_of
from tests.property.data import between
from tests.property.trees import Case, cases
from tests.scale import scaled


def by_value(op: Op, column: str, db: Database) -> dict[object, list[int]]:
    """The weights of the rows of a tree by the values of a column, without NULL."""
    at = names(schema(op)).index(column)
    found: dict[object, list[int]] = {}
    for row, weight in evaluate(op, db).items():
        if row[at] is not None:
            found.setdefault(row[at], []).append(weight)
    return found


def rest_of(meeting: Meeting, db: Database) -> tuple[str, ...]:
    """The values for which the state must be read, by the definition."""
    before = by_value(Before(meeting.state), meeting.state_column, db)
    after = by_value(After(meeting.state), meeting.state_column, db)
    changed = by_value(Delta(meeting.change), meeting.change_column, db)
    return tuple(
        str(value)
        for value, weights in changed.items()
        if not (min(weights) > 0 and value not in before)
        and not (max(weights) < 0 and value not in after)
    )


def skipped(case: Case, *, forget: bool = False) -> tuple[Zset, Zset]:
    """The change of a view with states skipped, and as it is."""
    before, after = case.states
    db = between(before, after)
    changed = frozenset(oid for oid in before if before[oid] != after[oid])
    plan = differentiate(gather(case.view, changed), changed)
    rests = {m: () if forget else rest_of(m, db) for m in meetings(plan)}
    pruned = start_from_change(factored(skip_states(plan, rests, changed)))
    check_delta_plan(pruned, case.view)
    return evaluate(pruned, db), evaluate(plan, db)


@settings(max_examples=scaled(300))
@given(cases())
def test_states_are_skipped_exactly(case: Case) -> None:
    found, expected = skipped(case)
    assert found == expected


def test_it_matters_what_the_rest_is() -> None:
    def is_wrong(case: Case) -> bool:
        found, expected = skipped(case, forget=True)
        return found != expected

    assert find(cases(), is_wrong, settings=settings(max_examples=3000, phases=[Phase.generate]))


@settings(max_examples=scaled(200))
@given(cases())
def test_common_factors_can_be_taken_out(case: Case) -> None:
    db, plan = between(*case.states), differentiate(case.view)
    taken_out = factored(plan)
    check_delta_plan(taken_out, case.view)
    assert evaluate(taken_out, db) == evaluate(plan, db)


@settings(max_examples=scaled(150))
@given(cases())
def test_connected_relations_have_the_same_rows(case: Case) -> None:
    connected = connect(case.view)
    assert schema(connected) == schema(case.view)
    assert state_of(connected, case.states[-1]) == state_of(case.view, case.states[-1])
