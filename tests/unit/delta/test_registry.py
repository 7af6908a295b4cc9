from __future__ import annotations

import pytest

from headwater.algebra import ops
from headwater.algebra.ops import Delta, Negate, Op
from headwater.delta import rules
from headwater.delta.registry import RULES, derive
from headwater.errors import InvalidPlan
from tests.unit.algebra.samples import EVENTS

VIEW = {
    ops.Scan,
    ops.Single,
    ops.Project,
    ops.Filter,
    ops.Repeat,
    ops.UnionAll,
    ops.Join,
    ops.SemiJoin,
    ops.AntiJoin,
    ops.Aggregate,
    ops.Window,
    ops.Timed,
    ops.Expand,
    ops.Whole,
    ops.Itself,
}


def test_every_operator_of_a_view_has_a_rule() -> None:
    assert rules.__all__
    assert set(RULES) == VIEW


def test_derive_looks_the_rule_up() -> None:
    assert derive(EVENTS) == Delta(EVENTS)


@pytest.mark.parametrize("op", [Negate(EVENTS), Delta(EVENTS)])
def test_an_operator_without_a_rule_is_refused(op: Op) -> None:
    with pytest.raises(InvalidPlan) as caught:
        derive(op)
    assert caught.value.what == f"{type(op).__name__} has no delta rule"
