"""`headwater health`."""

from __future__ import annotations

import click

from headwater.cli.arguments import json_option
from headwater.cli.boundary import DIFFERENT
from headwater.cli.output import print_json, print_table
from headwater.cli.target import Target


@click.command()
@json_option
@click.pass_obj
def health(target: Target, as_json: bool) -> None:
    """Say what is wrong, and how to fix it.

    The exit code is 1 if anything is.
    """
    with target.connect() as hw:
        findings = hw.health_check()
    if as_json:
        print_json(findings)
    elif findings:
        headings = ("severity", "check", "subject", "detail", "fix")
        print_table(headings, [(f.severity, f.check, f.subject, f.detail, f.fix) for f in findings])
    else:
        click.echo("all is well")
    if findings:
        raise click.exceptions.Exit(DIFFERENT)
