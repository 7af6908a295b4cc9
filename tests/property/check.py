"""What every property of deltas compares: the oracle's word on states and on changes."""

from __future__ import annotations

from headwater.algebra.ops import Op
from headwater.delta.differentiate import differentiate
from headwater.reference.evaluate import evaluate
from headwater.reference.zset import Zset, add
from tests.property.data import State, between


def state_of(view: Op, state: State) -> Zset:
    return evaluate(view, between(state, state))


def delta_of(view: Op, before: State, after: State) -> Zset:
    return evaluate(differentiate(view), between(before, after))


def is_exact(view: Op, before: State, after: State) -> bool:
    """view(before) ⊎ Δ = view(after)."""
    expected = state_of(view, after)
    return add(state_of(view, before), delta_of(view, before, after)) == expected
