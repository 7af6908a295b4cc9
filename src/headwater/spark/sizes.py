"""How many rows a part of a delta tree will have, roughly: what is small enough to be sent around.

Wrong by a factor is good enough here.
"""

from __future__ import annotations

from headwater.algebra.ops import (
    After,
    Aggregate,
    Delta,
    Empty,
    Join,
    Op,
    Restrict,
    Scan,
    SemiJoin,
    Single,
    UnionAll,
)
from headwater.algebra.walk import children
from headwater.spark.facts import Facts

SMALL_ROWS = 200_000  # what every executor may hold a copy of


class Sizes:
    """Estimates over one delta tree, each made once."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._known: dict[tuple[Op, bool], float] = {}

    def rows(self, op: Op) -> float:
        """Return about how many rows an operator has."""
        return self._estimate(op, whole=False)

    def is_small(self, op: Op) -> bool:
        """Tell whether the rows may be copied to wherever they are joined."""
        return self.rows(op) <= SMALL_ROWS

    def _estimate(self, op: Op, *, whole: bool) -> float:
        """`whole` asks for the relation of which a change is the change."""
        if (op, whole) not in self._known:
            self._known[op, whole] = self._made(op, whole=whole)
        return self._known[op, whole]

    def _made(self, op: Op, *, whole: bool) -> float:  # noqa: C901, PLR0911 - one case per node
        match op:
            case Delta(input=Scan() as scan):
                return self._facts.rows(scan, not whole)
            case Scan():
                return self._facts.rows(op, False)
            case Single():
                return 1.0
            case Empty():
                return 0.0
            case Join():
                return self._pairs(op, whole=whole)
            case SemiJoin() | Restrict() if not whole:
                return self._matching(op)
            case UnionAll():
                return sum(self._estimate(arm, whole=whole) for arm in op.inputs)
            case After() | Aggregate():
                return self._estimate(op.input, whole=whole)
        return max((self._estimate(child, whole=whole) for child in children(op)), default=1.0)

    def _pairs(self, op: Join, *, whole: bool) -> float:
        """A join by a key: each row of the larger relation meets one of the smaller."""
        left, right = (self._estimate(side, whole=whole) for side in (op.left, op.right))
        if not op.on:
            return left * right
        keys = min(self._estimate(side, whole=True) for side in (op.left, op.right))
        return left * right / max(keys, 1.0)

    def _matching(self, op: SemiJoin | Restrict) -> float:
        """About as many rows as the relation has for so many keys."""
        state = op.left if isinstance(op, SemiJoin) else op.input
        keys = op.right if isinstance(op, SemiJoin) else op.keys
        whole = self._estimate(state, whole=False)
        of_keys = max(self._estimate(keys, whole=True), 1.0)
        return min(whole, self.rows(keys) * max(1.0, whole / of_keys))
