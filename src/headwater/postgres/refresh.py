"""Refresh of one stream table inside the caller's REPEATABLE READ transaction.

The caller has locked the table before its snapshot was taken, and moves a table together with all
the stream tables that it reads, upstream first: they all arrive at one epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import psycopg
from psycopg import Connection, Cursor

from headwater.algebra.walk import scans
from headwater.catalog.model import Epoch, StreamTable
from headwater.catalog.settings import Settings
from headwater.catalog.standing import Standing
from headwater.errors import StreamTableDamaged
from headwater.postgres.apply import (
    COUNTS,
    DIFFERENCE,
    DeltaReader,
    netted,
    render_difference,
    render_differential,
)
from headwater.postgres.kept import reading_kept
from headwater.postgres.maintenance import read_twice, recomputing
from headwater.postgres.pending import (
    Pending,
    estimate_source_rows,
    find_pending,
    read_changes,
    source_rows,
)
from headwater.postgres.quote import identifier, listed
from headwater.postgres.session import pin, undo, undoable, unpin
from headwater.postgres.storage import (
    current_query,
    decoded,
    fill_states,
    load_plan,
    what_is_kept,
)
from headwater.postgres.target import Target
from headwater.sql.clock import NOW

# A change is small, and what it meets is mostly in memory: a page costs a twentieth, wherever it
# is, and the way down an index less than half. With the defaults the planner reads 50,000 customers
# to find 1,700, which takes three times as long. A whole query is the planner's affair.
COSTS = {"seq_page_cost": "0.05", "random_page_cost": "0.05", "cpu_operator_cost": "0.001"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a refresh did."""

    action: str
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    reason: str | None = None
    timings: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which action a refresh takes, and why."""

    action: str
    reason: str | None = None
    rows: dict[int, int] = field(default_factory=dict)  # of changes, by source

    @property
    def changed(self) -> frozenset[int]:
        """The sources with changes."""
        return frozenset(self.rows)


class Stopwatch:
    """Milliseconds by step."""

    def __init__(self) -> None:
        self.timings: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the time of the block to a step."""
        start = time.perf_counter()
        yield
        passed = (time.perf_counter() - start) * 1000
        self.timings[name] = round(self.timings.get(name, 0.0) + passed, 3)


def refresh_table(
    conn: Connection[Any], standing: Standing, settings: Settings, epoch: Epoch
) -> Outcome:
    """Move one stream table to the state of this transaction; what it reads is there already."""
    clock = {NOW: epoch.data_timestamp.isoformat()}
    watch = Stopwatch()
    with watch.step("choose"):
        choice = choose(conn, standing, settings)
    if choice.action == "NO_DATA":
        return Outcome("NO_DATA", timings=watch.timings)
    more = {**COSTS, **clock} if choice.action == "DIFFERENTIAL" else clock
    pinning = partial(pin, conn, standing, settings, **more)
    if choice.action == "DIFFERENTIAL":
        counts = _differential(conn, standing, choice.rows, watch, pinning)
    else:
        pinning()
        counts = _recompute(conn, standing.table, watch)
    unpin(conn, standing)
    check_counts(standing.table, counts)
    return Outcome(choice.action, counts, choice.reason, watch.timings)


def choose(conn: Connection[Any], standing: Standing, settings: Settings) -> Choice:  # noqa: PLR0911
    """Choose the action: rebuild if asked for, nothing if nothing came, else by mode."""
    st = standing.table
    if st.needs_reinit:
        return Choice("REINITIALIZE", st.reinit_reason)
    if not st.is_populated or standing.epoch is None:
        return Choice("REINITIALIZE", "first fill")
    if not st.follows_changes:
        return Choice("FULL", f"refresh_mode is {st.effective_mode}")
    pending = find_pending(conn, standing)
    if not pending.changed:
        is_timed = bool(st.plan.get("timed"))
        return Choice("DIFFERENTIAL", "time has passed") if is_timed else Choice("NO_DATA")
    if pending.markers:
        return Choice("REINITIALIZE", "a source was truncated under an older snapshot")
    if st.effective_mode == "FULL":
        return Choice("FULL", "refresh_mode is FULL", pending.rows)
    if st.refresh_mode == "AUTO":
        return _cheaper(conn, standing, pending, settings)
    return Choice("DIFFERENTIAL", None, pending.rows)


