"""The rows of a trace as of an epoch, for whoever asks; and how to read it without headwater."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.catalog.model import TraceRow
from headwater.spark.batches import EPOCH, WEIGHT
from headwater.spark.ingest import columns_of
from headwater.spark.lake import Lake
from headwater.spark.session import spark_errors, start_session
from headwater.spark.traces import Trace, physical, read_trace
from headwater.spark.wire import Wire, wire_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as DataFrame  # noqa: PLC0414 - the facade names it from here

Shown = tuple[tuple[str, str, Wire], ...]  # physical name, the user's name, form
_NAME = re.compile(r'"(?:[^"]|"")*"')


def shown_columns(row: TraceRow) -> Shown:
    """Return the columns of a trace that are columns of the source as they stand."""
    return tuple(
        (physical(i), text[1:-1].replace('""', '"'), wire_of(type))
        for i, (text, type) in enumerate(columns_of(row))
        if _NAME.fullmatch(text)
    )


def read_rows(lake: Lake, row: TraceRow, epoch: int) -> DataFrame:
    """Return the rows as of an epoch, under the user's names, each as often as it was there."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - starts nothing, but takes its time

    trace = Trace(row.url, lake.storage_options)
    files = trace.at(row.version, epoch)
    wires = [(text, wire_of(type)) for text, type in columns_of(row)]
    columns = shown_columns(row)
    with spark_errors():
        rows = read_trace(start_session(lake.spark), files, wires, None, epoch)
        held = rows.groupBy(*(name for name, _, _ in columns)).agg(f.sum(WEIGHT).alias(WEIGHT))
        copies = f.explode(f.sequence(f.lit(1).cast("bigint"), f.col(WEIGHT)))
        each = held.where(f"{WEIGHT} > 0").withColumn(EPOCH, copies)
        return each.select(*(f.col(name).alias(shown) for name, shown, _ in columns))


def in_spark(row: TraceRow) -> str:
    """Return code that reads the state with Spark and Delta's connector."""
    names = ", ".join(f'"{name}"' for name, _, _ in shown_columns(row))
    outputs = ", ".join(f'"{name} AS `{shown}`"' for name, shown, _ in shown_columns(row))
    return f"""\
rows = spark.read.format("delta").option("versionAsOf", {row.version}).load("{row.url}")
held = rows.groupBy({names}).agg({{"{WEIGHT}": "sum"}}).toDF({names}, "{WEIGHT}")
copies = held.where("{WEIGHT} > 0").selectExpr({names}, "explode(sequence(1L, {WEIGHT}))")
copies.selectExpr({outputs})"""


def in_delta_rs(row: TraceRow) -> str:
    """Return code that reads the state with delta-rs and Arrow."""
    names = ", ".join(f'"{name}"' for name, _, _ in shown_columns(row))
    shown = ", ".join(f'"{shown}"' for _, shown, _ in shown_columns(row))
    return f"""\
rows = deltalake.DeltaTable("{row.url}", version={row.version}).to_pyarrow_table()
held = rows.group_by([{names}]).aggregate([("{WEIGHT}", "sum")])
held = held.filter(pyarrow.compute.field("{WEIGHT}_sum") > 0)  # as many copies as that says
held.select([{names}]).rename_columns([{shown}])"""


def in_sql(row: TraceRow) -> str:
    """Return the query for anything that reads Delta tables by path."""
    names = ", ".join(name for name, _, _ in shown_columns(row))
    outputs = ", ".join(f"{name} AS `{shown}`" for name, shown, _ in shown_columns(row))
    return f"""\
SELECT {outputs}, sum({WEIGHT}) AS copies
  FROM delta.`{row.url}` VERSION AS OF {row.version}
 GROUP BY {names} HAVING sum({WEIGHT}) > 0"""
