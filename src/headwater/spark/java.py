"""Finds the Java that Spark would run, and refuses one that is missing or too old."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from headwater.errors import MissingComponent

OLDEST = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')  # Java 8 called itself 1.8
_INSTALL = (
    f"install Java {OLDEST} or newer (on Debian: apt-get install openjdk-17-jre-headless)"
    " and put it on the PATH or name its directory in JAVA_HOME"
)


def require_java(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the `java` that Spark will run; raise MissingComponent if it cannot run Spark.

    Spark takes JAVA_HOME if it is set and not empty, and the PATH only otherwise; so do we.
    """
    java = find_java(environment)
    if java is None:
        raise MissingComponent(
            "Java is not installed",
            why="Spark runs on Java; JAVA_HOME is not set, and there is no `java` on the PATH",
            fix=_INSTALL,
        )
    text = _ask_version(java)
    version = parse_java_version(text)
    if version is None:
        raise MissingComponent(f"{java} is not a Java that runs", why=text, fix=_INSTALL)
    if version < OLDEST:
        raise MissingComponent(
            f"Java {version} is too old", why=f"{java} is Java {version}", fix=_INSTALL
        )
    return java


def find_java(environment: Mapping[str, str]) -> Path | None:
    """Return the program that JAVA_HOME names, there or not, or else the one on the PATH."""
    if home := environment.get("JAVA_HOME"):
        return Path(home) / "bin" / "java"
    found = shutil.which("java", path=environment.get("PATH", ""))
    return Path(found) if found else None


def parse_java_version(text: str) -> int | None:
    """Return the feature release in the output of `java -version`, or None if it names none."""
    match = _VERSION.search(text)
    return int(match[1]) if match else None


def _ask_version(java: Path) -> str:
    """Return what `java -version` prints, or why it cannot be run."""
    try:
        done = subprocess.run(
            [str(java), "-version"],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except OSError as error:
        return str(error)
    return done.stdout.strip() or f"`{java} -version` prints nothing"
