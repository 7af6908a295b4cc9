"""A change to the statement that moves the stream table by it.

Everything happens in one statement: the change is computed, the state follows, and the stored rows
are written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headwater.algebra.ops import Consolidate, Empty, Op, Scan, Source
from headwater.algebra.schema import Column, names
from headwater.algebra.walk import scans
from headwater.delta.differentiate import differentiate
from headwater.delta.stored import change_from_stored
from headwater.postgres.different import Deltas, render_deltas
from headwater.postgres.kept import Follower, reading_kept
from headwater.postgres.maintenance import STATE_OID, STORED_OID, Maintenance, over_state
from headwater.postgres.pairing import pair_groups, shown_of
from headwater.postgres.quote import (
    WEIGHT,
    equal,
    identifier,
    image,
    is_null,
    listed,
    restored,
    same,
)
from headwater.postgres.render import Renderer
from headwater.postgres.rendered import Rendered, consolidated
from headwater.postgres.state import (
    render_state_change,
    signed_groups,
    state_writes,
)
from headwater.postgres.target import Target
from headwater.postgres.writes import WRITES, apply_change, write_at_places, write_bag, write_pairs

COUNTS = (*WRITES, "damaged", "delta_rows")


class DeltaReader:
    """Where the changes of each source are read.

    Each source is read once, however often it is scanned.
    """

    def __init__(self, selects: dict[int, str]) -> None:
        self._selects = selects
        self._names: dict[int, str] = {}
        self.renderer = Renderer(self.read)

    def read(self, scan: Scan) -> str:
        """Return the relation with the changes of a scan's source."""
        oid = scan.source.oid
        if oid not in self._names:
            self._names[oid] = self.renderer.add(f"changes_{oid}", self._selects[oid])
        return self._names[oid]

    def put(self, oid: int, name: str) -> None:
        """Read the changes of a source from a relation of this statement."""
        self._names[oid] = name

    def counted(self) -> str:
        """Return the number of change rows read, as SQL."""
        names = [name for oid, name in self._names.items() if oid > STATE_OID]
        return " + ".join(f"(SELECT count(*) FROM {name})" for name in names) or "0"


def netted(selects: dict[int, str], view: Op) -> dict[int, str]:
    """Return the changes of each source, of the columns that the view reads, without the rows that
    came and went again."""
    read: dict[int, dict[str, Column]] = {}
    for scan in scans(view):
        named = zip(scan.attributes, scan.columns, strict=True)
        read.setdefault(scan.source.oid, {}).update({a: replace(c, name=a) for a, c in named})
    return {
        oid: consolidated(tuple(columns.values()), Rendered(selects[oid], True)).sql
        for oid, columns in read.items()
        if oid in selects
    }


def render_differential(
    plan: Maintenance, target: Target, changed: frozenset[int], reader: DeltaReader
) -> str | None:
    """Return the statement that moves the stream table by its sources' changes; None if none can.

    The statement returns one row of counts, in the order of `COUNTS`.
    """
    renderer = reader.renderer
    kept = Follower(renderer, reader.put, changed)
    kept.follow(plan, target.kept)
    plan = reading_kept(plan, target.kept)
    change = change_of(plan, target, kept.changed)
    if isinstance(change, Empty) and not kept.writes:
        return None
    if plan.root is not None:
        deltas = render_deltas(renderer, plan.root, str(target.state), change)
        writes, damaged = _follow_groups(plan, target, reader, deltas)
    else:
        table = renderer.add("change", renderer.render(Consolidate(change)).sql)
        writes, damaged = apply_change(renderer, target, table), "0"
    damaged = " + ".join([*kept.damaged, damaged])
    return _assembled(renderer, kept.writes | writes, damaged, reader.counted())


def render_change(target: Target, reader: DeltaReader, change: Op) -> str:
    """Return the statement that applies a change of rows; it returns the same counts."""
    renderer = reader.renderer
    table = renderer.add("change", renderer.render(Consolidate(change)).sql)
    return _assembled(renderer, apply_change(renderer, target, table), "0", reader.counted())


def change_of(plan: Maintenance, target: Target, changed: frozenset[int] | None = None) -> Op:
    """Return the change of what is followed: of the root aggregate's input where there is a state,
    by the stored rows where they tell what was there before."""
    if plan.root is not None:
        return differentiate(plan.root.input, changed)
    return change_from_stored(plan.view, stored_scan(target), changed) or differentiate(
        plan.view, changed
    )


def stored_scan(target: Target) -> Scan:
    """Return the stream table itself as a source."""
    return Scan(Source(STORED_OID, target.name), target.columns, names(target.columns))


def render_groups(plan: Maintenance, target: Target, landed: str) -> str:
    """Return the statement that moves the stream table by a change of its root aggregate that is
    summed per group already, in the relation `landed`."""
    reader = DeltaReader({})
    numbered = f"SELECT row_number() OVER () AS __id, * FROM {landed}"
    deltas = reader.renderer.add("delta_groups", numbered)
    writes, damaged = _follow_groups(plan, target, reader, Deltas(deltas))
    return _assembled(reader.renderer, writes, damaged, reader.counted())


