"""Turns what a user types into the values that the API takes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

MODES = click.Choice(
    ["AUTO", "DIFFERENTIAL", "FULL", "IMMEDIATE", "COMMIT", "INCREMENTAL"], case_sensitive=False
)
ENGINES = click.Choice(["auto", "postgres", "spark"], case_sensitive=False)
CDC_MODES = click.Choice(["trigger", "auto", "wal", "poll"], case_sensitive=False)
STATUSES = click.Choice(["ACTIVE", "SUSPENDED"], case_sensitive=False)
QUERY_FORM = "QUERY|-|@FILE"
SCHEDULE_HELP = "How often: 30s, 5m, 1h30m, a cron line, or `calculated`: as its readers need it."


def read_query(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the text of a query: as given, from standard input for `-`, from FILE for `@FILE`."""
    if value is None:
        return None
    text = _read(value, ctx, param).strip()
    if not text:
        raise click.BadParameter("the query is empty", ctx, param)
    return text


def _read(value: str, ctx: click.Context, param: click.Parameter) -> str:
    if value == "-":
        return sys.stdin.read()
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{value[1:]} cannot be read: {error}", ctx, param) from error


def json_option(command: Command) -> Command:
    """Let a command print JSON."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)
