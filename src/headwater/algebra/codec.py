"""Operator trees as JSON values and back, so that a refresh parses no SQL."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from headwater.algebra import calls, expr, ops, outside, schema
from headwater.algebra.schema import Column, Schema
from headwater.errors import bug

Json = Any  # what JSON decodes to

_TYPES: dict[str, type] = {
    cls.__name__: cls
    for module in (calls, expr, ops, outside, schema)
    for cls in vars(module).values()
    if isinstance(cls, type) and (dataclasses.is_dataclass(cls) or issubclass(cls, enum.Enum))
}


def encode(value: object) -> Json:
    """Return the JSON form of a node, tuple, enum member or plain value."""
    match value:
        case None | bool() | int() | str():
            return value
        case tuple():
            return [encode(item) for item in value]
        case enum.Enum():
            return {"is": type(value).__name__, "value": value.value}
    if not dataclasses.is_dataclass(value) or type(value).__name__ not in _TYPES:
        raise bug(f"{type(value).__name__} cannot be stored", "it is no node of an operator tree")
    fields = {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return {"is": type(value).__name__, **fields}


def decode(value: Json) -> object:
    """Return the value that `encode` was given."""
    match value:
        case list():
            return tuple(decode(item) for item in value)
        case {"is": str(name), **fields}:
            if name not in _TYPES:
                raise bug(f"unknown node {name} in a stored plan", "it was written by other code")
            arguments = {str(key): decode(item) for key, item in fields.items()}
            return _TYPES[name](**arguments)
    return value


def decode_op(value: Json) -> ops.Op:
    """Return the operator tree that `encode` was given."""
    op = decode(value)
    if not isinstance(op, ops.Op):
        raise bug("a stored plan is no operator tree", f"it decodes to {type(op).__name__}")
    return op


def decode_columns(value: Json) -> Schema:
    """Return the columns that `encode` was given."""
    columns = decode(value)
    if not isinstance(columns, tuple) or not all(isinstance(c, Column) for c in columns):
        raise bug("stored columns are no columns", f"they decode to {columns!r}")
    return columns
