"""Turns catalog classes into column lists, parameters and cursors that return them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import psycopg
from psycopg import sql
from psycopg.rows import kwargs_row, scalar_row
from psycopg.types.json import Jsonb

Row = TypeVar("Row")
Connection = psycopg.Connection[Any]

_ARRAYS = frozenset(
    {"key_columns", "columns_used", "columns", "tracked_by_pgt_ids", "leaves", "members"}
)
_JSON = frozenset({"frontier", "plan", "pinned_settings", "fingerprint", "policy", "timings"})
_AS_TEXT = frozenset({"snapshot", "xid"})


def is_inside(conn: Connection) -> bool:
    """Tell whether this is the transaction of a caller in the server, not a connection of ours."""
    return getattr(conn, "inside", False)


def names_of(model: type[Any]) -> tuple[str, ...]:
    """Return the column names of `model`."""
    return tuple(column.name for column in fields(model))


def columns_of(model: type[Any]) -> sql.Composed:
    """Return the select list of `model`."""
    return sql.SQL(", ").join(
        sql.SQL("{0}::text AS {0}" if name in _AS_TEXT else "{0}").format(sql.Identifier(name))
        for name in names_of(model)
    )


def cursor_of(conn: Connection, model: type[Row]) -> psycopg.Cursor[Row]:
    """Return a cursor whose rows are `model`s.

    Binary, because a refresh may run under any DateStyle and IntervalStyle, and psycopg reads
    only the default ones as text.
    """

    def build(**values: Any) -> Row:
        return model(**{name: frozen(name, value) for name, value in values.items()})

    return conn.cursor(binary=True, row_factory=kwargs_row(build))


def fetch_scalar(
    conn: Connection, query: sql.Composed | sql.SQL | bytes, values: Any = None
) -> Any:
    """Return the first column of the first row; None if there is no row."""
    with conn.cursor(binary=True, row_factory=scalar_row) as cursor:
        return cursor.execute(query, values).fetchone()


def parameters(values: Mapping[str, object]) -> dict[str, object]:
    """Return `values`, by column name, in the form that psycopg writes."""
    return {name: _parameter(name, value) for name, value in values.items()}


def parameters_of(row: Any) -> dict[str, object]:
    """Return the columns of `row` in the form that psycopg writes."""
    return parameters({name: getattr(row, name) for name in names_of(type(row))})


def identifiers(names: Iterable[str]) -> sql.Composed:
    """Return `names` as a comma-separated list of quoted columns."""
    return sql.SQL(", ").join(map(sql.Identifier, names))


def placeholders(names: Iterable[str]) -> sql.Composed:
    """Return a comma-separated list of parameters called `names`."""
    return sql.SQL(", ").join(map(sql.Placeholder, names))


def assignments(names: Iterable[str]) -> sql.Composed:
    """Return the SET list that gives each column of `names` the parameter of that name."""
    return sql.SQL(", ").join(
        sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in names
    )


def frozen(name: str, value: Any) -> Any:
    """Return the value of a column as the models hold it."""
    return tuple(value) if name in _ARRAYS and value is not None else value


def _parameter(name: str, value: object) -> object:
    if name in _JSON and value is not None:
        return Jsonb(value)
    if name in _ARRAYS and isinstance(value, tuple):
        return list(value)  # psycopg writes a tuple as a composite
    return value
