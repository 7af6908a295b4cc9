"""`headwater create-tview`."""

from __future__ import annotations

from typing import Any

import click

from headwater.cli.arguments import QUERY_FORM, json_option, read_query
from headwater.cli.create import print_created
from headwater.cli.output import print_json, working
from headwater.cli.target import Target


@click.command("create-tview")
@click.argument("name")
@click.argument("query", callback=read_query, metavar=f"[{QUERY_FORM}]", required=False)
@click.option("--key", multiple=True, metavar="COLUMN",
              help="A column of the key; give each.  [default: pk_<entity>]")  # fmt: skip
@click.option("--data", default="data", show_default=True, metavar="COLUMN",
              help="The column that holds the document.")  # fmt: skip
@click.option("--view", metavar="NAME", help="The view of the documents.  [default: v_<entity>]")
@click.option("--patches", is_flag=True, help="Tell what becomes of each document, as patches.")
@json_option
@click.pass_obj
def create_tview(target: Target, /, name: str, query: str | None, **options: Any) -> None:
    """Create the table NAME of documents that follow their sources at each commit.

    By convention NAME is tv_<entity>. QUERY gives one row for each document and becomes the view
    v_<entity>; without it that view is there already.
    """
    as_json = options.pop("as_json")
    with working(f"creating {name}"), target.connect() as hw:
        created = hw.create_tview(name, query, **{**options, "key": options["key"] or None})
    if as_json:
        print_json(created)
    else:
        print_created(created)
