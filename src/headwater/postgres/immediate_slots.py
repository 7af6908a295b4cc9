"""The locks of a maintaining transaction as statements, which run before it reads anything."""

from __future__ import annotations

from collections.abc import Container, Sequence

from headwater.algebra.ops import Consolidate, schema
from headwater.delta.differentiate import differentiate
from headwater.postgres.apply import DeltaReader
from headwater.postgres.immediate_locks import MOST, SLOTS, Locks, is_hashed, slot_of
from headwater.postgres.immediate_view import View, locks_name
from headwater.postgres.quote import WEIGHT, identifier


def lock_statement(view: View, selects: dict[int, str]) -> str | None:
    """Return the statement that takes the locks for these changes, in one order."""
    locks, table = view.locks, locks_name(view.pgt_id)
    if locks.is_none:
        return None
    if locks.whole:
        return f"UPDATE {table} SET taken = taken + 1"
    parts = _value_slots(locks, selects)
    return _taken(table, parts, 0) if parts else None


def look_at_slots(view: View, oid: int, event: str) -> dict[str, tuple[str, str]]:
    """Return what to look up of one changed row: the slots of its values, the lower one first.

    Nothing if more values may be wanted, or none are.
    """
    locks = view.locks
    wanted = () if locks.whole else locks.values.get(oid, ())
    if len(wanted) != 1:
        return {}
    slots = []
    for side in {"insert": "n", "delete": "o", "update": "on"}[event]:
        values = tuple((f"{side}.{identifier(name)}", type) for name, type in wanted[0])
        there = " AND ".join(f"{v} IS NOT NULL" for v, _ in values)
        slots.append(f"CASE WHEN {there} THEN {slot_of(values)} END")
    if event != "update":
        return {"__pgt_low": (slots[0], "int")}
    both = ", ".join(slots)
    return {"__pgt_low": (f"least({both})", "int"), "__pgt_high": (f"greatest({both})", "int")}


def single_lock_lines(view: View, event: str, look: Container[str]) -> list[str]:
    """Return the lines that take the locks of one changed row: of one value, or of two in order.

    To look at the row in the same statement would take longer.
    """
    take = f"UPDATE {locks_name(view.pgt_id)} SET taken = taken + 1"
    if view.locks.whole:
        return [f"{take};"]
    if "__pgt_low" not in look:
        return []
    lines = [f"{take} WHERE slot = __pgt_low;"]
    if event == "update":
        second = f"{take} WHERE slot = __pgt_high"
        lines.append(f"IF __pgt_high <> __pgt_low THEN {second}; END IF;")
    return lines


def _taken(table: str, parts: Sequence[str], first: int) -> str:
    """Many values take all slots of their kind, which begin at `first`.

    Values and groups have slots apart: a group that shared one with a value would be locked out of
    order. LIMIT: whoever has too many need not count them all.
    """
    wanted = "\nUNION ALL\n".join(parts)
    few = f"SELECT DISTINCT slot FROM ({wanted}) AS w LIMIT {MOST + 1}"
    return (
        f"WITH wanted AS MATERIALIZED ({few}), held AS MATERIALIZED ("
        f"SELECT l.slot FROM {table} AS l WHERE l.slot = ANY ("
        f"CASE WHEN (SELECT count(*) FROM wanted) > {MOST}"
        f" THEN ARRAY(SELECT generate_series({first}, {first + SLOTS - 1}))"
        " ELSE ARRAY(TABLE wanted) END)"
        f" ORDER BY l.slot FOR UPDATE)"
        f"\nUPDATE {table} AS t SET taken = taken + 1"
        f" WHERE t.slot = ANY (ARRAY(TABLE held))"
    )


def _value_slots(locks: Locks, selects: dict[int, str]) -> list[str]:
    """The slots of the join values that changed rows have or had; NULL joins nothing."""
    parts = []
    for oid, select in selects.items():
        for attributes in locks.values.get(oid, ()):
            values = tuple((identifier(name), type) for name, type in attributes)
            there = " AND ".join(f"{v} IS NOT NULL" for v, _ in values)
            parts.append(f"SELECT {slot_of(values)} AS slot FROM ({select}) AS c WHERE {there}")
    return parts


def later_lock_statement(view: View, selects: dict[int, str]) -> str | None:
    """Return the statement that locks groups or images, which the change itself tells.

    It reads what the locks of values hold still, so it comes after them.
    """
    locks, plan = view.locks, view.plan
    if locks.whole or not (locks.groups or locks.images):
        return None
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
        return None
    clause = reader.renderer.with_clause()
    select = f"SELECT {slot_of(values)} + {SLOTS} AS slot FROM ({made.sql}) AS c{where}"
    part = f"({clause}{select})" if clause else select
    return _taken(locks_name(view.pgt_id), [part], SLOTS)
