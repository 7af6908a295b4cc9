"""What the server told us about a query: its canonical text and the relations that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.algebra.ops import Source
from headwater.algebra.schema import Schema, SqlType
from headwater.sql.policies import Policy


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column of a relation."""

    name: str
    type: SqlType
    not_null: bool
    generated: str | None = None  # the expression of a virtual column, which no trigger sees


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation in a query; `query` is a view's own qualified text.

    `virtual` is a SELECT of the virtual generated columns from the table as `source`; `used` are
    the columns that the query, or a view in it, depends on.
    """

    source: Source
    kind: str  # pg_class.relkind
    attributes: tuple[Attribute, ...]
    query: str | None = None
    obstacle: tuple[str, str, str] | None = None  # what, why, fix: why it cannot be captured
    virtual: str | None = None
    used: frozenset[str] = frozenset()
    policy: Policy | None = None  # None: the reader sees all rows


@dataclass(frozen=True, slots=True)
class Function:
    """A function that the query calls; `oid` is 0 for what only looks like one."""

    name: str
    volatility: str
    is_built_in: bool
    oid: int = 0


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
    set_functions: frozenset[tuple[str | None, str]]
    functions: tuple[Function, ...]
