"""`headwater demo`."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.arguments import json_option
from headwater.cli.explain import print_spark, print_stages
from headwater.cli.output import print_json, print_table, working
from headwater.cli.refresh import print_refreshes
from headwater.cli.target import Target
from headwater.cli.verify import print_verifications

if TYPE_CHECKING:
    from headwater.cli.demo_story import Rows, Scene
    from headwater.results import Created, Explanation

KEPT = "The demonstration stays in the schema headwater_demo for you to look at."
NEXT = (
    ("headwater --dsn postgresql://… create NAME 'SELECT …'", "on your PostgreSQL, 15 or newer"),
    ("headwater create NAME @query.sql", "on the embedded server of ./.headwater"),
    ("headwater explain --query 'SELECT …'", "whether and how a query can be maintained"),
    ("headwater --home DIRECTORY demo", "this again, but kept"),
    ("headwater --help", "everything else"),
)


@click.command()
@json_option
@click.pass_obj
def demo(target: Target, as_json: bool) -> None:
    """Show what stream tables do, on PostgreSQL and on Spark, in about a minute.

    It runs on an embedded PostgreSQL and a Spark of its own, which are gone afterwards; without
    Java, on PostgreSQL alone. With --dsn or --home it runs there, in the schema headwater_demo,
    which it makes anew and leaves for you to look at.
    """
    from headwater.cli.demo_story import play  # noqa: PLC0415 - loads the driver

    began = time.monotonic()
    told: dict[str, object] = {}
    with _stage(target) as stage, ExitStack() as stack:
        with working("starting PostgreSQL"):
            hw = stack.enter_context(stage.connect())
        scenes, then = play(hw), ""
        while scene := _next(scenes, then):
            told[scene.key], then = scene.shown, scene.then
            if not as_json:
                print_scene(scene)
    told["seconds"] = round(time.monotonic() - began, 1)
    if as_json:
        print_json(told)
    else:
        _print_end(told["seconds"], is_kept=stage == target)


def _next(scenes: Iterator[Scene], meanwhile: str) -> Scene | None:
    """Return the next scene, None after the last; show what goes on where that takes long."""
    with working(meanwhile) if meanwhile else nullcontext():
        return next(scenes, None)


@contextmanager
def _stage(target: Target) -> Iterator[Target]:
    """Yield where to play: what the user named, else a home that goes away."""
    if target.dsn is not None or target.home is not None:
        yield target
        return
    with tempfile.TemporaryDirectory(prefix="headwater-demo-") as directory:
        Path(directory).chmod(0o711)  # for root, whose server runs as another user
        yield replace(target, home=directory, lake=None)


def print_scene(scene: Scene) -> None:
    """Print a scene: what is done, in which SQL, and what comes of it."""
    click.echo()
    click.secho(scene.title, bold=True, fg="cyan")
    click.echo(scene.text)
    if scene.sql:
        click.echo()
        click.secho("\n".join(f"  {line}" for line in scene.sql.splitlines()), fg="green")
    if scene.key != "explained":  # whose sections begin with an empty line
        click.echo()
    _PRINTERS.get(scene.key, _print_rows)(scene.shown)
    if scene.then and not sys.stderr.isatty():  # a terminal shows it while it lasts
        click.echo(f"\n… {scene.then}")


def _print_rows(rows: Rows) -> None:
    print_table(rows.headings, rows.rows)


def _print_created(tables: tuple[Created, ...]) -> None:
    reasons = [t.reason.partition(";")[0].removeprefix("engine: ") for t in tables]
    on_spark = any(t.engine == "spark" for t in tables)
    print_table(
        ("stream table", "key", "engine", "because"),
        [
            (t.name, t.key_columns, t.engine, why if on_spark else None)
            for t, why in zip(tables, reasons, strict=True)
        ],
    )
    if not on_spark:
        click.echo(f"\nSpark takes no part: {reasons[0].rpartition('not Spark: ')[2]}.")


def _print_explained(explanation: Explanation) -> None:
    if explanation.spark is None:
        print_stages(explanation)
    else:
        print_spark(explanation.spark)


def _print_end(seconds: object, is_kept: bool) -> None:
    click.echo()
    click.secho(f"That took {seconds} seconds. What next", bold=True, fg="cyan")
    if is_kept:
        click.echo(KEPT)
    width = max(len(command) for command, _ in NEXT)
    for command, meaning in NEXT:
        click.echo(f"  {command:<{width}}  {meaning}")


_PRINTERS: dict[str, Callable[[Any], None]] = {
    "created": _print_created,
    "refreshed": print_refreshes,
    "unchanged": print_refreshes,
    "verified": print_verifications,
    "explained": _print_explained,
}
