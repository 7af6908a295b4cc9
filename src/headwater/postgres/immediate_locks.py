"""Which values a maintaining transaction locks, so that no other one misses its change.

Two transactions that change rows which meet in the result must not run past each other: each would
compute from a state without the other's rows. A lock is a row of a small table of slots, and taking
it is an UPDATE: under READ COMMITTED the second one waits, and its next statement sees what the
first one did; under a frozen snapshot PostgreSQL raises 40001 by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.algebra.expr import as_column, equality
from headwater.algebra.ops import (
    Aggregate,
    AntiJoin,
    Filter,
    Join,
    Op,
    Project,
    Repeat,
    Scan,
    UnionAll,
    schema,
)
from headwater.algebra.schema import Column, SqlType, compare_alike, names
from headwater.algebra.walk import scans, walk
from headwater.postgres.immediate_groups import find_groups
from headwater.postgres.maintenance import Maintenance

SLOTS = 512  # few enough to take them all at once, many enough that values seldom share one
MOST = 64  # values of one statement; more take all slots

_INTEGERS = {"smallint", "integer", "bigint"}
_HASHED = {"numeric", "real", "double precision", "interval"}

Attributes = tuple[tuple[str, SqlType], ...]  # columns of a source, compared together


@dataclass(frozen=True, slots=True)
class Locks:
    """What to lock. `whole`: one lock for all. Else values of sources, groups, images of rows."""

    whole: bool = False
    values: dict[int, tuple[Attributes, ...]] = field(default_factory=dict)
    groups: bool = False
    images: bool = False
    reason: str = ""
    upserts: bool = False  # groups are locked by writing them, and need no lock besides

    @property
    def is_none(self) -> bool:
        """Tell whether the rows of the sources are lock enough."""
        return not (self.whole or self.values or self.groups or self.images)


def choose_locks(plan: Maintenance) -> Locks:
    """Return the finest locks that are known to be enough."""
    fault = _fault(plan)
    if fault:
        return Locks(whole=True, reason=fault)
    inner = plan.root.input if plan.root else plan.view
    values: dict[int, list[Attributes]] = {}
    for op in walk(inner):
        if isinstance(op, Join | AntiJoin):
            found = _join_values(op)
            if found is None:
                return Locks(whole=True, reason="a join is not by equality of hashable columns")
            for oid, attributes in found:
                values.setdefault(oid, []).append(attributes)
    if values and plan.key is None:
        return Locks(whole=True, reason="the result of a join has no key")
    distinct = {oid: tuple(dict.fromkeys(found)) for oid, found in values.items()}
    upserts = find_groups(plan) is not None
    groups = plan.root is not None and not upserts
    images = plan.root is None and plan.key is None
    return Locks(False, distinct, groups, images, upserts=upserts)


def _fault(plan: Maintenance) -> str | None:
    """What speaks against locks of values."""
    inner = plan.root.input if plan.root else plan.view
    if any(isinstance(op, Aggregate) for op in walk(inner)):
        return "an aggregate stands inside the query"
    if _depth(inner) > 1:
        return "more than two relations are joined"
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


def _depth(op: Op) -> int:
    """How many joins stand on each other."""
    below = [_depth(child) for child in _inputs(op)]
    return max(below, default=0) + isinstance(op, Join | AntiJoin)


def _inputs(op: Op) -> tuple[Op, ...]:
    match op:
        case Join() | AntiJoin():
            return op.left, op.right
        case UnionAll():
            return op.inputs
        case Project() | Filter() | Repeat() | Aggregate():
            return (op.input,)
    return ()


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


def _join_values(op: Join | AntiJoin) -> list[tuple[int, Attributes]] | None:
    """Return the columns of the sources that the join sets equal; None if there are none."""
    of = {c.name: c for c in (*schema(op.left), *schema(op.right))}
    left = set(names(schema(op.left)))
    pairs = []
    for a, b in filter(None, map(equality, op.on)):
        if (a in left) == (b in left) or not _comparable(of[a], of[b]):
            continue
        pairs.append((a, b) if a in left else (b, a))
    if not pairs:
        return None
    found: list[tuple[int, Attributes]] = []
    for side, own in ((op.left, [a for a, _ in pairs]), (op.right, [b for _, b in pairs])):
        arms = _sources(side, tuple(own))
        if arms is None:
            return None
        found += arms
    return found


def _comparable(a: Column, b: Column) -> bool:
    return compare_alike(a.type, b.type) and is_hashed(a.type) and is_hashed(b.type)


def _sources(op: Op, columns: tuple[str, ...]) -> list[tuple[int, Attributes]] | None:
    """Return which columns of which sources these columns are, one entry for each arm."""
    match op:
        case Scan():
            named = zip(names(op.columns), op.attributes, op.columns, strict=True)
            of = {name: (attribute, column.type) for name, attribute, column in named}
            return [(op.source.oid, tuple(of[c] for c in columns))]
        case Filter() | Repeat():
            return _sources(op.input, columns)
        case Project():
            source = {o.column.name: as_column(o.expr) for o in op.outputs}
            below = tuple(b for c in columns if (b := source[c]) is not None)
            return _sources(op.input, below) if len(below) == len(columns) else None
        case UnionAll():
            position = {name: i for i, name in enumerate(names(op.columns))}
            found: list[tuple[int, Attributes]] = []
            for arm in op.inputs:
                own = names(schema(arm))
                there = _sources(arm, tuple(own[position[c]] for c in columns))
                if there is None:
                    return None
                found += there
            return found
    return None


def is_hashed(type: SqlType) -> bool:
    """Tell whether equal values of the type have equal hashes here."""
    return type.is_image or type.name.partition("(")[0] in _HASHED


def slot_of(values: tuple[tuple[str, SqlType], ...]) -> str:
    """Return the slot of some values, given as SQL; NULL is a value like any other."""
    return f"(({' # '.join(_hash(n, v, t) for n, (v, t) in enumerate(values))}) & {SLOTS - 1})::int"


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
        f"values of {sources.get(oid, oid)} ({', '.join(n for n, _ in attributes)})"
        for oid, found in sorted(locks.values.items())
        for attributes in found
    ]
    parts += ["groups"] * locks.groups + ["images of rows that go"] * locks.images
    parts += ["groups, by their own rows"] * locks.upserts
    return ", ".join(parts) or "the rows of the source, no other"


def is_isolated(plan: Maintenance) -> bool:
    """Tell whether a change can be followed without reading any source.

    Then several changes of one statement can be followed one after the other.
    """
    inner = plan.root.input if plan.root else plan.view
    keyed = any(isinstance(op, Join | AntiJoin | Aggregate) for op in walk(inner))
    adds = plan.root is None or all(c.kind.value == "sum" for c in plan.root.calls)
    return bool(scans(inner)) and not keyed and adds
