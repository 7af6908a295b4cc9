"""Bilinear operators: linear in each side, so the change has one term per side."""

from __future__ import annotations

from dataclasses import replace

from headwater.algebra.ops import After, Before, Join, Op, UnionAll, schema
from headwater.delta.registry import derive, rule


@rule(Join)
def diff_join(op: Join) -> Op:
    """Δ(L ⋈ R) = (ΔL ⋈ R⁺) ⊎ (L⁻ ⋈ ΔR), with R⁺ after the change and L⁻ before it.

    (L + ΔL)(R + ΔR) − LR = ΔL·R⁺ + L·ΔR: taking one side after and the other before counts
    ΔL ⋈ ΔR once. Outer joins are lowered before and never reach this rule.
    """
    left = replace(op, left=derive(op.left), right=After(op.right))
    right = replace(op, left=Before(op.left), right=derive(op.right))
    return UnionAll((left, right), schema(op))
