"""A query comes from the command line, from standard input or from a file."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headwater.cli.arguments import QUERY_FORM, read_query


@click.command()
@click.argument("query", callback=read_query, metavar=QUERY_FORM)
def echo(query: str) -> None:
    click.echo(f"<{query}>")


def test_text() -> None:
    assert CliRunner().invoke(echo, [" SELECT 1 "]).stdout == "<SELECT 1>\n"


def test_standard_input() -> None:
    assert CliRunner().invoke(echo, ["-"], input="SELECT 'é'\n").stdout == "<SELECT 'é'>\n"


def test_file(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("SELECT 'é'\n", encoding="utf-8")
    assert CliRunner().invoke(echo, [f"@{tmp_path}/q.sql"]).stdout == "<SELECT 'é'>\n"


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff"])
def test_file_without_a_query(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "q.sql").write_bytes(content)
    result = CliRunner().invoke(echo, [f"@{tmp_path}/q.sql"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Invalid value for 'QUERY|-|@FILE'" in result.stderr
