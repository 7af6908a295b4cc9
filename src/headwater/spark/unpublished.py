"""A result that is in the lake only: a trace that Spark's own changes are appended to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from psycopg import Connection
from pyarrow import compute as arrow

from headwater.algebra.ops import After, Negate, Op, Scan, Source, UnionAll, schema
from headwater.algebra.schema import Schema, SqlType, names
from headwater.catalog.model import Epoch, TraceRow
from headwater.postgres.apply import COUNTS
from headwater.postgres.quote import identifier
from headwater.spark.ingest import (
    Recorded,
    Standing,
    TraceColumns,
    columns_of,
    lake_errors,
    tidied,
)
from headwater.spark.lake import Lake
from headwater.spark.landing import CHANGE, land_change
from headwater.spark.traces import Trace
from headwater.spark.wire import Wire, arrow_type, wire_of
from headwater.spark.wires import NotOnSpark, wires

Counts = dict[str, int]
Rows = Iterable[pa.RecordBatch]


def result_columns(boundary: Op) -> TraceColumns:
    """Return the columns of the trace for the result of a boundary.

    Raises NotOnSpark if the type of one does not say in which form Spark computes it.
    """
    forms = wires(boundary)
    return tuple((identifier(c.name), _stored(c.type, forms[c.name])) for c in schema(boundary))


def _stored(type: SqlType, wire: Wire) -> SqlType:
    """Return the type under which a form is stored: a numeric of a certain scale has that scale."""
    if wire.kind == "decimal" and type.name == "numeric":
        type = replace(type, name=wire.spark.replace("DECIMAL", "numeric"))
    if arrow_type(wire_of(type)) != arrow_type(wire):
        raise NotOnSpark(f"a result of type {type.name} has another form in Spark")
    return type


def make(lake: Lake, boundary: Op, relid: int, rows: Rows, epoch: Epoch) -> tuple[Standing, Counts]:
    """Make the trace of a result with these rows."""
    url, counts = lake.new_url(f"result-{relid}"), dict.fromkeys(COUNTS, 0)
    trace = Trace(url, lake.storage_options)
    standing = Standing(url, result_columns(boundary), 0, None)
    with lake_errors(lake):
        empty = trace.create(standing.wires)
        version = trace.append(epoch.epoch, _counted(rows, counts), empty)
    return replace(standing, version=version), counts


def extend(lake: Lake, known: Recorded, rows: Rows, epoch: Epoch) -> tuple[Standing, Counts]:
    """Append a change to the trace of a result."""
    row, counts = known.row, dict.fromkeys(COUNTS, 0)
    trace = Trace(row.url, lake.storage_options)
    with lake_errors(lake):
        version = trace.append(epoch.epoch, _counted(rows, counts), row.version)
        standing = Standing(row.url, columns_of(row), version, row)
        return tidied(trace, known, standing), counts


def as_found(known: Recorded) -> Standing:
    """Return the trace of a result as the catalog has it, to be read."""
    row = known.row
    return Standing(row.url, columns_of(row), row.version, row)


def difference(boundary: Op, relid: int) -> Op:
    """Return what the rows of a boundary have over those that the trace of its result holds."""
    columns = schema(boundary)
    stored = Scan(Source(relid, "its result"), columns, tuple(map(identifier, names(columns))))
    return UnionAll((After(boundary), Negate(After(stored))), columns)


def _counted(rows: Rows, counts: Counts) -> Iterator[pa.RecordBatch]:
    """Count the rows that come and go on their way; the last column has the weights."""
    for batch in rows:
        weights = batch.columns[-1]
        total, size = (arrow.sum(a).as_py() or 0 for a in (weights, arrow.abs(weights)))
        counts["inserted"] += (size + total) // 2
        counts["deleted"] += (size - total) // 2
        counts["expected"] = counts["deleted"]
        yield batch


def land_result(conn: Connection[Any], lake: Lake, row: TraceRow, columns: Schema) -> str:
    """Copy a result into a temporary table, what came and what went with its weight; name it."""
    forms = dict(zip(names(columns), (wire_of(type) for _, type in columns_of(row)), strict=True))
    trace = Trace(row.url, lake.storage_options)
    with lake_errors(lake):
        land_change(conn, columns, forms, trace.batches(row.version))
    return CHANGE
