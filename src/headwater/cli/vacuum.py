"""`headwater vacuum`."""

from __future__ import annotations

import click

from headwater.cli.arguments import json_option
from headwater.cli.output import print_json, print_table, show_bytes, working
from headwater.cli.target import Target


@click.command()
@json_option
@click.pass_obj
def vacuum(target: Target, as_json: bool) -> None:
    """Tidy the lake: merge small files, delete what nobody can ask for any more.

    The copies stay readable as far back as pg_trickle.lake_retention says.
    """
    with target.connect() as hw, working("tidying the lake"):
        done = hw.vacuum()
    if as_json:
        print_json(done)
    else:
        print_table(("source", "files", "size", "deleted", "url"), [
            (v.source, v.files, show_bytes(v.bytes), v.deleted, v.url) for v in done
        ])  # fmt: skip
