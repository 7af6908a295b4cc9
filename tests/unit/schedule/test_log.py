"""One line an event, as text or as JSON."""

from __future__ import annotations

import json

from headwater.schedule.log import Log


def test_text() -> None:
    lines: list[str] = []
    log = Log(lines.append)
    log("info", "refreshed", st="public.totals", seconds=0.12345, reason=None, note='a "b"')
    _, _, rest = lines[0].partition(" ")
    assert rest == 'info    refreshed st=public.totals seconds=0.123 note="a \\"b\\""'


def test_json_and_levels() -> None:
    lines: list[str] = []
    log = Log(lines.append, as_json=True)
    log.level = "warning"
    log("info", "refreshed", st="a")
    log("error", "refresh failed", st="a", code="HW-111")
    [event] = map(json.loads, lines)
    assert {k: v for k, v in event.items() if k != "time"} == {
        "level": "error", "event": "refresh failed", "st": "a", "code": "HW-111",
    }  # fmt: skip
