from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import MissingComponent
from headwater.spark.java import find_java, parse_java_version, require_java


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build …)', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ('java version "1.8.0_392"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=1.2\nopenjdk version "11.0.2" 2019-01-15', 11),
        ("The operation couldn’t be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_the_version_is_read(text: str, version: int | None) -> None:
    assert parse_java_version(text) == version


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    on_path = program(tmp_path / "path", 'openjdk version "17.0.1"')
    path = str(on_path.parent)
    assert find_java({"PATH": path}) == on_path
    assert find_java({"PATH": path, "JAVA_HOME": ""}) == on_path
    assert find_java({"PATH": path, "JAVA_HOME": "/other"}) == Path("/other/bin/java")
    assert find_java({"PATH": ""}) is None


def test_a_new_java_is_taken(tmp_path: Path) -> None:
    java = program(tmp_path / "bin", 'openjdk version "17.0.1"')
    assert require_java({"JAVA_HOME": str(tmp_path)}) == java


def test_no_java_is_refused() -> None:
    with pytest.raises(MissingComponent) as refused:
        require_java({"PATH": ""})
    assert str(refused.value) == (
        "HW-304: Java is not installed\n"
        "  why: Spark runs on Java; JAVA_HOME is not set, and there is no `java` on the PATH\n"
        "  fix: install Java 17 or newer (on Debian: apt-get install openjdk-17-jre-headless)"
        " and put it on the PATH or name its directory in JAVA_HOME"
    )


def test_an_old_java_is_refused(tmp_path: Path) -> None:
    java = program(tmp_path / "bin", 'openjdk version "11.0.2" 2019-01-15')
    with pytest.raises(MissingComponent) as refused:
        require_java({"JAVA_HOME": str(tmp_path)})
    assert refused.value.what == "Java 11 is too old"
    assert refused.value.why == f"{java} is Java 11"


def test_a_java_that_does_not_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingComponent) as refused:
        require_java({"JAVA_HOME": str(tmp_path)})
    java = tmp_path / "bin" / "java"
    assert refused.value.what == f"{java} is not a Java that runs"
    assert refused.value.why == f"[Errno 2] No such file or directory: '{java}'"


def program(directory: Path, output: str) -> Path:
    """Make a program `java` in `directory` that prints `output`, as Java does, to its errors."""
    directory.mkdir()
    java = directory / "java"
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{output}\nEND\n")
    java.chmod(0o755)
    return java
