"""Refresh of one stream table on Spark, inside the caller's REPEATABLE READ transaction.

Ingest, one statement on Spark, hand over, apply: the last step is PostgreSQL's own. The catalog
learns of the new versions of the traces in the same transaction; if that is rolled back, the next
refresh cuts off what the lake holds beyond the versions that count.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
from psycopg import Connection

from headwater.algebra.ops import After, Aggregate, Empty, Keys, Op, schema
from headwater.algebra.schema import names
from headwater.catalog.model import Epoch
from headwater.catalog.settings import Settings
from headwater.catalog.standing import Standing
from headwater.delta.pushdown import push_keys
from headwater.postgres.apply import COUNTS, DeltaReader, render_differential, render_groups
from headwater.postgres.capture import buffer_name, sync_capture
from headwater.postgres.maintenance import may_recompute, plan_maintenance
from headwater.postgres.pending import source_rows
from headwater.postgres.quote import identifier, listed
from headwater.postgres.refresh import (
    COSTS,
    Choice,
    Outcome,
    Stopwatch,
    check_counts,
    choose,
    counted,
    store,
)
from headwater.postgres.render import Renderer as PostgresRenderer
from headwater.postgres.session import pin, unpin
from headwater.postgres.storage import current_query, fill_states, load_plan
from headwater.postgres.target import Target
from headwater.spark import ingest
from headwater.spark.arrivals import without_arrivals
from headwater.spark.compute import Compute
from headwater.spark.cycle import Cycle
from headwater.spark.known import Known, Reader
from headwater.spark.lake import get_lake
from headwater.spark.landing import (
    GROUPS,
    drop_landed,
    land_change,
    land_groups,
    land_rows,
    read_landed,
)
from headwater.spark.loading import load_counts
from headwater.spark.place import LANDED_OID, ordered_for_files, summed
from headwater.spark.plans import load_placed
from headwater.spark.unpublished import as_found, difference, extend, make

LANDED = frozenset({LANDED_OID})


def refresh_table(
    conn: Connection[Any],
    standing: Standing,
    settings: Settings,
    epoch: Epoch,
    cycle: Cycle | None = None,
) -> Outcome:
    """Move one stream table to the state of this transaction; what it reads is there already.

    `cycle` is what it may share with the other tables that move with it.
    """
    watch = Stopwatch()
    with watch.step("choose"):
        choice = choose(conn, standing, settings)
    if choice.action == "NO_DATA":
        return Outcome("NO_DATA", timings=watch.timings)
    return _Refresh(conn, standing, (epoch, settings, cycle or Cycle()), watch).run(choice)


class _Refresh:
    """One refresh, with what its steps share."""

    def __init__(
        self,
        conn: Connection[Any],
        standing: Standing,
        now: tuple[Epoch, Settings, Cycle],
        watch: Stopwatch,
    ) -> None:
        self._conn, self._standing, self._watch = conn, standing, watch
        self._epoch, self._settings, self._cycle = epoch, settings, _ = now
        self._st = standing.table
        self._lake = ingest.own_lake(conn, get_lake(conn), epoch)
        self._placed = load_placed(self._st)
        self._reader = Reader(conn, self._lake, self._st.pgt_id, settings.lake_retention)
        self._needs = ingest.needs(self._placed.boundary)
        self._rest = plan_maintenance(self._placed.rest)
        self._target: Target = load_plan(self._st)[1]
        self._figures: dict[str, float] = {
            "states_skipped": 0,
            "shared_parts": 0,
            "netted_scans": 0,
        }

    def run(self, choice: Choice) -> Outcome:
        known = self._reader.own()
        own = set() if self._st.publish else {self._st.pgt_relid}
        if choice.action != "REINITIALIZE" and not self._needs.keys() | own <= known.keys():
            choice = Choice("REINITIALIZE", "a copy of a source in the lake is missing or cut off")
        traces = self._shared() if choice.action == "REINITIALIZE" else known
        if choice.action == "REINITIALIZE":
            ingest.sweep_orphans(self._conn, self._lake)
        costs = COSTS if choice.action == "DIFFERENTIAL" else {}
        pin(self._conn, self._standing, self._settings, **costs)
        with self._watch.step("ingest"):
            found = self._ingest(traces)
        if self._st.publish:
            counts, jobs = self._computed(choice, found)
        else:
            counts, jobs = self._kept(choice, found, known)
        unpin(self._conn, self._standing)
        if self._st.keeps_result:
            with self._watch.step("result"):
                found[self._st.pgt_relid] = self._result(choice, known)
        self._reader.record(found, self._epoch, known)
        check_counts(self._st, counts)
        loads = load_counts(s.loaded for s in found.values() if s.loaded)
        timings = {**self._watch.timings, **loads, "spark_jobs": float(jobs), **self._figures}
        return Outcome(choice.action, counts, choice.reason, timings)

    def _computed(
        self, choice: Choice, found: dict[int, ingest.Standing]
    ) -> tuple[dict[str, int], int]:
        """Write the new rows; return their counts, and how many jobs Spark ran for them."""
        with closing(self._compute(choice, found)) as compute:
            if choice.action == "DIFFERENTIAL":
                counts = self._differential(compute, choice.changed)
            else:
                counts = self._recompute(compute)
            drop_landed(self._conn)
            self._figures["netted_scans"] = float(compute.netted_scans)
            counts["delta_rows"] = compute.change_rows() if choice.changed else 0
            return counts, compute.jobs

    @property
    def _buffers(self) -> dict[int, str]:
        return {t.source_relid: str(t.buffer_name) for t in self._standing.sources}

    def _shared(self) -> Known:
        """Take traces of others for a first fill; a rebuild relies on nothing that was there, only
        on what another rebuild loaded in this very transaction."""
        found = self._reader.shared(self._needs, self._buffers)
        is_new = not self._st.is_populated
        return {k: v for k, v in found.items() if is_new or v.row.since == self._epoch.epoch}

    def _kept(
        self, choice: Choice, found: dict[int, ingest.Standing], known: Known
    ) -> tuple[dict[str, int], int]:
        """Append what Spark computes to the trace of the result, which is all that there is."""
        boundary, relid = self._placed.boundary, self._st.pgt_relid
        held = {relid: as_found(known[relid])} if choice.action == "FULL" else {}
        with (
            closing(self._compute(choice, {**found, **held})) as compute,
            self._watch.step("spark"),
        ):
            if choice.action == "REINITIALIZE":
                rows = _consolidated(compute, After(boundary))
                own, counts = make(self._lake, boundary, relid, rows, self._epoch)
            else:
                is_full = choice.action == "FULL"
                change = (
                    difference(boundary, relid)
                    if is_full
                    else self._change(compute, choice.changed)
                )
                rows = _consolidated(compute, change)
                own, counts = extend(self._lake, known[relid], rows, self._epoch)
                counts["delta_rows"] = compute.change_rows()
            found[relid] = own
            return counts, compute.jobs

    def _compute(self, choice: Choice, found: dict[int, ingest.Standing]) -> Compute:
        stood = self._standing.epoch.epoch if self._standing.epoch else 0
        span, is_change = (stood, self._epoch.epoch), choice.action == "DIFFERENTIAL"
        return Compute(self._lake, found, self._placed.boundary, span, is_change=is_change)

    def _result(self, choice: Choice, known: Known) -> ingest.Standing:
        """Bring the trace of the result itself up to date: it follows the table like any source.

        After a rebuild it is loaded from the table, so that a first fill writes no change rows.
        """
        relid, name = self._st.pgt_relid, self._st.qualified_name
        is_new = choice.action == "REINITIALIZE" or relid not in known
        if is_new:
            sync_capture(self._conn, relid)
        pin(self._conn, self._standing, self._settings)
        if is_new:
            columns = tuple((identifier(c.name), c.type) for c in self._target.columns)
            need = ingest.Need(relid, name, columns)
            found = ingest.load(self._conn, self._lake, need, self._epoch)
        else:
            now = self._epoch, buffer_name(relid)
            found = ingest.catch_up(self._conn, self._lake, known[relid], *now)
        unpin(self._conn, self._standing)
        return found

    def _ingest(self, known: Known) -> dict[int, ingest.Standing]:
        """Bring these traces up to this epoch, and load the others that are needed."""
        buffers, found = self._buffers, {}
        for oid, need in self._needs.items():
            if oid in known:
                now = self._epoch, buffers[oid]
                found[oid] = ingest.catch_up(self._conn, self._lake, known[oid], *now)
            else:
                found[oid] = ingest.load(self._conn, self._lake, need, self._epoch)
        rows = source_rows(self._conn, self._standing.sources)
        return {oid: replace(own, source_rows=rows.get(oid)) for oid, own in found.items()}

    def _differential(self, compute: Compute, changed: frozenset[int]) -> dict[str, int]:
        change = self._change(compute, changed)
        if isinstance(change, Empty):
            return dict.fromkeys(COUNTS, 0)
        statement = self._landed_groups(compute, change)
        if statement is None:
            statement = self._landed_change(compute, change)
        with self._watch.step("apply"):
            return counted(self._conn, statement)

    def _change(self, compute: Compute, changed: frozenset[int]) -> Op:
        """Return the tree of the change, with as few states to read as the server knows, and with
        what other tables of this cycle computed before."""
        boundary = self._placed.boundary
        with self._watch.step("look"):
            shared = self._cycle.share(self._conn, compute, (self._st.pgt_id, boundary), changed)
            known = shared.change, shared.changed
            change, skipped = without_arrivals(self._conn, compute, *known)
        self._figures["states_skipped"] = float(skipped + shared.skipped)
        self._figures["shared_parts"] = float(shared.reused)
        with self._watch.step("spark"):
            return shared.completed(compute, ordered_for_files(change, boundary))

    def _landed_groups(self, compute: Compute, change: Op) -> str | None:
        """Let Spark sum per group, if it can, and return the statement that follows the sums."""
        aggregate = summed(self._placed)
        if aggregate is None:
            return None
        with self._watch.step("spark"):
            rows = compute.collect(compute.grouped(aggregate, change))
        with self._watch.step("land"):
            land_groups(self._conn, schema(aggregate), compute.wires, rows)
        return render_groups(self._rest, self._target, GROUPS)

    def _landed_change(self, compute: Compute, change: Op) -> str:
        """Hand over rows; where groups must be recomputed, all rows of those that are touched."""
        columns, root = schema(self._placed.boundary), self._rest.root
        with self._watch.step("spark"):
            rows = compute.collect(compute.changed(change), compute.expected(change))
        with self._watch.step("land"):
            land_change(self._conn, columns, compute.wires, rows)
        if root is not None and may_recompute(root):
            touched = Keys(change, root.keys)
            state = After(push_keys(self._placed.boundary, root.keys, touched))
            with self._watch.step("spark"):
                rows = _consolidated(compute, state)
            with self._watch.step("land"):
                land_rows(self._conn, columns, compute.wires, rows)
        reader = DeltaReader({LANDED_OID: read_landed(columns)})
        return str(render_differential(self._rest, self._target, LANDED, reader))

    def _recompute(self, compute: Compute) -> dict[str, int]:
        """Compute everything anew and write the difference: readers see the old or the new rows."""
        aggregate = summed(self._placed)
        state = After(self._placed.boundary)
        with self._watch.step("spark"):
            if aggregate is not None:
                rows = compute.collect(compute.grouped(aggregate, state))
                land_groups(self._conn, schema(aggregate), compute.wires, rows)
            else:
                columns = schema(self._placed.boundary)
                land_rows(self._conn, columns, compute.wires, _consolidated(compute, state))
        if self._rest.root is not None and self._target.state is not None:
            with self._watch.step("state"):
                self._fill_state(aggregate)
        whole = PostgresRenderer().render(self._rest.view).sql
        with self._watch.step("apply"):
            query = current_query(self._rest, self._target, whole)
            return store(self._conn, self._st, self._target, query)

    def _fill_state(self, aggregate: Aggregate | None) -> None:
        assert self._target.state is not None
        if aggregate is None:
            fill_states(self._conn, self._rest, self._target)
            return
        columns = listed(identifier(name) for name in names(schema(aggregate)))
        there = f"{identifier(aggregate.count.name)} <> 0" if aggregate.keys else "TRUE"
        self._conn.execute(f"TRUNCATE {self._target.state}")
        self._conn.execute(
            f"INSERT INTO {self._target.state} ({columns})"
            f" SELECT {columns} FROM {GROUPS} WHERE {there}"
        )
        self._conn.execute(f"ANALYZE {self._target.state}")


def _consolidated(compute: Compute, op: Op) -> Iterable[pa.RecordBatch]:
    """Return the rows of a tree, one per image, with weights."""
    if isinstance(op, Empty):
        return ()
    return compute.collect(compute.consolidated(op), compute.expected(op))
