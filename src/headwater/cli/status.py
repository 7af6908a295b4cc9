"""`headwater status`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from headwater.cli.arguments import json_option
from headwater.cli.output import print_json, print_table
from headwater.cli.target import Target

if TYPE_CHECKING:
    from headwater.results import Finding, Status


@click.command()
@json_option
@click.pass_obj
def status(target: Target, as_json: bool) -> None:
    """Show every stream table, its mode, and how old its data are; then whether all is well."""
    with target.connect() as hw:
        statuses = hw.pgt_status()
        findings = () if as_json else hw.health_check()
    if as_json:
        print_json(statuses)
    elif statuses:
        print_statuses(statuses)
        print_verdict(findings)
    else:
        click.echo("no stream tables yet: see `headwater create --help`")


def print_verdict(findings: Sequence[Finding]) -> None:
    """Say at a glance whether all is well, and if not, what is not."""
    click.echo()
    if not findings:
        click.secho("all is well", fg="green")
    for finding in findings:
        colour = "red" if finding.severity == "error" else "yellow"
        subject = f"{finding.subject}: " if finding.subject else ""
        what = finding.detail.splitlines()[0]
        click.echo(f"{click.style(finding.severity, fg=colour)}: {subject}{what}")
    if findings:
        click.echo("how to fix it: headwater health")


def print_statuses(statuses: Iterable[Status]) -> None:
    """Print one line for each stream table."""
    headings = ("name", "status", "mode", "engine", "lag", "target", "refreshed", "errors",
                "followed")  # fmt: skip
    print_table(headings, [
        (s.name, s.status, mode_of(s), s.engine, s.current_lag, s.target_lag, s.last_refresh,
         s.errors, followed(s))
        for s in statuses
    ])  # fmt: skip


def mode_of(status: Status) -> str:
    """Return the mode in effect, after the one asked for where they differ."""
    if status.effective_mode in (None, status.refresh_mode):
        return status.refresh_mode
    return f"{status.refresh_mode}: {status.effective_mode}"


def followed(status: Status) -> str:
    """Say what writers made an IMMEDIATE table do, as far as the server counts it."""
    if status.followed_rows is None:
        return ""
    rows = f"{status.followed_rows:,} rows"
    if status.followed_statements is None or status.followed_ms is None:
        return rows
    return f"{status.followed_statements:,} statements, {rows}, {status.followed_ms:,.0f} ms"
