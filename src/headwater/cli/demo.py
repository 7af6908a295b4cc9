"""`headwater demo`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.arguments import json_option
from headwater.cli.explain import print_stages
from headwater.cli.output import print_json, print_table, working
from headwater.cli.refresh import print_refreshes
from headwater.cli.target import Target
from headwater.cli.verify import print_verifications

if TYPE_CHECKING:
    from headwater.cli.demo_story import Rows, Scene
    from headwater.results import Created

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
    """Show what stream tables do, in less than a minute.

    It runs on an embedded PostgreSQL that is gone afterwards. With --dsn or --home it runs there,
    in the schema headwater_demo, which it makes anew and leaves for you to look at.
    """
    from headwater.cli.demo_story import play  # noqa: PLC0415 - loads the driver

    began = time.monotonic()
    told: dict[str, object] = {}
    with _stage(target) as stage, ExitStack() as stack:
        with working("starting PostgreSQL"):
            hw = stack.enter_context(stage.connect())
        for scene in play(hw):
            told[scene.key] = scene.shown
            if not as_json:
                print_scene(scene)
    told["seconds"] = round(time.monotonic() - began, 1)
    if as_json:
        print_json(told)
    else:
        _print_end(told["seconds"], is_kept=stage == target)


@contextmanager
def _stage(target: Target) -> Iterator[Target]:
    """Yield where to play: what the user named, else a home that goes away."""
    if target.dsn is not None or target.home is not None:
        yield target
        return
    with tempfile.TemporaryDirectory(prefix="headwater-demo-") as directory:
        Path(directory).chmod(0o711)  # for root, whose server runs as another user
        yield Target(None, directory)


def print_scene(scene: Scene) -> None:
    """Print a scene: what is done, in which SQL, and what comes of it."""
    click.echo()
    click.secho(scene.title, bold=True, fg="cyan")
    click.echo(scene.text)
    if scene.sql:
        click.echo()
        click.secho("\n".join(f"  {line}" for line in scene.sql.splitlines()), fg="green")
    click.echo()
    _PRINTERS.get(scene.key, _print_rows)(scene.shown)


def _print_rows(rows: Rows) -> None:
    print_table(rows.headings, rows.rows)


def _print_created(tables: tuple[Created, ...]) -> None:
    print_table(
        ("stream table", "mode", "engine", "key"),
        [(t.name, t.effective_mode, t.engine, t.key_columns) for t in tables],
    )


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
    "verified": print_verifications,
    "explained": print_stages,
}
