"""Turns what somebody should know of into a notification on one channel, as JSON."""

from __future__ import annotations

import json

from headwater.catalog.rows import Connection

CHANNEL = "pg_trickle_alert"
_LONGEST_TEXT = 1500  # characters; a notification takes 8,000 bytes in all

EVENTS = {
    "lag_exceeded": "the data are older than twice the lag asked for",
    "auto_suspended": "too many refreshes in a row failed: someone must act, then resume it",
    "resumed": "a suspended or failed table was set to ACTIVE",
    "reinitialize_needed": "the next refresh computes the table anew",
    "buffer_lag_warning": "very many changes of a source wait to be consumed",
    "refresh_failed": "a refresh failed",
    "capture_broken": "triggers of a source were missing or disabled, or partitions came and went",
    "scheduler_falling_behind": "a table is late by more than its period",
}


def send_alert(conn: Connection, event: str, st: str | None, **details: object) -> None:
    """Notify everyone who listens, once the caller's transaction commits.

    `st` is the qualified name of the stream table; None where the event is a source's.
    """
    assert event in EVENTS
    known = {name: _cut(value) for name, value in details.items() if value is not None}
    payload = json.dumps({"event": event, "st": st, **known}, ensure_ascii=True)
    conn.execute("SELECT pg_notify(%s, %s)", [CHANNEL, payload])


def _cut(value: object) -> object:
    """Shorten a text; written in ASCII, one character may take six bytes."""
    if not isinstance(value, str) or len(json.dumps(value)) <= _LONGEST_TEXT:
        return value
    return value[: _LONGEST_TEXT // 6] + "…"
