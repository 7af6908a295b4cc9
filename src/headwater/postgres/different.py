"""The different values of a group, each with the number of its rows.

count(DISTINCT x) and sum(DISTINCT x) change only when a value comes for the first time or goes for
the last. A private table for each x holds a row for each group and value with a count, which adds:

changed_values   the change of the count, per group and value
known_values     the stored counts of those
counted_values   the counts before and after
moved_values     per group, what the calls gain and lose

NULL is no value. Values are the same by the equality of their type, as DISTINCT has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headwater.algebra.calls import Call, Kind
from headwater.algebra.expr import refs
from headwater.algebra.ops import Aggregate, Op, schema
from headwater.algebra.schema import BIGINT, FIXED_SIZE, Column, Schema
from headwater.postgres.pieces import WIDER
from headwater.postgres.quote import (
    WEIGHT,
    at_places,
    identifier,
    is_null,
    listed,
    looked_up,
    same,
)
from headwater.postgres.render import Renderer
from headwater.postgres.state import delta_groups

_COUNT = "__rows"
_VALUE = "__value"


@dataclass(frozen=True, slots=True)
class Different:
    """The different values of one column of a root aggregate's input, and the calls over them."""

    table: str
    keys: Schema
    value: Column
    calls: tuple[Call, ...]

    @property
    def columns(self) -> list[str]:
        """The columns that a value is found by."""
        return [*(identifier(k.name) for k in self.keys), _VALUE]


def different_values(root: Aggregate, state: str) -> tuple[Different, ...]:
    """Return what is kept of each column whose different values are called for."""
    of = {c.name: c for c in schema(root.input)}
    calls = [c for c in root.calls if c.kind is Kind.DISTINCT]
    read = {c: next(iter(refs(c.expr))) for c in calls}
    keys = tuple(of[key] for key in root.keys)
    return tuple(
        Different(
            f"{state}_{number}",
            keys,
            replace(of[name], nullable=False),
            tuple(c for c in calls if read[c] == name),
        )
        for number, name in enumerate(dict.fromkeys(read.values()), 1)
    )


def stored_values(kept: Different, source: str) -> str:
    """Return the SELECT of all values with their counts, from that of the root's input."""
    return _grouped(kept, source, "count(*)")


def index_on(kept: Different, *, has_long_keys: bool) -> str:
    """Return what the index is on; values that may be long by their hash, since they fit none."""
    keys = [] if has_long_keys else [identifier(k.name) for k in kept.keys]
    is_short = kept.value.type.name in FIXED_SIZE
    return listed([*keys, _VALUE if is_short else f"({_hash(_VALUE)})"])


def _hash(value: str) -> str:
    return f"hash_record_extended(ROW({value}), 0)"


def _grouped(kept: Different, source: str, count: str) -> str:
    keys = [identifier(k.name) for k in kept.keys]
    value = identifier(kept.value.name)
    outputs = listed([*keys, f"{value} AS {_VALUE}", f"{count} AS {_COUNT}"])
    group = listed([*keys, value])
    return f"SELECT {outputs} FROM ({source}) AS q WHERE NOT ({is_null(value)}) GROUP BY {group}"


def count_values(renderer: Renderer, kept: Different, change: str) -> str:
    """Add the common tables up to the counts before and after, and return the name of that."""
    grouped = _grouped(kept, f"SELECT * FROM {change}", f"sum({WEIGHT})::bigint")
    select = f"{grouped} HAVING sum({WEIGHT}) <> 0"
    changed = renderer.add(
        "changed_values", f"SELECT row_number() OVER () AS __id, * FROM ({select}) AS q"
    )
    known = renderer.add("known_values", _known(kept, changed))
    old = f"coalesce(k.{_COUNT}, 0)"
    outputs = [*(f"c.{name}" for name in kept.columns), "k.__row"]
    outputs += [f"{old} AS __before", f"{old} + c.{_COUNT} AS __after"]
    return renderer.add(
        "counted_values",
        f"SELECT {listed(outputs)} FROM {changed} AS c LEFT JOIN {known} AS k USING (__id)",
    )


