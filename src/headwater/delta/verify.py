"""The check that runs after every differentiation, in production too."""

from __future__ import annotations

from headwater.algebra.ops import After, Before, Delta, Op, Restrict, Scan, schema
from headwater.algebra.schema import names
from headwater.algebra.walk import children
from headwater.errors import bug


def check_delta_plan(plan: Op, view: Op) -> None:
    """Raise InvalidPlan unless `plan` is a delta of `view` that an engine can render."""
    if names(schema(plan)) != names(schema(view)):
        raise bug(
            f"the delta produces {names(schema(plan))}, the view {names(schema(view))}",
            "a rule dropped or reordered columns",
        )
    _check_states(plan, set())


def _check_states(op: Op, seen: set[Op]) -> None:
    """Δ stands on scans only, no Before is left, and every scan says which state it means."""
    if op in seen:
        return
    seen.add(op)
    match op:
        case Delta(input=Scan()):
            return
        case Delta() | Before():
            raise bug(f"{type(op).__name__} left above {type(op.input).__name__}", "not simplified")
        case Scan():
            raise bug(f"the scan of {op.source.name} has no state", "a rule forgot After or Δ")
        case After(input=state):
            _check_view(state, seen)
            return
    for child in children(op):
        _check_states(child, seen)


def _check_view(op: Op, seen: set[Op]) -> None:
    """Below After there is a view tree, in which only key sets may look at changes."""
    match op:
        case Delta() | Before() | After():
            raise bug(f"{type(op).__name__} inside a state", "states are nested")
        case Restrict():
            _check_view(op.input, seen)
            _check_states(op.keys, seen)
            return
    for child in children(op):
        _check_view(child, seen)
