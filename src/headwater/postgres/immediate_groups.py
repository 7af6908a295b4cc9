"""Groups whose sums add, followed by two upserts: of the state, and from it of the stream table.

An upsert adds to whatever the row holds when its lock is got, so no other lock on the group is
needed: not even a new group, or one that is emptied at the same time, is missed. Rows are taken in
the order of their keys. Groups that vanish, or that a filter hides now, need a second statement.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.algebra.expr import as_column
from headwater.algebra.ops import Aggregate, Op, schema
from headwater.algebra.schema import Column, Schema
from headwater.postgres.maintenance import Maintenance, is_additive
from headwater.postgres.pairing import Shown, shown_of
from headwater.postgres.pieces import aggregated
from headwater.postgres.quote import (
    WEIGHT,
    condition,
    expression,
    identifier,
    image,
    listed,
    looked_up,
)
from headwater.postgres.render import Renderer
from headwater.postgres.state import keys_of, values_of
from headwater.postgres.target import Target

_INDEX_LIMIT = 32


@dataclass(frozen=True, slots=True)
class Groups:
    """A view of which each row shows one group, under the group's own key."""

    root: Aggregate
    shown: Shown
    key: dict[str, str]  # column of the stream table → key of the group

    @property
    def keys(self) -> Schema:
        """The key columns of the state."""
        return keys_of(self.root)


def find_groups(plan: Maintenance) -> Groups | None:
    """Return the view as such groups; None if it is none, or if its sums do not add.

    Groups over what is kept itself are not, since that moves in the same statement.
    """
    root = plan.root
    if root is None or plan.key is None or plan.kept:
        return None
    if not 0 < len(root.keys) <= _INDEX_LIMIT:
        return None
    shown = shown_of(plan.view, root)
    plain = all(c.type.is_image and not c.type.name.endswith("[]") for c in keys_of(root))
    if shown is None or not is_additive(root) or not plain:
        return None
    of = {name: as_column(shown.values[name]) for name in plan.key}
    key = {name: k for name, k in of.items() if k in root.keys}
    is_whole = len(key) == len(plan.key) and sorted(key.values()) == sorted(root.keys)
    return Groups(root, shown, key) if is_whole else None


def variables(groups: Groups) -> dict[str, str]:
    """Return the variables of the function, with their types: keys of groups to take away."""
    return {f"__pgt_key_{n}": f"{c.type.name}[]" for n, c in enumerate(groups.keys)}


def upsert_statement(groups: Groups, target: Target, renderer: Renderer, change: Op) -> str:
    """Return the statement that adds a change of the root's input to state and stream table.

    It returns how many groups have a negative count, and the keys of those that show no more.
    """
    renderer.add("added", _added(groups, target, renderer, change))
    renderer.add("shown", _shown(groups, target))
    hidden = f"NOT ({is_shown(groups)})"
    keys = [f"array_agg({identifier(k.name)}) FILTER (WHERE {hidden})" for k in groups.keys]
    count = identifier(groups.root.count.name)
    outputs = [f"count(*) FILTER (WHERE {count} < 0)", *keys]
    return f"{renderer.with_clause()}SELECT {listed(outputs)} FROM added"


def _added(groups: Groups, target: Target, renderer: Renderer, change: Op) -> str:
    root = groups.root
    made = renderer.render(change)
    of = {c.name: c for c in schema(root.input)}
    keys = [identifier(k) for k in root.keys]
    sums = {root.count.name: f"coalesce(sum({WEIGHT}), 0)::bigint"}
    sums |= {c.column.name: aggregated(c, of, signed=True) for c in root.calls}
    outputs = [*keys, *(f"{value} AS {identifier(name)}" for name, value in sums.items())]
    changed = " OR ".join(f"{value} <> 0" for value in sums.values())
    columns = listed([*keys, *map(identifier, sums)])
    sets = listed(f"{n} = m.{n} + excluded.{n}" for n in map(identifier, sums))
    return (
        f"INSERT INTO {target.state} AS m ({columns})"
        f"\nSELECT {listed(outputs)} FROM ({made.sql}) AS q GROUP BY {listed(keys)}"
        f" HAVING {changed} ORDER BY {listed(keys)}"
        f"\nON CONFLICT ({listed(keys)}) DO UPDATE SET {sets}"
        f" RETURNING {listed(f'm.{identifier(n)}' for n in (*root.keys, *values_of(root)))}"
    )


def is_shown(groups: Groups) -> str:
    """Return the test that a group shows; one of no rows may not bear its expressions."""
    there = f"{identifier(groups.root.count.name)} > 0"
    if not groups.shown.conjuncts:
        return there
    return f"CASE WHEN {there} THEN ({condition(groups.shown.conjuncts)}) IS TRUE ELSE FALSE END"


def _shown(groups: Groups, target: Target) -> str:
    names = [identifier(c.name) for c in target.columns]
    values = listed(expression(groups.shown.values[c.name]) for c in target.columns)
    others = tuple(c for c in target.columns if c.name not in groups.key)
    key = listed(map(identifier, groups.key))
    insert = f"INSERT INTO {target.name} AS t ({listed(names)}) SELECT {values} FROM added"
    return f"{insert} WHERE {is_shown(groups)}\nON CONFLICT ({key}) {overwriting(others)}"


def overwriting(columns: Schema) -> str:
    """Return what an upsert does with a row that is there: nothing if it stays the same."""
    if not columns:
        return "DO NOTHING"
    named: list[tuple[str, Column]] = [(identifier(c.name), c) for c in columns]
    sets = listed(f"{n} = excluded.{n}" for n, _ in named)
    differs = " OR ".join(
        f"{image(f't.{n}', c)} IS DISTINCT FROM {image(f'excluded.{n}', c)}" for n, c in named
    )
    return f"DO UPDATE SET {sets} WHERE {differs}"


def hiding_statement(groups: Groups, target: Target) -> str:
    """Return the statement that takes groups away which show no more, by their keys."""
    keys = groups.keys
    given = listed(variables(groups))
    wanted = f"(SELECT * FROM unnest({given}) AS k ({listed(identifier(k.name) for k in keys)}))"
    sides = [(f"l.{identifier(k.name)}", f"t.{identifier(k.name)}", k) for k in keys]
    count = identifier(groups.root.count.name)
    empty = looked_up(f"t.ctid AS __row, t.{count} AS __n", wanted, str(target.state), sides)
    own = {k: name for name, k in groups.key.items()}
    pairs = [(f"l.{identifier(k.name)}", f"t.{identifier(own[k.name])}", k) for k in keys]
    stored = looked_up("t.ctid AS __row", wanted, target.name, pairs)
    return (
        f"WITH gone AS (DELETE FROM {target.name} AS t"
        f" WHERE t.ctid = ANY (ARRAY(SELECT __row FROM ({stored}) AS s)))"
        f"\nDELETE FROM {target.state} AS t"
        f" WHERE t.ctid = ANY (ARRAY(SELECT __row FROM ({empty}) AS e WHERE __n = 0))"
    )