def _cheaper(
    conn: Connection[Any], standing: Standing, pending: Pending, settings: Settings
) -> Choice:
    """AUTO: recompute when the changes are a large share of the sources' rows, or when following
    them would read more rows than that."""
    changed = (t for t in standing.sources if t.source_relid in pending.rows)
    rows, total = sum(pending.rows.values()), estimate_source_rows(conn, changed)
    limit = settings.auto_full_ratio
    if total and rows > limit * total:
        return Choice(
            "FULL", f"{rows} change rows are more than {limit:.0%} of {total} source rows"
        )
    twice, everything = _rows_read_twice(conn, standing, pending)
    if 2 * twice > everything:
        return Choice(
            "FULL", f"{twice} rows would be read twice, and there are {everything} source rows"
        )
    reason = f"{rows} change rows against {total} source rows"
    return Choice("DIFFERENTIAL", reason, pending.rows)


def _rows_read_twice(
    conn: Connection[Any], standing: Standing, pending: Pending
) -> tuple[int, int]:
    """Return how many rows a refresh reads before and after the change, and how many there are."""
    plan, target = load_plan(standing.table)
    assert plan is not None, "AUTO follows changes"
    whole = read_twice(reading_kept(plan, target.kept), frozenset(pending.rows))
    if not whole:
        return 0, 0
    sources = [t for t in standing.sources if t.source_relid in whole]
    return estimate_source_rows(conn, sources), estimate_source_rows(conn, standing.sources)


def _differential(
    conn: Connection[Any],
    standing: Standing,
    rows: dict[int, int],
    watch: Stopwatch,
    pinning: Callable[[], None],
) -> dict[str, int]:
    """Pin the session and run the statement of these changes, in one round trip."""
    with watch.step("plan"):
        statement = _statement(standing, rows, _churned(conn, standing, rows))
    with watch.step("apply"):
        try:
            with conn.pipeline():
                pinning()
                with undoable(conn):
                    # Its plan stays for the next time: the text says what sizes to expect.
                    done = statement and conn.execute(statement, prepare=True)
            return _counts(done) if done else dict.fromkeys(COUNTS, 0)
        except _FAULTS_OF_ROWS:
            # Perhaps of a row that no epoch shows: it came and went since the last one.
            undo(conn)
            return counted(conn, _net_statement(standing, frozenset(rows)))


_FAULTS_OF_ROWS = (
    psycopg.DataError,
    psycopg.errors.CardinalityViolation,
    psycopg.errors.RaiseException,
    psycopg.errors.CheckViolation,
    psycopg.errors.NotNullViolation,
)


def _net_statement(standing: Standing, changed: frozenset[int]) -> str:
    """Return the statement that looks only at the net changes of the sources, and only at rows
    of states: what a recursion lost may have met what came."""
    plan, target = load_plan(standing.table)
    assert plan is not None
    plan = recomputing(plan)
    reader = DeltaReader(netted(read_changes(standing.sources), plan.view))
    return str(render_differential(plan, target, changed, reader))


def _statement(standing: Standing, rows: dict[int, int], churned: frozenset[int]) -> str | None:
    """Return the statement for these changed sources; it is the same at every epoch."""
    plan, target = load_plan(standing.table)
    assert plan is not None
    target = replace(target, is_small=is_small(standing, rows))
    selects = read_changes(standing.sources, rows)
    selects |= netted({oid: selects[oid] for oid in churned}, plan.view)
    text, kept = str(standing.table.plan["text"]), what_is_kept(standing.table)
    return _rendered(text, kept, target, frozenset(rows), tuple(sorted(selects.items())))


