"""What a stream table reads, recorded so that a later change of it is noticed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from psycopg import Connection

from headwater.catalog import streams
from headwater.catalog.model import Dependency, StreamTable
from headwater.catalog.standing import load_standings
from headwater.catalog.tracking import list_tracking
from headwater.postgres.compile import Compiled, columns_used

_UPSTREAM = """
WITH RECURSIVE upstream AS (
    SELECT %s::int8 AS pgt_id
    UNION
    SELECT st.pgt_id FROM upstream u JOIN pgtrickle.pgt_dependencies d ON d.pgt_id = u.pgt_id
      JOIN pgtrickle.pgt_stream_tables st ON st.pgt_relid = d.source_relid
)
SELECT pgt_id FROM upstream
"""
EMPTIED = "HW302"  # what pgtrickle.refuse_rewritten raises
_READS = """
SELECT st.pgt_relid::int8, below.pgt_relid::int8 AS below FROM pgtrickle.pgt_stream_tables st
  LEFT JOIN (pgtrickle.pgt_dependencies d
             JOIN pgtrickle.pgt_stream_tables below ON below.pgt_relid = d.source_relid)
    ON d.pgt_id = st.pgt_id
 ORDER BY 1, 2
"""
_KINDS = {"r": "TABLE", "p": "TABLE", "v": "VIEW", "m": "MATERIALIZED_VIEW", "f": "FOREIGN_TABLE"}


def dependencies_of(conn: Connection[Any], compiled: Compiled) -> tuple[Dependency, ...]:
    """Return everything that a compiled query reads, views on the way included."""
    relations = compiled.analysis.relations.values()
    if compiled.maintenance is None:
        used = {r.source.oid: tuple(sorted(r.used)) for r in relations}
    else:
        used = columns_used(compiled.maintenance.view)
    found = []
    for relation in relations:
        oid = relation.source.oid
        columns = used.get(oid, ())
        is_stream_table = streams.find_by_relid(conn, oid) is not None
        kind = "STREAM_TABLE" if is_stream_table else _KINDS[relation.kind]
        mark = _fingerprint(conn, oid, columns)
        policy = relation.policy.recorded if relation.policy else None
        found.append(Dependency(0, oid, kind, relation.source.name, columns, mark, policy))
    return tuple(found)


def functions_of(compiled: Compiled) -> tuple[int, ...]:
    """Return the functions of a compiled query that somebody may replace."""
    return tuple({f.oid for f in compiled.analysis.functions if not f.is_built_in})


def _fingerprint(conn: Connection[Any], oid: int, columns: Iterable[str]) -> Any:
    """What maintenance relies on in a source, to be compared with what it is later."""
    query = "SELECT pgtrickle.source_fingerprint(%s::int8::oid, %s::text[])"
    row = conn.execute(query, (oid, list(columns))).fetchone()
    return row[0] if row else None


def captured(compiled: Compiled) -> tuple[tuple[int, str], ...]:
    """Return oid and name of the relations whose changes an incremental table follows."""
    if compiled.maintenance is None:
        return ()
    used = columns_used(compiled.maintenance.view)
    sources = {r.source.oid: r.source.name for r in compiled.analysis.relations.values()}
    return tuple((oid, sources[oid]) for oid in sorted(used))


def reads(conn: Connection[Any]) -> dict[int, list[int]]:
    """Return for each stream table, by oid, the stream tables that it reads."""
    found: dict[int, list[int]] = {}
    for relid, below in conn.execute(_READS).fetchall():
        found.setdefault(relid, []).extend([below] if below is not None else [])
    return found


def upstream(conn: Connection[Any], st: StreamTable) -> tuple[StreamTable, ...]:
    """Return the stream table and all that it reads, upstream first; no others are loaded."""
    ids = [row[0] for row in conn.execute(_UPSTREAM, (st.pgt_id,)).fetchall()]
    return tuple(standing.table for standing in load_standings(conn, ids))


def together(conn: Connection[Any], st: StreamTable) -> tuple[StreamTable, ...]:
    """Return the stream table and all that a refresh of it moves, each after what it reads: what
    it reads, whoever shares a refresh group with those, and so on."""
    row = conn.execute("SELECT pgtrickle.moved_with(%s)", (st.pgt_id,)).fetchone()
    assert row is not None
    return tuple(standing.table for standing in load_standings(conn, row[0]))


def lockable(conn: Connection[Any], relids: Iterable[int]) -> list[str]:
    """Return the names of those of these relations that are tables and still there."""
    rows = conn.execute(
        "SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.oid = ANY (%s::int8[]::oid[]) AND c.relkind IN ('r', 'p')",
        (list(relids),),
    ).fetchall()
    return [row[0] for row in rows]


def find_rewritten(conn: Connection[Any], pgt_ids: list[int]) -> str | None:
    """Name the sources of these tables that this snapshot shows empty though they may not be.

    TRUNCATE, and ALTER TABLE where it rewrites a table, do so to every older snapshot. Asked after
    the sources were read: whoever has read one keeps such commands from it.
    """
    row = conn.execute("SELECT pgtrickle.rewritten_since(%s)", [pgt_ids]).fetchone()
    return row[0] if row else None


def buffers_to_share(conn: Connection[Any], oids: Iterable[int]) -> list[str]:
    """Return the buffers of sources that are captured already: a table on Spark may share the
    traces of those who read them."""
    return [str(t.buffer_name) for t in list_tracking(conn, oids)]


def movable(tables: Iterable[StreamTable], st: StreamTable) -> tuple[StreamTable, ...]:
    """Return those of the tables that a refresh of `st` moves: those that writers move stand at
    every snapshot by themselves."""
    return tuple(t for t in tables if not t.follows_writers or t.pgt_id == st.pgt_id)


def buffers_of(conn: Connection[Any], tables: Iterable[StreamTable]) -> list[str]:
    """Return the buffers that stream tables on Spark read."""
    ids = {st.pgt_id for st in tables if st.effective_engine == "spark"}
    return [
        source.buffer_name
        for source in list_tracking(conn)
        if source.buffer_name and ids & set(source.tracked_by_pgt_ids)
    ]
