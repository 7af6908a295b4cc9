"""A database whose server runs the verbs itself."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from headwater.api.facade import Headwater
from headwater.database.setup import default_paths, install_inside
from tests.servers import Server

PACKAGES = ("headwater", "psycopg*", "typing_extensions.py")


@contextmanager
def readable_copy() -> Iterator[str]:
    """Copy the package to where the server's user may read it, wherever the sources are."""
    directory = tempfile.mkdtemp(prefix="headwater-python-", dir="/tmp")
    try:
        Path(directory).chmod(0o755)
        for path in default_paths():
            for pattern in PACKAGES:
                for found in Path(path).glob(pattern):
                    _copy(found, Path(directory) / found.name)
        yield directory
    finally:
        shutil.rmtree(directory)


def _copy(found: Path, to: Path) -> None:
    if to.exists():
        return
    if found.is_dir():
        shutil.copytree(found, to)
    else:
        shutil.copy(found, to)


def prepare(server: Server, path: str) -> str:
    """Create a database in which the verbs run in the server; return its DSN."""
    dsn = server.create_database()
    with Headwater(dsn) as hw:
        hw.init()
    with psycopg.connect(dsn, autocommit=True) as conn:
        install_inside(conn, [path])
    return dsn
