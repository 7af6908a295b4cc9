"""`headwater doctor`."""

from __future__ import annotations

import click

from headwater.cli.arguments import json_option
from headwater.cli.boundary import DIFFERENT
from headwater.cli.output import print_json, print_table, working
from headwater.cli.target import Target


@click.command()
@click.option("--fix", is_flag=True, help="Remove what is left over, rebuild what is broken.")
@json_option
@click.pass_obj
def doctor(target: Target, fix: bool, as_json: bool) -> None:
    """Look for what is left over, missing or broken, in the database and the lake.

    Triggers, functions, buffers, state, indexes, guards, refreshes whose session is gone, files
    without a row of the catalog and rows without files. Without --fix nothing is changed. A stream
    table that may have missed a change is computed anew by its next refresh. The exit code is 1 if
    anything is left to mend.
    """
    with target.connect() as hw, working("looking"):
        found = hw.doctor(fix=fix)
    if as_json:
        print_json(found)
    elif found:
        headings = ("check", "subject", "detail", "fix", "fixed", "fault")
        print_table(headings, [
            (d.check, d.subject, d.detail, d.fix, d.is_fixed if fix else None, d.fault)
            for d in found
        ])  # fmt: skip
    else:
        click.echo("nothing is left over, missing or broken")
    if not all(d.is_fixed for d in found):
        raise click.exceptions.Exit(DIFFERENT)
