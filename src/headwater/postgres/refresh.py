"""Refresh of one stream table inside the caller's REPEATABLE READ transaction.

The caller has locked the table before its snapshot was taken, and moves a table together with all
the stream tables that it reads, upstream first: they all arrive at one epoch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection

from headwater.catalog import epochs, streams, tracking
from headwater.catalog.model import Epoch, StreamTable, Tracking
from headwater.catalog.settings import Settings
from headwater.errors import StreamTableDamaged
from headwater.postgres.apply import (
    COUNTS,
    DeltaReader,
    Target,
    render_difference,
    render_differential,
)
from headwater.postgres.pending import count_pending, find_pending, read_changes
from headwater.postgres.quote import identifier, listed
from headwater.postgres.session import pin, unpin
from headwater.postgres.storage import current_query, fill_state, is_incremental, load_plan
from headwater.sql.analyse import describe


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a refresh did."""

    action: str
    counts: dict[str, int] = field(default_factory=dict)
    reason: str | None = None
    timings: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which action a refresh takes, and why."""

    action: str
    reason: str | None = None
    changed: frozenset[int] = frozenset()


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
    conn: Connection[Any], st: StreamTable, epoch: Epoch, settings: Settings
) -> Outcome:
    """Move one stream table to `epoch`; what it reads stands there already."""
    watch = Stopwatch()
    tracked = _tracked(conn, st)
    with watch.step("choose"):
        choice = choose(conn, st, tracked, settings)
    if choice.action == "NO_DATA":
        return Outcome("NO_DATA", reason=choice.reason, timings=watch.timings)
    pin(conn, st, settings)
    if choice.action == "DIFFERENTIAL":
        counts = _differential(conn, st, choice.changed, tracked, watch)
    else:
        counts = _recompute(conn, st, watch)
    unpin(conn)
    _check(st, counts)
    return Outcome(choice.action, counts, choice.reason, watch.timings)


def _tracked(conn: Connection[Any], st: StreamTable) -> tuple[Tracking, ...]:
    """How the sources of an incremental stream table are captured."""
    if st.effective_mode == "FULL":
        return ()
    relids = [d.source_relid for d in streams.list_dependencies(conn, st.pgt_id)]
    return tracking.list_tracking(conn, relids)


def choose(
    conn: Connection[Any], st: StreamTable, tracked: tuple[Tracking, ...], settings: Settings
) -> Choice:
    """Choose the action: rebuild if asked for, nothing if nothing came, else by mode."""
    if st.needs_reinit:
        return Choice("REINITIALIZE", st.reinit_reason)
    if not st.is_populated or st.epoch is None:
        return Choice("REINITIALIZE", "first fill")
    if st.effective_mode == "FULL":
        return Choice("FULL", "refresh_mode is FULL")
    stands = epochs.get_epoch(conn, st.epoch)
    pending = find_pending(conn, stands, tracked)
    if not pending.changed:
        return Choice("NO_DATA")
    if pending.markers:
        return Choice("REINITIALIZE", "a source was truncated under an older snapshot")
    if st.refresh_mode == "AUTO":
        changed = tuple(t for t in tracked if t.source_relid in pending.changed)
        return _cheaper(conn, stands, changed, settings)
    return Choice("DIFFERENTIAL", None, pending.changed)


def _cheaper(
    conn: Connection[Any], stands: Epoch, changed: tuple[Tracking, ...], settings: Settings
) -> Choice:
    """AUTO: recompute when the changes are a large share of the sources' rows."""
    oids = frozenset(t.source_relid for t in changed)
    rows = count_pending(conn, stands, changed)
    row = conn.execute(
        "SELECT coalesce(sum(greatest(reltuples, 0)), 0)::int8 FROM pg_class"
        " WHERE oid = ANY(%s::int8[]::oid[])",
        ([t for c in changed for t in (c.source_relid, *c.leaves)],),
    ).fetchone()
    total = int(row[0]) if row else 0
    limit = settings.auto_full_ratio
    if total and rows > limit * total:
        why = f"{rows} change rows are more than {limit:.0%} of {total} source rows"
        return Choice("FULL", why)
    return Choice("DIFFERENTIAL", f"{rows} change rows against {total} source rows", oids)


def _differential(
    conn: Connection[Any],
    st: StreamTable,
    changed: frozenset[int],
    tracked: tuple[Tracking, ...],
    watch: Stopwatch,
) -> dict[str, int]:
    assert st.epoch is not None
    with watch.step("plan"):
        plan, target = load_plan(st)
        reader = DeltaReader(read_changes(epochs.get_epoch(conn, st.epoch), tracked))
        statement = render_differential(plan, target, changed, reader)
    if statement is None:
        return dict.fromkeys(COUNTS, 0)
    with watch.step("apply"):
        return _counted(conn, statement)


def _recompute(conn: Connection[Any], st: StreamTable, watch: Stopwatch) -> dict[str, int]:
    """Compute everything anew and write the difference: readers see the old or the new rows."""
    plan, target = load_plan(st) if is_incremental(st) else (None, _plain_target(conn, st))
    if plan is not None and target.state is not None:
        with watch.step("state"):
            fill_state(conn, plan, target.state)
    query = current_query(plan, target, str(st.canonical_query))
    with watch.step("apply"):
        if not st.is_populated:
            names = listed(identifier(c.name) for c in target.columns)
            cursor = conn.execute(  # type: ignore[call-overload]
                f"INSERT INTO {target.name} ({names}) {query}"
            )
            made = max(cursor.rowcount, 0)
            conn.execute(f"ANALYZE {target.name}")  # type: ignore[arg-type]
            return {**dict.fromkeys(COUNTS, 0), "inserted": made}
        return _counted(conn, render_difference(target, query))


def _plain_target(conn: Connection[Any], st: StreamTable) -> Target:
    """The target of a FULL stream table, whose columns the server tells."""
    columns = describe(conn, f"SELECT * FROM {st.qualified_name}")
    hashed = tuple(st.plan["hashed"]) if st.plan else ()
    return Target(st.qualified_name, columns, st.key_columns, hashed)


def _counted(conn: Connection[Any], statement: str) -> dict[str, int]:
    row = conn.execute(statement).fetchone()  # type: ignore[call-overload]
    assert row is not None
    return dict(zip(COUNTS, row, strict=True))


def _check(st: StreamTable, counts: dict[str, int]) -> None:
    """The rows to take away must be there; if not, someone else wrote."""
    if counts["expected"] == counts["found"] and not counts["damaged"]:
        return
    raise StreamTableDamaged(
        f"{st.qualified_name} does not hold the rows that its last refresh left",
        f"{counts['expected']} rows should go, {counts['found']} were found;"
        f" {counts['damaged']} groups would have a negative count",
        "rebuild it: alter it to the same query, or refresh it with refresh_mode 'FULL' once",
    )
