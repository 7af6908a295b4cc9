"""How a value of each PostgreSQL type travels: through CSV into Arrow, Parquet and Spark, and back.

A type with a form of its own is converted by Arrow, which refuses what the form cannot hold: NaN in
a decimal, infinite dates, years before 1 or after 9999. Every other type travels *opaque*, as the
text that its output function prints and its input function reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from headwater.algebra.schema import Column, SqlType
from headwater.errors import InexactValue, UnsupportedQuery

# Text made under these is exact and the same for the same value. Dates and timestamps need
# DateStyle ISO and nothing else; the rest matters to opaque text, both ways alike.
WIRE_SETTINGS: dict[str, str] = {
    "extra_float_digits": "1",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "TimeZone": "UTC",
    "lc_monetary": "C",
    "xmloption": "content",
}

MAX_PRECISION = 38  # of Spark's DECIMAL

# By bytes of UTF-8, as Spark compares. "default" is not here: it depends on the database.
_BYTE_ORDER = {f"pg_catalog.{name}" for name in ('"C"', '"POSIX"', "ucs_basic", "pg_c_utf8")}


@dataclass(frozen=True, slots=True)
class Wire:
    """The form of a type on its way.

    `comparable`: Spark's equality of two forms is PostgreSQL's equality of the values.
    `ordered`: so are `<`, min and max. NULL stays NULL in every form.
    """

    kind: str
    spark: str
    comparable: bool
    ordered: bool


INTEGER = Wire("integer", "INT", comparable=True, ordered=True)
BIGINT = Wire("bigint", "BIGINT", comparable=True, ordered=True)
OPAQUE = Wire("opaque", "STRING", comparable=False, ordered=False)

_NATIVE = {
    "boolean": Wire("boolean", "BOOLEAN", comparable=True, ordered=True),
    "smallint": Wire("smallint", "SMALLINT", comparable=True, ordered=True),
    "integer": INTEGER,
    "bigint": BIGINT,
    "date": Wire("date", "DATE", comparable=True, ordered=True),
    "timestamp without time zone": Wire(
        "timestamp_ntz", "TIMESTAMP_NTZ", comparable=True, ordered=True
    ),
    "timestamp with time zone": Wire("timestamp", "TIMESTAMP", comparable=True, ordered=True),
    "bytea": Wire("binary", "BINARY", comparable=True, ordered=True),
    # In byte order as a uuid, but not as the text that an expression may make of it.
    "uuid": Wire("string", "STRING", comparable=True, ordered=False),
}
_TEXTS = {"text", "character varying", "name"}
_BLANK_PADDED = {"character", "bpchar"}  # equal but for trailing blanks is equal

_ARROW = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
    "opaque": pa.string(),
}
_MODIFIER = re.compile(r"\(\d+\)")
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


def wire_of(type: SqlType, scale: tuple[int, int] | None = None) -> Wire:
    """Return the form of a type.

    `scale` is (precision, scale) where the caller knows that every value of a numeric without
    modifier has exactly that scale. A domain or an enum has only its own name here, so it is
    opaque; it compares by text if equal values of it are the same bytes.
    """
    if type.name == "record":
        raise UnsupportedQuery(
            "a value of type record cannot be carried out of PostgreSQL and back",
            "the text of an anonymous row type cannot be read again",
            "give the row a named composite type, or use engine 'postgres'",
        )
    bare = _MODIFIER.sub("", type.name, count=1)
    if bare in _NATIVE:
        return _NATIVE[bare]
    if bare in _TEXTS:
        return _text(type)
    fixed = _fixed_scale(type, scale)
    if fixed is not None:
        return decimal_wire(*fixed)
    is_plain = type.is_image and type.equality == "=" and bare not in _BLANK_PADDED
    return Wire("opaque", "STRING", comparable=is_plain, ordered=False)


def decimal_wire(precision: int, scale: int) -> Wire:
    """Return the form of numbers with so many digits, of which so many after the point."""
    return Wire("decimal", f"DECIMAL({precision},{scale})", comparable=True, ordered=True)


def sum_wire(wire: Wire, column: Column) -> Wire | None:
    """Return the form of a sum: a bigint, or a decimal of the most digits; None if none is exact.

    A sum that needs more digits fails, it never wraps.
    """
    if wire.kind == "decimal":
        return decimal_wire(MAX_PRECISION, arrow_type(wire).scale)
    if wire.kind in ("smallint", "integer", "bigint"):
        return BIGINT if column.type.name == "bigint" else decimal_wire(MAX_PRECISION, 0)
    return None


def _text(type: SqlType) -> Wire:
    is_plain = type.is_image and type.equality == "="  # false for nondeterministic collations
    return Wire("string", "STRING", is_plain, is_plain and type.collation in _BYTE_ORDER)


def _fixed_scale(type: SqlType, known: tuple[int, int] | None) -> tuple[int, int] | None:
    modifier = _NUMERIC.fullmatch(type.name)
    if modifier:
        known = int(modifier[1]), int(modifier[2])
    elif type.name != "numeric":
        return None
    if known is None or not 0 <= known[1] <= known[0] <= MAX_PRECISION:
        return None
    return known


def arrow_type(wire: Wire) -> pa.DataType:
    """Return the Arrow type of a form."""
    decimal = _DECIMAL.fullmatch(wire.spark)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _ARROW[wire.kind]


def outgoing(value_sql: str, wire: Wire, type: SqlType) -> str:
    """Return the SQL whose text, as COPY prints it, `copy_out` reads as this form.

    Mostly the value itself: COPY calls the output function, where a cast to text may not (it strips
    the blanks of char(n)). A numeric of another scale than promised prints what Arrow refuses.
    """
    if wire.kind == "binary":
        return f"pg_catalog.encode({value_sql}, 'hex')"
    if wire.kind == "timestamp":  # TimeZone may have offsets with seconds, which Arrow cannot read
        return f"({value_sql} AT TIME ZONE 'UTC')"
    if wire.kind == "decimal" and type.name == "numeric":
        scale = arrow_type(wire).scale
        return (
            f"CASE WHEN pg_catalog.scale({value_sql}) <> {scale} THEN ({value_sql})::text"
            f" || ' of scale ' || pg_catalog.scale({value_sql}) ELSE ({value_sql})::text END"
        )
    return value_sql


def incoming(landed_sql: str, wire: Wire, type: SqlType) -> str:
    """Return the SQL for the value, given the column of the landing table that holds it."""
    del wire, type  # COPY calls the input function of the landing type, which is the type itself
    return landed_sql


def landing_type(wire: Wire, type: SqlType) -> str:
    """Return the type, with collation, of the column that `copy_in` fills."""
    del wire
    return f"{type.name} COLLATE {type.collation}" if type.collation else type.name


def inexact(column: str, value: str, wire: Wire) -> InexactValue:
    """Return the error for a value that its form cannot hold."""
    return InexactValue(
        f'column "{column}" holds {value}, which {wire.spark} cannot hold exactly',
        "Spark has no infinity or NaN in dates and decimals, years 1 to 9999 only, no more digits"
        " than the type names, and text in UTF-8",
        "change the value or the column's type, or use engine 'postgres'",
    )
