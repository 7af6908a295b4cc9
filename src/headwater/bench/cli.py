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
from headwater.api.facade import default_lake, open_connection
from headwater.bench import capture as capturing
from headwater.bench import commit as committing
from headwater.bench import immediate as writing
from headwater.bench import refresh as refreshing
from headwater.bench import schedule as scheduling
from headwater.bench.chart import draw
from headwater.bench.host import describe_host, describe_spark
from headwater.bench.immediate_report import immediate_json, immediate_tables
from headwater.bench.immediate_report import tell as tell_immediate
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
from headwater.bench.spark_figures import Place, SparkMatrix
from headwater.bench.spark_report import sorted_out, spark_json, spark_tables, tell
from headwater.bench.tpch import SCHEMA
from headwater.bench.tpch_queries import QUERIES
from headwater.bench.tpch_refresh import TpchMatrix
from headwater.bench.tpch_refresh import measure as measure_tpch
from headwater.bench.tpch_report import tell as tell_tpch
from headwater.bench.tpch_report import tpch_json, tpch_tables
from headwater.bench.tpch_views import VIEWS
from headwater.spark.lake import Lake
from headwater.spark.session import SparkOptions

T = TypeVar("T")


class Target(Protocol):
    """What the global options name."""

    @property
    def home(self) -> str | None:
        """Where local data lives, if not in the default place."""

    @property
    def lake(self) -> str | None:
        """Where the Spark engine stores its data, if not in a directory of `home`."""

    @property
    def spark_master(self) -> str:
        """The Spark cluster, or this machine."""

    @property
    def spark_options(self) -> tuple[tuple[str, str], ...]:
        """Options of Spark's own."""

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


def form_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command write its figures in several forms."""
    for option in (
        click.option("--server-settings", default="", metavar="NAME=VALUE,...",
                     help="Settings for all sessions of the run."),
        click.option("--markdown", is_flag=True, help="Print tables for the documentation."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
        click.option("--output", type=click.Path(dir_okay=False, writable=True, path_type=Path),
                     metavar="FILE", help="Write the JSON document to a file, too."),
    ):  # fmt: skip
        command = option(command)
    return command


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command write its figures in several forms, and judge them."""
    check = click.option("--check", is_flag=True, help="Exit with 1 unless the targets hold.")
    return check(form_options(command))


