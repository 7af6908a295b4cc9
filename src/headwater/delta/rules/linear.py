"""Linear operators: Δf(A) = f(ΔA).

They treat each row for itself, so a row that comes or goes does the same in the result.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.algebra.ops import Delta, Empty, Filter, Op, Project, Repeat, Scan, Single, UnionAll
from headwater.delta.registry import derive, rule


@rule(Scan)
def diff_scan(op: Scan) -> Op:
    """Δ of a source is what was captured; an update is −1 old row, +1 new row."""
    return Delta(op)


@rule(Single)
def diff_single(op: Single) -> Op:
    """Δ(constant) = ∅."""
    return Empty(())


@rule(Project)
def diff_project(op: Project) -> Op:
    """Δπ(A) = π(ΔA)."""
    return replace(op, input=derive(op.input))


@rule(Filter)
def diff_filter(op: Filter) -> Op:
    """Δσ(A) = σ(ΔA): the predicate sees the row alone, so an update may enter or leave."""
    return replace(op, input=derive(op.input))


@rule(Repeat)
def diff_repeat(op: Repeat) -> Op:
    """Δρ(A) = ρ(ΔA): the factor is a function of the row, and weights multiply."""
    return replace(op, input=derive(op.input))


@rule(UnionAll)
def diff_union_all(op: UnionAll) -> Op:
    """Δ(A ⊎ B) = ΔA ⊎ ΔB. The promise of disjoint inputs does not hold for changes."""
    return replace(op, inputs=tuple(derive(arm) for arm in op.inputs), disjoint=())
