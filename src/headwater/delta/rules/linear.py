"""Linear operators: Δf(A) = f(ΔA).

They treat each row for itself, so a row that comes or goes does the same in the result.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.algebra.expr import Expr, Ref, text
from headwater.algebra.ops import (
    Before,
    Delta,
    Empty,
    Expand,
    Filter,
    Itself,
    Negate,
    Op,
    Project,
    Repeat,
    Scan,
    Single,
    Timed,
    UnionAll,
    schema,
)
from headwater.delta.registry import derive, rule

_COMPARES = (" > ", " >= ", " < ", " <= ")  # a column with the clock


@rule(Scan)
def diff_scan(op: Scan) -> Op:
    """Δ of a source is what was captured; an update is −1 old row, +1 new row."""
    return Delta(op)


@rule(Single)
def diff_single(op: Single) -> Op:
    """Δ(constant) = ∅."""
    return Empty(())


@rule(Itself)
def diff_itself(op: Itself) -> Op:
    """Δ of what a recursion has found so far = ∅: a step is followed over given rows."""
    return Empty(op.columns)


@rule(Project)
def diff_project(op: Project) -> Op:
    """Δπ(A) = π(ΔA)."""
    return replace(op, input=derive(op.input))


@rule(Filter)
def diff_filter(op: Filter) -> Op:
    """Δσ(A) = σ(ΔA): the predicate sees the row alone, so an update may enter or leave."""
    return replace(op, input=derive(op.input))


@rule(Timed)
def diff_timed(op: Timed) -> Op:
    """Δσ_τ(A) = σ_τ₁(ΔA) ⊎ (σ_τ₁ ⊖ σ_τ₀)(A⁻): rows also enter and leave as time passes.

    Linear in A; the clock is a second input, of one value before and one after.
    """
    state = Before(op.input)
    enter = Filter(state, (*op.conjuncts, _fails(op.past, op.conjuncts)))
    leave = Filter(state, (*op.past, _fails(op.conjuncts, op.past)))
    change = Filter(derive(op.input), op.conjuncts)
    return UnionAll((change, enter, Negate(leave)), schema(op))


def _fails(tests: tuple[Expr, ...], others: tuple[Expr, ...]) -> Expr:
    """Not all of the conditions hold, where the others do.

    If both compare one column with a clock, the column is not NULL, and the server knows the
    opposite of the comparison: an index finds such rows.
    """
    match tests, others:
        case (
            (Expr(parts=(Ref(a), str(then))),),
            (Expr(parts=(Ref(b), str(now))),),
        ) if a == b and then.startswith(_COMPARES) and then.split()[0] == now.split()[0]:
            return text("NOT (", tests[0], ")")
    parts: list[str | Expr] = []
    for test in tests:
        parts += [" AND (" if parts else "(", test, ")"]
    return text("(", *parts, ") IS NOT TRUE")


@rule(Repeat)
def diff_repeat(op: Repeat) -> Op:
    """Δρ(A) = ρ(ΔA): the factor is a function of the row, and weights multiply."""
    return replace(op, input=derive(op.input))


@rule(Expand)
def diff_expand(op: Expand) -> Op:
    """Δε(A) = ε(ΔA): functions see the row alone, and what they make of it has its weight."""
    return replace(op, input=derive(op.input))


@rule(UnionAll)
def diff_union_all(op: UnionAll) -> Op:
    """Δ(A ⊎ B) = ΔA ⊎ ΔB. The promise of disjoint inputs does not hold for changes."""
    return replace(op, inputs=tuple(derive(arm) for arm in op.inputs), disjoint=())
