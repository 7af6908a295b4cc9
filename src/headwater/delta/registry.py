"""The table from operator to delta rule, and the dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headwater.algebra.ops import Op
from headwater.errors import bug

Kind = TypeVar("Kind", bound=Op)
RULES: dict[type[Op], Callable[[Any], Op]] = {}


def rule(kind: type[Kind]) -> Callable[[Callable[[Kind], Op]], Callable[[Kind], Op]]:
    """Register the decorated function as the delta rule of an operator."""

    def register(diff: Callable[[Kind], Op]) -> Callable[[Kind], Op]:
        RULES[kind] = diff
        return diff

    return register


def derive(op: Op) -> Op:
    """Return the change of `op`'s result, as its rule says; Δ ends at the scans."""
    if type(op) not in RULES:
        raise bug(f"{type(op).__name__} has no delta rule", "lowering must not produce it")
    return RULES[type(op)](op)
