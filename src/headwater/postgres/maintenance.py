"""How a stream table is maintained: its view tree, and the aggregate at its root if there is one.

The root aggregate is kept as state in a private table, so that its old value is read, not
recomputed, and sums add. What stands above it, projections and filters, is linear.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.algebra.keys import choose_key
from headwater.algebra.ops import Aggregate, Filter, Kind, Op, Project, Repeat, Scan, Source, schema
from headwater.algebra.schema import Schema, names
from headwater.algebra.walk import rebuild

STATE_OID = 0  # the state table as a source, in trees that read its changes


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A compiled stream table."""

    view: Op
    root: Aggregate | None
    key: tuple[str, ...] | None

    @property
    def columns(self) -> Schema:
        """The columns of the stream table: the user's, and nothing else."""
        return schema(self.view)


def plan_maintenance(view: Op) -> Maintenance:
    """Return how to maintain a view."""
    return Maintenance(view, root_aggregate(view), choose_key(view))


def root_aggregate(op: Op) -> Aggregate | None:
    """Return the aggregate below the projections and filters on top, if there is one."""
    match op:
        case Aggregate():
            return op
        case Project() | Filter() | Repeat():
            return root_aggregate(op.input)
    return None


def over_state(view: Op, root: Aggregate, state: str) -> Op:
    """Return the view with its root aggregate replaced by a scan of the stored state."""
    if view is root:
        columns = schema(root)
        return Scan(Source(STATE_OID, state), columns, names(columns))
    return rebuild(view, lambda child: over_state(child, root, state))


def is_additive(root: Aggregate) -> bool:
    """Tell whether every call follows a change by addition alone."""
    return all(call.kind is Kind.SUM for call in root.calls)


def is_opaque(root: Aggregate) -> bool:
    """Tell whether some call forces touched groups to be recomputed."""
    return any(call.kind is Kind.OPAQUE for call in root.calls)
