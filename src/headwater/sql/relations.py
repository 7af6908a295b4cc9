"""What the server told us about a query: its canonical text and the relations that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.algebra.ops import Source
from headwater.algebra.schema import Schema, SqlType


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column of a relation."""

    name: str
    type: SqlType
    not_null: bool
    is_virtual: bool = False  # a virtual generated column: never in a transition table


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation in a query; `query` is a view's own qualified text."""

    source: Source
    kind: str  # pg_class.relkind
    attributes: tuple[Attribute, ...]
    query: str | None = None
    obstacle: tuple[str, str, str] | None = None  # what, why, fix: why it cannot be captured


@dataclass(frozen=True, slots=True)
class Function:
    """A function that the query calls."""

    name: str
    volatility: str
    is_built_in: bool
    returns_set: bool


@dataclass(frozen=True, slots=True)
class Analysis:
    """One analysed query.

    `canonical` is the query as the server prints it; `qualified` the same with every column
    qualified by its alias, which is what lowering reads.
    """

    canonical: str
    qualified: str
    columns: Schema
    relations: Mapping[tuple[str | None, str], Relation]
    aggregates: frozenset[tuple[str | None, str]]
    functions: tuple[Function, ...]
