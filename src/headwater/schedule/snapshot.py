"""Turns the catalog into what the planner sees, with the server's clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from psycopg import Connection
from psycopg.rows import dict_row, tuple_row

from headwater.catalog.settings import Settings
from headwater.schedule.plan import Snapshot, Table

# One slow refresh says little: it may have started Spark, or filled the table. The quicker of the
# last two is what a refresh takes.
# A failure counts until the table was resumed or moved: then it has no errors and is not in ERROR.
_TABLES = b"""
SELECT st.pgt_id, format('%I.%I', st.pgt_schema, st.pgt_name) AS name,
       (SELECT g.group_id FROM pgtrickle.pgt_refresh_groups g
         WHERE st.pgt_id = ANY (g.members)) AS "group",
       extract(epoch FROM st.target_lag)::float8 AS lag,
       CASE WHEN st.target_lag IS NULL THEN st.schedule END AS cron,
       st.status, coalesce(st.effective_mode IN ('IMMEDIATE', 'COMMIT'), false) AS is_immediate,
       coalesce(st.effective_engine = 'spark', false) AS on_spark,
       CASE WHEN st.is_populated
            THEN extract(epoch FROM st.data_timestamp)::float8 END AS data_time,
       CASE WHEN done.status = 'FAILED' AND (st.consecutive_errors > 0 OR st.status = 'ERROR')
            THEN extract(epoch FROM done.end_time)::float8 END AS failed_at,
       coalesce(done.error_class = 'system', false) AS may_pass,
       st.consecutive_errors AS errors,
       extract(epoch FROM skipped.end_time)::float8 AS skipped_at,
       coalesce(extract(epoch FROM usual.duration)::float8, 0) AS duration
  FROM pgtrickle.pgt_stream_tables st
  LEFT JOIN LATERAL (
       SELECT h.status, h.end_time, h.error_class
         FROM pgtrickle.pgt_refresh_history h
        WHERE h.pgt_id = st.pgt_id AND h.status IN ('COMPLETED', 'FAILED')
        ORDER BY h.refresh_id DESC LIMIT 1) done ON true
  LEFT JOIN LATERAL (
       SELECT CASE WHEN count(*) > 1 THEN min(n.duration) END AS duration FROM (
              SELECT h.end_time - h.start_time AS duration FROM pgtrickle.pgt_refresh_history h
               WHERE h.pgt_id = st.pgt_id AND h.status IN ('COMPLETED', 'FAILED')
               ORDER BY h.refresh_id DESC LIMIT 2) n) usual ON true
  LEFT JOIN LATERAL (
       SELECT n.end_time FROM (
              SELECT h.status, h.end_time FROM pgtrickle.pgt_refresh_history h
               WHERE h.pgt_id = st.pgt_id AND h.status <> 'RUNNING'
               ORDER BY h.refresh_id DESC LIMIT 1) n
        WHERE n.status = 'SKIPPED') skipped ON true
 ORDER BY st.pgt_id
"""
_EDGES = b"""
SELECT d.pgt_id, source.pgt_id FROM pgtrickle.pgt_dependencies d
  JOIN pgtrickle.pgt_stream_tables source ON source.pgt_relid = d.source_relid
"""
_RUNNING = b"""
SELECT h.pgt_id, max(extract(epoch FROM h.start_time))::float8 FROM pgtrickle.pgt_refresh_history h
  JOIN pg_stat_activity a ON a.pid = h.backend_pid
 WHERE h.status = 'RUNNING' GROUP BY 1
"""
_NOW = b"SELECT extract(epoch FROM clock_timestamp())::float8"


def read_snapshot(
    conn: Connection[Any], settings: Settings, running: Mapping[int, float]
) -> Snapshot:
    """Return all stream tables and the time; `running` are moved by this daemon since then."""
    with conn.transaction(), conn.pipeline():
        tables = conn.cursor(row_factory=dict_row).execute(_TABLES)
        edges = conn.cursor(row_factory=tuple_row).execute(_EDGES)
        others = conn.cursor(row_factory=tuple_row).execute(_RUNNING)
        clock = conn.cursor(row_factory=tuple_row).execute(_NOW)
    reads = defaultdict[int, list[int]](list)
    for reader, source in edges:
        reads[reader].append(source)
    started = {**dict(others.fetchall()), **running}
    [(now,)] = clock.fetchall()
    found = tuple(
        replace(Table(**row), reads=tuple(reads[row["pgt_id"]]),
                started_at=started.get(row["pgt_id"]))
        for row in tables
    )  # fmt: skip
    return Snapshot(
        now, found, float(settings.min_target_lag_seconds), settings.auto_backoff, settings.enabled
    )
