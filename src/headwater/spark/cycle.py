"""What the stream tables of one transaction share on Spark: the changes of joins in common.

Which joins those are is seen from the views alone. Whether they have the same change is seen when
it is needed: it is known by its tree, by the versions of the copies that it reads, and by the
epochs between which it lies. Whoever needs it first has Spark keep it, until the cycle ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from psycopg import Connection

from headwater.algebra.ops import Consolidate, Delta, Op, Scan, schema
from headwater.algebra.schema import names
from headwater.algebra.walk import distinct, replaced
from headwater.catalog import traces
from headwater.catalog.standing import Standing
from headwater.delta.common import Common, Rest, View, set_apart
from headwater.delta.differentiate import differentiate
from headwater.delta.ordering import gather
from headwater.spark.arrivals import without_arrivals
from headwater.spark.compute import Compute
from headwater.spark.place import change_of, ordered_for_files
from headwater.spark.plans import load_placed


class _Part:
    """The change of a common join, as Spark computes it."""

    def __init__(self, own: Compute, tree: Op, skipped: int) -> None:
        """`own` renders it; `skipped` counts the states that it need not read."""
        self.own, self.tree, self.skipped = own, tree, skipped

    @cached_property
    def view(self) -> str:
        """What holds its rows, which Spark computes when they are first read."""
        return self.own.keep(self.tree)


@dataclass(frozen=True, slots=True)
class Shared:
    """The change of a table, in which marks stand for the parts that Spark keeps.

    A mark reads a stand-in, which counts among the sources that changed.
    """

    change: Op
    changed: frozenset[int]
    parts: Mapping[Op, _Part] = field(default_factory=dict)
    reused: int = 0
    skipped: int = 0

    def completed(self, compute: Compute, change: Op) -> Op:
        """Return the change with the parts in place of their marks, for `compute` to render."""
        for part in self.parts.values():
            compute.adopt(part.tree, part.view)
        return replaced(change, {mark: part.tree for mark, part in self.parts.items()})


class Cycle:
    """The stream tables that move together, and what Spark keeps for them; to be closed."""

    def __init__(self, rests: Mapping[int, Rest] | None = None) -> None:
        """`rests` has by table what is its own in it, and what it has in common with others."""
        self._rests = rests or {}
        self._parts: dict[object, _Part] = {}
        self._kept = ExitStack()

    def close(self) -> None:
        """Release what Spark keeps."""
        self._kept.close()

    def share(
        self,
        conn: Connection[Any],
        compute: Compute,
        of: tuple[int, Op],
        changed: frozenset[int],
    ) -> Shared:
        """Return the change of a table, known by its id and boundary.

        Without anything in common it is the change that the table has by itself.
        """
        pgt_id, boundary = of
        rest = self._rests.get(pgt_id)
        if rest is None or not _has_copies(compute, rest.commons):
            return Shared(change_of(boundary, changed), changed)
        change, marks = _marked(rest, changed)
        if not marks:
            return Shared(change_of(boundary, changed), changed)
        before = set(self._parts.values())
        parts = {mark.op: self._part(conn, compute, mark, changed) for mark in marks}
        for part in parts.values():
            compute.wires |= part.own.wires
        new = set(parts.values()) - before
        stand_ins = {mark.stand_in.source.oid for mark in marks}
        counts = len(parts) - len(new), sum(part.skipped for part in new)
        return Shared(change, changed | stand_ins, parts, *counts)

    def _part(
        self, conn: Connection[Any], compute: Compute, mark: _Mark, changed: frozenset[int]
    ) -> _Part:
        """Return the change of a common join that this table needs, perhaps as others did."""
        own = compute.beside(mark.join)
        key = mark.change, own.reads()
        if key not in self._parts:
            self._kept.callback(own.close)
            change, skipped = without_arrivals(conn, own, mark.change, changed)
            self._parts[key] = _Part(own, ordered_for_files(change, mark.join), skipped)
        return self._parts[key]


def open_cycle(conn: Connection[Any], standings: Iterable[Standing]) -> Cycle:
    """Find out what stream tables have in common that move together from one epoch to the next.

    Tables at different epochs have different changes ahead of them.
    """
    by_epoch = defaultdict[int, list[Standing]](list)
    for standing in standings:
        if standing.epoch is not None and _follows_on_spark(standing):
            by_epoch[standing.epoch.epoch].append(standing)
    together = [members for members in by_epoch.values() if len(members) > 1]
    if not together:
        return Cycle()
    ids = [s.table.pgt_id for members in together for s in members]
    copies = defaultdict[int, dict[int, str]](dict)
    for pgt_id, oid, url in traces.list_copies(conn, ids):
        copies[pgt_id][oid] = url
    rests: dict[int, Rest] = {}
    for members in together:
        views = tuple(_view(standing, copies) for standing in members)
        rests |= {
            standing.table.pgt_id: rest
            for standing, rest in zip(members, set_apart(views), strict=True)
            if rest.commons
        }
    return Cycle(rests)


def _follows_on_spark(standing: Standing) -> bool:
    """Tell whether Spark will follow the changes of a table, as far as can be told before."""
    st = standing.table
    is_followed = st.is_populated and not st.needs_reinit and st.effective_mode == "DIFFERENTIAL"
    return is_followed and st.effective_engine == "spark"


def _view(standing: Standing, copies: Mapping[int, Mapping[int, str]]) -> View:
    own = copies.get(standing.table.pgt_id, {})
    return View(load_placed(standing.table).boundary, tuple(own.items()))


def _has_copies(compute: Compute, commons: Iterable[Common]) -> bool:
    """Tell whether a table reads the copies of which its plan was made."""
    return all(compute.has_copy(oid, url) for common in commons for oid, url in common.copies)


@dataclass(frozen=True, slots=True)
class _Mark:
    """What stands in a delta tree for the change of a common join."""

    stand_in: Scan
    join: Op
    change: Op

    @property
    def op(self) -> Op:
        """A change that nobody looks into: what is done to it stays above."""
        columns = schema(self.change)
        scan = replace(self.stand_in, columns=columns, attributes=names(columns))
        return Consolidate(Delta(scan))


@lru_cache(maxsize=256)
def _marked(rest: Rest, changed: frozenset[int]) -> tuple[Op, tuple[_Mark, ...]]:
    """Return the change of a view, with marks where the changes of common joins stand in it."""
    joins: dict[Op, Op] = {c.stand_in: c.joined(changed) for c in rest.commons}
    moved = [c.stand_in for c in rest.commons if c.reads(changed)]
    view = gather(rest.tree, changed | {stand_in.source.oid for stand_in in moved})
    change = differentiate(replaced(view, joins), changed)
    there = set(distinct(change))
    marks = [_Mark(s, joins[s], differentiate(joins[s], changed)) for s in moved]
    found = tuple(mark for mark in marks if mark.change in there)
    return replaced(change, {mark.change: mark.op for mark in found}), found
