"""Statements with parameters to plain SQL text, and values of the server to values of Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from psycopg import sql
from psycopg.adapt import Transformer
from psycopg.pq import Format

Query = str | bytes | sql.Composable
Parameters = Sequence[Any] | Mapping[str, Any] | None

_MARK = re.compile(r"%(?:%|[sbt]|\((?P<name>[^)]+)\)[sbt])")
_QUIET = re.compile(
    r"""
    [eE]'(?:[^'\\]|\\.|'')*'          # a string with escapes
  | '(?:[^']|'')*'                    # a plain one
  | "(?:[^"]|"")*"                    # a name
  | \$(?P<tag>[^\W\d]\w*|)\$.*?\$(?P=tag)\$
  | --[^\n]*
  | /\*.*?\*/
    """,
    re.VERBOSE | re.DOTALL,
)
# What PL/Python hands over as text although psycopg's users get a value.
_TEXTS = frozenset({114, 1082, 1083, 1114, 1184, 1186, 1266, 2950, 3802})


def merged(query: Query, parameters: Parameters) -> str:
    """Return a statement with its parameters written into it, as psycopg takes both.

    PL/Python knows no parameter without a declared type; a literal takes the type of its place, as
    a parameter of psycopg does.
    """
    text = _text(query)
    if parameters is None:
        return text
    values = iter(parameters) if not isinstance(parameters, Mapping) else iter(())

    def literal(mark: re.Match[str]) -> str:
        if mark[0] == "%%":
            return "%"
        name = mark["name"]
        value = parameters[name] if isinstance(parameters, Mapping) else next(values)
        return sql.Literal(value).as_string(None)

    return _MARK.sub(literal, text)


def _text(query: Query) -> str:
    if isinstance(query, bytes):
        return query.decode()
    return query if isinstance(query, str) else query.as_string(None)


def is_several(statement: str) -> bool:
    """Tell whether a text holds more than one statement; quotes and comments are passed over."""
    return ";" in _QUIET.sub(" ", statement).rstrip("; \t\r\n")


@lru_cache(maxsize=256)
def loader_of(oid: int) -> Callable[[str], Any] | None:
    """Return what makes a value of a type out of its text; None if it is a value already."""
    if oid not in _TEXTS:
        return None
    load = Transformer().get_loader(oid, Format.TEXT).load
    return lambda text: load(text.encode())
