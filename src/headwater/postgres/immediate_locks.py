"""Which values a maintaining transaction locks, so that no other one misses its change.

Two transactions that change rows which meet in the result must not run past each other: each would
compute from a state without the other's rows. A lock is a row of a small table of slots, and taking
it is an UPDATE: under READ COMMITTED the second one waits, and its next statement sees what the
first one did; under a frozen snapshot PostgreSQL raises 40001 by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.algebra.expr import as_column
from headwater.algebra.ops import (
    Aggregate,
    AntiJoin,
    Filter,
    Join,
    Op,
    Project,
    Repeat,
    SemiJoin,
    Whole,
    Window,
    schema,
)
from headwater.algebra.schema import SqlType, names
from headwater.algebra.walk import scans, walk
from headwater.postgres.immediate_groups import find_groups
from headwater.postgres.immediate_meetings import Attributes, Unknown, Walk, find_walks, is_hashed
from headwater.postgres.maintenance import Maintenance

SLOTS = 512  # few enough to take them all at once, many enough that values seldom share one
MOST = 64  # values of one statement; more take all slots

_INTEGERS = {"smallint", "integer", "bigint"}

_READING = (Join, SemiJoin, AntiJoin, Aggregate, Window, Whole)  # what looks at other rows


@dataclass(frozen=True, slots=True)
class Locks:
    """What to lock. `whole`: one lock for all. Else values, groups, images of rows.

    `values` says for each source how its rows come to the values where they meet others.
    """

    whole: bool = False
    values: dict[int, tuple[Walk, ...]] = field(default_factory=dict)
    groups: bool = False
    images: bool = False
    reason: str = ""
    upserts: bool = False  # groups are locked by writing them, and need no lock besides

    @property
    def is_none(self) -> bool:
        """Tell whether the rows of the sources are lock enough."""
        return not (self.whole or self.values or self.groups or self.images)

    @property
    def ranks(self) -> int:
        """How many kinds of values there are; each has slots of its own, groups those after."""
        return 1 + max((walk.rank for own in self.values.values() for walk in own), default=-1)

    def in_hand(self, oid: int) -> tuple[Walk, ...] | None:
        """Return the walks of a source if its rows alone tell the values, one of each kind."""
        own = self.values.get(oid, ())
        single = len({walk.rank for walk in own}) == len(own)
        return own if single and not any(walk.hops for walk in own) else None


def choose_locks(plan: Maintenance) -> Locks:
    """Return the finest locks that are known to be enough."""
    fault = _fault(plan)
    if fault:
        return Locks(whole=True, reason=fault)
    inner = plan.root.input if plan.root else plan.view
    try:
        values = find_walks(inner)
    except Unknown as fault_of_joins:
        return Locks(whole=True, reason=str(fault_of_joins))
    if values and plan.key is None:
        return Locks(whole=True, reason="the result of a join has no key")
    upserts = find_groups(plan) is not None
    groups = plan.root is not None and not upserts
    images = plan.root is None and plan.key is None
    return Locks(False, values, groups, images, upserts=upserts)


def _fault(plan: Maintenance) -> str | None:
    """What speaks against locks of values."""
    inner = plan.root.input if plan.root else plan.view
    if any(isinstance(op, Aggregate | Window | Whole) for op in walk(inner)):
        return "an aggregate or a window stands inside the query"
    if plan.root is not None:
        return _fault_of_groups(plan, plan.root)
    if plan.key is None and not any(is_hashed(c.type) for c in plan.columns):
        return "no column has a hash that is known"
    return None


def _fault_of_groups(plan: Maintenance, root: Aggregate) -> str | None:
    of = {c.name: c for c in schema(root.input)}
    if not root.keys:
        return "there is one group only"
    if not all(is_hashed(of[key].type) for key in root.keys):
        return "a group key has no hash that is known"
    if plan.key is None and not _shows(plan.view, root):
        return "rows of different groups may look the same"
    return None


def _shows(view: Op, root: Aggregate) -> bool:
    """Tell whether every group key is a column of the result."""
    return set(root.keys) <= {
        origin for name in names(schema(view)) if (origin := _at(view, root, name))
    }


def _at(op: Op, root: Aggregate, name: str) -> str | None:
    """Return the column of the root that a column is."""
    if op is root:
        return name
    match op:
        case Project():
            of = {o.column.name: as_column(o.expr) for o in op.outputs}
            below = of[name]
            return _at(op.input, root, below) if below is not None else None
        case Filter() | Repeat():
            return _at(op.input, root, name)
    return None


def slot_of(values: Attributes, rank: int) -> str:
    """Return the slot of some values, given as SQL; NULL is a value like any other."""
    hashed = " # ".join(_hash(n, v, t) for n, (v, t) in enumerate(values))
    first = f" + {rank * SLOTS}" if rank else ""
    return f"(({hashed}) & {SLOTS - 1})::int{first}"


def _hash(seed: int, value: str, type: SqlType) -> str:
    """Hash by the type's own equality; those that equal the same bytes, by their text."""
    if type.name in _INTEGERS:
        hashed = f"hashint8extended({value}::bigint, {seed})"
    elif type.is_image:
        hashed = f"hashtextextended({value}::text, {seed})"
    else:
        hashed = f"hash_record_extended(ROW({value}), {seed})"
    return f"coalesce({hashed}, {seed})"


def describe_locks(locks: Locks, sources: dict[int, str]) -> str:
    """Say in words what is locked."""
    if locks.whole:
        return f"one lock for the whole table: {locks.reason}"
    parts = [
        _described(sources.get(oid, str(oid)), walk)
        for oid, own in sorted(locks.values.items())
        for walk in own
    ]
    parts += ["groups"] * locks.groups + ["images of rows that go"] * locks.images
    parts += ["groups, by their own rows"] * locks.upserts
    return ", ".join(parts) or "the rows of the source, no other"


def _described(source: str, walk: Walk) -> str:
    columns = ", ".join(name for name, _ in walk.columns)
    if not walk.hops:
        return f"values of {source} ({columns})"
    return f"from {source} on those of {walk.hops[-1].relation} ({columns})"


def is_isolated(plan: Maintenance) -> bool:
    """Tell whether a change can be followed without reading any source.

    Then several changes of one statement can be followed one after the other.
    """
    inner = plan.root.input if plan.root else plan.view
    keyed = any(isinstance(op, _READING) for op in walk(inner))
    adds = plan.root is None or all(c.kind.value == "sum" for c in plan.root.calls)
    return bool(scans(inner)) and not keyed and adds
