"""The README's session runs as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_session_prints_what_its_comments_say(tmp_path: Path) -> None:
    (session,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", session],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.splitlines() == [
        "DIFFERENTIAL",
        "[('ann', Decimal('12.50')), ('bob', Decimal('5.00'))]",
        "True",
    ]


def test_it_is_read_in_one_sitting() -> None:
    assert len(README.read_text().splitlines()) <= 120


def test_every_command_line_names_a_command() -> None:
    blocks = re.findall(r"```console\n(.*?)```", README.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if "headwater" in line]
    listed = subprocess.run(
        [sys.executable, "-c", "from headwater.cli import main; main()", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    commands = set(re.findall(r"^  (\w+)  ", listed, re.MULTILINE))
    used = {match[1] for line in lines if (match := re.match(r"\$ headwater (\w+)", line))}
    assert used
    assert used <= commands
