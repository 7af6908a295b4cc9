"""The base of a trace, written anew by Spark: few large files in the order of a key, without the
rows that came and went again."""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyarrow import fs, parquet

from headwater.catalog.model import TraceRow
from headwater.spark.batches import EPOCH, ROW_GROUP_BYTES, WEIGHT
from headwater.spark.ingest import columns_of, lake_errors
from headwater.spark.lake import Lake
from headwater.spark.session import spark_errors, start_session
from headwater.spark.traces import (
    FILE_BYTES,
    SMALL_FILE_BYTES,
    Files,
    Trace,
    TraceFile,
    physical,
    read_trace,
)
from headwater.spark.wire import wire_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WORN = 0.2  # the share of rows beyond the base, as of the earliest epoch that is needed
MIN_BYTES = SMALL_FILE_BYTES  # below this, merging in memory does as well


def is_worn(files: Files, keep_after: int) -> bool:
    """Tell whether so much came and went before an epoch that the base should be written anew."""
    past = [file for file in files if file.last_epoch <= keep_after]
    if sum(file.size for file in past) < MIN_BYTES:
        return False
    first = min(file.first_epoch for file in past)
    base = sum(file.rows for file in past if file.last_epoch == first)
    return sum(file.rows for file in past) >= (1 + WORN) * base


def tidy(
    lake: Lake, row: TraceRow, keep_after: int, key: Sequence[str]
) -> tuple[int, tuple[str, ...]]:
    """Merge small files, or write the base anew; return the version that counts then, and the files
    that were deleted.

    Those are what earlier merges and crashes left: what this one replaces stays until the next,
    since another may be reading it.
    """
    trace = Trace(row.url, lake.storage_options)
    with lake_errors(lake):
        deleted = trace.vacuum([row.version])
        if is_worn(trace.files(row.version), keep_after):
            row = replace(row, version=rewrite(lake, row, keep_after, key))
        return trace.compact(row.version, row.epoch, keep_after, MIN_BYTES), deleted


def rewrite(lake: Lake, row: TraceRow, keep_after: int, key: Sequence[str]) -> int:
    """Write the rows of all epochs up to one anew, as of that one; return the new version.

    Files that also have later epochs stay as they are.
    """
    trace = Trace(row.url, lake.storage_options)
    with lake_errors(lake):
        past = tuple(f for f in trace.files(row.version) if f.last_epoch <= keep_after)
        scratch = f"rewritten-{uuid.uuid4()}"
        with spark_errors():
            _write(_folded(lake, row, past, keep_after), _order(row, key), past, trace, scratch)
        return trace.replace(row.version, past, _taken(trace, scratch, keep_after))


def _folded(lake: Lake, row: TraceRow, past: Files, epoch: int) -> DataFrame:
    """One row per image, with its weight, as of an epoch."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - takes its time

    wires = [(text, wire_of(type)) for text, type in columns_of(row)]
    columns = [physical(i) for i in range(len(wires))]
    rows = read_trace(start_session(lake.spark), past, wires)
    summed = rows.groupBy(*columns).agg(f.sum(WEIGHT).cast("int").alias(WEIGHT))
    return summed.where(f"{WEIGHT} <> 0").withColumn(EPOCH, f.lit(epoch).cast("bigint"))


def _order(row: TraceRow, key: Sequence[str]) -> list[str]:
    """The stored names of a key, or none if the trace lacks a part of it."""
    places = {text: physical(i) for i, (text, _) in enumerate(columns_of(row))}
    return [places[text] for text in key] if all(text in places for text in key) else []


def _write(rows: DataFrame, order: list[str], past: Files, trace: Trace, scratch: str) -> None:
    count = math.ceil(sum(file.size for file in past) / FILE_BYTES)
    if order:
        rows = rows.repartitionByRange(count, *order).sortWithinPartitions(*order)
    else:
        rows = rows.repartition(count)
    writer = rows.write.option("parquet.block.size", ROW_GROUP_BYTES)
    writer.parquet(f"{trace.path}/{scratch}")


def _taken(trace: Trace, scratch: str, epoch: int) -> Files:
    """Move what Spark wrote beside the other files, where a vacuum would find it after a crash."""
    storage, taken = trace.storage(), []
    for info in storage.get_file_info(fs.FileSelector(scratch)):
        if not info.base_name.endswith(".parquet"):
            continue
        rows = parquet.ParquetFile(storage.open_input_file(info.path)).metadata.num_rows
        name = f"part-{uuid.uuid4()}.parquet"
        storage.move(info.path, name)
        if rows:
            uri = f"{trace.path}/{name}"
            taken.append(TraceFile(name, uri, rows, epoch, epoch, info.size))
    storage.delete_dir(scratch)
    trace.settle(*(file.name for file in taken))
    return tuple(taken)
