"""Turns the global options into a connection, and names or --all into stream tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from headwater.api import Headwater

DEFAULT_HOME = "./.headwater"


@dataclass(frozen=True, slots=True)
class Target:
    """What the global options name; None where the user named nothing."""

    dsn: str | None
    home: str | None
    lake: str | None = None
    spark_master: str = "local[*]"
    spark_options: tuple[tuple[str, str], ...] = ()

    @contextmanager
    def connect(self) -> Iterator[Headwater]:
        """Connect, and install or upgrade the catalog; close when the block ends."""
        with self.open() as hw:
            hw.init()
            yield hw

    def lake_url(self) -> str:
        """Return where the Spark engine stores its data."""
        from headwater.api.facade import default_lake  # noqa: PLC0415

        return self.lake or default_lake(self.home or DEFAULT_HOME)

    @contextmanager
    def open(self) -> Iterator[Headwater]:
        """Connect to a database as it is; close when the block ends."""
        from headwater.api import Headwater  # noqa: PLC0415 - drivers load longer than help may
        from headwater.embedded import start  # noqa: PLC0415
        from headwater.spark.lake import Lake  # noqa: PLC0415
        from headwater.spark.session import SparkOptions  # noqa: PLC0415

        home = Path(self.home or DEFAULT_HOME)
        spark = SparkOptions(self.spark_master, self.spark_options)
        lake = Lake(self.lake_url(), {}, spark)
        if self.dsn is not None:
            with Headwater(self.dsn, lake=lake) as hw:
                yield hw
            return
        server = start(home)
        try:
            with Headwater(server.dsn, lake=lake) as hw:
                yield hw
        finally:
            server.stop()


class SparkOption(click.ParamType[tuple[str, str]]):
    """NAME=VALUE."""

    name = "option"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return name and value."""
        name, mark, text = str(value).partition("=")
        if not mark or not name:
            self.fail(f"{value} is not of the form NAME=VALUE", param, ctx)
        return name, text


def require_names(names: tuple[str, ...], everything: bool) -> None:
    """Refuse a call that names no stream table, or some and --all."""
    if bool(names) == everything:
        raise click.UsageError("name at least one stream table, or give --all, but not both")


def select_names(hw: Headwater, names: tuple[str, ...], everything: bool) -> tuple[str, ...]:
    """Return the stream tables that a command is about: those named, or all, upstream first."""
    from headwater.graph import upstream_first  # noqa: PLC0415 - its package loads the driver

    if not everything:
        return names
    known = [status.name for status in hw.pgt_status()]
    reads: dict[str, list[str]] = {name: [] for name in known}
    for edge in hw.st_graph():
        if edge.source_name in reads:
            reads[edge.pgt_name].append(edge.source_name)
    return upstream_first(reads)


def names_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command take names or --all."""
    everything = click.option("--all", "everything", is_flag=True, help="Every stream table.")
    names = click.argument("names", nargs=-1, metavar="[NAME]...")
    return names(everything(command))
