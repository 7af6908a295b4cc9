"""One word for how a stream table does, by which it is coloured and sorted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_URGENT = ("failed", "suspended", "late")  # what someone may have to act on, and first
_BY_WRITERS = {"IMMEDIATE": "with every write", "COMMIT": "with every commit"}
_LATE = 2  # times the lag asked for: when the daemon alerts, too
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_TENTHS_BELOW = 10  # seconds


def state_of(table: Mapping[str, Any]) -> str:
    """Return the state: failed, suspended, late, behind, empty, fresh or immediate."""
    lag, target = table["lag"], table["target"]
    if table["status"] in ("ERROR", "SUSPENDED"):
        return "failed" if table["status"] == "ERROR" else "suspended"
    if not table["is_populated"]:
        return "empty"
    if table["effective_mode"] in _BY_WRITERS:
        return "immediate"
    if target is None or lag is None or lag <= target:
        return "fresh"
    return "late" if lag > _LATE * target else "behind"


def urgency(table: Mapping[str, Any]) -> int:
    """Sort by this, and what someone may have to act on stands before the rest."""
    state = state_of(table)
    return _URGENT.index(state) if state in _URGENT else len(_URGENT)


def span(seconds: float | None) -> str:
    """Return a span of time as people say it, short; None is a dash."""
    if seconds is None:
        return "–"
    if seconds < _TENTHS_BELOW:
        return f"{seconds:.1f} s"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.0f} h" if seconds < 2 * _DAY else f"{seconds / _DAY:.0f} d"


def duration(seconds: float) -> str:
    """Return how long something took, to the millisecond where it was quick."""
    return f"{max(seconds, 0.001) * 1000:.0f} ms" if seconds < 1 else span(seconds)


def pace(table: Mapping[str, Any]) -> str:
    """Say which lag is asked for: a span, a cron line, or what the readers want."""
    if table["effective_mode"] in _BY_WRITERS:
        return _BY_WRITERS[table["effective_mode"]]
    if table["asked"] is not None:
        return f"at most {span(table['asked'])} old"
    if table["schedule"] is not None:
        return str(table["schedule"])
    own = f": at most {span(table['target'])} old" if table["target"] is not None else ""
    return f"what its readers need{own}"
