"""Keyed operators: Δf(A) = f(A⁺ ⋉ K) ⊖ f(A⁻ ⋉ K), with K the keys that ΔA touches.

Rows with other keys cannot make a difference, so f is evaluated for the touched keys alone, after
and before the change. This one rule covers whatever is neither linear nor bilinear.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.algebra.ops import (
    After,
    Aggregate,
    AntiJoin,
    Before,
    Consolidate,
    Keys,
    Negate,
    Op,
    Restrict,
    SemiJoin,
    UnionAll,
    Whole,
    Window,
    schema,
)
from headwater.delta.registry import derive, rule


@rule(Aggregate)
def diff_aggregate(op: Aggregate) -> Op:
    """Δγ(A) = γ(A⁺ ⋉ K) ⊖ γ(A⁻ ⋉ K), K = the groups of ΔA; NULL is a group like any other.

    Without keys K is one empty key, or none when nothing changed: the whole input or nothing.
    """
    return _by_keys(op)


@rule(Window)
def diff_window(op: Window) -> Op:
    """Δω(A) = ω(A⁺ ⋉ K) ⊖ ω(A⁻ ⋉ K), K = the partitions of ΔA."""
    return _by_keys(op)


def _by_keys(op: Aggregate | Window) -> Op:
    """Consolidated, so that what did not change is no change to what stands above."""
    touched = Keys(derive(op.input), op.keys)
    after = replace(op, input=Restrict(After(op.input), op.keys, touched))
    before = replace(op, input=Restrict(Before(op.input), op.keys, touched))
    return Consolidate(UnionAll((after, Negate(before)), schema(op)))


@rule(Whole)
def diff_whole(op: Whole) -> Op:
    """Δq(A) = q(A⁺) ⊖ q(A⁻): nothing is known about the query, so everything is its one key."""
    after = replace(op, inputs=tuple(map(After, op.inputs)))
    before = replace(op, inputs=tuple(map(Before, op.inputs)))
    return Consolidate(UnionAll((after, Negate(before)), schema(op)))


@rule(AntiJoin)
def diff_anti_join(op: AntiJoin) -> Op:
    """Δ(L ▷ R) = (ΔL ▷ R⁺) ⊎ (T ▷ R⁺) ⊖ (T ▷ R⁻), T = L⁻ ⋉ ΔR: the key is the left row.

    The anti-join is linear in L. A row of L⁻ can gain its first match or lose its last one only if
    a changed row of R matches it; the condition may be anything.
    """
    change = derive(op.right)
    touched = SemiJoin(Before(op.left), change, op.on)
    return UnionAll(
        (
            replace(op, left=derive(op.left), right=After(op.right)),
            replace(op, left=touched, right=After(op.right)),
            Negate(replace(op, left=touched, right=Before(op.right))),
        ),
        schema(op),
    )


@rule(SemiJoin)
def diff_semi_join(op: SemiJoin) -> Op:
    """Δ(L ⋉ R) = (ΔL ⋉ R⁺) ⊎ (T ▷ R⁻) ⊖ (T ▷ R⁺), T = L⁻ ⋉ ΔR.

    As L ⋉ R = L ⊖ (L ▷ R), the touched rows come and go the other way round. The anti-join counts
    matches by weight, which R⁻ as a signed union needs.
    """
    touched = SemiJoin(Before(op.left), derive(op.right), op.on)
    return UnionAll(
        (
            replace(op, left=derive(op.left), right=After(op.right)),
            AntiJoin(touched, Before(op.right), op.on),
            Negate(AntiJoin(touched, After(op.right), op.on)),
        ),
        schema(op),
    )
