"""The figures of `bench immediate` as JSON and as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict

from headwater.bench.immediate import Cost, Rate
from headwater.bench.report import Json, Table

Figure = Cost | Rate
# Server CPU with a view against without, hand-written triggers for the same views on the same
# writes: what generated ones are measured by.
HAND_WRITTEN = {"groups": 1.7, "joined": 1.7}
ALLOWED = 1.3


def tell(figure: Figure) -> str:
    """Say a figure in one line."""
    match figure:
        case Cost():
            return f"{figure.view}, {figure.write} of {figure.rows:,}: {figure.ratio:.2f}"
        case Rate():
            return f"{figure.view}, {figure.clients} clients: {figure.with_tps:,.0f} a second"


def immediate_json(host: Json, figures: Sequence[Figure]) -> Json:
    """Return all of the benchmark as a JSON document."""
    costs = [asdict(f) for f in figures if isinstance(f, Cost)]
    rates = [asdict(f) for f in figures if isinstance(f, Rate)]
    return {"benchmark": "immediate", "host": host, "costs": costs, "rates": rates,
            "missed": missed(figures)}  # fmt: skip


def missed(figures: Sequence[Figure]) -> list[str]:
    """Return what the figures do not reach: 1.3 times what hand-written triggers cost."""
    found = []
    for view, ratio in HAND_WRITTEN.items():
        ratios = [f.ratio for f in figures if _is_single(f, view) and isinstance(f, Cost)]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 0
        if mean > ALLOWED * ratio:
            found.append(
                f"{view}: statements of one row cost {mean:.2f} times those without a view,"
                f" hand-written triggers {ratio:.2f} times"
            )
    return found


def _is_single(figure: Figure, view: str) -> bool:
    return isinstance(figure, Cost) and figure.rows == 1 and figure.view == view


def immediate_tables(figures: Sequence[Figure]) -> tuple[Table, ...]:
    """Return one table of costs and one of rates."""
    costs = tuple(
        (f.view, f.write, f"{f.rows:,}", f"{f.without_ms:.3f}", f"{f.with_ms:.3f}",
         f"{f.ratio:.2f}")
        for f in figures if isinstance(f, Cost)
    )  # fmt: skip
    rates = tuple(
        (f.view, f"{f.clients}", f"{f.without_tps:,.0f}", f"{f.with_tps:,.0f}")
        for f in figures if isinstance(f, Rate)
    )  # fmt: skip
    return (
        Table(
            "Server time per statement",
            ("view", "write", "rows", "without ms", "with ms", "with / without"),
            costs,
            2,
        ),
        Table(
            "Transactions per second",
            ("view", "clients", "without", "with"),
            rates,
            1,
        ),
    )
