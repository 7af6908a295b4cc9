"""Turns figures into JSON, and into tables for people or for the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import click

from headwater.bench.capture import Case
from headwater.bench.refresh import Cell
from headwater.bench.targets import linearity, missed_by_capture, missed_by_refresh, summarise

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headings; the first `names` columns are words, the others numbers."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int


def refresh_json(host: Json, cells: Sequence[Cell]) -> Json:
    """Return all of a refresh benchmark as a JSON document."""
    shown = [
        asdict(c) | {"speedup": c.speedup, "full_ratio": c.full_ratio, "bulk_ratio": c.bulk_ratio}
        for c in cells
    ]
    summary = [asdict(s) for s in summarise(cells)]
    return {"benchmark": "refresh", "host": host, "cells": shown, "summary": summary,
            "missed": missed_by_refresh(cells)}  # fmt: skip


def capture_json(host: Json, cases: Sequence[Case]) -> Json:
    """Return all of a capture benchmark as a JSON document."""
    return {"benchmark": "capture", "host": host, "cases": [asdict(c) for c in cases],
            "linearity": linearity(cases), "missed": missed_by_capture(cases)}  # fmt: skip


def refresh_tables(cells: Sequence[Cell]) -> tuple[Table, ...]:
    """Return the cells of each size, and the summary."""
    sizes = dict.fromkeys(c.rows for c in cells)
    return (*(_cells(rows, [c for c in cells if c.rows == rows]) for rows in sizes),
            _summaries(cells))  # fmt: skip


def _cells(rows: int, cells: Sequence[Cell]) -> Table:
    headings = ("changed", "shape", "DIFFERENTIAL ms", "of it delta", "FULL ms", "view ms",
                "indexed view ms", "NO_DATA ms", "bulk insert ms", "view / DIFF.", "FULL / view",
                "DIFF. / insert", "change rows", "rows read", "memory MB")  # fmt: skip
    ordered = sorted(cells, key=lambda c: c.changed)
    made = tuple(
        (f"{c.changed:g} %", c.shape, ms(c.differential_ms), ms(c.apply_ms), ms(c.full_ms),
         ms(c.view_ms), ms(c.indexed_view_ms), ms(c.no_data_ms), ms(c.bulk_insert_ms),
         times(c.speedup), times(c.full_ratio), times(c.bulk_ratio), f"{c.delta_rows:,}",
         f"{c.rows_read:,}", "" if c.peak_memory_mb is None else f"{c.peak_memory_mb:.0f}")
        for c in ordered
    )  # fmt: skip
    return Table(f"{rows:,} rows", headings, made, names=2)


def _summaries(cells: Sequence[Cell]) -> Table:
    headings = ("rows", "changed", "mean of view / DIFF.", "least", "by", "worst FULL / view",
                "worst NO_DATA ms")  # fmt: skip
    made = tuple(
        (f"{s.rows:,}", f"{s.changed:g} %", times(s.mean), times(s.least), s.least_shape,
         times(s.full_ratio), ms(s.no_data_ms))
        for s in sorted(summarise(cells), key=lambda s: (s.rows, s.changed))
    )  # fmt: skip
    return Table("All shapes, geometric mean", headings, made, names=0)


def capture_tables(cases: Sequence[Case]) -> tuple[Table, ...]:
    """Return the cases, and how the cost per row grows with the statement."""
    headings = ("table", "write", "rows per statement", "sent", "with capture µs/row",
                "without µs/row", "ratio", "least", "most")  # fmt: skip
    made = tuple(
        (c.width, c.write, f"{c.statement_rows:,}", c.sent, f"{c.captured_us:.2f}",
         f"{c.plain_us:.2f}", times(c.ratio), times(min(c.ratios)), times(max(c.ratios)))
        for c in cases
    )  # fmt: skip
    grown = tuple((case, times(ratio)) for case, ratio in linearity(cases).items())
    tables = [Table("Writes with capture", headings, made, names=2)]
    if grown:
        columns = ("case", "a row of 100,000 / of 10,000")
        tables.append(Table("Linearity", columns, grown, names=1))
    return tuple(tables)


def ms(value: float) -> str:
    """Return milliseconds with as many digits as mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"  # noqa: PLR2004


def times(value: float) -> str:
    """Return a ratio with as many digits as mean something."""
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"  # noqa: PLR2004


def print_host(host: Json) -> None:
    """Print where this ran."""
    settings = host["settings"]
    assert isinstance(settings, dict)
    click.echo(f"PostgreSQL {host['server_version']}, {host['cpus']} CPUs, {host['system']}, "
               f"commit {host['commit']}, load {host['load']}")  # fmt: skip
    click.echo(", ".join(f"{name} = {value}" for name, value in settings.items()))


def print_rich(tables: Sequence[Table]) -> None:
    """Print tables for people."""
    from rich import box  # noqa: PLC0415 - start-up time
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table as RichTable  # noqa: PLC0415

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=2000)
    for table in tables:
        made = RichTable(title=table.title, title_justify="left", box=box.SIMPLE_HEAD)
        for number, heading in enumerate(table.headings):
            made.add_column(heading, justify="left" if number < table.names else "right")
        for row in table.rows:
            made.add_row(*row)
        console.print(made)


def print_markdown(tables: Sequence[Table]) -> None:
    """Print tables for the documentation."""
    for table in tables:
        click.echo(f"\n**{table.title}**\n")
        click.echo(_line(table.headings))
        marks = ("---" if n < table.names else "---:" for n in range(len(table.headings)))
        click.echo(_line(tuple(marks)))
        for row in table.rows:
            click.echo(_line(row))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
