"""`headwater drop`."""

from __future__ import annotations

import click

from headwater.cli.arguments import json_option
from headwater.cli.output import print_json
from headwater.cli.target import Target


@click.command()
@click.argument("name")
@click.option("--cascade", is_flag=True, help="Drop the stream tables that read it, too.")
@json_option
@click.pass_obj
def drop(target: Target, name: str, cascade: bool, as_json: bool) -> None:
    """Drop the stream table NAME and what was kept to maintain it."""
    with target.connect() as hw:
        dropped = hw.drop_stream_table(name, cascade=cascade)
    if as_json:
        print_json({"dropped": dropped})
    for each in () if as_json else dropped:
        click.echo(f"dropped {each}")