@click.group()
def bench() -> None:
    """Measure what refreshes, captures and IMMEDIATE tables cost on your server.

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


@bench.command()
@click.option("--rows", type=click.IntRange(min=1000), default=100_000, show_default=True,
              help="Rows of the tables that are written to.")  # fmt: skip
@click.option("--statements", type=click.IntRange(min=1), default=1000, show_default=True,
              help="Statements of one row in a round; of 1,000 rows there are fewer.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(min=1), default=5, show_default=True,
              help="Rounds per case; the figures are medians.")  # fmt: skip
@click.option("--clients", type=Numbers(int), default="1,8", show_default=True,
              help="How many write at once.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(min=0.1), default=10, show_default=True,
              help="How long they do.")  # fmt: skip
@click.option("--pg-ivm-dsn", metavar="DSN",
              help="A database with pg_ivm, for the same writes in the same run.")  # fmt: skip
@output_options
@click.pass_obj
def immediate(target: Target, /, server_settings: str, **options: Any) -> None:
    """Compare writes to sources of an IMMEDIATE table with writes to tables that nobody reads.

    Triggers written by hand for the same two views are measured beside it. In the end the tables
    are compared with their queries; a difference ends the run.
    """
    load = writing.Load(options["rows"], options["statements"], options["repeat"],
                        options["clients"], options["seconds"])  # fmt: skip
    with _open(target, server_settings) as (hw, conn):
        host: Json = {**describe_host(conn), "clock": capturing.clock_name(conn)}
        measured = writing.measure(hw, load, options["pg_ivm_dsn"])
        figures = [_told(f, tell_immediate(f)) for f in measured]
    _publish(immediate_json(host, figures), immediate_tables(figures), options)


@bench.command()
@click.option("--rows", type=click.IntRange(min=1000), default=100_000, show_default=True,
              help="Lines of the orders, ten for each document.")  # fmt: skip
@click.option("--transactions", type=click.IntRange(min=1), default=500, show_default=True,
              help="Transactions in a round.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(min=1), default=5, show_default=True,
              help="Rounds per case; the figures are medians.")  # fmt: skip
@output_options
@click.pass_obj
def commit(target: Target, /, server_settings: str, **options: Any) -> None:
    """Compare transactions on documents that follow at commit with IMMEDIATE and with none.

    In the end the documents are compared with their query; a difference ends the run.
    """
    with _open(target, server_settings) as (hw, conn):
        host: Json = {**describe_host(conn), "clock": capturing.clock_name(conn)}
        found = committing.measure(hw, options["rows"], options["transactions"], options["repeat"])
        figures = [_told(cost, committing.tell(cost)) for cost in found]
    _publish(committing.commit_json(host, figures), committing.commit_tables(figures), options)


@bench.command()
@click.option("--tables", type=click.IntRange(min=1), default=1000, show_default=True,
              help="Stream tables, over twenty sources.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(min=1), default=5, show_default=True,
              help="Cycles, after one to warm up.")  # fmt: skip
@output_options
@click.pass_obj
def schedule(target: Target, /, server_settings: str, **options: Any) -> None:
    """Measure a cycle of the daemon in which every table is due and none has changes.

    No daemon may run for this database meanwhile.
    """
    with _open(target, server_settings) as (hw, conn):
        host = describe_host(conn)
        found = scheduling.measure(hw, conn, options["tables"], options["repeat"])
        rounds = [_told(each, scheduling.tell(each)) for each in found]
    _publish(scheduling.schedule_json(host, rounds), scheduling.schedule_tables(rounds), options)


@bench.command()
@click.option("--scale", type=Numbers(float), default="0.01,1", show_default=True,
              help="Scales of TPC-H; 1 is 6 million lines.")  # fmt: skip
@click.option("--changed", type=Numbers(float), default="0.1,1", show_default=True,
              help="Percent of the lines that change.")  # fmt: skip
@click.option("--views", type=Names(tuple(VIEWS)), default=",".join(VIEWS), show_default=True,
              help="Queries to keep up to date.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(min=1), default=3, show_default=True,
              help="Changes per cell, after one to warm up; the figures are medians.")  # fmt: skip
@click.option("--single-rows", type=click.IntRange(min=0), default=1_000_000, show_default=True,
              help="Rows of the join in which one row changes; 0 leaves this out.")  # fmt: skip
@click.option("--merge", is_flag=True,
              help="Compare with MERGE; downloads Delta's connector the first time.")  # fmt: skip
@click.option("--plot", type=click.Path(dir_okay=False, writable=True, path_type=Path),
              metavar="FILE", help="Draw the figures as SVG.")  # fmt: skip
@form_options
@click.pass_obj
def spark(target: Target, /, server_settings: str, **options: Any) -> None:
    """Compare refreshes on Spark with computing everything anew, on TPC-H.

    FULL recomputes on Spark and publishes the difference. In the end each stream table is compared
    with its query; a difference ends the run.
    """
    from headwater.bench.spark import measure  # noqa: PLC0415 - optional packages

    matrix = SparkMatrix(options["scale"], options["changed"], options["views"],
                         options["repeat"], options["single_rows"], options["merge"])  # fmt: skip
    lake = Lake(
        target.lake or default_lake(target.home or "./.headwater"),
        spark=SparkOptions(target.spark_master, target.spark_options, delta=matrix.merge),
    )
    with _open_on(target, server_settings, lake) as place:
        host: Json = {**describe_host(place.conn), "spark": describe_spark(lake.spark)}
        figures = sorted_out([_told(each, tell(each)) for each in measure(place, matrix)])
    if options["plot"] is not None and figures.cells:
        options["plot"].write_text(draw(figures.cells), encoding="utf-8")
    _publish(spark_json(host, figures), spark_tables(figures), options)


@bench.command()
@click.option("--scale", type=Numbers(float), default="1", show_default=True,
              help="Scales of TPC-H; 1 is 6 million lines.")  # fmt: skip
@click.option("--changed", type=Numbers(float), default="0.1", show_default=True,
              help="Percent of the rows that change.")  # fmt: skip
@click.option("--queries", type=Names(tuple(QUERIES)), default=",".join(QUERIES),
              show_default=True, help="Queries to keep up to date.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(min=1), default=3, show_default=True,
              help="Changes per cell, after one to warm up; the figures are medians.")  # fmt: skip
@output_options
@click.pass_obj
def tpch(target: Target, /, server_settings: str, **options: Any) -> None:
    """Compare refreshes on PostgreSQL with computing everything anew, on TPC-H.

    All tables but nation and region change. In the end the stream tables are compared with their
    queries; a difference ends the run.
    """
    matrix = TpchMatrix(options["scale"], options["changed"], options["queries"], options["repeat"])
    with _open(target, f"{server_settings},search_path={SCHEMA}") as (hw, conn):
        host = describe_host(conn)
        cells = [_told(cell, tell_tpch(cell)) for cell in measure_tpch(hw, conn, matrix)]
    _publish(tpch_json(host, cells), tpch_tables(cells), options)


@contextmanager
def _open_on(target: Target, settings: str, lake: Lake) -> Iterator[Place]:
    """Yield the three connections of a benchmark on Spark, all in the schema of the benchmark."""
    settings = f"{settings},search_path={SCHEMA}"
    with target.connect() as hw:
        dsn = _with_settings(hw.dsn, settings)
        with (
            Headwater(dsn, lake=lake) as tuned,
            open_connection(dsn, lake) as inner,
            psycopg.connect(dsn, autocommit=True) as conn,
        ):
            yield Place(tuned, inner, conn)


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
    if options.get("check"):
        for fault in missed:
            click.secho(f"missed: {fault}", err=True, fg="red")
        sys.exit(1 if missed else 0)
