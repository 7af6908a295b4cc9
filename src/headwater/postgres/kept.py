"""Aggregates and recursions inside a view that are kept as private state, like those at its root.

A recursion follows by what it had found (`recursions.py`). An aggregate follows its input by the
touched groups. Where it has one group for all rows, or where something above looks for other values
than those of its keys, the rule would compute the whole input, after the change and before it. Kept
in a table of its own it changes as a root does, and for all that stands above it is a source like
any other:

Δ(kept)   the old groups that were touched with weight −1, the new ones with +1
kept⁺     the stored groups but the touched ones, and the touched ones as they are now

So do the first rows of an order, of which more are kept than are shown (`reserve.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum

from headwater.algebra.expr import as_column, matching
from headwater.algebra.ops import (
    Aggregate,
    AntiJoin,
    Empty,
    Expand,
    Join,
    Loop,
    Op,
    Project,
    Scan,
    SemiJoin,
    Source,
    UnionAll,
    Whole,
    Window,
    schema,
)
from headwater.algebra.schema import names
from headwater.algebra.walk import children, distinct, rebuild, scans
from headwater.delta.differentiate import differentiate
from headwater.delta.recursion import stored_columns
from headwater.postgres.different import render_deltas
from headwater.postgres.maintenance import Kept, Maintenance, may_recompute, root_aggregate
from headwater.postgres.quote import identifier, listed
from headwater.postgres.recursions import Move, change_of_rows
from headwater.postgres.render import Renderer
from headwater.postgres.reserve import follow_reserve
from headwater.postgres.state import (
    is_there,
    render_state_change,
    signed_groups,
    state_writes,
    values_of,
)
from headwater.postgres.tops import Top, find_top

_FIRST_OID = -10  # of a kept part as a source; those of the server are positive
_BEFORE_OID = -1_000_000  # of its table, as it is before the change


Way = frozenset[str]  # the columns by whose values rows are looked up
WHOLE: Way = frozenset()


class Keeps(Enum):
    """Which parts of a view are kept."""

    NOTHING = "nothing"
    RECURSIONS = "recursions"
    ALL = "all"


def keeping(plan: Maintenance, keeps: Keeps = Keeps.ALL) -> Maintenance:
    """Return the plan with the parts that are worth keeping, inner ones first."""
    found = _Choice(keeps).of(plan)
    return replace(plan, kept=tuple(sorted(found, key=lambda kept: len(distinct(kept)))))


def reserving(plan: Maintenance) -> Maintenance:
    """Return the plan with a reserve for its ORDER BY … LIMIT, if that is what it ends with."""
    return replace(plan, top=find_top(plan.view))


def keeps_of(plan: Maintenance) -> Keeps:
    """Return what finds the same parts again."""
    if any(isinstance(kept, Aggregate) for kept in plan.kept):
        return Keeps.ALL
    return Keeps.RECURSIONS if plan.kept else Keeps.NOTHING


def ways_to(plan: Maintenance) -> Mapping[Kept, frozenset[Way]]:
    """Return the columns by which a refresh looks up rows of each kept part."""
    return _Choice(keeps_of(plan)).of(plan)


class _Choice:
    """Goes down a view with the ways in which a refresh reads the rows of each operator."""

    def __init__(self, keeps: Keeps) -> None:
        self._keeps = keeps
        self._found: dict[Kept, frozenset[Way]] = {}

    def of(self, plan: Maintenance) -> dict[Kept, frozenset[Way]]:
        """Return the parts that are worth keeping, and the ways in which they are read."""
        if self._keeps is Keeps.NOTHING or stored_columns(plan.view) is not None:
            return {}
        if plan.root is None:
            self._go(plan.view, frozenset())
        else:
            self._go(plan.root.input, _ways_below(plan.root))
        return self._found

    def _go(self, op: Op, ways: frozenset[Way]) -> None:  # noqa: C901 - one case per node
        match op:
            case Aggregate():
                self._group(op, ways)
            case Whole(loop=Loop()):
                self._found[op] = self._found.get(op, frozenset()) | ways
            case Window():
                keys = frozenset(op.keys)
                self._go(op.input, _kept_columns(ways, keys) | {keys})
            case Project():
                sources = {o.column.name: as_column(o.expr) for o in op.outputs}
                self._go(op.input, _renamed(ways, sources))
            case UnionAll():
                for arm in op.inputs:
                    sources = dict(zip(names(op.columns), names(schema(arm)), strict=True))
                    self._go(arm, _renamed(ways, sources))
            case Join() | SemiJoin() | AntiJoin():
                self._joined(op, ways)
            case Expand():
                self._go(op.input, _kept_columns(ways, frozenset(names(schema(op.input)))))
            case _:
                below = frozenset([WHOLE]) if isinstance(op, Whole) else ways
                for child in children(op):
                    self._go(child, below)

    def _group(self, op: Aggregate, ways: frozenset[Way]) -> None:
        keys = frozenset(op.keys)
        is_worth = not all(way and way <= keys for way in ways) or not keys
        is_kept = is_worth and self._keeps is Keeps.ALL
        if is_kept:
            self._found[op] = self._found.get(op, frozenset()) | ways
        self._go(op.input, _ways_below(op) if is_kept else frozenset([keys]))

    def _joined(self, op: Join | SemiJoin | AntiJoin, ways: frozenset[Way]) -> None:
        """Each side is read by the values of the other, and as the result is."""
        equated = frozenset(name for test in op.on for name in matching(test) or ())
        for side in (op.left, op.right):
            own = frozenset(names(schema(side)))
            inherited = {way & own for way in ways if way == WHOLE or way & own}
            self._go(side, frozenset([*inherited, equated & own]))


def _ways_below(op: Aggregate) -> frozenset[Way]:
    """A stored group follows by sums alone, or else is recomputed from the rows of its key."""
    return frozenset([frozenset(op.keys)]) if may_recompute(op) else frozenset()


def _kept_columns(ways: frozenset[Way], columns: Way) -> frozenset[Way]:
    return frozenset(way if way <= columns else WHOLE for way in ways)


def _renamed(ways: frozenset[Way], sources: Mapping[str, str | None]) -> frozenset[Way]:
    """Return the ways by the columns below; who looks for a computed value reads everything."""
    below = (tuple(sources[name] for name in way) for way in ways)
    return frozenset(
        WHOLE if None in way else frozenset(name for name in way if name is not None)
        for way in below
    )


def reading_kept(plan: Maintenance, tables: tuple[str, ...]) -> Maintenance:
    """Return the plan over the tables of its kept parts."""
    if not tables:
        return plan
    inside, first = _scans(plan, tables), {}
    top = plan.top
    if top is not None:
        first[top.input] = _scan(len(plan.kept), tables[-1], top.input)
        top = replace(top, input=_over(top.input, inside))
    view = _over(plan.view, inside | first)
    return Maintenance(view, root_aggregate(view), plan.key, top=top)


def changed_with(plan: Maintenance, oid: int) -> frozenset[int]:
    """Return a source and the kept parts that change with it, as sources."""
    kept = (n for n, k in enumerate(plan.kept) if any(s.source.oid == oid for s in scans(k)))
    return frozenset([oid, *(_FIRST_OID - n for n in kept)])


def states(plan: Maintenance, tables: tuple[str, ...]) -> tuple[tuple[Kept, str], ...]:
    """Return each kept part, over the tables of those that it reads, and its own table."""
    read = _scans(plan, tables)
    over = (_over_others(kept, read) for kept in plan.kept)
    return tuple(zip(over, tables, strict=False))  # a reserve comes last


def _over_others(kept: Kept, read: dict[Op, Scan]) -> Kept:
    """A recursion reads sources only."""
    if isinstance(kept, Whole):
        return kept
    return replace(kept, input=_over(kept.input, read))


def _scans(plan: Maintenance, tables: tuple[str, ...]) -> dict[Op, Scan]:
    stored = enumerate(zip(plan.kept, tables, strict=False))
    return {kept: _scan(number, table, kept) for number, (kept, table) in stored}


def _scan(number: int, table: str, kept: Op) -> Scan:
    columns = schema(kept)
    return Scan(Source(_FIRST_OID - number, table), columns, names(columns))


def _over(op: Op, read: dict[Op, Scan]) -> Op:
    return read[op] if op in read else rebuild(op, lambda child: _over(child, read))


class Follower:
    """Adds to a statement what moves the kept parts, inner ones first."""

    def __init__(
        self, renderer: Renderer, put: Callable[[int, str], None], changed: frozenset[int]
    ) -> None:
        self._renderer = renderer
        self._put = put  # takes the relation with the changes of a source
        self.changed = changed
        self.writes: dict[str, str] = {}
        self.damaged: list[str] = []

    def follow(self, plan: Maintenance, tables: tuple[str, ...]) -> None:
        """Move all kept parts of a plan."""
        for number, (kept, table) in enumerate(states(plan, tables)):
            own = _FIRST_OID - number
            if isinstance(kept, Whole):
                before = Source(_BEFORE_OID - number, table)
                change = change_of_rows(kept, before, self.changed)
                move: Callable[..., None] = self._move_rows
            else:
                change, move = differentiate(kept.input, self.changed), self._move_groups
            if not isinstance(change, Empty):
                move(own, kept, table, change)
        top = reading_kept(plan, tables).top
        if top is not None:
            self._move_first(_FIRST_OID - len(plan.kept), top, tables[-1])

    def _move_first(self, oid: int, top: Top, table: str) -> None:
        change = differentiate(top.input, self.changed)
        if isinstance(change, Empty):
            return
        moved = follow_reserve(self._renderer, top, table, change)
        self._put(oid, moved.change)
        self._renderer.states[oid] = moved.after
        self._add(oid, moved.writes, moved.damaged)

    def _move_rows(self, oid: int, whole: Whole, table: str, change: Op) -> None:
        move = Move(self._renderer, whole, table, change)
        self._put(oid, move.change)
        self._renderer.signed_states[oid] = move.after
        self._add(oid, move.writes, move.damaged)

    def _move_groups(self, oid: int, aggregate: Aggregate, table: str, change: Op) -> None:
        renderer = self._renderer
        deltas = render_deltas(renderer, aggregate, table, change)
        groups = render_state_change(renderer, aggregate, deltas.name, table)
        self._put(oid, renderer.add("state_change", signed_groups(aggregate, groups)))
        renderer.states[oid] = _after(aggregate, table, groups)
        writes = state_writes(aggregate, table, groups) | deltas.writes
        count = identifier(aggregate.count.name)
        lacking = f"(SELECT count(*) FROM {groups} WHERE {count} < 0)"
        self._add(oid, writes, f"{lacking}{deltas.damaged}")

    def _add(self, oid: int, writes: dict[str, str], damaged: str) -> None:
        self.changed |= {oid}
        self.writes |= {f"kept_{-oid}_{name}": write for name, write in writes.items()}
        self.damaged.append(damaged)


def _after(aggregate: Aggregate, table: str, groups: str) -> str:
    """Return the groups as they are after the change, which the table shows only afterwards."""
    columns = listed(identifier(n) for n in (*aggregate.keys, *values_of(aggregate)))
    touched = f"SELECT {columns} FROM {groups} AS n WHERE {is_there(aggregate, 'n')}"
    if not aggregate.keys:
        return f"({touched}) AS s"
    others = f"NOT EXISTS (SELECT FROM {groups} AS n WHERE n.__row = t.ctid)"
    return f"(SELECT {columns} FROM {table} AS t WHERE {others}\nUNION ALL\n{touched}) AS s"
