"""Turns a cron line of five fields into the moments that it means, in UTC. No input or output."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = 5
_SUNDAY = 7
_MOST_DAYS = 366 * 8 + 1  # 29 February can be eight years away

_Names = dict[str, int]


@dataclass(frozen=True, slots=True)
class Cron:
    """The values that each field allows; `either_day`: one of the two kinds of day is enough."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    def has_day(self, day: date) -> bool:
        """Tell whether any moment of a day is meant."""
        by_date, by_week = day.day in self.days, day.isoweekday() % _SUNDAY in self.weekdays
        fits = by_date or by_week if self.either_day else by_date and by_week
        return fits and day.month in self.months

    def following(self, moment: datetime) -> datetime:
        """Return the first meant moment after `moment`."""
        start = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
        first = start.hour, start.minute
        for ahead in range(_MOST_DAYS):
            day = start.date() + timedelta(days=ahead)
            if self.has_day(day) and (found := self._earliest(first)):
                return _at(day, *found)
            first = 0, 0
        raise ValueError("no such day")

    def _earliest(self, since: tuple[int, int]) -> tuple[int, int] | None:
        hour, minute = since
        later = next((m for m in self.minutes if m >= minute), None)
        if hour in self.hours and later is not None:
            return hour, later
        return next(((h, self.minutes[0]) for h in self.hours if h > hour), None)


@lru_cache(maxsize=4096)
def parse_cron(line: str) -> Cron:
    """Read `minute hour day month weekday`; raise ValueError, with the reason, for anything else.

    Fields are `*`, numbers, names of months and weekdays, ranges, steps and lists. If both kinds of
    day are given, one of them is enough, as cron has it. A line that never comes true is refused.
    """
    fields = line.split()
    if len(fields) != _FIELDS:
        raise ValueError(f"it has {len(fields)} fields, and a cron line has {_FIELDS}")
    minute, hour, day, month, weekday = fields
    weekdays = {n % _SUNDAY for n in _values(weekday, 0, _SUNDAY, _named(_DAYS, 0))}
    cron = Cron(
        tuple(sorted(_values(minute, 0, 59, {}))),
        tuple(sorted(_values(hour, 0, 23, {}))),
        frozenset(_values(day, 1, 31, {})),
        frozenset(_values(month, 1, 12, _named(_MONTHS, 1))),
        frozenset(weekdays),
        not day.startswith("*") and not weekday.startswith("*"),
    )
    if not any(cron.has_day(date(2024, 1, 1) + timedelta(days=n)) for n in range(_MOST_DAYS)):
        raise ValueError("no year has such a day")
    return cron


def _named(names: tuple[str, ...], first: int) -> _Names:
    return {name: number for number, name in enumerate(names, start=first)}


def _values(field: str, low: int, high: int, names: _Names) -> set[int]:
    found: set[int] = set()
    for part in field.lower().split(","):
        span, slash, step = part.partition("/")
        start, end = _span(span, (low, high), names, is_open=bool(slash))
        found.update(range(start, end + 1, _number(step, (1, high), {}) if slash else 1))
    return found


def _span(text: str, bounds: tuple[int, int], names: _Names, *, is_open: bool) -> tuple[int, int]:
    """Return first and last of a range; a single number with a step goes on to the end."""
    if text == "*":
        return bounds
    first, dash, last = text.partition("-")
    start = _number(first, bounds, names)
    if not dash:
        return start, bounds[1] if is_open else start
    end = _number(last, bounds, names)
    if end < start:
        raise ValueError(f"{text} ends before it begins")
    return start, end


def _number(text: str, bounds: tuple[int, int], names: _Names) -> int:
    low, high = bounds
    number = names.get(text, int(text) if text.isascii() and text.isdecimal() else None)
    if number is None or not low <= number <= high:
        raise ValueError(f"{text or 'nothing'} is not between {low} and {high}")
    return number


def _at(day: date, hour: int, minute: int) -> datetime:
    return datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC)
