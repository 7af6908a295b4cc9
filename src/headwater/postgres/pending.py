"""What stands in the buffers of a stream table's sources that it has not seen yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import Connection, sql

from headwater.catalog.model import Epoch, Tracking
from headwater.postgres.quote import WEIGHT, identifier, listed


@dataclass(frozen=True, slots=True)
class Pending:
    """Sources with changes, and those that ask for a rebuild."""

    changed: frozenset[int]
    markers: frozenset[int]


def unseen(epoch: Epoch) -> str:
    """Return the test for buffer rows that a table standing at `epoch` has not seen.

    The refresher of an epoch has also seen what it wrote itself, into other stream tables.
    """
    return (
        f"NOT (pg_visible_in_snapshot(__xid, '{epoch.snapshot}'::pg_snapshot)"
        f" OR __xid = '{epoch.xid}'::xid8)"
    )


def find_pending(conn: Connection[Any], epoch: Epoch, tracked: tuple[Tracking, ...]) -> Pending:
    """Ask in one statement which sources have unseen changes; one row each is looked at."""
    if not tracked:
        return Pending(frozenset(), frozenset())
    test = unseen(epoch)
    parts = [
        f"SELECT {t.source_relid}::int8, EXISTS (SELECT FROM {t.buffer_name} WHERE {test}),"
        f" EXISTS (SELECT FROM {t.buffer_name} WHERE {WEIGHT} = 0 AND {test})"
        for t in tracked
    ]
    rows = conn.execute(sql.SQL(" UNION ALL ".join(parts))).fetchall()  # type: ignore[arg-type]
    changed = frozenset(oid for oid, has, _ in rows if has)
    return Pending(changed, frozenset(oid for oid, _, marked in rows if marked))


def count_pending(conn: Connection[Any], epoch: Epoch, tracked: tuple[Tracking, ...]) -> int:
    """Count the unseen change rows of the sources."""
    parts = (f"(SELECT count(*) FROM {t.buffer_name} WHERE {unseen(epoch)})" for t in tracked)
    row = conn.execute(sql.SQL("SELECT " + " + ".join(parts))).fetchone()  # type: ignore[arg-type]
    return int(row[0]) if row else 0


def read_changes(epoch: Epoch, tracked: tuple[Tracking, ...]) -> dict[int, str]:
    """Return for each source the SELECT of its unseen changes."""
    return {
        t.source_relid: f"SELECT {listed([*map(identifier, t.columns), WEIGHT])}"
        f" FROM {t.buffer_name} WHERE {unseen(epoch)}"
        for t in tracked
    }
