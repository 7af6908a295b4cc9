"""Looking at the server's indexes before a state is read from files.

Whether the rows that a change could meet in a state all came with the change is a matter of a few
thousand keys. The server answers it by an index, under the snapshot of the refresh, in the time
that Spark needs to start a job; and the answer holds whether or not a foreign key was checked.
"""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from headwater.algebra.ops import Op, Scan
from headwater.algebra.schema import names
from headwater.delta.arrivals import Meeting, meetings, skip_states
from headwater.spark.compute import MANY_KEYS, Compute

_WORTH = 16  # rows of a state for each key that is looked up

_INDEXED = """
SELECT EXISTS (
    SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
      JOIN pg_class c ON c.oid = i.indrelid
     WHERE i.indrelid = %(oid)s::int8::oid
       AND '"' || replace(a.attname, '"', '""') || '"' = %(attribute)s
       AND i.indkey[0] = a.attnum AND i.indisvalid AND i.indpred IS NULL
       AND NOT c.relrowsecurity)
"""


def without_arrivals(
    conn: Connection[Any], compute: Compute, change: Op, changed: frozenset[int]
) -> tuple[Op, int]:
    """Return the same change with fewer states to read, and in how many meetings that is so."""
    rests = {m: rest for m in meetings(change) if (rest := _rest(conn, compute, m)) is not None}
    return (skip_states(change, rests, changed) if rests else change), len(rests)


def _rest(conn: Connection[Any], compute: Compute, meeting: Meeting) -> tuple[str, ...] | None:
    """Return the changed values for which the state must be read; None if that is most of them."""
    weights = compute.weights(meeting.change, meeting.change_column)
    if not weights:
        return None
    mixed = {value for value, w in weights.items() if w.came and w.went}
    asked = weights.keys() - mixed
    enough = compute.rows(meeting.state, False) >= _WORTH * len(asked)
    if len(mixed) > MANY_KEYS or not asked or not enough or not _is_indexed(conn, meeting):
        return None
    there = _counted(conn, meeting, sorted(asked))
    moved = compute.weights(meeting.state, meeting.state_column)
    if moved is None:
        return None
    unsure = {
        value
        for value in asked
        if there.get(value, 0) != (_net(moved, value) if weights[value].came else 0)
    }
    rest = mixed | unsure
    return tuple(sorted(rest)) if len(rest) <= MANY_KEYS else None


def _net(moved: dict[str, Any], value: str) -> int:
    found = moved.get(value)
    return found.came + found.went if found else 0


def _attribute(scan: Scan, column: str) -> str:
    """Return a column of a scan as the server knows it."""
    return scan.attributes[names(scan.columns).index(column)]


def _is_indexed(conn: Connection[Any], meeting: Meeting) -> bool:
    attribute = _attribute(meeting.state, meeting.state_column)
    values = {"oid": meeting.state.source.oid, "attribute": attribute}
    row = conn.execute(_INDEXED, values).fetchone()
    return row is not None and bool(row[0])


def _counted(conn: Connection[Any], meeting: Meeting, values: list[str]) -> dict[str, int]:
    """Return how many rows the state has for each of the values that it has."""
    attribute = _attribute(meeting.state, meeting.state_column)
    rows = conn.execute(
        f"SELECT {attribute}::text AS value, count(*) AS n FROM {meeting.state.source.name}"
        f" WHERE {attribute} = ANY (%s::text[]::bigint[]) GROUP BY {attribute}",
        [values],
    ).fetchall()
    return dict(rows)
