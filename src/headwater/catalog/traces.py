"""Records which copies of the sources the lake holds, up to which epoch, and who reads them."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg import sql
from psycopg.types.json import Jsonb

from headwater.catalog.model import Epoch, Json, TraceRow
from headwater.catalog.rows import Connection, columns_of, cursor_of, fetch_scalar

RETIRED = "NULL"  # in place of the text of a column that a trace holds, and nobody uses any more

_SELECT = sql.SQL("SELECT {} FROM pgtrickle.pgt_traces t ").format(columns_of(TraceRow))
_WHOLE = sql.SQL("""
   t.generation = coalesce((SELECT c.generation FROM pgtrickle.pgt_change_tracking c
                             WHERE c.source_relid = t.source_relid), 0)
   AND t.fingerprint IS NOT DISTINCT FROM
       pgtrickle.source_fingerprint(t.source_relid, t.columns_used) -> 'columns'
""")
_READ = sql.SQL("EXISTS (SELECT FROM pgtrickle.pgt_trace_readers r WHERE r.trace_id = t.trace_id)")


def list_traces(conn: Connection, pgt_id: int) -> tuple[TraceRow, ...]:
    """Return the traces that a stream table reads."""
    return _list(conn, _READ_BY, {"pgt_id": pgt_id})


def list_whole(conn: Connection, pgt_id: int) -> tuple[TraceRow, ...]:
    """Return those of them to which no change of the source was lost."""
    return _list(conn, _READ_BY + sql.SQL(" AND ") + _WHOLE, {"pgt_id": pgt_id})


_READ_BY = sql.SQL(
    "t.trace_id IN (SELECT r.trace_id FROM pgtrickle.pgt_trace_readers r"
    " WHERE r.pgt_id = %(pgt_id)s)"
)


def list_copies(conn: Connection, pgt_ids: list[int]) -> tuple[tuple[int, int, str], ...]:
    """Return the traces that stream tables read: table, source and URL."""
    query = b"""
        SELECT r.pgt_id, r.source_relid::int8, t.url
          FROM pgtrickle.pgt_trace_readers r JOIN pgtrickle.pgt_traces t USING (trace_id)
         WHERE r.pgt_id = ANY (%s) ORDER BY 1, 2"""
    return tuple(conn.execute(query, [pgt_ids]).fetchall())


def list_shareable(conn: Connection, pgt_id: int, relids: Iterable[int]) -> tuple[TraceRow, ...]:
    """Return traces of these sources that a stream table may read as well.

    They are whole, others read them, and whoever loaded them saw what the table's owner sees, under
    the same settings.
    """
    same = sql.SQL(
        "t.source_relid = ANY (%(relids)s::oid[]) AND (t.owner, t.pinned_settings) ="
        " (SELECT st.owner, st.pinned_settings FROM pgtrickle.pgt_stream_tables st"
        " WHERE st.pgt_id = %(pgt_id)s)"
    )
    conditions = sql.SQL(" AND ").join([same, _READ, _WHOLE])
    return _list(conn, conditions, {"pgt_id": pgt_id, "relids": list(relids)})


def list_of_source(conn: Connection, source_relid: int) -> tuple[TraceRow, ...]:
    """Return the traces of a source that somebody reads."""
    same = sql.SQL("t.source_relid = %(relid)s::oid AND ") + _READ
    return _list(conn, same, {"relid": source_relid})


def list_readable(conn: Connection, source_relid: int) -> tuple[TraceRow, ...]:
    """Return those of them that are whole and hold what the current role may see."""
    same = sql.SQL("t.source_relid = %(relid)s::oid AND pg_has_role(t.owner, 'USAGE')")
    conditions = sql.SQL(" AND ").join([same, _READ, _WHOLE])
    return _list(conn, conditions, {"relid": source_relid})


def list_all(conn: Connection) -> tuple[TraceRow, ...]:
    """Return every trace that the catalog knows."""
    return _list(conn, sql.SQL("true"), {})


def list_unread(conn: Connection) -> tuple[TraceRow, ...]:
    """Return the traces that nobody reads."""
    return _list(conn, sql.SQL("NOT ") + _READ, {})


def _list(conn: Connection, condition: sql.Composable, values: Json) -> tuple[TraceRow, ...]:
    query = sql.SQL("{} WHERE {} ORDER BY t.trace_id").format(_SELECT, condition)
    with cursor_of(conn, TraceRow) as cursor:
        return tuple(cursor.execute(query, values))


def record_trace(
    conn: Connection, pgt_id: int, source_relid: int, where: tuple[str, Json], at: tuple[int, Epoch]
) -> int:
    """Record a new trace that a stream table loaded, and return its id.

    `where` is its URL and its columns, `at` the version that holds everything up to the epoch. It
    holds of the source what the table uses of it; of itself, everything. What is not captured at
    all, a result that is in the lake only, has no generation.
    """
    query = b"""
        INSERT INTO pgtrickle.pgt_traces (source_relid, url, columns, columns_used, version, epoch,
               since, owner, pinned_settings, generation, fingerprint)
        SELECT o.relid, %s, %s, u.names, %s, o.epoch, o.epoch, st.owner, st.pinned_settings,
               coalesce(c.generation, 0),
               pgtrickle.source_fingerprint(o.relid, u.names) -> 'columns'
          FROM (SELECT %s::int8 AS epoch, %s::oid AS relid) o
         CROSS JOIN pgtrickle.pgt_stream_tables st
          LEFT JOIN pgtrickle.pgt_change_tracking c ON c.source_relid = o.relid
          LEFT JOIN pgtrickle.pgt_dependencies d
                 ON d.pgt_id = st.pgt_id AND d.source_relid = o.relid
         CROSS JOIN LATERAL (SELECT coalesce(d.columns_used, c.columns, '{}') AS names) u
         WHERE st.pgt_id = %s
        RETURNING trace_id"""
    values = [where[0], Jsonb(where[1]), at[0], at[1].epoch, source_relid, pgt_id]
    return int(fetch_scalar(conn, query, values))


def record_version(conn: Connection, trace_id: int, at: tuple[int, int], since: int) -> None:
    """Record that a trace holds everything up to an epoch in this version, apart from `since` on.

    Whoever did the same at the same time, which locks on the buffer prevent, would fail here.
    """
    conn.execute(
        "UPDATE pgtrickle.pgt_traces SET version = %s, epoch = %s, since = greatest(since, %s)"
        " WHERE trace_id = %s",
        [*at, since, trace_id],
    )


def record_reader(conn: Connection, pgt_id: int, source_relid: int, trace_id: int) -> None:
    """Record that a stream table reads this trace of a source, in place of the one that it did."""
    conn.execute(
        "INSERT INTO pgtrickle.pgt_trace_readers (pgt_id, source_relid, trace_id)"
        " VALUES (%s, %s::oid, %s) ON CONFLICT (pgt_id, source_relid)"
        " DO UPDATE SET trace_id = excluded.trace_id",
        [pgt_id, source_relid, trace_id],
    )


def retire_columns(conn: Connection, source_relid: int, captured: Iterable[str]) -> None:
    """Give up, in the traces of a source, what hangs on columns that are no longer captured.

    Nobody who reads those traces uses it: who did was first, and has gone. A column is found by its
    name in quotes, which every text has it in.
    """
    conn.execute(_RETIRE, {"relid": source_relid, "kept": list(captured), "retired": RETIRED})


_RETIRE = """
UPDATE pgtrickle.pgt_traces t
   SET columns_used = ARRAY(SELECT u FROM unnest(t.columns_used) AS u WHERE u = ANY (%(kept)s)),
       fingerprint = CASE WHEN t.columns_used <@ lost.names THEN 'null'
                          ELSE t.fingerprint - lost.names END,
       columns = (SELECT jsonb_agg(CASE WHEN EXISTS (
                             SELECT FROM unnest(lost.names) AS n
                              WHERE strpos(c.entry ->> 0, '"' || replace(n, '"', '""') || '"') > 0)
                         THEN jsonb_set(c.entry, '{0}', to_jsonb(%(retired)s::text))
                         ELSE c.entry END ORDER BY c.position)
                    FROM jsonb_array_elements(t.columns) WITH ORDINALITY AS c (entry, position))
  FROM (SELECT own.trace_id,
               ARRAY(SELECT u FROM unnest(own.columns_used) AS u
                      WHERE u <> ALL (%(kept)s::text[])) AS names
          FROM pgtrickle.pgt_traces own WHERE own.source_relid = %(relid)s::oid) AS lost
 WHERE lost.trace_id = t.trace_id AND cardinality(lost.names) > 0
