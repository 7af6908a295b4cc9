"""What stands in the buffers of a stream table's sources that it has not seen yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from headwater.catalog.model import Tracking
from headwater.catalog.standing import Standing
from headwater.postgres.quote import WEIGHT, identifier, listed

# A table standing at an epoch has seen what its snapshot shows, and what the refresher of that
# epoch wrote itself, into other stream tables.
UNSEEN = (
    "NOT (pg_visible_in_snapshot(__xid, %(snapshot)s::pg_snapshot) OR __xid = %(refresher)s::xid8)"
)
# The same, with the epoch in two settings of the transaction: the statement stays the same text,
# and the user's expressions in it need no escaping.
_UNSEEN_HERE = (
    "NOT (pg_visible_in_snapshot(__xid,"
    " (SELECT current_setting('pg_trickle.snapshot')::pg_snapshot))"
    " OR __xid = (SELECT current_setting('pg_trickle.refresher')::xid8))"
)


@dataclass(frozen=True, slots=True)
class Pending:
    """Sources with changes, and those that ask for a rebuild."""

    changed: frozenset[int]
    markers: frozenset[int]


def seen_at(standing: Standing) -> dict[str, str]:
    """Return the parameters of `UNSEEN` for the epoch at which a table stands."""
    assert standing.epoch is not None
    return {"snapshot": standing.epoch.snapshot, "refresher": standing.epoch.xid}


def find_pending(conn: Connection[Any], standing: Standing) -> Pending:
    """Ask in one statement which sources have unseen changes; one row each is looked at."""
    if not standing.sources:
        return Pending(frozenset(), frozenset())
    parts = [
        f"SELECT {t.source_relid}::int8, EXISTS (SELECT FROM {t.buffer_name} WHERE {UNSEEN}),"
        f" EXISTS (SELECT FROM {t.buffer_name} WHERE {WEIGHT} = 0 AND {UNSEEN})"
        for t in standing.sources
    ]
    rows = conn.execute(" UNION ALL ".join(parts), seen_at(standing)).fetchall()
    changed = frozenset(oid for oid, has, _ in rows if has)
    return Pending(changed, frozenset(oid for oid, _, marked in rows if marked))


def count_pending(
    conn: Connection[Any], standing: Standing, changed: tuple[Tracking, ...]
) -> tuple[int, int]:
    """Count the unseen change rows of the sources, and estimate the rows of the sources."""
    counts = " + ".join(f"(SELECT count(*) FROM {t.buffer_name} WHERE {UNSEEN})" for t in changed)
    relids = [oid for t in changed for oid in (t.source_relid, *t.leaves)]
    row = conn.execute(
        f"SELECT {counts}, (SELECT coalesce(sum(greatest(reltuples, 0)), 0)::int8 FROM pg_class"
        " WHERE oid = ANY(%(relids)s::int8[]::oid[]))",
        {**seen_at(standing), "relids": relids},
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def read_changes(sources: tuple[Tracking, ...]) -> dict[int, str]:
    """Return for each source the SELECT of its unseen changes."""
    return {
        t.source_relid: f"SELECT {listed([*map(identifier, t.columns), WEIGHT])}"
        f" FROM {t.buffer_name} WHERE {_UNSEEN_HERE}"
        for t in sources
    }
