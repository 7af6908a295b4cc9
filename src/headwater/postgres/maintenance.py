"""How a stream table is maintained: its view tree, and the aggregate at its root if there is one.

The root aggregate is kept as state in a private table, so that its old value is read, not
recomputed, and sums add. What stands above it, projections and filters, is linear. Other parts may
be kept likewise, each in a table of its own (`kept.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.algebra.calls import Kind
from headwater.algebra.keys import choose_key
from headwater.algebra.loops import without_loops
from headwater.algebra.ops import (
    Aggregate,
    Filter,
    Op,
    Project,
    Repeat,
    Scan,
    Source,
    Timed,
    UnionAll,
    Whole,
    Window,
    schema,
)
from headwater.algebra.schema import Schema, names
from headwater.algebra.walk import children, rebuild, scans, walk
from headwater.delta.recursion import stored_columns
from headwater.postgres.tops import Top

STATE_OID = 0  # the state table as a source, in trees that read its changes
STORED_OID = -3  # the stream table itself, in trees that read what it holds

Kept = (
    Aggregate | Whole
)  # parts of a view whose rows are stored: groups, and what a recursion found


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A compiled stream table."""

    view: Op
    root: Aggregate | None
    key: tuple[str, ...] | None
    kept: tuple[Kept, ...] = ()  # of the parts inside, each after what it reads
    top: Top | None = None  # of which more rows are kept than are shown

    @property
    def is_timed(self) -> bool:
        """Whether rows come and go as time passes."""
        return any(isinstance(op, Timed) for op in walk(self.view))

    @property
    def is_chosen(self) -> bool:
        """Whether the query leaves something open which the tree decides: ties, orders, the time.

        Then the tree is what is maintained, and what the rows are compared with.
        """
        is_open = (
            isinstance(op, Window | Timed)
            or (isinstance(op, Aggregate) and op is not self.root and is_opaque(op))
            for op in walk(self.view)
        )
        return any(is_open)

    @property
    def columns(self) -> Schema:
        """The columns of the stream table: the user's, and nothing else."""
        return schema(self.view)


def plan_maintenance(view: Op) -> Maintenance:
    """Return how to maintain a view."""
    return Maintenance(view, root_aggregate(view), choose_key(view))


def recomputing(plan: Maintenance) -> Maintenance:
    """Return the plan by which every recursion is computed as a whole; what is kept stays so."""
    computed = plan_maintenance(without_loops(plan.view))
    kept = tuple(_without_loops(k) for k in plan.kept)
    return replace(computed, key=plan.key, kept=kept, top=plan.top)


def _without_loops(kept: Kept) -> Kept:
    computed = without_loops(kept)
    assert isinstance(computed, Kept)
    return computed


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


def may_recompute(root: Aggregate) -> bool:
    """Tell whether a change can make it necessary to recompute a group from the sources."""
    return any(call.kind not in (Kind.SUM, Kind.DISTINCT) for call in root.calls)


def is_opaque(root: Aggregate) -> bool:
    """Tell whether some call forces touched groups to be recomputed."""
    return any(call.kind is Kind.OPAQUE for call in root.calls)


def read_twice(plan: Maintenance, changed: frozenset[int]) -> frozenset[int]:
    """Return the sources that a refresh reads as a whole, before and after the change.

    They stand below something that has one key for all its rows, such as the aggregate of a
    subquery that reads nothing outside, of which a source changed; or beside it in a join, since
    every row is then to be looked at again. A recursion that the stream table holds is followed.
    """
    if stored_columns(plan.view) is not None:
        return frozenset()
    followed = plan.root or plan.top
    return _read_twice(followed.input if followed is not None else plan.view, changed)


def _read_twice(op: Op, changed: frozenset[int]) -> frozenset[int]:
    below = frozenset[int]().union(*(_read_twice(child, changed) for child in children(op)))
    own = frozenset(scan.source.oid for scan in scans(op))
    if isinstance(op, Whole) or (isinstance(op, Aggregate | Window) and not op.keys):
        return own if own & changed else below
    return own if below and not isinstance(op, UnionAll) else below
