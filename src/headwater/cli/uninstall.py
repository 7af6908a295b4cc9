"""`headwater uninstall`."""

from __future__ import annotations

import click

from headwater.cli.arguments import json_option
from headwater.cli.output import print_json
from headwater.cli.target import Target

QUESTION = (
    "Remove the catalog, change buffers and triggers of headwater from this database?"
    " The stream tables stay as plain tables that nothing maintains."
)


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def uninstall(target: Target, yes: bool, as_json: bool) -> None:
    """Remove every trace of headwater from the database.

    The stream tables stay as plain tables that nothing maintains; drop them first if you do not
    want them. Your own tables are left as they are.
    """
    if not yes:
        click.confirm(QUESTION, abort=True, err=True)
    with target.open() as hw:
        hw.uninstall()
    if as_json:
        print_json({"uninstalled": True})
    else:
        click.echo("headwater is gone from this database")
