"""Turns what the catalog says and the time into the refreshes to start now. No input or output.

A refresh of a table moves all that it reads along, to the same epoch, and whoever is in a refresh
group with one of those. So of the tables that are due only those are started that no other refresh
moves; the others are covered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headwater.graph import inverted, upstream_first
from headwater.schedule.periods import Pace, next_due, tightest

LONGEST_WAIT = 300.0  # seconds between two attempts where only waiting helps


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A stream table as the planner sees it; moments in seconds, `reads` are ids."""

    pgt_id: int
    name: str
    reads: tuple[int, ...] = ()
    group: int | None = None  # those of one group move together
    lag: float | None = None
    cron: str | None = None
    status: str = "ACTIVE"
    is_immediate: bool = False
    on_spark: bool = False
    data_time: float | None = None  # None: never filled
    failed_at: float | None = None  # of the last refresh, if it failed
    may_pass: bool = False  # the failure may go away by waiting
    errors: int = 0
    skipped_at: float | None = None
    started_at: float | None = None  # of a refresh that runs
    duration: float = 0.0  # of the quicker one of the last two refreshes

    @property
    def pace(self) -> Pace:
        """Its own schedule; empty: DOWNSTREAM."""
        return Pace(self.lag, frozenset() if self.cron is None else frozenset([self.cron]))

    @property
    def moved_at(self) -> float:
        """When it was last moved, or failed to."""
        return _latest(self.data_time, self.failed_at)

    @property
    def last_attempt(self) -> float:
        """When it was last moved, or was to be."""
        return _latest(self.data_time, self.failed_at, self.skipped_at, self.started_at)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All stream tables, the time, and the settings that planning depends on."""

    now: float
    tables: tuple[Table, ...]
    minimum_lag: float = 60.0
    auto_backoff: bool = True
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Start:
    """A refresh to start: the table, and the ids of all that move with it, itself included."""

    pgt_id: int
    name: str
    moves: frozenset[int]
    on_spark: bool
    due_since: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, oldest first, and when to look again at the latest.

    `skips` are due while their last refresh runs; `held` says why a table is not refreshed; `late`
    is by how many seconds a table that is not held missed more than a whole period.
    """

    starts: tuple[Start, ...] = ()
    skips: tuple[int, ...] = ()
    held: Mapping[int, str] = field(default_factory=dict)
    late: Mapping[int, float] = field(default_factory=dict)
    look_again: float = math.inf


def make_plan(snapshot: Snapshot) -> Plan:
    """Say which refreshes to start now, in the order in which they became due."""
    graph = _Graph(snapshot)
    held = {t.pgt_id: why for t in graph.tables if (why := graph.held.get(t.pgt_id))}
    if not snapshot.enabled:
        return Plan(held=dict.fromkeys(graph.due_at, "pg_trickle.enabled is off") | held)
    due = {i: at for i, at in graph.due_at.items() if at <= snapshot.now}
    running = {t.pgt_id for t in graph.tables if t.started_at is not None}
    ready = {i: at for i, at in due.items() if i not in running}
    order = sorted(ready, key=lambda i: (due[i], graph.place[i]))
    return Plan(
        tuple(graph.start(i, due[i]) for i in graph.uncovered(order)),
        tuple(i for i in due if i in running),
        held,
        {i: by for i in graph.due_at if (by := graph.late_by(i)) > graph.period(i)},
        min((graph.after_now(i) for i in graph.due_at), default=math.inf),
    )


def paces_of(tables: Sequence[Table], minimum_lag: float) -> dict[int, Pace]:
    """Return the pace of each table: its own, or the tightest of those that read it directly.

    Without readers DOWNSTREAM means the minimum lag. IMMEDIATE tables move by themselves: they only
    hand on what their readers want.
    """
    by_id = {table.pgt_id: table for table in tables}
    reads = {t.pgt_id: [i for i in t.reads if i in by_id] for t in tables}
    readers = inverted(reads)
    paces: dict[int, Pace] = {}
    for pgt_id in reversed(upstream_first(reads)):
        table = by_id[pgt_id]
        own = Pace() if table.is_immediate else table.pace
        wanted = own if own != Pace() else tightest(paces[i] for i in readers.get(pgt_id, ()))
        idle = wanted == Pace() and not table.is_immediate
        paces[pgt_id] = Pace(minimum_lag) if idle else wanted
    return paces


def retry_after(errors: int) -> float:
    """Return how many seconds to wait after so many failures in a row: 1, 2, 4, …"""
    return float(min(2.0 ** min(max(errors, 1) - 1, 30), LONGEST_WAIT))


def _latest(*moments: float | None) -> float:
    return max((moment for moment in moments if moment is not None), default=-math.inf)


def _members(tables: Sequence[Table]) -> dict[int | None, frozenset[int]]:
    """Return the members of each refresh group."""
    found: dict[int | None, frozenset[int]] = {}
    for table in tables:
        if table.group is not None:
            found[table.group] = found.get(table.group, frozenset()) | {table.pgt_id}
    return found


