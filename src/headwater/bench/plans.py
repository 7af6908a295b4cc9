"""What the statement of a DIFFERENTIAL refresh reads, by EXPLAIN (ANALYZE) in vain."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from psycopg import Connection

from headwater.catalog import streams
from headwater.catalog.settings import read_settings
from headwater.catalog.standing import load_standings
from headwater.postgres.apply import DeltaReader, render_differential
from headwater.postgres.pending import find_pending, read_changes
from headwater.postgres.refresh import COSTS, is_small
from headwater.postgres.session import pin
from headwater.postgres.storage import load_plan

Node = dict[str, Any]
_REMOVED = ("Rows Removed by Filter", "Rows Removed by Index Recheck")


@dataclass(frozen=True, slots=True)
class Reading:
    """Rows that scan nodes looked at, by relation, and the server's own times."""

    rows_by_relation: dict[str, int]
    planning_ms: float
    execution_ms: float

    @property
    def rows(self) -> int:
        """All rows looked at."""
        return sum(self.rows_by_relation.values())


def read_plan(conn: Connection[Any], name: str) -> Reading:
    """Run the refresh statement of a stream table under EXPLAIN, and roll back."""
    explained = json.loads(explain(conn, name, "ANALYZE, FORMAT JSON"))[0]
    rows: Counter[str] = Counter()
    for relation, read in _scanned(explained["Plan"]):
        rows[relation] += round(read)
    return Reading(dict(rows), explained["Planning Time"], explained["Execution Time"])


def explain(conn: Connection[Any], name: str, options: str) -> str:
    """Return the plan of the statement that a refresh would run now; nothing is written.

    `explain_st` shows the statement for changes of every source. This is the one for those sources
    that did change.
    """
    with conn.transaction(force_rollback=True):
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        st = streams.get_stream_table(conn, name)
        standing = load_standings(conn, [st.pgt_id])[0]
        plan, target = load_plan(st)
        assert plan is not None, f"{name} is FULL"
        pending = find_pending(conn, standing)
        target = replace(target, is_small=is_small(standing, pending.rows))
        reader = DeltaReader(read_changes(standing.sources, pending.rows))
        statement = render_differential(plan, target, pending.changed, reader)
        pin(conn, standing, read_settings(conn), **COSTS)
        rows = conn.execute(f"EXPLAIN ({options}) {statement}".encode()).fetchall()
    texts = (row[0] if isinstance(row[0], str) else json.dumps(row[0]) for row in rows)
    return "\n".join(texts)


def _scanned(node: Node) -> Iterator[tuple[str, float]]:
    """Yield what each scan of a stored relation looked at, filtered out or not."""
    if "Relation Name" in node and node["Node Type"].endswith("Scan"):
        kept = node["Actual Rows"] + sum(node.get(why, 0) for why in _REMOVED)
        yield node["Relation Name"], kept * node["Actual Loops"]
    for child in node.get("Plans", ()):
        yield from _scanned(child)
