"""Outer joins to an inner join and NULL-padded anti-joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.algebra.expr import Expr, column, text
from headwater.algebra.keys import unique_keys
from headwater.algebra.ops import AntiJoin, Join, Op, Output, Project, UnionAll, passing, schema
from headwater.algebra.schema import Column, Schema, names
from headwater.sql.blanks import null_of
from headwater.sql.correlate import same_value

if TYPE_CHECKING:
    from headwater.sql.lower import Lowering


def outer_join(
    low: Lowering, kind: str, join: Join, matched: Op | None = None
) -> tuple[Op, dict[str, Expr]]:
    """Lower an outer join to the inner join and NULL-padded anti-joins, matched by position.

    `matched` are the pairs that stay of the join, if its condition does not tell alone; rows are
    then padded that are in none of them. Returns with it where the value of each column is now.
    """
    left, right, columns = join.left, join.right, schema(join)
    arms: list[Op] = []
    padded: set[str] = set()
    if kind in ("LEFT", "FULL"):
        arms.append(_pad(low, _unmatched(low, left, right, join.on, matched), columns))
        padded |= set(names(schema(right)))
    if kind in ("RIGHT", "FULL"):
        arms.append(_pad(low, _unmatched(low, right, left, join.on, matched), columns))
        padded |= set(names(schema(left)))
    made = tuple(
        low.fresh(c.name, c.type, nullable=c.nullable or c.name in padded) for c in columns
    )
    pairs = join if matched is None else Project(matched, passing(columns))
    union = UnionAll((pairs, *arms), made, _outer_key(kind, join, made))
    return union, {c.name: column(m.name) for c, m in zip(columns, made, strict=True)}


def _unmatched(
    low: Lowering, kept: Op, other: Op, on: tuple[Expr, ...], matched: Op | None
) -> AntiJoin:
    """Rows of one side without a match; with `matched`, those that are in no pair of it."""
    if matched is None:
        return AntiJoin(kept, other, on)
    keys = unique_keys(kept)
    own = [c for c in schema(kept) if not keys or c.name in keys[0]]
    there = [low.fresh(c.name, c.type, nullable=c.nullable) for c in own]
    outputs = tuple(Output(t, column(c.name)) for t, c in zip(there, own, strict=True))
    same = tuple(_same(c, t) for c, t in zip(own, there, strict=True))
    return AntiJoin(kept, Project(matched, outputs), same)


def _same(a: Column, b: Column) -> Expr:
    """Tell whether two values are the same, not only equal."""
    if a.type.is_image:
        return same_value(a, b)
    image = text("(", column(a.name), ")::text")
    return text(image, " IS NOT DISTINCT FROM (", column(b.name), ")::text")


def _pad(low: Lowering, kept: AntiJoin, columns: Schema) -> Project:
    own = set(names(schema(kept)))
    outputs = []
    for c in columns:
        expr = column(c.name) if c.name in own else null_of(c)
        outputs.append(Output(low.fresh(c.name, c.type), expr))
    return Project(kept, tuple(outputs))


def _outer_key(kind: str, join: Join, made: Schema) -> tuple[str, ...]:
    """A key of the outer join: its arms differ in which side is padded, and a key's own columns
    are never NULL unless an outer join below padded them; then the result counts as a bag."""
    position = {c.name: m.name for c, m in zip(schema(join), made, strict=True)}
    not_null = {c.name for c in schema(join) if not c.nullable}
    left = [k for k in unique_keys(join.left) if k <= not_null]
    right = [k for k in unique_keys(join.right) if k <= not_null]
    keys = [k for k in unique_keys(join) if k <= not_null]
    if kind == "LEFT":
        keys = [k for k in keys if any(own <= k for own in left)]
    elif kind == "RIGHT":
        keys = [k for k in keys if any(own <= k for own in right)]
    else:
        keys = [a | b for a in left for b in right]
    return tuple(sorted(position[name] for name in keys[0])) if keys else ()
