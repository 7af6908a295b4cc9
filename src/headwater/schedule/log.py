"""Turns what the daemon does into lines: one event each, as text or as JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime

LEVELS = ("debug", "info", "warning", "error")


class Log:
    """Writes events of at least one level; any thread may."""

    def __init__(self, write: Callable[[str], None], *, as_json: bool = False) -> None:
        self._write = write
        self._as_json = as_json
        self._lock = threading.Lock()
        self.level = "info"

    def __call__(self, level: str, event: str, **facts: object) -> None:
        """Write one event, unless it is below the level asked for."""
        if LEVELS.index(level) < LEVELS.index(self.level):
            return
        known = {name: value for name, value in facts.items() if value is not None}
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self._as_json:
            head = {"time": moment, "level": level, "event": event}
            line = json.dumps({**head, **known}, default=str, ensure_ascii=False)
        else:
            shown = " ".join(f"{name}={_plain(value)}" for name, value in known.items())
            line = f"{moment} {level:<7} {event} {shown}".rstrip()
        with self._lock:
            self._write(line)


def _plain(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return json.dumps(text, ensure_ascii=False) if set(text) & set(' \n"') else text
