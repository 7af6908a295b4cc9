"""Arguments of the verbs: checked, and brought into one form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from headwater.cron import parse_cron
from headwater.errors import InvalidArgument, MissingComponent

MODES = ("AUTO", "DIFFERENTIAL", "FULL", "IMMEDIATE", "COMMIT")
ENGINES = ("auto", "postgres", "spark")
CDC_MODES = ("trigger", "auto", "wal", "poll")
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_CRON_FIELDS = 5


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a table is refreshed: the words as given, the lag they allow; None: DOWNSTREAM."""

    words: str | None
    lag: timedelta | None


def parse_mode(mode: str) -> str:
    """Return the mode's own name; INCREMENTAL is the older name of DIFFERENTIAL."""
    word = mode.upper()
    word = "DIFFERENTIAL" if word == "INCREMENTAL" else word
    if word not in MODES:
        raise _not_one_of("refresh_mode", mode, (*MODES, "INCREMENTAL"))
    return word


def effective_mode(mode: str) -> str:
    """Return what a mode means for a query that can be maintained: AUTO is DIFFERENTIAL."""
    return "DIFFERENTIAL" if mode == "AUTO" else mode


def parse_engine(engine: str) -> str:
    """Return the engine's own name."""
    word = engine.lower()
    if word not in ENGINES:
        raise _not_one_of("engine", engine, ENGINES)
    return word


def parse_cdc_mode(cdc_mode: str | None) -> str | None:
    """Return the capture mode: by triggers or by polling."""
    if cdc_mode is None:
        return None
    if cdc_mode.lower() not in CDC_MODES:
        raise _not_one_of("cdc_mode", cdc_mode, CDC_MODES)
    if cdc_mode.lower() == "wal":
        raise MissingComponent(
            "cdc_mode 'wal' is not available in this version",
            "changes are captured by triggers, or by polling",
            "use cdc_mode 'trigger' or 'poll', or leave it out",
        )
    return cdc_mode.lower()


def parse_status(status: str) -> str:
    """Return the status to set: a table can be switched off and on."""
    if status.upper() not in ("ACTIVE", "SUSPENDED"):
        raise _not_one_of("status", status, ("ACTIVE", "SUSPENDED"))
    return status.upper()


_UNITS = (86400, 3600, 60, 1)  # seconds
_LONGEST = 3650 * 86400


def parse_schedule(schedule: str | None, minimum_seconds: int) -> Schedule:
    """Read `30s 5m 1h30m`, a cron line, or `calculated`; None and `calculated` are DOWNSTREAM."""
    if schedule is None or schedule.strip().lower() in ("calculated", "downstream"):
        return Schedule(None, None)
    words = schedule.strip()
    fields = words.split()
    if len(fields) == _CRON_FIELDS:
        return Schedule(_checked_cron(words), None)
    found = _DURATION.fullmatch(words)
    parts = [int(part or 0) for part in found.groups()] if found else []
    if not any(parts):
        raise InvalidArgument(
            f"schedule {schedule!r} is no schedule",
            "it is neither a duration, nor a cron line of five fields, nor 'calculated'",
            "write it like 30s, 5m, 1h30m, '*/10 * * * *' or calculated",
        )
    if sum(part * unit for part, unit in zip(parts, _UNITS, strict=True)) > _LONGEST:
        raise InvalidArgument(
            f"schedule {schedule!r} is longer than ten years",
            "a lag is how old the data may be",
            "write a shorter one, or suspend a table that is not to be refreshed",
        )
    lag = timedelta(days=parts[0], hours=parts[1], minutes=parts[2], seconds=parts[3])
    if lag.total_seconds() < minimum_seconds:
        raise InvalidArgument(
            f"schedule {schedule!r} is shorter than the minimum of {minimum_seconds} s",
            "pg_trickle.min_target_lag_seconds sets the shortest lag that tables may ask for",
            f"use {minimum_seconds}s or more, or ALTER DATABASE … SET"
            " pg_trickle.min_target_lag_seconds to less",
        )
    return Schedule(words, lag)


def _checked_cron(words: str) -> str:
    try:
        parse_cron(words)
    except ValueError as error:
        raise InvalidArgument(
            f"schedule {words!r} is no cron line",
            str(error),
            "write minute, hour, day, month and weekday, like '*/10 * * * *' or '30 6 * * mon-fri'",
        ) from error
    return words


def _not_one_of(argument: str, given: str, allowed: tuple[str, ...]) -> InvalidArgument:
    return InvalidArgument(
        f"{argument} {given!r} is not known",
        f"it must be one of {', '.join(allowed)}",
        f"use one of {', '.join(allowed)}",
    )
