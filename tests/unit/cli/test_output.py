"""Values as JSON for machines and as text for people."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from headwater.cli.output import print_facts, print_json, print_section, print_table, show, working
from headwater.cli.refresh import total_ms
from headwater.cli.status import mode_of
from headwater.results import Status


@dataclass(frozen=True)
class Inner:
    moment: datetime
    span: timedelta | None


@dataclass(frozen=True)
class Outer:
    name: str
    parts: tuple[Inner, ...]
    amount: Decimal


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    moment = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    inner = Inner(moment, timedelta(minutes=1, milliseconds=500))
    print_json([Outer("é", (inner, Inner(moment, None)), Decimal("1.10"))])
    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "é",
            "parts": [
                {"moment": "2030-01-02T03:04:05+00:00", "span": 60.5},
                {"moment": "2030-01-02T03:04:05+00:00", "span": None},
            ],
            "amount": "1.10",
        }
    ]


def test_what_json_does_not_know_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no form in JSON"):
        print_json(object())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "yes"),
        (12345, "12,345"),
        (1234.56, "1,234.6"),
        (Decimal("1234.50"), "1,234.50"),
        (("a", 2), "a, 2"),
        ("[bold]", "[bold]"),
        (timedelta(milliseconds=400), "0s"),
        (timedelta(seconds=59), "59s"),
        (timedelta(seconds=65), "1m 05s"),
        (timedelta(hours=2, minutes=3), "2h 03m"),
        (timedelta(days=1, hours=2), "1d 02h"),
    ],
)
def test_show(value: object, text: str) -> None:
    assert show(value) == text


def test_moments_are_shown_in_local_time() -> None:
    local = datetime(2030, 1, 2, 3, 4, 5).astimezone()
    assert show(local.astimezone(UTC)) == "2030-01-02 03:04:05"


def test_table_in_a_pipe_is_plain_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    print_table(("name", "reason", "rows"), [(long, None, 1), ("[b]", "", 1000)])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        f"{'name':<300}   rows",
        "─" * 307,
        f"{long}      1",
        f"{'[b]':<300}  1,000",
    ]


def test_facts_leave_out_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts({"mode": "FULL", "key": ("a", "b"), "state": None, "sources": (), "errors": 0})
    assert capsys.readouterr().out == "mode    FULL\nkey     a, b\nerrors  0\n"


def test_section(capsys: pytest.CaptureFixture[str]) -> None:
    print_section("query", "SELECT 1\n  FROM t\n")
    print_section("nothing", " ")
    assert capsys.readouterr().out == "\nquery\n  SELECT 1\n    FROM t\n"


def test_no_spinner_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with working("refreshing"):
        pass
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("timings", "total"),
    [({}, None), ({"read": 1.0, "apply": 2.0}, 3.0), ({"read": 1.0, "total": 4.0}, 4.0)],
)
def test_total_of_timings(timings: dict[str, float], total: float | None) -> None:
    assert total_ms(timings) == total


@pytest.mark.parametrize(
    ("asked", "effective", "text"),
    [
        ("AUTO", "FULL", "AUTO: FULL"),
        ("FULL", "FULL", "FULL"),
        ("AUTO", None, "AUTO"),
    ],
)
def test_mode(asked: str, effective: str | None, text: str) -> None:
    status = Status("t", "ACTIVE", asked, None, None, None, 0, None, "postgres", effective, None)
    assert mode_of(status) == text
