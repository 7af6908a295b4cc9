"""The locks of a maintaining transaction as statements, which run before it reads anything."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import groupby

from headwater.algebra.ops import Consolidate, schema
from headwater.delta.differentiate import differentiate
from headwater.postgres.apply import DeltaReader
from headwater.postgres.immediate_locks import MOST, SLOTS, slot_of
from headwater.postgres.immediate_meetings import Attributes, Walk, is_hashed
from headwater.postgres.immediate_view import View, locks_name
from headwater.postgres.quote import WEIGHT, identifier, listed


def lock_statements(view: View, selects: dict[int, str]) -> list[str]:
    """Return the statements that take the locks for these changes, in one order."""
    locks, table = view.locks, locks_name(view.pgt_id)
    if locks.whole:
        return [f"UPDATE {table} SET taken = taken + 1"]
    walks = [(oid, walk) for oid in selects for walk in locks.values.get(oid, ())]
    return [
        _taken(
            table,
            [_value_slots(selects[oid], walk) for oid, walk in batch],
            sorted({walk.rank for _, walk in batch}),
        )
        for batch in _batches(walks)
    ]


def every_lock(view: View) -> list[str]:
    """Return the statement that takes all locks of the table, in order, if there are any."""
    if view.locks.is_none:
        return []
    table = locks_name(view.pgt_id)
    held = f"SELECT l.slot FROM {table} AS l ORDER BY l.slot FOR UPDATE"
    return [
        f"WITH held AS MATERIALIZED ({held})\nUPDATE {table} AS t SET taken = taken + 1"
        " WHERE t.slot = ANY (ARRAY(TABLE held))"
    ]


def _batches(walks: list[tuple[int, Walk]]) -> list[list[tuple[int, Walk]]]:
    """Divide walks, by rank, so that each reads on its way what earlier batches have locked."""
    batches: list[list[tuple[int, Walk]]] = []
    held: set[int] = set()
    for rank, group in groupby(sorted(walks, key=_rank), key=_rank):
        found = list(group)
        if not batches or not held.isdisjoint(h.rank for _, walk in found for h in walk.hops):
            batches.append([])
            held = set()
        batches[-1] += found
        held.add(rank)
    return batches


def _rank(walk: tuple[int, Walk]) -> int:
    return walk[1].rank


def look_at_slots(view: View, oid: int, event: str) -> dict[str, tuple[str, str]]:
    """Return what to look up of one changed row: the slots of its values, the lower one first.

    Nothing if other rows must be read to know them, or none are wanted.
    """
    found: dict[str, tuple[str, str]] = {}
    for walk in view.locks.in_hand(oid) or ():
        slots = [
            _slot(tuple((f"{side}.{identifier(name)}", type) for name, type in walk.columns), walk)
            for side in {"insert": "n", "delete": "o", "update": "on"}[event]
        ]
        low, high = f"__pgt_low_{walk.rank}", f"__pgt_high_{walk.rank}"
        if event != "update":
            found[low] = slots[0], "int"
            continue
        found[low] = f"least({listed(slots)})", "int"
        found[high] = f"greatest({listed(slots)})", "int"
    return found


def _slot(values: Attributes, walk: Walk) -> str:
    there = " AND ".join(f"{value} IS NOT NULL" for value, _ in values)
    return f"CASE WHEN {there} THEN {slot_of(values, walk.rank)} END"


def single_lock_lines(view: View, oid: int, look: Container[str]) -> list[str]:
    """Return the lines that take the locks of one changed row, in order.

    To look at the row in the same statement would take longer.
    """
    take = f"UPDATE {locks_name(view.pgt_id)} SET taken = taken + 1"
    if view.locks.whole:
        return [f"{take};"]
    lines = []
    for walk in view.locks.in_hand(oid) or ():
        low, high = f"__pgt_low_{walk.rank}", f"__pgt_high_{walk.rank}"
        lines.append(f"{take} WHERE slot = {low};")
        if high in look:
            lines.append(f"IF {high} <> {low} THEN {take} WHERE slot = {high}; END IF;")
    return lines


def _taken(table: str, parts: Sequence[str], ranks: Sequence[int]) -> str:
    """Many values take all slots of their kinds. LIMIT: who has too many need not count them all.

    Each kind has slots apart: two that shared one would be locked out of order.
    """
    wanted = "\nUNION ALL\n".join(parts)
    few = f"SELECT DISTINCT slot FROM ({wanted}) AS w LIMIT {MOST + 1}"
    firsts = listed(str(rank * SLOTS) for rank in ranks)
    every = (
        f"SELECT f + n FROM unnest(ARRAY[{firsts}]) AS f, generate_series(0, {SLOTS - 1}) AS n"
        if len(ranks) > 1
        else f"SELECT generate_series({firsts}, {firsts} + {SLOTS - 1})"
    )
    return (
        f"WITH wanted AS MATERIALIZED ({few}), held AS MATERIALIZED ("
        f"SELECT l.slot FROM {table} AS l WHERE l.slot = ANY ("
        f"CASE WHEN (SELECT count(*) FROM wanted) > {MOST}"
        f" THEN ARRAY({every})"
        " ELSE ARRAY(TABLE wanted) END)"
        f" ORDER BY l.slot FOR UPDATE)"
        f"\nUPDATE {table} AS t SET taken = taken + 1"
        f" WHERE t.slot = ANY (ARRAY(TABLE held))"
    )


def _value_slots(select: str, walk: Walk) -> str:
    """The slots of the values that changed rows have or had, or lead to; NULL joins nothing."""
    joined, at = f"({select}) AS h0", "h0"
    for number, hop in enumerate(walk.hops, 1):
        before, at = at, f"h{number}"
        pairs = zip(hop.left, hop.right, strict=True)
        tests = " AND ".join(
            f"{_of(at, there)} {type.equality} {_of(before, here)}"
            for (here, _), (there, type) in pairs
        )
        joined = f"{joined} JOIN {hop.relation} AS {at} ON {tests}"
    values = tuple((_of(at, name), type) for name, type in walk.columns)
    there = " AND ".join(f"{value} IS NOT NULL" for value, _ in values)
    return f"SELECT {slot_of(values, walk.rank)} AS slot FROM {joined} WHERE {there}"


def _of(row: str, name: str) -> str:
    return f"{row}.{identifier(name)}"


def later_lock_statements(view: View, selects: dict[int, str]) -> list[str]:
    """Return the statement that locks groups or images, if any: the change itself tells them.

    It reads what the locks of values hold still, so it comes after them.
    """
    locks, plan = view.locks, view.plan
    if locks.whole or not (locks.groups or locks.images):
        return []
    reader = DeltaReader(selects)
    if plan.root is not None:
        change, where = differentiate(plan.root.input, frozenset(selects)), ""
        of = {c.name: c.type for c in schema(change)}
        values = tuple((identifier(key), of[key]) for key in plan.root.keys)
    else:
        change = Consolidate(differentiate(plan.view, frozenset(selects)))
        where = f" WHERE {WEIGHT} < 0"
        hashed = [c for c in plan.columns if is_hashed(c.type)]
        values = tuple((identifier(c.name), c.type) for c in hashed)
    made = reader.renderer.render(change)
    if not made.signed:
        return []
    clause = reader.renderer.with_clause()
    select = f"SELECT {slot_of(values, locks.ranks)} AS slot FROM ({made.sql}) AS c{where}"
    part = f"({clause}{select})" if clause else select
    return [_taken(locks_name(view.pgt_id), [part], [locks.ranks])]
