"""Columns and their types, as PostgreSQL described them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SqlType:
    """A column's type, with what comparison needs to know about it.

    `equality` is the operator of the type's default operator class, None where it has none
    (json, xml, point). `is_image` says that equal values are the same bytes: false for numeric
    (1.0 = 1.00), floats (0 = -0), citext, intervals and every type without equality; values of
    such a type are told apart by their text.
    """

    name: str
    collation: str | None = None
    equality: str | None = "="
    is_image: bool = True


@dataclass(frozen=True, slots=True)
class Column:
    """A named, typed column; names are unique in a whole operator tree."""

    name: str
    type: SqlType
    nullable: bool = True


Schema = tuple[Column, ...]

FIXED_SIZE = frozenset(
    {
        *("smallint", "integer", "bigint", "boolean", "date", "uuid"),
        *("timestamp without time zone", "timestamp with time zone"),
    }
)  # types whose values always fit into an index

BIGINT = SqlType("bigint")
NUMERIC = SqlType("numeric", is_image=False)


def names(schema: Schema) -> tuple[str, ...]:
    """Return the column names in order."""
    return tuple(column.name for column in schema)


_INTEGERS = {"smallint", "integer", "bigint"}


def compare_alike(a: SqlType, b: SqlType) -> bool:
    """Tell whether `=` between the types is the equality of both: the same type, or integers."""
    if a.name in _INTEGERS and b.name in _INTEGERS:
        return True
    bare = a.name.partition("(")[0], b.name.partition("(")[0]
    return bare[0] == bare[1] and (a.collation, a.equality) == (b.collation, b.equality)
