"""The structure of a canonical query: clauses and FROM items; expressions stay tokens."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.sql.lexer import Tokens


@dataclass(frozen=True, slots=True)
class Target:
    """One output column: its expression and its name."""

    tokens: Tokens
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """A plain SELECT block."""

    targets: tuple[Target, ...]
    distinct: bool = False
    from_items: tuple[FromItem, ...] = ()
    where: Tokens | None = None
    group_by: tuple[Tokens, ...] | None = None
    having: Tokens | None = None


@dataclass(frozen=True, slots=True)
class SetOperation:
    """UNION, INTERSECT or EXCEPT of two queries."""

    kind: str
    all: bool
    left: Query
    right: Query


@dataclass(frozen=True, slots=True)
class CommonTable:
    """One WITH item."""

    name: str
    columns: tuple[str, ...]
    query: Query


@dataclass(frozen=True, slots=True)
class With:
    """A query with its WITH list."""

    tables: tuple[CommonTable, ...]
    body: Query


Query = Select | SetOperation | With


@dataclass(frozen=True, slots=True)
class TableItem:
    """A relation or common table in FROM; `schema` is None for a name without one."""

    schema: str | None
    name: str
    alias: str
    columns: tuple[str, ...] = ()
    only: bool = False


@dataclass(frozen=True, slots=True)
class SubqueryItem:
    """A subquery in FROM."""

    query: Query
    alias: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinItem:
    """A join in FROM: kind is INNER, LEFT, RIGHT or FULL.

    `alias` names the whole join and hides the names inside; `using_alias` names only the columns
    of USING and hides nothing.
    """

    kind: str
    left: FromItem
    right: FromItem
    on: Tokens | None = None
    using: tuple[str, ...] = ()
    using_alias: str | None = None
    alias: str | None = None
    columns: tuple[str, ...] = ()


FromItem = TableItem | SubqueryItem | JoinItem


def output_names(query: Query) -> tuple[str, ...]:
    """Return the names of a query's output columns; a set operation has those of its left side."""
    match query:
        case With():
            return output_names(query.body)
        case SetOperation():
            return output_names(query.left)
        case Select():
            return tuple(t.name for t in query.targets)
