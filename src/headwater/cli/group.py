"""`headwater group`: stream tables that move together."""

from __future__ import annotations

import click

from headwater.cli.arguments import json_option
from headwater.cli.output import print_json, print_table
from headwater.cli.target import Target


@click.group()
def group() -> None:
    """Have stream tables always move together, in one transaction to one epoch."""


@group.command()
@click.argument("group_name", metavar="GROUP")
@click.argument("members", nargs=-1, required=True, metavar="NAME...")
@json_option
@click.pass_obj
def create(target: Target, group_name: str, members: tuple[str, ...], as_json: bool) -> None:
    """Create the refresh GROUP of two or more stream tables.

    From then on a refresh of one of them moves all of them and what they read.
    """
    with target.connect() as hw:
        hw.create_refresh_group(group_name, members)
        [made] = [each for each in hw.refresh_groups() if each.group_name == group_name]
    if as_json:
        print_json(made)
    else:
        click.echo(f"created the refresh group {group_name}: {', '.join(made.members)}")


@group.command()
@click.argument("group_name", metavar="GROUP")
@json_option
@click.pass_obj
def drop(target: Target, group_name: str, as_json: bool) -> None:
    """Drop the refresh GROUP; its members stay, and move each by itself."""
    with target.connect() as hw:
        hw.drop_refresh_group(group_name)
    if as_json:
        print_json({"dropped": group_name})
    else:
        click.echo(f"dropped the refresh group {group_name}")


@group.command("list")
@json_option
@click.pass_obj
def list_(target: Target, as_json: bool) -> None:
    """List the refresh groups and where they stand."""
    with target.connect() as hw:
        found = hw.refresh_groups()
    if as_json:
        print_json(found)
    elif found:
        headings = ("group", "members", "epoch", "data timestamp")
        print_table(headings, [(g.group_name, g.members, g.epoch, g.data_timestamp) for g in found])
