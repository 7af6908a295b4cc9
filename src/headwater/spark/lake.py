"""Where traces live and how Spark is run: what a connection needs to know for the Spark engine."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from psycopg import Connection, Transaction

from headwater.errors import LakeMissing, MissingComponent
from headwater.spark.java import require_java
from headwater.spark.session import SparkOptions


@dataclass(frozen=True, slots=True)
class Lake:
    """A directory or URL for traces, the credentials for it, and the options of Spark."""

    url: str
    storage_options: Mapping[str, str] = field(default_factory=dict)
    spark: SparkOptions = field(default_factory=SparkOptions)

    def new_url(self, what: str) -> str:
        """Return a place that nobody else uses."""
        return f"{self.url.rstrip('/')}/{what}-{uuid.uuid4().hex[:12]}"


class LakeConnection(Connection[Any]):
    """A connection that knows the lake of its database, if it has one."""

    lake: Lake | None = None
    depth = 0  # of blocks of `transaction`: all but the outermost are savepoints

    @contextmanager
    def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> Iterator[Transaction]:
        """Begin a transaction, or within one a savepoint, and count it."""
        with super().transaction(savepoint_name, force_rollback) as transaction:
            self.depth += 1
            try:
                yield transaction
            finally:
                self.depth -= 1


def find_lake(conn: Connection[Any]) -> Lake | None:
    """Return the lake that goes with a connection."""
    return conn.lake if isinstance(conn, LakeConnection) else None


def get_lake(conn: Connection[Any]) -> Lake:
    """Return the lake that goes with a connection; raise LakeMissing if there is none."""
    lake = find_lake(conn)
    if lake is None:
        raise LakeMissing(
            "this connection has no lake",
            "a stream table on Spark keeps copies of its sources there",
            'name one: headwater.connect(…, lake="…"), or --lake on the command line',
        )
    return lake


def find_missing_package(*packages: str) -> str | None:
    """Say which of these packages is not installed; None if all are."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            return f"the package {package} is not installed (pip install 'headwater[spark]')"
    return None


@lru_cache(maxsize=1)
def find_missing() -> str | None:
    """Say what the Spark engine lacks on this machine; None if nothing. Starts no session."""
    package = find_missing_package("pyspark", "deltalake", "pyarrow")
    if package is not None:
        return package
    try:
        require_java()
    except MissingComponent as error:
        return error.what
    return None
