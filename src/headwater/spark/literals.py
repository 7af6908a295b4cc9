"""Constants of PostgreSQL's canonical text to Spark SQL."""

from __future__ import annotations

import re

from headwater.algebra.schema import SqlType
from headwater.spark.functions import INTEGERS, MAX_PRECISION, WIDTHS, Shape
from headwater.spark.wire import Wire, wire_of
from headwater.sql.nodes import Literal
from headwater.sql.scales import node_shape

# Only the ISO style prints years of four digits first; BC, infinity and odd offsets do not match.
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")
_ZONED = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?)([+-]\d\d)(:\d\d)?")
_BYTES = re.compile(r"\\x((?:[0-9a-f]{2})*)")
_INTEGER = re.compile(r"-?\d+")
_STRINGS = ("text", "character varying", "uuid")
_SIMPLE = {
    "boolean": ("boolean", "BOOLEAN"),
    **{kind: (kind, spark) for kind, spark in WIDTHS.items()},
    **dict.fromkeys(_STRINGS, ("string", "STRING")),
    "date": ("date", "DATE"),
    "timestamp without time zone": ("timestamp_ntz", "TIMESTAMP_NTZ"),
    "timestamp with time zone": ("timestamp", "TIMESTAMP"),
    "bytea": ("binary", "BINARY"),
}


def literal_wire(literal: Literal) -> Wire | None:
    """Return the form of a constant; None if its type has none, or if only context tells it.

    A string constant follows the collation of what it is compared with: it has no order itself.
    NULL has the form of its type, as far as the name of a type tells.
    """
    if literal.type is None:
        return None
    if literal.text is None:
        return _null_wire(literal.type, literal.collation)
    if literal.type in _SIMPLE:
        kind, spark = _SIMPLE[literal.type]
        return Wire(kind, spark, comparable=True, ordered=kind != "string")
    found = node_shape(literal, {}) if literal.type == "numeric" else None
    return decimal_wire(found) if found else None


def _null_wire(type: str, collation: str | None) -> Wire | None:
    if type == "record":
        return None
    return wire_of(SqlType(type, collation, is_image=type != "numeric"))


def decimal_wire(shape: Shape) -> Wire | None:
    """Return the form of numbers with so many digits, None if Spark has none so long."""
    if shape[0] > MAX_PRECISION:
        return None
    return Wire("decimal", "DECIMAL({},{})".format(*shape), comparable=True, ordered=True)


def literal_sql(text: str | None, wire: Wire) -> str | None:
    """Return a constant in Spark SQL, None if its text has a form that is not known here."""
    if text is None:
        return f"CAST(NULL AS {wire.spark})"
    if wire.kind == "string":
        return string_sql(text)
    if wire.kind == "boolean":
        return {"true": "TRUE", "false": "FALSE"}.get(text)
    if wire.kind == "decimal":
        return f"CAST('{text}' AS {wire.spark})"
    if wire.kind in INTEGERS:
        return f"CAST('{text}' AS {wire.spark})" if _INTEGER.fullmatch(text) else None
    return _bytes_sql(text) if wire.kind == "binary" else _time_sql(text, wire.kind)


def string_sql(text: str) -> str:
    """Return a string constant, which Spark reads back as the very same characters.

    A backslash escapes. A dollar sign is written as an escape, since Spark replaces ${name} by a
    setting even inside a constant.
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


def pattern_sql(pattern: str) -> str | None:
    """Return a LIKE pattern in the form that Spark takes; None if it ends in the escape.

    PostgreSQL lets a backslash stand before any character, Spark only before those it escapes.
    """
    out, at = "", 0
    while at < len(pattern):
        escapes = pattern[at] == "\\"
        at += escapes
        if at == len(pattern):
            return None
        out += f"\\{pattern[at]}" if escapes and pattern[at] in "%_\\" else pattern[at]
        at += 1
    return string_sql(out)


def _bytes_sql(text: str) -> str | None:
    found = _BYTES.fullmatch(text)
    return f"X'{found[1]}'" if found else None


def _time_sql(text: str, kind: str) -> str | None:
    if kind == "date":
        return f"DATE'{text}'" if _DATE.fullmatch(text) else None
    if kind == "timestamp_ntz":
        return f"TIMESTAMP_NTZ'{text}'" if _TIMESTAMP.fullmatch(text) else None
    found = _ZONED.fullmatch(text)
    return f"TIMESTAMP_LTZ'{found[1]}{found[2]}{found[3] or ':00'}'" if found else None
