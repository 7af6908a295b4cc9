"""Finds the group `headwater bench`, which comes with its own part of the package."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import click


def find_bench() -> click.Command | None:
    """Return the group, imported only now; None where the benchmarks are not installed."""
    if find_spec("headwater.bench") is None or find_spec("headwater.bench.cli") is None:
        return None
    bench = import_module("headwater.bench.cli").bench
    return bench if isinstance(bench, click.Command) else None
