"""Frozen nodes that remember their hash and schema, so that a tree is looked through only once."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


class Memo:
    """Room for what is computed once per node; never part of its value."""

    __slots__ = ("_hash", "_schema")


@dataclass_transform(frozen_default=True)
def node(cls: type[T]) -> type[T]:
    """Make a frozen dataclass with slots whose hash is computed once.

    Trees are compared and looked up by value all through the compiler; without this each look-up
    would walk the whole tree below a node.
    """
    made: Any = dataclasses.dataclass(frozen=True, slots=True)(cls)
    computed = made.__hash__

    def remembered(self: Any) -> int:
        try:
            return int(self._hash)
        except AttributeError:
            object.__setattr__(self, "_hash", computed(self))
            return int(self._hash)

    made.__hash__ = remembered
    return made  # type: ignore[no-any-return]
