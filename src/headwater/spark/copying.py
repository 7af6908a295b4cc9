"""Rows between PostgreSQL and Arrow, by COPY on the caller's own connection and transaction.

CSV tells NULL (nothing) from the empty string (two quotes); Arrow and PostgreSQL both keep to it.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from psycopg import Connection
from psycopg.abc import Buffer
from pyarrow import compute, csv

from headwater.errors import HeadwaterError, bug
from headwater.postgres.quote import identifier, listed
from headwater.spark.wire import WIRE_SETTINGS, Wire, arrow_type, inexact

Columns = Sequence[tuple[str, Wire]]

CHUNK_BYTES = 4 << 20  # of CSV, held in memory at a time
CHUNK_ROWS = 1 << 16  # of a batch, turned into CSV at a time; fewer of wide ones

_HEX_PREFIX = pa.scalar("\\x", pa.large_string())
_NOTHING = pa.scalar("", pa.large_string())
_SET = (
    "SELECT pg_catalog.set_config(name, value, true)"
    " FROM unnest(%s::text[], %s::text[]) AS settings (name, value)"
)


def pin_wire_settings(conn: Connection[Any]) -> None:
    """Set what the text of values depends on, until the end of the transaction."""
    conn.execute(_SET, (list(WIRE_SETTINGS), list(WIRE_SETTINGS.values())))


def copy_out(conn: Connection[Any], select_sql: str, columns: Columns) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a SELECT as Arrow, a few MiB at a time; no rows, no batch.

    The SELECT gives `outgoing(…)` for each of the columns, in order. Until the last batch is taken
    the connection can do nothing else. Raises InexactValue, which names the column and the value.
    """
    statement = f"COPY ({select_sql}) TO STDOUT (FORMAT csv, ENCODING 'UTF8')"
    rows: list[Buffer] = []
    size = 0
    with conn.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        for row in copy:  # the protocol promises one message per row
            rows.append(row)
            size += len(row)
            if size >= CHUNK_BYTES:
                yield _batch(rows, columns)
                rows, size = [], 0
    if rows:
        yield _batch(rows, columns)


def _batch(rows: Sequence[Buffer], columns: Columns) -> pa.RecordBatch:
    try:
        read = _parse(rows, [_csv_type(wire) for _, wire in columns])
    except pa.ArrowInvalid as error:
        raise _culprit(rows, columns) from error
    arrays = [_received(read.column(i), wire) for i, (_, wire) in enumerate(columns)]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in columns])


def _parse(rows: Sequence[Buffer], types: Sequence[pa.DataType]) -> pa.Table:
    """Read rows of CSV as one block: across a block's end Arrow wants rows smaller than a block."""
    data = b"".join(rows)
    names = [str(i) for i in range(len(types))]
    return csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(column_names=names, block_size=len(data) + 1),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict(zip(names, types, strict=True)),
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            timestamp_parsers=[csv.ISO8601],
        ),
    )


def _csv_type(wire: Wire) -> pa.DataType:
    """Return what Arrow reads from the text that `outgoing` makes."""
    match wire.kind:
        case "timestamp":
            return pa.timestamp("us")
        case "binary":
            return pa.string()
    return arrow_type(wire)


def _received(column: pa.ChunkedArray, wire: Wire) -> pa.Array:
    array = column.combine_chunks()
    match wire.kind:
        case "timestamp":
            return array.cast(arrow_type(wire))  # what has no zone is taken as UTC
        case "binary":
            return _from_hex(array)
    return array


def _culprit(rows: Sequence[Buffer], columns: Columns) -> HeadwaterError:
    """Return the error for the first row that cannot be read, found by halves."""
    types = [_csv_type(wire) for _, wire in columns]
    while len(rows) > 1:
        half = rows[: len(rows) // 2]
        rows = rows[len(half) :] if _is_readable(half, types) else half
    unread = [pa.binary()] * len(columns)
    for i, (name, wire) in enumerate(columns):
        if not _is_readable(rows, [*unread[:i], types[i], *unread[i + 1 :]]):
            value = _parse(rows, unread).column(i)[0].as_py()
            return inexact(name, value.decode(errors="backslashreplace"), wire)
    return bug("a row of CSV cannot be read, though each of its values can", repr(rows))


def _is_readable(rows: Sequence[Buffer], types: Sequence[pa.DataType]) -> bool:
    try:
        _parse(rows, types)
    except pa.ArrowInvalid:
        return False
    return True


def copy_in(
    conn: Connection[Any], table: str, columns: Columns, batches: Iterable[pa.RecordBatch]
) -> int:
    """Fill columns of a table, named by SQL text, from Arrow; return the number of rows.

    The batches hold the columns in order, whatever their names; the columns of the table have the
    `landing_type(…)`. Arrow types are cast to those of the wires where that loses nothing.
    """
    names = listed(identifier(name) for name, _ in columns)
    statement = f"COPY {table} ({names}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')"
    with conn.cursor() as cursor:
        with cursor.copy(statement.encode()) as copy:
            for batch in batches:
                step = max(1, min(CHUNK_ROWS, CHUNK_BYTES * batch.num_rows // (batch.nbytes + 1)))
                for start in range(0, batch.num_rows, step):
                    copy.write(_csv(batch.slice(start, step), columns))
        return cursor.rowcount


def _csv(batch: pa.RecordBatch, columns: Columns) -> bytes:
    """Return rows as CSV; Arrow quotes every string and no NULL."""
    pairs = zip(batch.columns, columns, strict=True)
    arrays = [_sent(array, wire) for array, (_, wire) in pairs]
    rows = pa.RecordBatch.from_arrays(arrays, names=[str(i) for i in range(len(arrays))])
    out = io.BytesIO()
    csv.write_csv(rows, out, csv.WriteOptions(include_header=False))
    return out.getvalue()


def _sent(array: pa.Array, wire: Wire) -> pa.Array:
    typed = array.cast(arrow_type(wire))
    if wire.kind != "binary":
        return typed
    return compute.binary_join_element_wise(_HEX_PREFIX, _to_hex(typed), _NOTHING)


def _from_hex(array: pa.StringArray) -> pa.BinaryArray:
    """Decode all values in one go: half the text, half the offsets; NULL stays NULL."""
    offsets, data = _parts(array.fill_null(""))
    decoded = bytes.fromhex(data.decode("ascii"))
    whole = _assembled(pa.binary(), compute.divide(offsets, 2), decoded)
    return compute.if_else(array.is_valid(), whole, None)


def _to_hex(array: pa.BinaryArray) -> pa.StringArray:
    offsets, data = _parts(array.fill_null(b""))
    whole = _assembled(pa.large_string(), compute.multiply(offsets, 2), data.hex().encode())
    return compute.if_else(array.is_valid(), whole, None)


def _parts(array: pa.Array) -> tuple[pa.Int64Array, bytes]:
    """Return where each value starts, counted from the first one, and all values in a row."""
    _, starts, data = array.buffers()
    offsets = pa.Array.from_buffers(
        pa.int32(), len(array) + 1, [None, starts], offset=array.offset
    ).cast(pa.int64())
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return compute.subtract(offsets, first), data[first:last].to_pybytes() if data else b""


def _assembled(type: pa.DataType, offsets: pa.Int64Array, data: bytes) -> pa.Array:
    width = pa.int64() if type == pa.large_string() else pa.int32()
    buffers = [None, offsets.cast(width).buffers()[1], pa.py_buffer(data)]
    return pa.Array.from_buffers(type, len(offsets) - 1, buffers)
