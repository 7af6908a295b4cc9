"""Checks that no operator can be built wrong: it reads only what its inputs produce."""

from __future__ import annotations

from headwater.algebra.expr import Expr, refs
from headwater.errors import bug

Names = tuple[str, ...]


def check_refs(op: object, given: Names, exprs: tuple[Expr, ...], columns: Names = ()) -> None:
    """Raise InvalidPlan if expressions or columns are not among the given names."""
    unknown = (refs(*exprs) | set(columns)) - set(given)
    if unknown:
        raise bug(
            f"{type(op).__name__} reads {sorted(unknown)}, which its input does not produce",
            f"the input produces {given}",
        )


def check_pair(op: object, ours: Names, theirs: Names, on: tuple[Expr, ...]) -> None:
    """Raise InvalidPlan if two inputs share a name, or a condition reads what neither has."""
    shared = set(ours) & set(theirs)
    unknown = refs(*on) - set(ours) - set(theirs)
    if shared or unknown:
        raise bug(
            f"{type(op).__name__} with shared columns {sorted(shared)}, unknown {sorted(unknown)}",
            f"left {ours}, right {theirs}",
        )