def _follow_groups(
    plan: Maintenance, target: Target, reader: DeltaReader, deltas: Deltas
) -> tuple[dict[str, str], str]:
    """From the change per group to the writes of state and stream table, and the count of groups
    that cannot be."""
    assert plan.root is not None
    assert target.state is not None
    renderer = reader.renderer
    groups = render_state_change(
        renderer, plan.root, deltas.name, target.state, is_small=target.is_small
    )
    writes = state_writes(plan.root, target.state, groups) | deltas.writes
    count = identifier(plan.root.count.name)
    damaged = f"(SELECT count(*) FROM {groups} WHERE {count} < 0){deltas.damaged}"
    shown = shown_of(plan.view, plan.root) if target.key is not None else None
    if shown is not None:
        paired = renderer.add("paired", pair_groups(target, plan.root, shown, groups))
        writes |= write_pairs(target, paired)
    else:
        reader.put(STATE_OID, renderer.add("state_change", signed_groups(plan.root, groups)))
        change = differentiate(over_state(plan.view, plan.root, target.state))
        table = renderer.add("change", renderer.render(Consolidate(change)).sql)
        writes |= apply_change(renderer, target, table)
    return writes, damaged


DIFFERENCE = "pg_temp.pgt_difference"


def render_difference(target: Target, query: str) -> tuple[str, str]:
    """Return two statements that turn the stored rows into those of `query`.

    The first computes the difference into a temporary table: alone, since PostgreSQL runs nothing
    in parallel in a statement that also writes. The second applies it.
    """
    found = _difference(target, query)
    create = f"CREATE TEMPORARY TABLE pgt_difference ON COMMIT DROP AS {found}"
    return create, _write_difference(Renderer(), target, DIFFERENCE)


def render_difference_at_once(target: Target, query: str) -> str:
    """Return one statement that does the same, without a table that PREPARE would refuse."""
    renderer = Renderer()
    table = renderer.add("difference", _difference(target, query))
    return _write_difference(renderer, target, table)


def _difference(target: Target, query: str) -> str:
    make = _keyed_difference if target.key is not None else _bag_difference
    return make(target, query)


def _write_difference(renderer: Renderer, target: Target, table: str) -> str:
    if target.key is None:
        writes = write_bag(renderer, target, table)
    else:
        writes = write_at_places(target, table, table, table)
    return _assembled(renderer, writes, "0", "0")


def _bag_difference(target: Target, query: str) -> str:
    """Query ⊖ stored rows, consolidated."""
    columns = [identifier(c.name) for c in target.columns]
    outputs = [f"{restored(identifier(c.name), c)} AS {identifier(c.name)}" for c in target.columns]
    both = (
        f"SELECT {listed([*columns, f'1 AS {WEIGHT}'])} FROM ({query}) AS q\nUNION ALL\n"
        f"SELECT {listed([*columns, '-1'])} FROM {target.name}"
    )
    images = listed(image(identifier(c.name), c) for c in target.columns)
    group = f" GROUP BY {images}" if images else ""
    return (
        f"SELECT {listed([*outputs, f'sum({WEIGHT})::bigint AS {WEIGHT}'])} FROM ({both}) AS q"
        f"{group} HAVING sum({WEIGHT}) <> 0"
    )


def _keyed_difference(target: Target, query: str) -> str:
    """Pairs of stored and new rows of one key whose images differ, or of which one is missing.

    Rows whose key contains a NULL are paired apart, so that the others can be hashed by the key.
    Most rows are as they were. The planner learns that from an expression that equals a constant,
    of which it expects one row in 200: else it would have every row gathered, and join with one
    process alone.
    """
    nullable = [identifier(k.name) for k in target.key_columns if k.nullable]
    if not nullable:
        return _pairs(target, query, equal, "TRUE")
    empty = " OR ".join(map(is_null, nullable))
    return (
        _pairs(target, query, equal, f"NOT ({empty})")
        + "\nUNION ALL\n"
        + _pairs(target, query, same, f"({empty})")
    )


def _pairs(
    target: Target, query: str, compare: Callable[[str, str, Column], str], where: str
) -> str:
    names = [identifier(c.name) for c in target.columns]
    keys = [(f"t.{identifier(k.name)}", f"q.{identifier(k.name)}", k) for k in target.key_columns]
    on = " AND ".join(compare(a, b, k) for a, b, k in keys) or "TRUE"
    named = zip(names, target.columns, strict=True)
    images = ((image(f"t.{name}", c), image(f"q.{name}", c)) for name, c in named)
    differs = " OR ".join(f"{a} IS DISTINCT FROM {b}" for a, b in images) or "FALSE"
    outputs = [
        "t.__row",
        *(f"q.{name}" for name in names),
        "t.__row IS NOT NULL AS __goes",
        "q.__new IS NOT NULL AS __comes",
    ]
    return (
        f"SELECT {listed(outputs)}"
        f"\nFROM (SELECT ctid AS __row, * FROM {target.name} WHERE {where}) AS t"
        f"\nFULL JOIN (SELECT *, 1 AS __new FROM ({query}) AS q WHERE {where}) AS q ON {on}"
        f"\nWHERE CASE WHEN t.__row IS NULL OR q.__new IS NULL OR {differs} THEN 1 ELSE 0 END = 1"
    )


def _assembled(renderer: Renderer, writes: dict[str, str], damaged: str, delta_rows: str) -> str:
    for name, statement in writes.items():
        renderer.add(name, statement)
    counts = [f"(SELECT count(*) FROM {identifier(name)})" for name in WRITES]
    values = zip([*counts, damaged, delta_rows], COUNTS, strict=True)
    outputs = listed(f"{value} AS {identifier(name)}" for value, name in values)
    return f"{renderer.with_clause()}SELECT {outputs}"
