"""`headwater lake-view`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headwater.cli.arguments import json_option
from headwater.cli.output import print_json, print_table
from headwater.cli.target import Target

if TYPE_CHECKING:
    from headwater.results import LakeView


@click.command("lake-view")
@click.argument("name")
@json_option
@click.pass_obj
def lake_view(target: Target, name: str, as_json: bool) -> None:
    """Show where the lake holds NAME, and how to read it.

    NAME is a source of a stream table on Spark, or a stream table whose result is kept in the lake.
    The code needs no headwater. With it, `read_at` reads any state of the past.
    """
    with target.connect() as hw:
        found = hw.lake_view(name)
    if as_json:
        print_json(found)
    else:
        print_lake_view(found)


def print_lake_view(found: LakeView) -> None:
    """Print the place, the columns, and the code for each reader."""
    click.echo(f"{found.name}: {found.url}")
    click.echo(f"version {found.version}, epochs {found.since} to {found.epoch}")
    click.echo()
    columns = [(c.stored, c.name, c.type) for c in found.columns]
    print_table(("stored as", "column", "type"), columns)
    codes = {"Spark": found.spark, "delta-rs": found.delta_rs, "Delta SQL": found.sql}
    for reader, code in codes.items():
        click.echo()
        click.secho(f"with {reader}", bold=True)
        click.echo(code)
