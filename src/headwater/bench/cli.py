"""`headwater bench`: parse, measure, print."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headwater.api import Headwater, connect
from headwater.bench import capture as capturing
from headwater.bench import refresh as refreshing
from headwater.bench.host import describe_host
from headwater.bench.report import (
    Json,
    Table,
    capture_json,
    capture_tables,
    print_host,
    print_markdown,
    print_rich,
    refresh_json,
    refresh_tables,
)
from headwater.bench.shapes import SHAPES

T = TypeVar("T")


class Target(Protocol):
    """What the global options name."""

    def connect(self) -> AbstractContextManager[Headwater]:
        """Connect, for as long as the block lasts."""


class Numbers(click.ParamType[tuple[float, ...]]):
    """Positive numbers with commas between them."""

    name = "numbers"

    def __init__(self, kind: type[int] | type[float]) -> None:
        self._kind = kind

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Return the numbers."""
        try:
            numbers = tuple(self._kind(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value} is not a list of numbers, such as 10,100", param, ctx)
        if any(number <= 0 for number in numbers):
            self.fail(f"{value}: every number must be above 0", param, ctx)
        return numbers


class Names(click.ParamType[tuple[str, ...]]):
    """Some of a few known names, with commas between them."""

    name = "names"

    def __init__(self, known: Sequence[str]) -> None:
        self._known = known

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names."""
        names = tuple(str(value).split(","))
        for name in names:
            if name not in self._known:
                self.fail(f"{name} is none of {', '.join(self._known)}", param, ctx)
        return names


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command write its figures in several forms, and judge them."""
    for option in (
        click.option("--server-settings", default="", metavar="NAME=VALUE,...",
                     help="Settings for all sessions of the run."),
        click.option("--check", is_flag=True, help="Exit with 1 unless the targets hold."),
        click.option("--markdown", is_flag=True, help="Print tables for the documentation."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
        click.option("--output", type=click.Path(dir_okay=False, writable=True, path_type=Path),
                     metavar="FILE", help="Write the JSON document to a file, too."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.group()
def bench() -> None:
    """Measure what refreshes and captures cost on your server.

    The commands make the schema headwater_bench, and drop it in the end.
    """


@bench.command()
@click.option("--rows", type=Numbers(int), default="10000,100000,1000000", show_default=True,
              help="Rows of the fact table.")  # fmt: skip
@click.option("--changed", type=Numbers(float), default="0.1,1,10,50", show_default=True,
              help="Percent of these rows that change.")  # fmt: skip
@click.option("--shapes", type=Names(tuple(SHAPES)), default=",".join(SHAPES), show_default=True,
              help="Queries to keep up to date.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(min=1), default=3, show_default=True,
              help="Changes per cell; the figures are medians.")  # fmt: skip
@output_options
@click.pass_obj
def refresh(target: Target, /, server_settings: str, **options: Any) -> None:
    """Compare refreshes with REFRESH MATERIALIZED VIEW of the same query.

    After each cell the stream tables are compared with their query; a difference ends the run.
    """
    matrix = refreshing.Matrix(
        options["rows"], options["changed"], options["shapes"], options["repeat"]
    )
    with _open(target, server_settings) as (hw, conn):
        host = describe_host(conn)
        cells = [_told(cell, f"{cell.rows:,} rows, {cell.changed:g} %, {cell.shape}: "
                             f"{cell.differential_ms:.1f} ms, view {cell.view_ms:.1f} ms")
                 for cell in refreshing.measure(hw, conn, matrix)]  # fmt: skip
    _publish(refresh_json(host, cells), refresh_tables(cells), options)


@bench.command()
@click.option("--rows", type=Numbers(int), default="1,100,1000,10000,100000", show_default=True,
              help="Rows per statement.")  # fmt: skip
@click.option("--statements", type=click.IntRange(min=1), default=2000, show_default=True,
              help="Statements of one row in a round; of more rows there are fewer.")  # fmt: skip
@click.option("--table-rows", type=click.IntRange(min=1), default=100_000, show_default=True,
              help="Rows of the tables that are written to.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(min=1), default=5, show_default=True,
              help="Rounds per case; the figures are medians.")  # fmt: skip
@output_options
@click.pass_obj
def capture(target: Target, /, server_settings: str, **options: Any) -> None:
    """Compare writes to a table that a stream table reads with writes to one that none does."""
    load = capturing.Load(
        options["rows"], options["table_rows"], options["repeat"], options["statements"]
    )
    with _open(target, server_settings) as (hw, conn):
        host: Json = {**describe_host(conn), "clock": capturing.clock_name(conn)}
        cases = [_told(case, f"{case.width}, {case.write} of {case.statement_rows:,}: "
                             f"{case.ratio:.2f}")
                 for case in capturing.measure(hw, conn, load)]  # fmt: skip
    _publish(capture_json(host, cases), capture_tables(cases), options)


@contextmanager
def _open(target: Target, settings: str) -> Iterator[tuple[Headwater, psycopg.Connection[Any]]]:
    """Yield a connection of ours and a plain one, both under the settings."""
    with target.connect() as hw:
        dsn = _with_settings(hw.dsn, settings)
        with connect(dsn) as tuned, psycopg.connect(dsn, autocommit=True) as conn:
            yield tuned, conn


def _with_settings(dsn: str, settings: str) -> str:
    given = str(conninfo_to_dict(dsn).get("options") or "")
    flags = [f"-c {each.strip()}" for each in settings.split(",") if each.strip()]
    return make_conninfo(dsn, options=" ".join([given, *flags]).strip())


def _told(value: T, text: str) -> T:
    """Say on standard error how far we are."""
    click.echo(text, err=True)
    return value


def _publish(document: Json, tables: Sequence[Table], options: dict[str, Any]) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False)
    if options["output"] is not None:
        options["output"].write_text(text + "\n", encoding="utf-8")
    host, missed = document["host"], document["missed"]
    assert isinstance(host, dict)
    assert isinstance(missed, list)
    if options["as_json"]:
        click.echo(text)
    else:
        print_host(host)
        (print_markdown if options["markdown"] else print_rich)(tables)
    if options["check"]:
        for fault in missed:
            click.secho(f"missed: {fault}", err=True, fg="red")
        sys.exit(1 if missed else 0)
