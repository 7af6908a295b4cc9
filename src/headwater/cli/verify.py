"""`headwater verify`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from headwater.cli.arguments import json_option
from headwater.cli.boundary import DIFFERENT, Failure, attempt_each
from headwater.cli.output import print_json, print_table, working
from headwater.cli.target import Target, names_argument, require_names, select_names

if TYPE_CHECKING:
    from headwater.results import Verification


@click.command()
@names_argument
@json_option
@click.pass_context
def verify(ctx: click.Context, names: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Compare stream tables with their queries, row by row.

    Each query is run in full and compared with EXCEPT ALL both ways, after the changes that wait
    are applied for the comparison only. The exit code is 1 if any stream table differs.
    """
    target: Target = ctx.obj
    require_names(names, everything)
    with target.connect() as hw:

        def act(name: str) -> Verification:
            with working(f"verifying {name}"):
                return hw.verify(name)

        results, errors = attempt_each(select_names(hw, names, everything), act)
    if as_json:
        print_json(results)
    elif results:
        print_verifications(results)
    if errors:
        raise Failure(errors)
    if not all(result.equal for result in results):
        ctx.exit(DIFFERENT)


def print_verifications(results: Iterable[Verification]) -> None:
    """Print one line for each comparison."""
    headings = ("name", "result", "rows", "missing", "extra", "epoch")
    print_table(headings, [
        (r.name, "equal" if r.equal else "different", r.rows, r.missing, r.extra, r.epoch)
        for r in results
    ])  # fmt: skip
