"""A database whose server runs the verbs itself, and the verbs called there through SQL."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

import headwater
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


@dataclass
class SqlVerbs:
    """The verbs that the battery calls, each as one call of a SQL function."""

    conn: psycopg.Connection[Any]

    def create_stream_table(
        self, name: str, query: str, refresh_mode: str, engine: str
    ) -> headwater.Created:
        call = "SELECT pgtrickle.create_stream_table(%s, %s, refresh_mode => %s, engine => %s)"
        self.conn.execute(call, [name, query, refresh_mode, engine])
        [row] = self.conn.execute(
            "SELECT key_columns, effective_mode, effective_engine, reason"
            " FROM pgtrickle.pgt_stream_tables WHERE pgt_id = pgtrickle.stream_table_id(%s)",
            [name],
        ).fetchall()
        return headwater.Created(name, *row)

    def refresh_stream_table(self, name: str) -> headwater.RefreshResult:
        self.conn.execute("SELECT pgtrickle.refresh_stream_table(%s)", [name])
        query = "SELECT action FROM pgtrickle.refresh_history(%s, 1)"
        [(action,)] = self.conn.execute(query, [name]).fetchall()
        return headwater.RefreshResult(name, action)
