"""Turns the catalog into figures for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.rows import dict_row

from headwater.errors import HeadwaterError

_TABLES = """
SELECT format('%I.%I', i.pgt_schema, i.pgt_name) AS stream_table, i.status,
       extract(epoch FROM i.current_lag)::float8 AS lag_seconds,
       extract(epoch FROM i.target_lag)::float8 AS target_lag_seconds,
       i.consecutive_errors, s.refresh_count AS refreshes, s.skip_count AS skips,
       s.error_count AS failures, s.total_refresh_duration_ms / 1000 AS refresh_seconds,
       s.rows_inserted_total AS rows_inserted, s.rows_deleted_total AS rows_deleted
  FROM pgtrickle.stream_tables_info i JOIN pgtrickle.pg_stat_stream_tables s USING (pgt_id)
 ORDER BY 1
"""
_BUFFERS = """
SELECT source_name AS source, pg_total_relation_size(to_regclass(buffer_name)) AS bytes,
       pg_stat_get_live_tuples(to_regclass(buffer_name)) AS rows
  FROM pgtrickle.pgt_change_tracking WHERE to_regclass(buffer_name) IS NOT NULL ORDER BY 1
"""
_REQUESTS = "SELECT count(*) AS waiting FROM pgtrickle.pgt_requests WHERE status = 'queued'"
STATUSES = ("INITIALIZING", "ACTIVE", "SUSPENDED", "ERROR")

# Name without prefix, kind, help, and the column that it is read from.
_OF_TABLES = (
    ("lag_seconds", "gauge", "Age of the data.", "lag_seconds"),
    ("target_lag_seconds", "gauge", "Lag asked for.", "target_lag_seconds"),
    ("consecutive_errors", "gauge", "Failed refreshes in a row.", "consecutive_errors"),
    ("refreshes", "gauge", "Refreshes in the history.", "refreshes"),
    ("refresh_skips", "gauge", "Skipped refreshes in the history.", "skips"),
    ("refresh_failures", "gauge", "Failed refreshes in the history.", "failures"),
    ("refresh_seconds", "gauge", "Time of the refreshes in the history.", "refresh_seconds"),
    ("rows_inserted", "gauge", "Rows inserted by those.", "rows_inserted"),
    ("rows_deleted", "gauge", "Rows deleted by those.", "rows_deleted"),
)
_OF_BUFFERS = (
    ("buffer_bytes", "gauge", "Size of a change buffer.", "bytes"),
    ("buffer_rows", "gauge", "Waiting changes, as the server estimates.", "rows"),
)
Metric = tuple[str, str, str]  # name, kind, help
Labels = Mapping[str, object]
Sample = tuple[Labels, object]


class Source:
    """A database that figures are read from, and what its daemon says of itself."""

    def __init__(
        self, name: str, connect: Callable[[], Connection[Any]], state: Callable[[], dict[str, int]]
    ) -> None:
        self.name, self._connect, self.state = name, connect, state

    def read(self) -> dict[str, list[dict[str, Any]]] | None:
        """Return what the figures are made of; None if the database cannot be reached."""
        try:
            return self.fetch({"tables": _TABLES, "buffers": _BUFFERS, "requests": _REQUESTS})
        except (psycopg.Error, HeadwaterError):
            return None

    def fetch(self, queries: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of each query, on a connection that may only read."""
        with self._connect() as conn, conn.cursor(row_factory=dict_row) as cursor:
            cursor.execute("SET statement_timeout = '10s'")
            cursor.execute("SET default_transaction_read_only = on")
            return {
                name: cursor.execute(text.encode()).fetchall() for name, text in queries.items()
            }


def exposition(sources: Iterable[Source]) -> str:
    """Return all figures of all databases in the text format of Prometheus."""
    found: dict[Metric, list[Sample]] = {}
    for source in sources:
        for metric, labels, value in _samples(source):
            if value is not None:
                found.setdefault(metric, []).append(({"database": source.name, **labels}, value))
    return "".join(_family(*metric, samples) for metric, samples in found.items())


def _samples(source: Source) -> Iterator[tuple[Metric, Labels, object]]:
    rows = source.read()
    yield ("up", "gauge", "Whether the database answers."), {}, int(rows is not None)
    for name, value in source.state().items():
        yield (name, "gauge", "State of the daemon."), {}, value
    if rows is None:
        return
    for row in rows["tables"]:
        yield from _of_table(row)
    for row in rows["buffers"]:
        for name, kind, text, column in _OF_BUFFERS:
            yield (name, kind, text), {"source": row["source"]}, row[column]
    for row in rows["requests"]:
        yield ("requests_waiting", "gauge", "Requests in the queue."), {}, row["waiting"]


def _of_table(row: Mapping[str, Any]) -> Iterator[tuple[Metric, Labels, object]]:
    labels = {"stream_table": row["stream_table"]}
    for name, kind, text, column in _OF_TABLES:
        yield (name, kind, text), labels, row[column]
    for status in STATUSES:
        metric = ("status", "gauge", "1 for the status of a stream table.")
        yield metric, {**labels, "status": status}, int(row["status"] == status)


def _family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP headwater_{name} {text}", f"# TYPE headwater_{name} {kind}"]
    for labels, value in samples:
        shown = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in labels.items())
        lines.append(f"headwater_{name}{{{shown}}} {value}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