"""


def earliest_needed(conn: Connection, row: TraceRow, retention: str) -> int:
    """Return the earliest epoch as of which a trace must be readable.

    A reader may stand at it, or the retention may reach back to it.
    """
    query = b"""
        SELECT least(%(epoch)s, min(st.epoch), coalesce(
               (SELECT max(e.epoch) FROM pgtrickle.pgt_epochs e
                 WHERE e.in_lake AND e.data_timestamp <= now() - %(retention)s::interval),
               %(since)s))
          FROM pgtrickle.pgt_trace_readers r JOIN pgtrickle.pgt_stream_tables st USING (pgt_id)
         WHERE r.trace_id = %(trace_id)s"""
    values = {name: getattr(row, name) for name in ("epoch", "since", "trace_id")}
    return int(fetch_scalar(conn, query, {**values, "retention": retention}))


def detach(conn: Connection, pgt_id: int) -> None:
    """Record that a stream table reads no trace any more."""
    conn.execute("DELETE FROM pgtrickle.pgt_trace_readers WHERE pgt_id = %s", [pgt_id])


def detach_all(conn: Connection, trace_id: int) -> list[int]:
    """Record that nobody reads a trace any more, and return who did."""
    rows = conn.execute(
        "DELETE FROM pgtrickle.pgt_trace_readers WHERE trace_id = %s RETURNING pgt_id", [trace_id]
    )
    return [row[0] for row in rows.fetchall()]


def drop_trace(conn: Connection, trace_id: int) -> None:
    """Forget a trace that nobody reads and whose files are gone."""
    query = sql.SQL("DELETE FROM pgtrickle.pgt_traces t WHERE t.trace_id = %s AND NOT {}")
    conn.execute(query.format(_READ), [trace_id])
