"""`headwater history`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from headwater.cli.arguments import json_option
from headwater.cli.output import print_json, print_table
from headwater.cli.refresh import spark_jobs
from headwater.cli.target import Target

if TYPE_CHECKING:
    from headwater.catalog.model import Refresh


@click.command()
@click.argument("name")
@click.option("--max-rows", type=click.IntRange(min=1), default=20, show_default=True,
              help="How many of the last refreshes.")  # fmt: skip
@json_option
@click.pass_obj
def history(target: Target, name: str, max_rows: int, as_json: bool) -> None:
    """Show the last refreshes of the stream table NAME, newest first."""
    with target.connect() as hw:
        refreshes = hw.refresh_history(name, max_rows=max_rows)
    if as_json:
        print_json(refreshes)
    elif refreshes:
        print_history(refreshes)
    else:
        click.echo(f"{name} was never refreshed")


def print_history(refreshes: Iterable[Refresh]) -> None:
    """Print one line for each refresh, with the error of one that failed."""
    headings = ("start", "status", "action", "changes", "inserted", "updated", "deleted", "ms",
                "Spark jobs", "reason")  # fmt: skip
    print_table(headings, [
        (r.start_time, r.status, r.action, r.delta_rows, r.rows_inserted, r.rows_updated,
         r.rows_deleted, milliseconds(r), spark_jobs(r.timings or {}),
         r.error_message or r.reason)
        for r in refreshes
    ])  # fmt: skip


def milliseconds(refresh: Refresh) -> float | None:
    """Return how long a refresh took; None while it runs."""
    if refresh.end_time is None:
        return None
    return (refresh.end_time - refresh.start_time).total_seconds() * 1000
