"""Turns the figures of `bench spark` into JSON and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from headwater.bench.report import Json, Table, ms, times
from headwater.bench.spark_figures import Refused, SingleRow, SparkCell, summarise_spark


@dataclass(frozen=True, slots=True)
class SparkFigures:
    """Everything that a run found."""

    cells: tuple[SparkCell, ...]
    refused: tuple[Refused, ...]
    single: tuple[SingleRow, ...]


def sorted_out(found: Sequence[SparkCell | Refused | SingleRow]) -> SparkFigures:
    """Return what was found, by kind."""
    return SparkFigures(
        tuple(each for each in found if isinstance(each, SparkCell)),
        tuple(each for each in found if isinstance(each, Refused)),
        tuple(each for each in found if isinstance(each, SingleRow)),
    )


def tell(each: SparkCell | Refused | SingleRow) -> str:
    """Say in a line what was found."""
    match each:
        case SparkCell():
            return (f"scale {each.scale:g}, {each.changed:g} %, {each.view}:"
                    f" {ms(each.differential_ms)} ms, FULL {ms(each.full_ms)} ms")  # fmt: skip
        case Refused():
            return f"scale {each.scale:g}, {each.view}: refused, {each.reason}"
        case SingleRow():
            return f"one row of {each.table}: {ms(each.differential_ms)} ms"


def spark_json(host: Json, figures: SparkFigures) -> Json:
    """Return all of a run as a JSON document."""
    return {
        "benchmark": "spark",
        "host": host,
        "cells": [
            asdict(c) | {"spark_ratio": c.spark_ratio, "ratio": c.ratio} for c in figures.cells
        ],
        "refused": [asdict(refused) for refused in figures.refused],
        "single": [asdict(single) for single in figures.single],
        "summary": [asdict(summary) for summary in summarise_spark(figures.cells)],
        "missed": [],
    }


def spark_tables(figures: SparkFigures) -> tuple[Table, ...]:
    """Return the cells of each scale, the summary, single rows, and what was refused."""
    scales = dict.fromkeys(c.scale for c in figures.cells)
    tables = [_cells(s, [c for c in figures.cells if c.scale == s]) for s in scales]
    if figures.cells:
        tables.append(_summaries(figures.cells))
    if figures.single:
        tables.append(_single(figures.single))
    if figures.refused:
        rows = tuple(dict.fromkeys((each.view, each.reason) for each in figures.refused))
        tables.append(Table("Refused", ("view", "reason"), rows, names=2))
    return tuple(tables)


def _cells(scale: float, cells: Sequence[SparkCell]) -> Table:
    headings = ("changed", "view", "rows", "DIFFERENTIAL ms", "ingest", "spark", "land", "apply",
                "jobs", "FULL ms", "of it Spark", "view ms", "MERGE ms", "NO_DATA ms",
                "FULL / DIFF., Spark", "FULL / DIFF.", "change rows", "written")  # fmt: skip
    made = tuple(
        (f"{c.changed:g} %", c.view, f"{c.rows:,}", ms(c.differential_ms), ms(c.ingest_ms),
         ms(c.spark_ms), ms(c.land_ms), ms(c.apply_ms), f"{c.spark_jobs:g}", ms(c.full_ms),
         ms(c.full_spark_ms), ms(c.view_ms), "" if c.merge_ms is None else ms(c.merge_ms),
         ms(c.no_data_ms), times(c.spark_ratio), times(c.ratio), f"{c.delta_rows:,.0f}",
         f"{c.written_rows:,.0f}")
        for c in sorted(cells, key=lambda c: c.changed)
    )  # fmt: skip
    return Table(f"TPC-H, scale {scale:g}", headings, made, names=2)


def _summaries(cells: Sequence[SparkCell]) -> Table:
    headings = ("scale", "changed", "views", "FULL / DIFF., Spark", "FULL / DIFF.", "least", "by")
    made = tuple(
        (f"{s.scale:g}", f"{s.changed:g} %", f"{s.views}", times(s.spark_ratio), times(s.ratio),
         times(s.least), s.least_view)
        for s in summarise_spark(cells)
    )  # fmt: skip
    return Table("All views, geometric mean", headings, made, names=0)


def _single(single: Sequence[SingleRow]) -> Table:
    headings = ("row of", "DIFFERENTIAL ms", "ingest", "spark", "land", "apply", "jobs",
                "NO_DATA ms")  # fmt: skip
    made = tuple(
        (s.table, ms(s.differential_ms), ms(s.ingest_ms), ms(s.spark_ms), ms(s.land_ms),
         ms(s.apply_ms), f"{s.spark_jobs:g}", ms(s.no_data_ms))
        for s in single
    )  # fmt: skip
    return Table(f"One changed row, join of {single[0].rows:,} rows", headings, made, names=1)
