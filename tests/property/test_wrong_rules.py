"""The oracle is awake: each of these wrong rules is found by the first property."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, find, settings

from headwater.algebra.expr import column, text
from headwater.algebra.ops import (
    After,
    Aggregate,
    AntiJoin,
    Before,
    Consolidate,
    Expand,
    Filter,
    Join,
    Keys,
    Negate,
    Op,
    Project,
    Repeat,
    Restrict,
    SemiJoin,
    Timed,
    UnionAll,
    Whole,
    Window,
    schema,
)
from headwater.algebra.schema import names
from headwater.delta.registry import RULES, derive
from headwater.errors import InvalidPlan
from tests.property.check import is_exact
from tests.property.trees import Case, cases


def join_sees_old_right(op: Join) -> Op:
    """ΔL ⋈ R⁻ misses ΔL ⋈ ΔR."""
    left = replace(op, left=derive(op.left), right=Before(op.right))
    right = replace(op, left=Before(op.left), right=derive(op.right))
    return UnionAll((left, right), schema(op))


def join_sees_new_left(op: Join) -> Op:
    """L⁺ ⋈ ΔR counts ΔL ⋈ ΔR twice."""
    left = replace(op, left=derive(op.left), right=After(op.right))
    right = replace(op, left=After(op.left), right=derive(op.right))
    return UnionAll((left, right), schema(op))


def join_forgets_right(op: Join) -> Op:
    return replace(op, left=derive(op.left), right=After(op.right))


def anti_join_terms(op: AntiJoin, touched: Op) -> tuple[Op, Op, Op]:
    return (
        replace(op, left=derive(op.left), right=After(op.right)),
        replace(op, left=touched, right=After(op.right)),
        Negate(replace(op, left=touched, right=Before(op.right))),
    )


def anti_join_sees_only_new_right(op: AntiJoin) -> Op:
    touched = SemiJoin(Before(op.left), derive(op.right), op.on)
    return UnionAll(anti_join_terms(op, touched)[:2], schema(op))


def anti_join_forgets_left(op: AntiJoin) -> Op:
    touched = SemiJoin(Before(op.left), derive(op.right), op.on)
    return UnionAll(anti_join_terms(op, touched)[1:], schema(op))


def anti_join_touches_new_left(op: AntiJoin) -> Op:
    """T = L⁺ ⋉ ΔR counts the new rows of L twice."""
    touched = SemiJoin(After(op.left), derive(op.right), op.on)
    return UnionAll(anti_join_terms(op, touched), schema(op))


def anti_join_is_bilinear(op: AntiJoin) -> Op:
    """A match more or less is not yet a row less or more."""
    lost = SemiJoin(Before(op.left), derive(op.right), op.on)
    new = replace(op, left=derive(op.left), right=After(op.right))
    return UnionAll((new, Negate(lost)), schema(op))


def semi_join_terms(op: SemiJoin, touched: Op) -> tuple[Op, Op, Op]:
    return (
        replace(op, left=derive(op.left), right=After(op.right)),
        AntiJoin(touched, Before(op.right), op.on),
        Negate(AntiJoin(touched, After(op.right), op.on)),
    )


def semi_join_forgets_right(op: SemiJoin) -> Op:
    return replace(op, left=derive(op.left), right=After(op.right))


def semi_join_only_gains(op: SemiJoin) -> Op:
    """A last match that goes takes its row along."""
    touched = SemiJoin(Before(op.left), derive(op.right), op.on)
    return UnionAll(semi_join_terms(op, touched)[:2], schema(op))


def semi_join_touches_new_left(op: SemiJoin) -> Op:
    touched = SemiJoin(After(op.left), derive(op.right), op.on)
    return UnionAll(semi_join_terms(op, touched), schema(op))


def semi_join_is_bilinear(op: SemiJoin) -> Op:
    """One match more is no row more if there was a match before."""
    new = replace(op, left=derive(op.left), right=After(op.right))
    return UnionAll((new, SemiJoin(Before(op.left), derive(op.right), op.on)), schema(op))


def aggregate_terms(op: Aggregate | Window, touched: Op) -> tuple[Op, Op]:
    return (
        replace(op, input=Restrict(After(op.input), op.keys, touched)),
        Negate(replace(op, input=Restrict(Before(op.input), op.keys, touched))),
    )


def aggregate_keeps_old_value(op: Aggregate) -> Op:
    return aggregate_terms(op, Keys(derive(op.input), op.keys))[0]


def aggregate_forgets_null_group(op: Aggregate) -> Op:
    tests = tuple(text(column(key), " IS NOT NULL") for key in op.keys)
    touched = Keys(Filter(derive(op.input), tests), op.keys)
    return Consolidate(UnionAll(aggregate_terms(op, touched), schema(op)))


def aggregate_is_linear(op: Aggregate) -> Op:
    """γ(ΔA) knows nothing of the rest of the group."""
    return replace(op, input=Keys(derive(op.input), names(schema(op.input))))


def window_is_linear(op: Window) -> Op:
    """The rows that did not change have new values too."""
    touched = Keys(derive(op.input), names(schema(op.input)))
    after = replace(op, input=Restrict(After(op.input), names(schema(op.input)), touched))
    before = replace(op, input=Restrict(Before(op.input), names(schema(op.input)), touched))
    return UnionAll((after, Negate(before)), schema(op))


def window_keeps_old_values(op: Window) -> Op:
    return aggregate_terms(op, Keys(derive(op.input), op.keys))[0]


def window_forgets_null_partition(op: Window) -> Op:
    tests = tuple(text(column(key), " IS NOT NULL") for key in op.keys)
    touched = Keys(Filter(derive(op.input), tests), op.keys)
    return Consolidate(UnionAll(aggregate_terms(op, touched), schema(op)))


def expand_forgets_copies(op: Expand) -> Op:
    return Keys(replace(op, input=derive(op.input)), names(schema(op)))


def whole_sees_first_input(op: Whole) -> Op:
    first, rest = op.inputs[:1], tuple(map(After, op.inputs[1:]))
    after, before = (replace(op, inputs=(*map(state, first), *rest)) for state in (After, Before))
    return UnionAll((after, Negate(before)), schema(op))


def whole_keeps_old_rows(op: Whole) -> Op:
    return replace(op, inputs=tuple(map(After, op.inputs)))


def timed_forgets_the_clock(op: Timed) -> Op:
    """Rows also come and go as time passes."""
    return Filter(derive(op.input), op.conjuncts)


def timed_asks_the_old_clock(op: Timed) -> Op:
    return Filter(derive(op.input), op.past)


def filter_forgets_signs(op: Filter) -> Op:
    return replace(op, input=Keys(derive(op.input), names(schema(op.input))))


def timed_sees_new_rows_twice(op: Timed) -> Op:
    """What came is in the state after the change already."""
    enter = Filter(After(op.input), op.conjuncts)
    leave = Filter(Before(op.input), op.past)
    return UnionAll((derive(op.input), enter, Negate(leave)), schema(op))


def project_forgets_copies(op: Project) -> Op:
    """What is new to the input need not be new to the result."""
    return Keys(replace(op, input=derive(op.input)), names(schema(op)))


def repeat_forgets_factor(op: Repeat) -> Op:
    return derive(op.input)


def union_forgets_last_arm(op: UnionAll) -> Op:
    return replace(op, inputs=tuple(derive(arm) for arm in op.inputs[:-1]), disjoint=())


WRONG: list[tuple[type[Op], Callable[[Any], Op]]] = [
    (Join, join_sees_old_right),
    (Join, join_sees_new_left),
    (Join, join_forgets_right),
    (AntiJoin, anti_join_sees_only_new_right),
    (AntiJoin, anti_join_forgets_left),
    (AntiJoin, anti_join_touches_new_left),
    (AntiJoin, anti_join_is_bilinear),
    (SemiJoin, semi_join_forgets_right),
    (SemiJoin, semi_join_only_gains),
    (SemiJoin, semi_join_touches_new_left),
    (SemiJoin, semi_join_is_bilinear),
    (Window, window_is_linear),
    (Window, window_keeps_old_values),
    (Window, window_forgets_null_partition),
    (Expand, expand_forgets_copies),
    (Whole, whole_sees_first_input),
    (Whole, whole_keeps_old_rows),
    (Timed, timed_forgets_the_clock),
    (Timed, timed_asks_the_old_clock),
    (Aggregate, aggregate_keeps_old_value),
    (Aggregate, aggregate_forgets_null_group),
    (Aggregate, aggregate_is_linear),
    (Filter, filter_forgets_signs),
    (Timed, timed_sees_new_rows_twice),
    (Project, project_forgets_copies),
    (Repeat, repeat_forgets_factor),
    (UnionAll, union_forgets_last_arm),
]


@pytest.mark.parametrize(("kind", "wrong"), WRONG, ids=lambda value: value.__name__)
def test_a_wrong_rule_is_found(
    kind: type[Op], wrong: Callable[[Any], Op], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RULES, kind, wrong)
    search = settings(max_examples=3000, phases=[Phase.generate], database=None)
    find(cases(clocks=kind is Timed), is_wrong, settings=search, random=Random(1))


def is_wrong(case: Case) -> bool:
    """Tell whether the property fails; the oracle also refuses to aggregate negative rows."""
    try:
        return not is_exact(case.view, *case.states)
    except InvalidPlan:
        return True