def _known(kept: Different, changed: str) -> str:
    value = replace(kept.value, name=_VALUE)
    sides = [(f"l.{identifier(c.name)}", f"t.{identifier(c.name)}", c) for c in (*kept.keys, value)]
    sides.append((_hash(f"l.{_VALUE}"), _hash(f"t.{_VALUE}"), Column("", BIGINT, nullable=False)))
    return looked_up(f"l.__id, t.ctid AS __row, t.{_COUNT}", changed, kept.table, sides)


def moved_values(kept: Different, counted: str) -> str:
    """Return per group what the calls gain by values that came and lose by those that went."""
    keys = [identifier(k.name) for k in kept.keys]
    sign = "(CASE WHEN __after > 0 THEN 1 ELSE 0 END - CASE WHEN __before > 0 THEN 1 ELSE 0 END)"
    outputs = [
        *keys,
        *(f"{_gain(kept, c, sign)} AS {identifier(c.column.name)}" for c in kept.calls),
    ]
    group = f" GROUP BY {listed(keys)}" if keys else ""
    return f"SELECT {listed(outputs)} FROM {counted}{group}"


def _gain(kept: Different, call: Call, sign: str) -> str:
    wide = WIDER.get(kept.value.type.name, kept.value.type.name)
    each = f"{_VALUE}::{wide} * {sign}" if is_sum(call) else sign
    return f"coalesce(sum({each}), 0)::{call.column.type.name}"


def is_sum(call: Call) -> bool:
    """Tell whether a call over different values adds them up; else it counts them."""
    return "sum(" in str(call.expr.parts[0])


def with_moved(deltas: str, moved: dict[Different, str]) -> str:
    """Return the change per group with that of the calls over different values."""
    outputs, joins = ["d.*"], []
    for number, (kept, name) in enumerate(moved.items()):
        alias = f"v{number}"
        outputs += [
            f"coalesce({alias}.{n}, 0) AS {n}"
            for n in (identifier(c.column.name) for c in kept.calls)
        ]
        sides = ((identifier(k.name), k) for k in kept.keys)
        on = " AND ".join(same(f"d.{n}", f"{alias}.{n}", k) for n, k in sides) or "TRUE"
        joins.append(f" LEFT JOIN {name} AS {alias} ON {on}")
    return f"SELECT {listed(outputs)} FROM {deltas} AS d{''.join(joins)}"


def value_writes(kept: Different, counted: str) -> dict[str, str]:
    """Return the statements that store the new counts."""
    columns = listed([*kept.columns, _COUNT])
    number = kept.table.rpartition("_")[2]
    gone = f"SELECT __row FROM {counted} WHERE __after = 0 AND __row IS NOT NULL"
    return {
        f"values_updated_{number}": f"UPDATE {kept.table} AS t SET {_COUNT} = c.__after"
        f" FROM {counted} AS c WHERE t.ctid = c.__row AND c.__after <> 0"
        f" AND {at_places(f'SELECT __row FROM {counted}')}",
        f"values_inserted_{number}": f"INSERT INTO {kept.table} ({columns})"
        f" SELECT {listed([*kept.columns, '__after'])} FROM {counted} WHERE __row IS NULL",
        f"values_deleted_{number}": f"DELETE FROM {kept.table} AS t WHERE {at_places(gone)}",
    }


@dataclass(frozen=True, slots=True)
class Deltas:
    """The change per group as a common table, and what else is written and checked with it."""

    name: str
    writes: dict[str, str] = field(default_factory=dict)
    damaged: str = ""  # the counts of values that cannot be, to be added


def render_deltas(renderer: Renderer, root: Aggregate, state: str, change: Op) -> Deltas:
    """Add the change per group of an aggregate; `change` is Δ of its input."""
    made, kept = renderer.render(change).sql, different_values(root, state)
    if not kept:
        return Deltas(renderer.add("delta_groups", delta_groups(root, made)))
    rows = renderer.add("input_change", made)
    sums = renderer.add("delta_sums", delta_groups(root, f"SELECT * FROM {rows}"))
    counted = {one: count_values(renderer, one, rows) for one in kept}
    moved = {k: renderer.add("moved_values", moved_values(k, c)) for k, c in counted.items()}
    writes: dict[str, str] = {}
    for one, name in counted.items():
        writes |= value_writes(one, name)
    checks = (f" + (SELECT count(*) FROM {name} WHERE __after < 0)" for name in counted.values())
    deltas = renderer.add("delta_groups", with_moved(sums, moved))
    return Deltas(deltas, writes, "".join(checks))
