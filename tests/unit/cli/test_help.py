"""The commands explain themselves, and loading them is quick."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import headwater
from headwater.cli import main

COMMANDS = [
    "init", "create", "create-tview", "alter", "drop", "refresh", "group", "run", "status",
    "health", "doctor", "history", "graph", "explain", "verify", "patches", "lake-view", "vacuum",
    "serve-requests", "uninstall", "demo", "version",
]  # fmt: skip
# Prints the help without what `import headwater` loads for users of the library, then the names
# of the packages that were loaded for it.
LOAD = """
import sys, types
package = types.ModuleType("headwater")
package.__path__ = [sys.argv[1]]
sys.modules["headwater"] = package
from headwater.cli import main
main(["--help"], standalone_mode=False)
print(sorted({"psycopg", "rich", "pyspark", "asyncio"} & set(sys.modules)))
"""


def test_commands_stand_in_the_order_of_use() -> None:
    assert list(main.commands) == COMMANDS


@pytest.mark.parametrize("arguments", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_help(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, [*arguments, "--help"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: ")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_json(name: str) -> None:
    command = main.commands[name]
    for each in command.commands.values() if isinstance(command, click.Group) else [command]:
        flags = [o for p in each.params if isinstance(p, click.Option) for o in p.opts]
        assert "--json" in flags


def test_help_loads_no_driver() -> None:
    place = str(Path(headwater.__file__).parent)
    command = [sys.executable, "-c", LOAD, place]
    assert subprocess.check_output(command, text=True).splitlines()[-1] == "[]"


def test_version() -> None:
    versions = json.loads(CliRunner().invoke(main, ["version", "--json"]).stdout)
    assert list(versions)[:3] == ["headwater", "python", "psycopg"]
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert CliRunner().invoke(main, ["--version"]).stdout.split()[-1] == versions["headwater"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["refresh"], "name at least one stream table, or give --all, but not both"),
        (["verify", "--all", "t"], "name at least one stream table, or give --all, but not both"),
        (["explain"], "name a stream table or give --query, but not both"),
        (["explain", "t", "--query", "SELECT 1"], "name a stream table or give --query, but not"),
        (["alter", "t"], "nothing to alter: give at least one option"),
        (["create", "t", ""], "the query is empty"),
        (["create", "t", "@/no/such/file"], "/no/such/file cannot be read"),
        (["create", "t", "SELECT 1", "--mode", "sometimes"], "'sometimes' is not one of"),
        (["history", "t", "--max-rows", "0"], "0 is not in the range"),
        (["no-such-command"], "No such command 'no-such-command'"),
    ],
)
def test_wrong_usage_is_refused_before_anything_starts(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["--home", "/proc/nowhere", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
