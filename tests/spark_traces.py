"""What the lake holds, read without Spark and held against the sources themselves."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from pyarrow import parquet

from headwater.catalog.traces import RETIRED
from headwater.spark.traces import Trace, TraceFile

Connection = psycopg.Connection[Any]

_TRACES = """
SELECT t.url, t.version, t.source_relid::regclass::text,
       ARRAY(SELECT c ->> 0 FROM jsonb_array_elements(t.columns) AS c)
  FROM pgtrickle.pgt_traces t
 WHERE t.trace_id IN (SELECT trace_id FROM pgtrickle.pgt_trace_readers) ORDER BY t.trace_id
"""


def list_traces(conn: Connection) -> list[tuple[str, int, str, list[str]]]:
    """Return URL, version, source and columns of every trace that counts."""
    return conn.execute(_TRACES).fetchall()


def consolidated(
    url: str, version: int, upto: int | None = None, columns: Sequence[str] = ()
) -> dict[tuple[Any, ...], int]:
    """Return the rows of a trace, up to an epoch, with how often each is there.

    Columns that are given up do not count.
    """
    given_up = {i for i, text in enumerate(columns) if text == RETIRED}
    found: Counter[tuple[Any, ...]] = Counter()
    for file in Trace(url).files(version):
        for row in _rows(url, file):
            *values, weight, epoch = row
            if upto is None or epoch <= upto:
                found[tuple(v for i, v in enumerate(values) if i not in given_up)] += weight
    return {row: weight for row, weight in found.items() if weight}


def _rows(url: str, file: TraceFile) -> list[tuple[Any, ...]]:
    table = parquet.ParquetFile(Path(url) / file.name).read()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def prove_traces(conn: Connection) -> int:
    """Every trace holds its source, row by row and as often; return how many traces there are.

    What is in the lake only has nothing to be held against here.
    """
    views = "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'v'"
    hidden = {name for (name,) in conn.execute(views)}
    traces = [trace for trace in list_traces(conn) if trace[2] not in hidden]
    for url, version, source, columns in traces:
        kept = ", ".join(text for text in columns if text != RETIRED)
        rows = conn.execute(f"SELECT {kept} FROM {source}".encode()).fetchall()
        assert consolidated(url, version, columns=columns) == Counter(rows), source
    return len(traces)


def prove_lake_clean(conn: Connection, lake: Path) -> None:
    """After a vacuum the lake holds the files of the versions that count, and no others."""
    wanted = set()
    for url, version, _, _ in list_traces(conn):
        Trace(url).vacuum([version])
        wanted |= {str(Path(url) / file.name) for file in Trace(url).files(version)}
    stored = {
        os.path.join(place, name)
        for place, _, names in os.walk(lake)
        for name in names
        if "_delta_log" not in Path(place).parts
    }
    assert stored == wanted
