"""Finds the group `headwater bench`, which comes with its own part of the package."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import click

# In the list of commands; the group's own help would load everything that it measures with.
SHORT_HELP = "Measure what stream tables cost on your server."


def has_bench() -> bool:
    """Say whether the benchmarks are installed; nothing is imported."""
    return find_spec("headwater.bench") is not None


def find_bench() -> click.Command | None:
    """Return the group, imported only now; None where the benchmarks are not installed."""
    if not has_bench():
        return None
    bench = import_module("headwater.bench.cli").bench
    return bench if isinstance(bench, click.Command) else None
