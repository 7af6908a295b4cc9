"""`headwater refresh`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from headwater.cli.arguments import json_option
from headwater.cli.boundary import Failure, attempt_each
from headwater.cli.output import print_json, print_table, working
from headwater.cli.target import Target, names_argument, require_names, select_names

if TYPE_CHECKING:
    from headwater.results import RefreshResult

_COUNTS = frozenset({"spark_jobs", "states_skipped", "shared_parts"})  # among the timings


@click.command()
@names_argument
@click.option("--no-wait", is_flag=True, help="Do not wait for a refresh that runs already.")
@json_option
@click.pass_obj
def refresh(
    target: Target, names: tuple[str, ...], everything: bool, no_wait: bool, as_json: bool
) -> None:
    """Bring stream tables up to date now.

    What they read is brought up to date before them. One that fails does not keep the others
    from being refreshed; the exit code tells of it.
    """
    require_names(names, everything)
    with target.connect() as hw:

        def act(name: str) -> RefreshResult:
            with working(f"refreshing {name}"):
                return hw.refresh_stream_table(name, wait=not no_wait)

        results, errors = attempt_each(select_names(hw, names, everything), act)
    if as_json:
        print_json(results)
    elif results:
        print_refreshes(results)
    if errors:
        raise Failure(errors)


def print_refreshes(results: Iterable[RefreshResult]) -> None:
    """Print what each refresh did and cost."""
    headings = ("name", "action", "changes", "inserted", "updated", "deleted", "ms", "Spark jobs",
                "reason")  # fmt: skip
    print_table(headings, [
        (r.name, r.action, r.delta_rows, r.rows_inserted, r.rows_updated, r.rows_deleted,
         total_ms(r.timings), spark_jobs(r.timings), r.reason)
        for r in results
    ])  # fmt: skip


def total_ms(timings: dict[str, float]) -> float | None:
    """Return how long a refresh took: its total if it gives one, else the sum of its steps."""
    steps = (value for name, value in timings.items() if name not in _COUNTS)
    return timings.get("total", sum(steps)) if timings else None


def spark_jobs(timings: Mapping[str, float]) -> int | None:
    """Return how many jobs Spark ran in a refresh; None if Spark took no part."""
    return int(timings["spark_jobs"]) if "spark_jobs" in timings else None