class _Graph:
    """The tables in order, with what holds each and when each is due; built in one pass."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.by_id = {table.pgt_id: table for table in snapshot.tables}
        reads = {t.pgt_id: [i for i in t.reads if i in self.by_id] for t in snapshot.tables}
        order = upstream_first(reads)
        self.tables = tuple(self.by_id[i] for i in order)
        self.place = {pgt_id: place for place, pgt_id in enumerate(order)}
        self.paces = paces_of(snapshot.tables, snapshot.minimum_lag)
        self._groups = _members(snapshot.tables)
        self._above: dict[int, frozenset[int]] = {}
        self.held: dict[int, str] = {}
        self.due_at: dict[int, float] = {}  # of those that nobody must act on first
        self._patience: dict[int, float] = {}
        for pgt_id in order:
            above = (self._above[i] | {i} for i in reads[pgt_id])
            self._above[pgt_id] = frozenset().union(*above)
        for table in self.tables:
            self._place(table, reads[table.pgt_id])

    def uncovered(self, ready: Sequence[int]) -> list[int]:
        """Return those that no other one moves; of those that move each other, the first."""
        moves = {i: self._moves(i) for i in ready}
        place = {i: at for at, i in enumerate(ready)}
        covered = {
            i
            for j in ready
            for i in moves[j] & moves.keys()
            if i != j and (j not in moves[i] or place[j] < place[i])
        }
        return [i for i in ready if i not in covered]

    def period(self, pgt_id: int) -> float:
        """Return the seconds after which one that is due counts as late."""
        return self.paces[pgt_id].period or 60.0

    def late_by(self, pgt_id: int) -> float:
        """Return the seconds since a table was to move: one that runs, or was skipped, did not."""
        table = self.by_id[pgt_id]
        if pgt_id in self.held or table.moved_at == -math.inf:
            return 0.0
        return self._snapshot.now - max(self._next(table, table.moved_at), self._patience[pgt_id])

    def after_now(self, pgt_id: int) -> float:
        """Return when a table is due, for one that is due already: the time after this."""
        at, now = self.due_at[pgt_id], self._snapshot.now
        return at if at > now else self._next(self.by_id[pgt_id], now)

    def start(self, pgt_id: int, due_since: float) -> Start:
        """Return the refresh of a table."""
        moved = [i for i in self._moves(pgt_id) if not self.by_id[i].is_immediate]
        on_spark = any(self.by_id[i].on_spark for i in moved)
        name = self.by_id[pgt_id].name
        return Start(pgt_id, name, frozenset(moved), on_spark, due_since)

    def _place(self, table: Table, reads: Sequence[int]) -> None:
        """Find out about one table, all that it reads being known."""
        own = table.pgt_id
        beside = [self.by_id[i] for i in self._moves(own) - self._above[own] if i != own]
        why = self._why_held(table, reads, beside)
        waits = [self._patience_with(t) for t in (table, *beside)]
        self._patience[own] = max(waits + [self._patience[i] for i in reads])
        if why is not None:
            self.held[own] = why
        elif not table.is_immediate:
            self.due_at[own] = max(self._due(table), self._patience[own])
        if why is None and self._patience[own] > self._snapshot.now:
            self.held[own] = self._why_waiting(table, reads, beside)

    def _moves(self, pgt_id: int) -> frozenset[int]:
        """Return all that a refresh of a table moves, itself included."""
        found = self._above[pgt_id] | {pgt_id}
        new = found if self._groups else frozenset()
        while new:
            joined = {self.by_id[i].group for i in new} & self._groups.keys()
            mates = {i for group in joined for i in self._groups[group]}
            new = frozenset(mates).union(*(self._above[i] for i in mates)) - found
            found |= new
        return found

    def _why_held(self, table: Table, reads: Sequence[int], beside: Sequence[Table]) -> str | None:
        """Say what someone must do first; a table cannot move past what it reads."""
        if table.status == "SUSPENDED":
            return "it is suspended"
        for source in reads:
            if source in self.held and source not in self.due_at:
                suspended = self.by_id[source].status == "SUSPENDED"
                state = "is suspended" if suspended else "is held"
                return f"{self.by_id[source].name}, which it reads, {state}"
        for other in beside:
            if other.status == "SUSPENDED":
                return f"{other.name}, which moves with its group, is suspended"
        return None

    def _why_waiting(self, table: Table, reads: Sequence[int], beside: Sequence[Table]) -> str:
        now = self._snapshot.now
        if self._patience_with(table) > now:
            return "its last refresh failed; it is tried again later"
        failing = next((i for i in reads if self._patience[i] > now), None)
        if failing is not None:
            return f"{self.by_id[failing].name}, which it reads, failed and is tried again later"
        other = next(t for t in beside if self._patience_with(t) > now)
        return f"{other.name}, which moves with its group, failed and is tried again later"

    def _patience_with(self, table: Table) -> float:
        """Return before when a table that failed is not tried again, nor what reads it."""
        if table.failed_at is None:
            return -math.inf
        if table.may_pass:
            return table.failed_at + retry_after(table.errors)
        return self._next(table, table.failed_at)

    def _due(self, table: Table) -> float:
        if table.failed_at is not None and table.may_pass:
            return table.failed_at + retry_after(table.errors)
        if table.last_attempt == -math.inf:
            return self._snapshot.now
        return self._next(table, table.last_attempt)

    def _next(self, table: Table, since: float) -> float:
        duration = table.duration if self._snapshot.auto_backoff else 0.0
        return next_due(self.paces[table.pgt_id], since, duration)
