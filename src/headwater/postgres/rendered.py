"""Relations as SQL.

A relation is rendered as a SELECT. If it is *signed* it has a column `__weight`; a plain one has
weight 1 everywhere and no such column, so that states stay as cheap as the user's own query.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.algebra.ops import Op, schema
from headwater.algebra.schema import Schema
from headwater.postgres.quote import WEIGHT, identifier, image, listed, restored


@dataclass(frozen=True, slots=True)
class Rendered:
    """A SELECT and whether it has a weight column."""

    sql: str
    signed: bool


def quoted(columns: Schema) -> list[str]:
    """Return the names of columns as SQL."""
    return [identifier(c.name) for c in columns]


def select_from(columns: list[str], inner: Rendered, rest: str = "") -> Rendered:
    """Return outputs of a relation (alias `q`), with its weights; `rest` follows it."""
    outputs = columns + ([WEIGHT] if inner.signed else [])
    return Rendered(f"SELECT {listed(outputs)} FROM ({inner.sql}) AS q{rest}", inner.signed)


def as_arm(columns: Schema, arm: Op, made: Rendered, signed: bool) -> str:
    """Return an input of a union under the names of the union."""
    pairs = zip(schema(arm), columns, strict=True)
    outputs = [f"{identifier(a.name)} AS {identifier(c.name)}" for a, c in pairs]
    if signed:
        outputs.append(WEIGHT if made.signed else f"1 AS {WEIGHT}")
    return f"SELECT {listed(outputs)} FROM ({made.sql}) AS q"


def consolidated(columns: Schema, inner: Rendered) -> Rendered:
    """Sum weights per row image; the image stands for the value where equality is too coarse."""
    outputs = [f"{restored(identifier(c.name), c)} AS {identifier(c.name)}" for c in columns]
    outputs.append(f"sum({WEIGHT})::bigint AS {WEIGHT}")
    images = [image(identifier(c.name), c) for c in columns]
    group = f" GROUP BY {listed(images)}" if images else ""
    select = f"SELECT {listed(outputs)} FROM ({inner.sql}) AS q{group}"
    return Rendered(f"{select} HAVING sum({WEIGHT}) <> 0", True)
