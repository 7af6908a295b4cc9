"""Cron lines mean what cron means by them, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cron import parse_cron


@pytest.mark.parametrize(
    ("line", "after", "expected"),
    [
        ("* * * * *", "2026-03-01 10:00:30", "2026-03-01 10:01"),
        ("*/10 * * * *", "2026-03-01 10:00", "2026-03-01 10:10"),
        ("*/10 * * * *", "2026-03-01 23:55", "2026-03-02 00:00"),
        ("5/20 * * * *", "2026-03-01 10:06", "2026-03-01 10:25"),
        ("30 6 * * *", "2026-03-01 06:30", "2026-03-02 06:30"),
        ("30 6 * * *", "2026-03-01 06:29:59", "2026-03-01 06:30"),
        ("0 0 1 jan *", "2026-03-01 00:00", "2027-01-01 00:00"),
        ("0 9-17/4 * * mon-fri", "2026-03-06 17:30", "2026-03-09 09:00"),
        ("0 0 * * 7", "2026-03-01 00:00", "2026-03-08 00:00"),
        ("0 0 * * 0", "2026-03-01 00:00", "2026-03-08 00:00"),
        ("0 0 29 2 *", "2026-03-01 00:00", "2028-02-29 00:00"),
        ("0 0 13 * fri", "2026-03-09 00:00", "2026-03-13 00:00"),
        ("0 0 15 * fri", "2026-03-13 12:00", "2026-03-15 00:00"),  # either day is enough
        ("0 0 */2 * fri", "2026-03-13 12:00", "2026-03-27 00:00"),  # a star: both must fit
        ("15,45 8,20 * * *", "2026-03-01 08:20", "2026-03-01 08:45"),
    ],
)
def test_following(line: str, after: str, expected: str) -> None:
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC)
    assert parse_cron(line).following(moment) == datetime.fromisoformat(expected + "+00:00")


@pytest.mark.parametrize(
    "line",
    ["* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *",
     "5-1 * * * *", "a * * * *", "1,,2 * * * *", "* * * fri *", "0 0 30 2 *", "-1 * * * *",
     "1-2-3 * * * *", "² * * * *"],
)  # fmt: skip
def test_nonsense_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"field|between|ends before|no year"):
        parse_cron(line)


@given(
    st.sampled_from(["*/7 * * * *", "3 */5 * * *", "0 0 * * mon", "1 1 1 * *", "0 4 8-14 * sat"]),
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),
)
def test_nothing_is_left_out(line: str, moment: datetime) -> None:
    """The minutes between a moment and the one found are none that the fields allow."""
    cron, start = parse_cron(line), moment.replace(tzinfo=UTC)
    found = cron.following(start)
    assert found > start
    assert _fits(line, found)
    minute = start.replace(second=0, microsecond=0) + timedelta(minutes=1)
    while minute < min(found, start + timedelta(hours=6)):
        assert not _fits(line, minute)
        minute += timedelta(minutes=1)


def _fits(line: str, moment: datetime) -> bool:
    cron = parse_cron(line)
    return moment.minute in cron.minutes and moment.hour in cron.hours and cron.has_day(moment)
