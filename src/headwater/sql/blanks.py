"""What stands for the value of a column in a row that has none."""

from __future__ import annotations

from headwater.algebra.expr import Expr, text
from headwater.algebra.schema import Column


def null_of(c: Column) -> Expr:
    """A NULL of the column's type. A domain may refuse one in a cast, but not that of no row."""
    collate = f" COLLATE {c.type.collation}" if c.type.collation else ""
    null = f"NULL::{c.type.name}{collate}"
    is_own_type = "." in c.type.name
    return text(f"(SELECT {null} WHERE FALSE)" if is_own_type else null)
