"""`headwater patches`."""

from __future__ import annotations

import json

import click

from headwater.cli.arguments import json_option
from headwater.cli.output import print_json, print_table
from headwater.cli.target import Target


@click.command()
@click.argument("name", required=False)
@click.option("--after", metavar="POSITION",
              help="The position of what was read last.  [default: from the first]")  # fmt: skip
@click.option("--trim", is_flag=True, help="First delete what was read up to --after.")
@json_option
@click.pass_obj
def patches(target: Target, name: str | None, after: str | None, trim: bool, as_json: bool) -> None:
    """Show what became of documents: of the tview NAME, or of all that tell it.

    Each patch says up to which position all were shown: give that to --after to read on.
    """
    if trim and after is None:
        raise click.UsageError("--trim deletes what was read: say with --after how far that is")
    with target.connect() as hw:
        if trim:
            hw.trim_patches(after)
        found = hw.patches(after, name)
    if as_json:
        print_json(found)
    else:
        print_table(("id", "transaction", "entity", "kind", "key", "patch", "position"), [
            (p.patch_id, p.xid, p.entity, p.kind, json.dumps(p.key), json.dumps(p.patch),
             p.position)
            for p in found
        ])  # fmt: skip
