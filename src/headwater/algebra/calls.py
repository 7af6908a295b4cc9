"""Aggregate calls, and how each kind of them follows a change."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from headwater.algebra.expr import Expr
from headwater.algebra.schema import Column


class Kind(enum.Enum):
    """How an aggregate follows a change of its group."""

    SUM = "sum"  # adds: new = old + delta
    MIN = "min"  # adds while the extremum survives
    MAX = "max"
    DISTINCT = "distinct"  # adds over the different values, each with a count of its rows
    OPAQUE = "opaque"  # recompute the group


WRITTEN_OUT = frozenset({Kind.DISTINCT, Kind.OPAQUE})  # kinds of which a call says the function


@dataclass(frozen=True, slots=True)
class Call:
    """One aggregate: `expr` is the summed or compared column, or the whole call if written out.

    A call over different values reads one column.
    """

    column: Column
    kind: Kind
    expr: Expr
