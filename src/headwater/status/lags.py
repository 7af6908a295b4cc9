"""Turns the last refreshes of a table into the course of its lag, and that into SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_WIDTH, _HEIGHT = 300, 60

Points = list[tuple[float, float]]  # moment and lag, in seconds


def course(refreshes: Sequence[Mapping[str, Any]], now: float) -> Points:
    """Return how the lag went: it grows with the time, and falls when a refresh ends.

    `refreshes` are newest first; those that moved nothing do not count.
    """
    done = [
        (r["ended"], r["data_time"])
        for r in reversed(refreshes)
        if r["status"] == "COMPLETED" and r["ended"] is not None and r["data_time"] is not None
    ]
    points: Points = []
    before: float | None = None
    for ended, data_time in done:
        if before is not None:
            points.append((ended, max(ended - before, 0.0)))
        points.append((ended, max(ended - data_time, 0.0)))
        before = data_time
    if before is not None:
        points.append((now, max(now - before, 0.0)))
    return points


def draw(points: Points, target: float | None) -> str:
    """Draw the course, with a line at the lag asked for; nothing without two moments."""
    if not points or points[-1][0] <= points[0][0]:
        return ""
    start, length = points[0][0], points[-1][0] - points[0][0]
    top = 1.15 * max([lag for _, lag in points] + ([target] if target else []) + [0.001])

    def at(moment: float, lag: float) -> str:
        x = (moment - start) / length * _WIDTH
        return f"{x:.1f},{_HEIGHT - lag / top * _HEIGHT:.1f}"

    line = " ".join(at(*point) for point in points)
    parts = [
        f'<polygon class="area" points="0,{_HEIGHT} {line} {_WIDTH},{_HEIGHT}"/>',
        f'<polyline class="lag" points="{line}"/>',
    ]
    if target:
        y = _HEIGHT - target / top * _HEIGHT
        parts.append(f'<line class="target" x1="0" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
    return (
        f'<svg class="course" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none"'
        f' role="img" aria-label="Lag over time">{"".join(parts)}</svg>'
    )
