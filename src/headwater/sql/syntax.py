"""The structure of a canonical query: clauses and FROM items; expressions stay tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headwater.sql.lexer import Token, Tokens


@dataclass(frozen=True, slots=True)
class Target:
    """One output column: its expression and its name."""

    tokens: Tokens
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """A plain SELECT block.

    `distinct_on` holds the expressions of DISTINCT ON; `group_by` the grouping sets, of which a
    plain GROUP BY is one; `windows` the WINDOW clause.
    """

    targets: tuple[Target, ...]
    distinct: bool = False
    from_items: tuple[FromItem, ...] = ()
    where: Tokens | None = None
    group_by: tuple[tuple[Tokens, ...], ...] | None = None
    having: Tokens | None = None
    distinct_on: tuple[Tokens, ...] = ()
    windows: tuple[tuple[str, Tokens], ...] = ()


@dataclass(frozen=True, slots=True)
class Values:
    """A list of rows."""

    rows: tuple[tuple[Tokens, ...], ...]


@dataclass(frozen=True, slots=True)
class SetOperation:
    """UNION, INTERSECT or EXCEPT of two queries."""

    kind: str
    all: bool
    left: Query
    right: Query


@dataclass(frozen=True, slots=True)
class Ordered:
    """A query of which ORDER BY, LIMIT and OFFSET keep some rows; the order alone means nothing."""

    query: Query
    order_by: tuple[Tokens, ...]
    limit: Tokens | None = None
    offset: Tokens | None = None
    with_ties: bool = False


@dataclass(frozen=True, slots=True)
class CommonTable:
    """One WITH item; `tokens` is all of it."""

    name: str
    columns: tuple[str, ...]
    query: Query
    tokens: Tokens = ()


@dataclass(frozen=True, slots=True)
class With:
    """A query with its WITH list; `tokens` is all of one that is recursive."""

    tables: tuple[CommonTable, ...]
    body: Query
    recursive: bool = False
    tokens: Tokens = ()


Query = Select | Values | SetOperation | Ordered | With


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
    """A subquery in FROM, with or without LATERAL: what it reads from outside tells."""

    query: Query
    alias: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionItem:
    """Functions in FROM, side by side; each with its column definitions, if it has some."""

    functions: tuple[Tokens, ...]
    alias: str
    columns: tuple[str, ...] = ()
    numbered: bool = False


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


FromItem = TableItem | SubqueryItem | FunctionItem | JoinItem


def output_names(query: Query) -> tuple[str, ...]:
    """Return the names of a query's output columns; a set operation has those of its left side."""
    match query:
        case With():
            return output_names(query.body)
        case Ordered():
            return output_names(query.query)
        case SetOperation():
            return output_names(query.left)
        case Values():
            return tuple(f"column{n}" for n, _ in enumerate(query.rows[0], 1))
        case Select():
            return tuple(t.name for t in query.targets)


def expressions_of(part: object) -> Iterator[Tokens]:
    """Yield every run of tokens in a part of the structure."""
    if isinstance(part, list | tuple) and part and isinstance(part[0], Token):
        yield part
    elif isinstance(part, list | tuple):
        for item in part:
            yield from expressions_of(item)
    elif dataclasses.is_dataclass(part) and not isinstance(part, Token):
        for field in dataclasses.fields(part):
            yield from expressions_of(getattr(part, field.name))


def tables_of(part: object) -> Iterator[str]:
    """Yield the names without a schema of the relations in FROM, at any depth."""
    if isinstance(part, TableItem) and part.schema is None:
        yield part.name
    elif isinstance(part, list | tuple):
        for item in part:
            yield from tables_of(item)
    elif dataclasses.is_dataclass(part) and not isinstance(part, Token):
        for field in dataclasses.fields(part):
            yield from tables_of(getattr(part, field.name))


def mapped(part: Any, change: Callable[[Token], Token]) -> Any:
    """Return a part of the structure with every token changed."""
    if isinstance(part, Token):
        return change(part)
    if isinstance(part, list | tuple):
        return tuple(mapped(item, change) for item in part)
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        new = {f.name: mapped(getattr(part, f.name), change) for f in dataclasses.fields(part)}
        return dataclasses.replace(part, **new)
    return part
