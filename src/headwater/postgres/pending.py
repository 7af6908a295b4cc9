"""What stands in the buffers of a stream table's sources that it has not seen yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from headwater.catalog.model import Tracking
from headwater.catalog.standing import Standing
from headwater.postgres.quote import NEVER, WEIGHT, identifier, listed

# A table standing at an epoch has seen what its snapshot shows, and what the refresher of that
# epoch wrote itself, into other stream tables.
UNSEEN = (
    "NOT (pg_visible_in_snapshot(__xid, %(snapshot)s::pg_snapshot) OR __xid = %(refresher)s::xid8)"
)
# The same, with the epoch in two settings of the transaction: the statement stays the same text,
# and the user's expressions in it need no escaping. Of an expression that equals a constant the
# planner expects one row in 200, so that its idea of the buffer, which has never been true, counts
# for nothing beside what the statement tells it.
_UNSEEN_HERE = (
    "CASE WHEN pg_visible_in_snapshot(__xid,"
    " (SELECT current_setting('pg_trickle.snapshot')::pg_snapshot))"
    " OR __xid = (SELECT current_setting('pg_trickle.refresher')::xid8) THEN 1 ELSE 0 END = 0"
)


@dataclass(frozen=True, slots=True)
class Pending:
    """How many change rows each changed source has, and which sources ask for a rebuild."""

    rows: dict[int, int]
    markers: frozenset[int]

    @property
    def changed(self) -> frozenset[int]:
        """The sources with changes."""
        return frozenset(self.rows)


def seen_at(standing: Standing) -> dict[str, str]:
    """Return the parameters of `UNSEEN` for the epoch at which a table stands."""
    assert standing.epoch is not None
    return {"snapshot": standing.epoch.snapshot, "refresher": standing.epoch.xid}


def find_pending(conn: Connection[Any], standing: Standing) -> Pending:
    """Return the unseen change rows of each source, as counted before or in one statement."""
    if standing.unseen is not None:
        return _pending(standing.unseen)
    if not standing.sources:
        return _pending(())
    parts = [
        f"SELECT {t.source_relid}::int8 AS relid, count(*) AS rows,"
        f" count(*) FILTER (WHERE {WEIGHT} = 0) AS markers"
        f" FROM {t.buffer_name} WHERE {UNSEEN}"
        for t in standing.sources
    ]
    return _pending(conn.execute(" UNION ALL ".join(parts), seen_at(standing)).fetchall())


def _pending(found: Iterable[tuple[int, int, int]]) -> Pending:
    found = tuple(found)
    return Pending(
        {oid: rows for oid, rows, _ in found if rows},
        frozenset(oid for oid, _, markers in found if markers),
    )


def estimate_source_rows(conn: Connection[Any], sources: Iterable[Tracking]) -> int:
    """Return how many rows sources have, as far as the server's statistics know."""
    return sum(source_rows(conn, sources).values())


def source_rows(conn: Connection[Any], sources: Iterable[Tracking]) -> dict[int, int]:
    """Return by source how many rows it has, roughly; none for one that was never analysed."""
    parts = [(t.source_relid, oid) for t in sources for oid in (t.source_relid, *t.leaves)]
    rows = conn.execute(
        "SELECT p.source, sum(greatest(c.reltuples, 0))::int8"
        " FROM unnest(%s::int8[], %s::int8[]) AS p (source, part)"
        " JOIN pg_class c ON c.oid = p.part::oid GROUP BY p.source"
        " HAVING bool_and(c.reltuples >= 0 OR c.relkind <> 'r')",
        [[source for source, _ in parts], [part for _, part in parts]],
    ).fetchall()
    return {source: int(count) for source, count in rows}


def read_changes(
    sources: tuple[Tracking, ...], rows: Mapping[int, int] | None = None
) -> dict[int, str]:
    """Return for each source the SELECT of its unseen changes.

    With `rows`, the planner is told how many to expect.
    """
    return {
        t.source_relid: f"SELECT {listed([*map(identifier, t.columns), WEIGHT])}"
        f" FROM {t.buffer_name} WHERE {_UNSEEN_HERE}"
        + _expecting(rows.get(t.source_relid, 0) if rows else 0, len(t.columns) + 1)
        for t in sources
    }


def _expecting(rows: int, width: int) -> str:
    """Return an empty addition to a SELECT that the planner takes for so many rows, roughly.

    An ANALYZE or VACUUM that meets the buffer empty has the planner expect one row for ever after,
    and join thousands of groups with each other pair by pair. A condition that holds for all rows
    or none does not count in its estimates, and costs nothing when it fails.
    """
    if not rows:
        return ""
    roughly = 1 << (rows - 1).bit_length()
    nulls = ", ".join(["NULL"] * width)
    return f" UNION ALL SELECT {nulls} FROM generate_series(1, {roughly}) WHERE {NEVER}"