_MANY_CHANGES = 2000  # of a source: from there on it is asked how many rows it has


def _churned(conn: Connection[Any], standing: Standing, rows: dict[int, int]) -> frozenset[int]:
    """Return the sources with more changes than there can be if none was undone by another.

    In a join each of them meets all those of the same key in the other tables: ten times as many in
    each of three are a thousand times as many pairs.
    """
    many = {oid for oid, count in rows.items() if count > _MANY_CHANGES}
    if not many:
        return frozenset()
    plan, _ = load_plan(standing.table)
    if plan is None or len(list(scans(plan.view))) == 1:
        return frozenset()
    there = source_rows(conn, (t for t in standing.sources if t.source_relid in many))
    return frozenset(oid for oid in many & there.keys() if rows[oid] > 2 * there[oid])


_ROWS_A_PAGE = 32  # of changes, from which on it pays to read all pages


def is_small(standing: Standing, rows: dict[int, int]) -> bool:
    """Tell whether a table and its state are small beside the changes: to read all of it then
    costs less than to look rows up, and no more than the change asks for."""
    pages = standing.pages
    return pages is not None and pages * _ROWS_A_PAGE <= sum(rows.values())


@lru_cache(maxsize=256)
def _rendered(
    plan: str,
    kept: frozenset[str],
    target: Target,
    changed: frozenset[int],
    selects: tuple[tuple[int, str], ...],
) -> str | None:
    reader = DeltaReader(dict(selects))
    return render_differential(decoded(plan, kept), target, changed, reader)


def _recompute(conn: Connection[Any], st: StreamTable, watch: Stopwatch) -> dict[str, int]:
    """Compute everything anew and write the difference: readers see the old or the new rows."""
    plan, target = load_plan(st)
    for cost in COSTS:
        conn.execute(f"SET LOCAL {cost} TO DEFAULT")  # a table before may have set it
    if plan is not None and (target.state is not None or target.kept):
        with watch.step("state"):
            fill_states(conn, plan, target)
    query = current_query(plan, target, str(st.canonical_query))
    with watch.step("apply"):
        return store(conn, st, target, query)


def store(conn: Connection[Any], st: StreamTable, target: Target, query: str) -> dict[str, int]:
    """Make the stored rows those of a query."""
    if st.is_populated:
        return _replaced(conn, target, query)
    names = listed(identifier(c.name) for c in target.columns)
    filled = conn.execute(f"INSERT INTO {target.name} ({names}) {query}")
    conn.execute(f"ANALYZE {target.name}")
    return {**dict.fromkeys(COUNTS, 0), "inserted": max(filled.rowcount, 0)}


def _replaced(conn: Connection[Any], target: Target, query: str) -> dict[str, int]:
    """Replace the stored rows by those of the query, writing only what differs."""
    create, apply = render_difference(target, query)
    conn.execute(create)
    counts = counted(conn, apply)
    conn.execute(f"DROP TABLE {DIFFERENCE}")
    return counts


def counted(conn: Connection[Any], statement: str) -> dict[str, int]:
    """Run a statement that returns its counts."""
    return _counts(conn.execute(statement))


def _counts(cursor: Cursor[Any]) -> dict[str, int]:
    row = cursor.fetchone()
    assert row is not None
    return dict(zip(COUNTS, row, strict=True))


def check_counts(st: StreamTable, counts: dict[str, int]) -> None:
    """The rows to take away must be there; if not, someone else wrote."""
    found = counts["updated"] + counts["deleted"]
    if counts["expected"] == found and not counts["damaged"]:
        return
    raise StreamTableDamaged(
        f"{st.qualified_name} does not hold the rows that its last refresh left",
        f"{counts['expected']} rows should go, {found} were found;"
        f" {counts['damaged']} groups would have a negative count",
        "rebuild it: alter the stream table to the same query",
    )
