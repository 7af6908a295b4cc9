"""`headwater alter`."""

from __future__ import annotations

from typing import Any

import click

from headwater.cli.arguments import (
    CDC_MODES,
    ENGINES,
    MODES,
    QUERY_FORM,
    SCHEDULE_HELP,
    STATUSES,
    json_option,
    read_query,
)
from headwater.cli.output import print_json, working
from headwater.cli.target import Target


@click.command()
@click.argument("name")
@click.option("--schedule", help=SCHEDULE_HELP)
@click.option("--mode", "refresh_mode", type=MODES, help="How it is brought up to date.")
@click.option("--status", type=STATUSES, help="SUSPENDED stops its refreshes, ACTIVE resumes them.")
@click.option("--engine", type=ENGINES, help="What computes it.")
@click.option("--cdc-mode", type=CDC_MODES, help="How changes of the sources are captured.")
@click.option("--query", callback=read_query, metavar=QUERY_FORM, help="What it is equal to.")
@json_option
@click.pass_obj
def alter(target: Target, /, name: str, as_json: bool, **options: Any) -> None:
    """Change how the stream table NAME is defined or maintained.

    What no option names stays as it is. A new query or mode fills the table anew.
    """
    changes = {option: value for option, value in options.items() if value is not None}
    if not changes:
        raise click.UsageError("nothing to alter: give at least one option")
    with working(f"altering {name}"), target.connect() as hw:
        hw.alter_stream_table(name, **changes)
    if as_json:
        print_json({"altered": name, "changes": changes})
    else:
        click.echo(f"altered {name}")
