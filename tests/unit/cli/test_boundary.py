"""Errors become text on standard error and an exit code that says who must act."""

from __future__ import annotations

import click
import psycopg
import pytest
from click.testing import CliRunner

from headwater.cli.boundary import Cli, Failure, attempt_each, exit_code_of
from headwater.errors import (
    HeadwaterError,
    InvalidPlan,
    LockTimeout,
    NotFound,
    SourceDropped,
    all_errors,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("a", "b", "c"), 2),
        (SourceDropped("a", "b", "c"), 3),
        (LockTimeout("a", "b", "c"), 4),
        (InvalidPlan("a", "b", "c"), 70),
    ],
)
def test_our_errors(error: HeadwaterError, code: int) -> None:
    result = run(error)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == f"{error.code}: a\n  why: b\n  fix: c\n"


@pytest.mark.parametrize("kind", list(all_errors()), ids=lambda kind: kind.__name__)
def test_every_error_has_an_exit_code_of_its_own(kind: type[HeadwaterError]) -> None:
    expected = {"HW-1": 2, "HW-2": 3, "HW-3": 4, "HW-9": 70}[kind.code[:4]]
    assert exit_code_of(kind("a", "b", "c")) == expected


def test_errors_of_postgresql_pass_unchanged() -> None:
    result = run(psycopg.errors.UndefinedTable('relation "x" does not exist\nLINE 1: TABLE x'))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == 'relation "x" does not exist\nLINE 1: TABLE x\n'


def test_other_errors_are_bugs_and_keep_their_traceback() -> None:
    assert isinstance(run(ZeroDivisionError()).exception, ZeroDivisionError)


def test_one_failure_does_not_stop_the_others() -> None:
    def act(name: str) -> str:
        if name == "b":
            raise NotFound("no b", "b", "b")
        return name.upper()

    results, errors = attempt_each("abc", act)
    assert results == ["A", "C"]
    assert [str(error) for error in errors] == ["HW-103: no b\n  why: b\n  fix: b"]


def test_several_errors_are_all_told_and_the_first_decides() -> None:
    failure = Failure([LockTimeout("a", "b", "c"), NotFound("d", "e", "f")])
    assert failure.exit_code == 4
    assert failure.message == "HW-302: a\n  why: b\n  fix: c\nHW-103: d\n  why: e\n  fix: f"


def run(error: Exception) -> click.testing.Result:
    """Run a command that raises `error`."""

    @click.group(cls=Cli)
    def group() -> None: ...

    @group.command()
    def fail() -> None:
        raise error

    return CliRunner().invoke(group, ["fail"])
