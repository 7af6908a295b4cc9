"""`headwater init`."""

from __future__ import annotations

import click

from headwater.cli.arguments import json_option
from headwater.cli.output import print_json, working
from headwater.cli.target import Target


@click.command()
@json_option
@click.pass_obj
def init(target: Target, as_json: bool) -> None:
    """Install the catalog in the database, or bring it up to date.

    It needs the right to create schemas and nothing in the server but PostgreSQL 15 or newer.
    Every other command does the same first, so this one is for scripts and for a first look.
    """
    with working("installing the catalog"), target.open() as hw:
        applied, dsn = hw.init(), hw.dsn
    if as_json:
        print_json({"dsn": dsn, "applied": applied})
    else:
        steps = ", ".join(map(str, applied))
        click.echo(f"catalog brought to version {steps}" if applied else "catalog up to date")
