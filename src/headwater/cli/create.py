"""`headwater create`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headwater.cli.arguments import (
    CDC_MODES,
    ENGINES,
    MODES,
    QUERY_FORM,
    SCHEDULE_HELP,
    json_option,
    read_query,
)
from headwater.cli.explain import print_explanation
from headwater.cli.output import print_facts, print_json, warn, working
from headwater.cli.target import Target

if TYPE_CHECKING:
    from headwater.results import Created


@click.command()
@click.argument("name")
@click.argument("query", callback=read_query, metavar=QUERY_FORM)
@click.option("--schedule", default="1m", show_default=True, help=SCHEDULE_HELP)
@click.option("--mode", "refresh_mode", type=MODES, default="AUTO", show_default=True,
              help="How it is brought up to date.")  # fmt: skip
@click.option("--engine", type=ENGINES, default="auto", show_default=True, help="What computes it.")
@click.option("--cdc-mode", type=CDC_MODES, help="How changes of the sources are captured.")
@click.option("--no-initialize", is_flag=True, help="Leave it empty until the first refresh.")
@click.option("--no-publish", is_flag=True, help="Keep the result out of PostgreSQL (Spark only).")
@click.option("--replace", is_flag=True, help="Take the place of a stream table of that name.")
@click.option("--dry-run", is_flag=True, help="Explain the query, create nothing.")
@json_option
@click.pass_obj
def create(target: Target, /, name: str, query: str, **options: Any) -> None:
    """Create the stream table NAME that stays equal to QUERY.

    QUERY is the text of a SELECT, `-` to read it from standard input, or @FILE to read a file.
    A query that cannot be maintained is refused here, with the reason, and leaves nothing behind.
    """
    as_json, dry_run = options.pop("as_json"), options.pop("dry_run")
    if dry_run:
        _explain_only(target, query, as_json)
        return
    with working(f"creating {name}"), target.connect() as hw:
        replaces = options.pop("replace")
        act = hw.create_or_replace_stream_table if replaces else hw.create_stream_table
        created = act(name, query, **_arguments(options))
    if as_json:
        print_json(created)
    else:
        print_created(created)


def _arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options as the arguments of the API."""
    return {
        "schedule": options["schedule"],
        "refresh_mode": options["refresh_mode"],
        "engine": options["engine"],
        "cdc_mode": options["cdc_mode"],
        "initialize": not options["no_initialize"],
        "publish": not options["no_publish"],
    }


def _explain_only(target: Target, query: str, as_json: bool) -> None:
    with target.connect() as hw:
        explanation = hw.explain_query(query)
    if as_json:
        print_json(explanation)
    else:
        print_explanation(explanation)


def print_created(created: Created) -> None:
    """Print what was made, and the warnings to standard error."""
    click.echo(f"created {click.style(created.name, bold=True)}")
    print_facts(
        {
            "mode": created.effective_mode,
            "engine": created.engine,
            "reason": created.reason,
            "key": created.key_columns,
        }
    )
    for text in created.warnings:
        warn(text)
