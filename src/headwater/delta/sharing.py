"""Which parts of a delta tree are worth computing once: equal subtrees that read changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from headwater.algebra.ops import After, AntiJoin, Delta, Empty, Negate, Op, Project
from headwater.algebra.walk import children

# A bare Δ is at hand already, a state is what an engine knows best how to read.
_NEVER_SHARED = (Delta, After, Empty, Negate)


class Sharing:
    """Counts equal subtrees over all trees of one statement."""

    def __init__(self, at_hand: Callable[[Op], bool] = lambda op: False) -> None:
        """`at_hand` tells what costs an engine no more to compute again than to keep, all of it."""
        self._at_hand = at_hand
        self._repeated: Counter[Op] = Counter()
        self._changing: dict[Op, bool] = {}

    def count(self, op: Op) -> None:
        """Count a tree; what stands inside a repeated one is not repeated by that."""
        if self._at_hand(op):
            return
        if not self._is_state(op) and self._reads_changes(op):
            self._repeated[op] += 1
        if self._repeated[op] <= 1:
            for child in children(op):
                self.count(child)

    def _is_state(self, op: Op) -> bool:
        """Tell whether this is all of a state, or all but a few of its rows."""
        match op:
            case Project():
                return self._is_state(op.input)
            case AntiJoin(left=After() as state):
                return not self._reads_changes(state)
        return isinstance(op, _NEVER_SHARED)

    def is_shared(self, op: Op) -> bool:
        """Tell whether a subtree occurs more than once."""
        return self._repeated[op] > 1

    def _reads_changes(self, op: Op) -> bool:
        if op not in self._changing:
            below = map(self._reads_changes, children(op))
            self._changing[op] = isinstance(op, Delta) or any(below)
        return self._changing[op]
