"""Turns results into JSON for machines, and into tables and colours for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

COLOURS = {
    "ACTIVE": "green", "INITIALIZING": "yellow", "SUSPENDED": "yellow", "ERROR": "bold red",
    "COMPLETED": "green", "RUNNING": "cyan", "SKIPPED": "yellow", "FAILED": "bold red",
    "DIFFERENTIAL": "green", "FULL": "yellow", "REINITIALIZE": "yellow", "NO_DATA": "dim",
    "SKIP": "yellow",
    "equal": "green", "different": "bold red",
    "marked": "yellow", "rebuilt": "green", "failed": "bold red", "gone": "bold red",
}  # fmt: skip
_NO_WIDTH = 2000  # columns where nobody looks at lines: a reader of a pipe wants them whole
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_KILO = 1024


def print_json(value: object) -> None:
    """Print `value` as one JSON document."""
    click.echo(json.dumps(value, default=encode, indent=2, ensure_ascii=False))


def encode(value: object) -> object:
    """Return what JSON knows in place of a result, a moment (ISO 8601) or a span (seconds)."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return str(value)  # a number of JSON would lose digits
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under headings, numbers to the right, known words in their colours.

    A column that is empty in every row is left out.
    """
    from rich import box  # noqa: PLC0415 - start-up time
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    columns = zip(headings, zip(*rows, strict=True), strict=True)
    shown = [(heading, cells) for heading, cells in columns if any(map(show, cells))]
    for heading, cells in shown:
        is_number = any(isinstance(cell, int | float | Decimal | timedelta) for cell in cells)
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    for row in zip(*(cells for _, cells in shown), strict=True):
        table.add_row(*map(coloured, row))
    console().print(table)


def coloured(value: object) -> Text:
    """Return a value as people read it, in the colour of the word that it is."""
    from rich.text import Text  # noqa: PLC0415

    text = show(value)
    return Text(text, style=COLOURS.get(text, ""))


def show(value: object) -> str:
    """Return a value as people read it; None is empty."""
    for kind, write in _WRITERS.items():
        if isinstance(value, kind):
            return write(value)
    return str(value)


def show_span(seconds: float) -> str:
    """Return a span of time in its two largest units."""
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE:02}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h {whole % _HOUR // _MINUTE:02}m"
    return f"{whole // _DAY}d {whole % _DAY // _HOUR:02}h"


def show_bytes(size: int | None) -> str:
    """Return an amount of data in its largest unit; None is empty."""
    if size is None:
        return ""
    amount, units = float(size), iter(("kB", "MB", "GB", "TB"))
    unit = "B"
    while amount >= _KILO and (larger := next(units, None)):
        amount, unit = amount / _KILO, larger
    return f"{size} B" if unit == "B" else f"{amount:,.1f} {unit}"


# The first kind that fits: bool stands before int, which it is one of.
_WRITERS: dict[type[Any], Callable[[Any], str]] = {
    type(None): lambda _: "",
    datetime: lambda moment: moment.astimezone().strftime("%Y-%m-%d %H:%M:%S"),
    timedelta: lambda span: show_span(span.total_seconds()),
    bool: lambda answer: "yes" if answer else "no",
    int: lambda number: f"{number:,}",
    float: lambda number: f"{number:,.1f}",
    Decimal: lambda number: f"{number:,}",
    tuple: lambda parts: ", ".join(map(show, parts)),
}


def print_facts(facts: Mapping[str, object]) -> None:
    """Print named values, one a line; those that are None or empty are left out."""
    known = [(name, value) for name, value in facts.items() if value not in (None, (), "")]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        click.echo(f"{click.style(f'{name:<{width}}', dim=True)}  {show(value)}")


def print_section(heading: str, text: str) -> None:
    """Print a heading and an indented text; nothing if the text is empty."""
    if not text.strip():
        return
    click.echo()
    click.secho(heading, bold=True)
    for line in text.rstrip().splitlines():
        click.echo(f"  {line}")


def warn(text: str) -> None:
    """Print a warning to standard error."""
    click.secho(f"warning: {text}", fg="yellow", err=True)


def console() -> Console:
    """Return a console for standard output that cuts no line unless a terminal must."""
    from rich.console import Console  # noqa: PLC0415

    return Console(width=None if sys.stdout.isatty() else _NO_WIDTH, highlight=False, markup=False)


@contextmanager
def working(message: str) -> Iterator[None]:
    """Show on a terminal's standard error that work goes on; anywhere else show nothing."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    with Console(stderr=True).status(Text(message)):
        yield
