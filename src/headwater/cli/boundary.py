"""Turns errors into text on standard error and an exit code; nothing else in the package does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, TypeVar

import click

from headwater.cli.bench import SHORT_HELP, find_bench, has_bench
from headwater.errors import HeadwaterError, InvalidPlan, SourceChanged, Unavailable, UserError

R = TypeVar("R")

DIFFERENT = 1  # the exit code of PostgreSQL's own errors, and of a verification that fails
EXIT_CODES: dict[type[HeadwaterError], int] = {
    UserError: 2,
    SourceChanged: 3,
    Unavailable: 4,
    InvalidPlan: 70,
}


class Cli(click.Group):
    """The group of all commands: in the order of their definition, `bench` if it is installed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which a newcomer needs them."""
        return [*self.commands, *(["bench"] if has_bench() else [])]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, importing what is only plugged in."""
        return find_bench() if cmd_name == "bench" else super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing what is only plugged in."""
        limit = formatter.width - 6 - max(map(len, self.commands))
        rows = [(name, each.get_short_help_str(limit)) for name, each in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows + ([("bench", SHORT_HELP)] if has_bench() else []))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error that we know ends it with a message and no traceback."""
        try:
            return super().invoke(ctx)
        except expected_errors() as error:
            raise Failure([error]) from error


class Failure(click.ClickException):
    """Errors on their way out: their texts, unchanged, and the exit code of the first."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        super().__init__("\n".join(str(error).strip() for error in errors))
        self.exit_code = exit_code_of(errors[0])  # type: ignore[misc]  # ours differ

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the texts without a prefix: each begins with its code."""
        click.echo(self.message, file=file, err=file is None)


def exit_code_of(error: Exception) -> int:
    """Return the exit code that says who must act on `error`."""
    codes = (code for kind, code in EXIT_CODES.items() if isinstance(error, kind))
    return next(codes, DIFFERENT)


def expected_errors() -> tuple[type[Exception], ...]:
    """Return the errors that need no traceback; psycopg's only if something imported psycopg."""
    psycopg = sys.modules.get("psycopg")
    return (HeadwaterError, psycopg.Error) if psycopg else (HeadwaterError,)


def attempt_each(names: Iterable[str], act: Callable[[str], R]) -> tuple[list[R], list[Exception]]:
    """Act on every name, whatever becomes of the others; return the results and the errors."""
    results: list[R] = []
    errors: list[Exception] = []
    for name in names:
        try:
            results.append(act(name))
        except expected_errors() as error:
            errors.append(error)
    return results, errors
