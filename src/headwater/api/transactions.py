"""Transactions and locks of the verbs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import Connection, IsolationLevel

from headwater.errors import LockTimeout


@contextmanager
def one_snapshot(conn: Connection[Any]) -> Iterator[None]:
    """Run the block in a REPEATABLE READ transaction.

    Its snapshot is taken by the first statement that needs one; LOCK TABLE does not. Inside the
    server it is the caller's transaction, whatever its level: `settle` sees to the rest.
    """
    conn.isolation_level = IsolationLevel.REPEATABLE_READ
    try:
        with conn.transaction():
            yield
    finally:
        conn.isolation_level = None


BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ"
COMMIT = "COMMIT"


@contextmanager
def undone_on_error(conn: Connection[Any]) -> Iterator[None]:
    """Run the block, which sends BEGIN and COMMIT itself, and roll back if it fails.

    So these two can go in batches with others, and wait for no answer of their own.
    """
    try:
        yield
    except BaseException:
        if not conn.closed:
            conn.rollback()
        raise


def lock_tables(conn: Connection[Any], names: Iterable[str], *, wait: bool = True) -> None:
    """Lock tables against writers and other refreshes, not against readers.

    All in one order, so that two refreshes cannot wait for each other; before the snapshot, so
    that everything committed by those we waited for is in it.
    """
    _lock(conn, names, "SHARE ROW EXCLUSIVE", wait=wait)


def lock_buffers(conn: Connection[Any], names: Iterable[str], *, wait: bool = True) -> None:
    """Lock buffers against other refreshes on Spark, not against writers; after the tables.

    So the epochs of a trace are numbered in the order of their snapshots.
    """
    _lock(conn, names, "SHARE UPDATE EXCLUSIVE", wait=wait)


def _lock(conn: Connection[Any], names: Iterable[str], mode: str, *, wait: bool) -> None:
    listed = ", ".join(sorted(set(names)))
    if not listed:
        return
    try:
        conn.execute(f"LOCK TABLE {listed} IN {mode} MODE{'' if wait else ' NOWAIT'}")
    except psycopg.errors.LockNotAvailable as error:
        raise LockTimeout(
            f"{listed} is being refreshed or written by someone else",
            "the call was asked not to wait",
            "call again later, or wait for it",
        ) from error
