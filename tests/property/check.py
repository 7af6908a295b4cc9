"""What every property of deltas compares: the oracle's word on states and on changes."""

from __future__ import annotations

from headwater.algebra.ops import Op
from headwater.delta.differentiate import differentiate
from headwater.reference.evaluate import When, evaluate
from headwater.reference.zset import Zset, add
from tests.property.data import State, between


def state_of(view: Op, state: State) -> Zset:
    return evaluate(view, between(state, state))


def delta_of(view: Op, before: State, after: State) -> Zset:
    return evaluate(differentiate(view), between(before, after))


def is_exact(view: Op, before: State, after: State) -> bool:
    """view(before) ⊎ Δ = view(after), each state with the clock of its own."""
    db = between(before, after)
    old, new = (evaluate(view, db, when) for when in (When.BEFORE, When.AFTER))
    return add(old, delta_of(view, before, after)) == new
