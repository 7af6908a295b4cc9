"""The change of a view: rules, then simplification, then the check that both kept their word."""

from __future__ import annotations

from headwater.algebra.ops import Op
from headwater.delta import rules
from headwater.delta.registry import RULES, derive
from headwater.delta.simplify import simplify
from headwater.delta.verify import check_delta_plan


def differentiate(view: Op, changed: frozenset[int] | None = None) -> Op:
    """Return the tree that computes the change of `view`.

    `changed` names the sources that have changes; terms that need any other one disappear. None
    means that all may have changed.
    """
    plan = simplify(derive(view), changed)
    check_delta_plan(plan, view)
    return plan


__all__ = ["RULES", "differentiate", "rules"]
