"""The command line: turns arguments into calls of the API, and results into text or JSON."""

from __future__ import annotations

from typing import Any

import click

from headwater.cli.alter import alter
from headwater.cli.boundary import Cli
from headwater.cli.create import create
from headwater.cli.create_tview import create_tview
from headwater.cli.demo import demo
from headwater.cli.doctor import doctor
from headwater.cli.drop import drop
from headwater.cli.explain import explain
from headwater.cli.graph import graph
from headwater.cli.group import group
from headwater.cli.health import health
from headwater.cli.history import history
from headwater.cli.init import init
from headwater.cli.lake_view import lake_view
from headwater.cli.patches import patches
from headwater.cli.refresh import refresh
from headwater.cli.run import run
from headwater.cli.serve_requests import serve_requests
from headwater.cli.status import status
from headwater.cli.target import DEFAULT_HOME, SparkOption, Target
from headwater.cli.uninstall import uninstall
from headwater.cli.vacuum import vacuum
from headwater.cli.verify import verify
from headwater.cli.version import version

__all__ = ["main"]

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=Cli, context_settings=SETTINGS)
@click.option(
    "--dsn",
    envvar="HEADWATER_DSN",
    show_envvar=True,
    metavar="DSN",
    help="The database, as a PostgreSQL URI or keywords; else the embedded server of --home.",
)
@click.option(
    "--home",
    envvar="HEADWATER_HOME",
    show_envvar=True,
    metavar="DIRECTORY",
    help=f"Where the embedded server and local data live.  [default: {DEFAULT_HOME}]",
)
@click.option(
    "--lake",
    envvar="HEADWATER_LAKE",
    show_envvar=True,
    metavar="URL",
    help="Where the Spark engine stores its data.  [default: the directory lake of --home]",
)
@click.option(
    "--spark-master",
    envvar="HEADWATER_SPARK_MASTER",
    show_envvar=True,
    default="local[*]",
    show_default=True,
    metavar="URL",
    help="The Spark cluster, or this machine.",
)
@click.option(
    "--spark-option",
    "spark_options",
    multiple=True,
    type=SparkOption(),
    metavar="NAME=VALUE",
    help="An option of Spark's own; may be given several times.",
)
@click.version_option(package_name="headwater")
@click.pass_context
def main(ctx: click.Context, /, **named: Any) -> None:
    """Stream tables for PostgreSQL: tables that stay equal to a query, kept so incrementally.

    A NAME is a table name as in SQL, with or without its schema. Errors go to standard error; the
    exit code says who must act (2: you, 3: rebuild, 4: try again later, 70: report a bug).
    """
    ctx.obj = Target(**named)


for _command in (
    init, create, create_tview, alter, drop, refresh, group, run, status, health, doctor, history,
    graph, explain, verify, patches, lake_view, vacuum, serve_requests, uninstall, demo, version,
):  # fmt: skip
    main.add_command(_command)
