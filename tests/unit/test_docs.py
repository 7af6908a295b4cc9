"""The generated pages say what the package says, and every command and error is on them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click
import pytest

from headwater.catalog.settings import SETTINGS
from headwater.errors import HeadwaterError, all_errors
from tests.docs_pages import (
    PAGES,
    REFERENCE,
    contexts,
    main,
    root_context,
    stale_pages,
    write_pages,
)

COMMANDS = {ctx.command_path: ctx.command for _, ctx in contexts(root_context(), 1)}
ERRORS = list(all_errors())


def test_pages_are_up_to_date() -> None:
    assert stale_pages() == [], "run `make docs`"


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_every_command_and_option_has_help(command: click.Command) -> None:
    assert command.help
    assert [p.name for p in command.params if isinstance(p, click.Option) and not p.help] == []


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_is_documented(path: str) -> None:
    lines = (REFERENCE / "cli.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.lstrip("#") == f" `{path}`"]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_is_documented(error: type[HeadwaterError]) -> None:
    assert error.__doc__
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    assert f"| {error.code} | `{error.__name__}` | {error.__doc__.splitlines()[0]} |" in text


def test_every_code_is_given_once() -> None:
    assert [c for c, count in Counter(e.code for e in ERRORS).items() if count > 1] == []


@pytest.mark.parametrize("name", [setting.name for setting in SETTINGS])
def test_every_setting_is_documented(name: str) -> None:
    assert f"| `{name}` |" in (REFERENCE / "settings.md").read_text(encoding="utf-8")


def test_a_stale_page_is_found(tmp_path: Path) -> None:
    assert stale_pages(tmp_path) == list(PAGES)
    write_pages(tmp_path)
    assert stale_pages(tmp_path) == []
    with (tmp_path / "cli.md").open("a") as page:
        page.write("more\n")
    assert stale_pages(tmp_path) == ["cli.md"]


def test_check_tells_what_to_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PAGES, "cli.md", lambda: "other")
    assert main(["--check"]) == 1
    assert capsys.readouterr().err == "docs/reference/cli.md is out of date: run `make docs`\n"
