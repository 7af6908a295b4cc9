"""Turns a database into what the status page shows: only values that JSON knows."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg

from headwater.catalog.settings import parse_settings
from headwater.errors import HeadwaterError
from headwater.schedule.metrics import Source
from headwater.schedule.plan import Table, paces_of

MINIMUM = "pg_trickle.min_target_lag_seconds"
MOST_TABLES = 200  # on the page; more are counted
KEPT_SECONDS = 1.0  # however many look, the database is asked once a second

_TABLES = """
SELECT format('%I.%I', i.pgt_schema, i.pgt_name) AS name, i.status, i.refresh_mode,
       i.effective_mode, coalesce(i.effective_engine, i.engine) AS engine, i.reason, i.schedule,
       i.is_populated, i.epoch, extract(epoch FROM i.current_lag)::float8 AS lag,
       extract(epoch FROM i.target_lag)::float8 AS asked, i.consecutive_errors AS errors,
       i.last_error, CASE WHEN i.needs_reinit THEN i.reinit_reason END AS rebuild,
       EXISTS (SELECT FROM pgtrickle.pgt_refresh_history h
                 JOIN pg_stat_activity a ON a.pid = h.backend_pid
                WHERE h.pgt_id = i.pgt_id AND h.status = 'RUNNING') AS is_running
  FROM pgtrickle.stream_tables_info i
 ORDER BY i.pgt_schema, i.pgt_name LIMIT {most}
"""
_REFRESHES = """
SELECT format('%I.%I', st.pgt_schema, st.pgt_name) AS name, h.status, h.action, h.rows_inserted,
       h.rows_updated, h.rows_deleted, h.delta_rows, h.reason, h.error_code, h.error_message,
       extract(epoch FROM h.start_time)::float8 AS started,
       extract(epoch FROM h.end_time)::float8 AS ended,
       extract(epoch FROM h.data_timestamp)::float8 AS data_time,
       (h.timings ->> 'spark_jobs')::float8::int AS jobs
  FROM (SELECT * FROM pgtrickle.pgt_stream_tables ORDER BY pgt_schema, pgt_name LIMIT {most}) st
 CROSS JOIN LATERAL (
       SELECT * FROM pgtrickle.pgt_refresh_history r
        WHERE r.pgt_id = st.pgt_id ORDER BY r.refresh_id DESC LIMIT 60) h
 ORDER BY 1, h.refresh_id DESC
"""
_SCHEDULES = """
SELECT st.pgt_id, format('%I.%I', st.pgt_schema, st.pgt_name) AS name,
       extract(epoch FROM st.target_lag)::float8 AS lag,
       CASE WHEN st.target_lag IS NULL THEN st.schedule END AS cron,
       coalesce(st.effective_mode IN ('IMMEDIATE', 'COMMIT'), false) AS is_immediate,
       ARRAY(SELECT below.pgt_id FROM pgtrickle.pgt_dependencies d
               JOIN pgtrickle.pgt_stream_tables below ON below.pgt_relid = d.source_relid
              WHERE d.pgt_id = st.pgt_id) AS reads
  FROM pgtrickle.pgt_stream_tables st
"""
_QUERIES = {
    "tables": _TABLES.format(most=MOST_TABLES),
    "refreshes": _REFRESHES.format(most=MOST_TABLES),
    "schedules": _SCHEDULES,
    "settings": """
        SELECT current_setting('pg_trickle.min_target_lag_seconds', true) AS minimum_lag""",
    "edges": "SELECT pgt_name AS name, source_name AS source FROM pgtrickle.st_graph()",
    "findings": "SELECT * FROM pgtrickle.health_check()",
    "daemon": """
        SELECT is_running, host, process_id, extract(epoch FROM since)::float8 AS since
          FROM pgtrickle.pgt_daemon""",
    "counts": """
        SELECT extract(epoch FROM clock_timestamp())::float8 AS now,
               (SELECT count(*) FROM pgtrickle.pgt_stream_tables) AS tables,
               (SELECT count(*) FROM pgtrickle.pgt_requests WHERE status = 'queued') AS requests""",
}

Reading = dict[str, Any]


class Board:
    """What is known of one database, not older than a second."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._read_at = -KEPT_SECONDS
        self._reading: Reading = {}

    def read(self) -> Reading:
        """Return the rows of each query, and what the daemon says of itself; or the error."""
        with self._lock:
            if time.monotonic() - self._read_at >= KEPT_SECONDS:
                self._reading = self._ask()
                self._read_at = time.monotonic()
            return self._reading

    def _ask(self) -> Reading:
        known: Reading = {"database": self._source.name, "error": None, **self._source.state()}
        try:
            return {**known, **_with_targets(self._source.fetch(_QUERIES))}
        except (psycopg.Error, HeadwaterError) as error:
            first = str(error).strip().splitlines()
            return {**known, "error": first[0] if first else type(error).__name__}


def _with_targets(rows: dict[str, list[dict[str, Any]]]) -> Reading:
    """Add to each table the lag that it has to keep: its own, or the tightest of its readers."""
    tables = [Table(**{**row, "reads": tuple(row["reads"])}) for row in rows.pop("schedules")]
    [setting] = rows.pop("settings")
    given = {MINIMUM: setting["minimum_lag"]} if setting["minimum_lag"] else {}
    paces = paces_of(tables, float(parse_settings(given).min_target_lag_seconds))
    targets = {table.name: paces[table.pgt_id].lag for table in tables}
    shown = [{**row, "target": targets.get(row["name"])} for row in rows["tables"]]
    return {**rows, "tables": shown}
