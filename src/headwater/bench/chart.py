"""Draws the cells of `bench spark` as a bar chart, as the text of an SVG file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from headwater.bench.report import ms
from headwater.bench.spark_figures import SparkCell

_SERIES = (
    ("DIFFERENTIAL", "#1b6ca8", "differential_ms"),
    ("FULL", "#e08e2b", "full_ms"),
    ("REFRESH MATERIALIZED VIEW", "#9aa5b1", "view_ms"),
    ("Delta MERGE", "#b0413e", "merge_ms"),
)
_LEFT, _WIDTH, _BAR, _GAP = 150, 520, 9, 8
_HEAD, _TOTAL = 44, _LEFT + _WIDTH + 80


def draw(cells: Sequence[SparkCell]) -> str:
    """Return the chart: milliseconds on a logarithmic scale, from the buffers to the table."""
    values = [v for c in cells for _, _, name in _SERIES if (v := getattr(c, name)) is not None]
    low = 10 ** math.floor(math.log10(min(values)))
    high = 10 ** math.ceil(math.log10(max(values)))
    body: list[str] = []
    top = _HEAD
    for cell in cells:
        drawn, height = _group(cell, top, (low, high))
        body += drawn
        top += height + _GAP
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_TOTAL}" height="{top + 24}"'
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{_TOTAL}" height="{top + 24}" fill="#fff"/>',
        *_legend(), *_axis((low, high), top), *body, "</svg>\n",
    ])  # fmt: skip


def _group(cell: SparkCell, top: int, ends: tuple[float, float]) -> tuple[list[str], int]:
    """The bars of one cell, and their height."""
    bars = [(colour, v) for _, colour, name in _SERIES if (v := getattr(cell, name)) is not None]
    label = escape(f"{cell.view}, SF {cell.scale:g}, {cell.changed:g} %")
    middle = top + len(bars) * _BAR / 2 + 4
    drawn = [f'<text x="{_LEFT - 8}" y="{middle:g}" text-anchor="end">{label}</text>']
    for number, (colour, value) in enumerate(bars):
        y, width = top + number * _BAR, _x(value, ends) - _LEFT
        drawn.append(f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR - 1}"'
                     f' fill="{colour}"/>')  # fmt: skip
        drawn.append(f'<text x="{_LEFT + width + 4:.1f}" y="{y + _BAR - 1}" font-size="9">'
                     f"{ms(value)}</text>")  # fmt: skip
    return drawn, len(bars) * _BAR


def _legend() -> list[str]:
    drawn, x = [], 8
    for name, colour, _ in _SERIES:
        drawn.append(f'<rect x="{x}" y="8" width="10" height="10" fill="{colour}"/>')
        drawn.append(f'<text x="{x + 14}" y="17">{escape(name)}</text>')
        x += 40 + 7 * len(name)
    return drawn


def _axis(ends: tuple[float, float], bottom: int) -> list[str]:
    drawn, value = [], ends[0]
    while value <= ends[1]:
        x = _x(value, ends)
        drawn.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_HEAD - 6}" y2="{bottom}"'
                     ' stroke="#ddd"/>')  # fmt: skip
        drawn.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{value:,g} ms'
                     "</text>")  # fmt: skip
        value *= 10
    return drawn


def _x(value: float, ends: tuple[float, float]) -> float:
    low, high = (math.log10(end) for end in ends)
    return _LEFT + _WIDTH * (math.log10(value) - low) / max(high - low, 1e-9)
