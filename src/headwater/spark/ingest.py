"""Sources to traces: a first load of all rows, then what the buffers captured since.

Everything is read on the caller's connection, inside the transaction of the refresh: so the rows
that upstream stream tables wrote in this very transaction are among them. What a transaction makes
in the lake carries its id, `<lake>/<database>-<xid>-…`: once it has ended, whatever the catalog
does not name is nobody's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from psycopg import Connection, sql
from pyarrow import fs

from headwater.algebra.codec import decode
from headwater.algebra.ops import Op
from headwater.algebra.schema import SqlType
from headwater.algebra.walk import scans
from headwater.catalog import traces
from headwater.catalog.model import Epoch, TraceRow
from headwater.errors import InexactValue, ServerResources, StreamTableDamaged
from headwater.postgres.quote import WEIGHT, listed
from headwater.spark.copying import Columns, copy_out
from headwater.spark.lake import Lake
from headwater.spark.loading import LoadPlan, key_order, load_ranges, plan_load
from headwater.spark.reading import SourceRows
from headwater.spark.traces import Trace, physical
from headwater.spark.wire import INTEGER, Wire, outgoing, wire_of

MANY_FILES = 50  # in a trace; reading each costs Spark about a millisecond

TraceColumns = tuple[tuple[str, SqlType], ...]  # SQL over a row of the source, and its type

_DATABASE = """
SELECT c.system_identifier || '-' || d.oid
  FROM pg_catalog.pg_control_system() c, pg_catalog.pg_database d
 WHERE d.datname = pg_catalog.current_database()
"""
# A transaction that this snapshot sees as ended has put into the catalog what it ever will.
_ORPHANS = """
SELECT made.url FROM unnest(%(urls)s::text[], %(xids)s::text[]) AS made (url, xid)
 WHERE pg_visible_in_snapshot(made.xid::xid8, pg_current_snapshot())
   AND made.xid::xid8 IS DISTINCT FROM pg_current_xact_id_if_assigned()
   AND NOT EXISTS (SELECT FROM pgtrickle.pgt_traces t WHERE t.url = made.url)
"""


@dataclass(frozen=True, slots=True)
class Need:
    """What a boundary reads of one source."""

    relid: int
    name: str
    columns: TraceColumns


@dataclass(frozen=True, slots=True)
class Recorded:
    """A trace as the catalog has it, with all that is needed to bring it up to date."""

    row: TraceRow
    stands: Epoch
    keep_after: int  # the earliest epoch as of which it must stay readable


@dataclass(frozen=True, slots=True)
class Standing:
    """A trace as a refresh found or left it; it is recorded when the refresh is."""

    url: str
    columns: TraceColumns
    version: int
    row: TraceRow | None  # None: loaded in this transaction
    loaded: LoadPlan | None = None  # how, if it was
    since: int = 0  # the earliest epoch that it can show, if that has grown
    source_rows: int | None = None  # about how many the source has, if the server knows

    @property
    def wires(self) -> list[tuple[str, Wire]]:
        """The columns' own texts and forms, in order."""
        return [(text, wire_of(type)) for text, type in self.columns]


def needs(boundary: Op) -> dict[int, Need]:
    """Return what a boundary reads of each source; a text is the same column in every scan."""
    found: dict[int, Need] = {}
    for scan in scans(boundary):
        known = found.get(scan.source.oid)
        columns = dict(known.columns) if known else {}
        columns |= zip(scan.attributes, (c.type for c in scan.columns), strict=True)
        found[scan.source.oid] = Need(scan.source.oid, scan.source.name, tuple(columns.items()))
    return found


def columns_of(row: TraceRow) -> TraceColumns:
    """Return the columns of a recorded trace."""
    decoded: Any = decode(list(row.columns))
    return tuple((text, type) for text, type in decoded)


def load(conn: Connection[Any], lake: Lake, need: Need, epoch: Epoch) -> Standing:
    """Make a trace with all rows that the source has in this transaction's snapshot.

    Executors read what is large, this process the rest.
    """
    url = lake.new_url(f"source-{need.relid}")
    trace = Trace(url, lake.storage_options)
    plan = plan_load(conn, need.relid)
    standing = Standing(url, need.columns, 0, None)
    rest = f"1 FROM {need.name}"
    with lake_errors(lake):
        base = trace.create(standing.wires)
        if plan.ranges:
            order = key_order(conn, need.relid, [text for text, _ in need.columns])
            source = SourceRows(*_select(need.columns, rest), url, epoch.epoch, order)
            plan, files = load_ranges(conn, lake, plan, source)
            version = trace.adopt(epoch.epoch, files, base)
            trace.vacuum([version])  # files of tasks that failed and were tried again
        if not plan.ranges:
            version = trace.append(epoch.epoch, _rows(conn, need.columns, rest), base)
    return replace(standing, version=version, loaded=plan)


def catch_up(
    conn: Connection[Any], lake: Lake, known: Recorded, epoch: Epoch, buffer: str
) -> Standing:
    """Append to a trace what its source's buffer holds that the trace has not seen.

    Another table may have brought it to this epoch already.
    """
    row = known.row
    columns = columns_of(row)
    if row.epoch == epoch.epoch:
        return Standing(row.url, columns, row.version, row)
    changes = f"FROM {buffer} WHERE {unseen_since(conn, known.stands)}"
    trace = Trace(row.url, lake.storage_options)
    try:
        with lake_errors(lake), conn.transaction():
            rows = _rows(conn, columns, f"{WEIGHT} {changes}")
            version = trace.append(epoch.epoch, rows, row.version)
    except InexactValue:
        # Perhaps of a row that no epoch shows: it came and went since the last one.
        rows = _net_rows(conn, columns, changes)
        with lake_errors(lake):
            version = trace.append(epoch.epoch, rows, row.version)
    with lake_errors(lake):
        return tidied(trace, known, Standing(row.url, columns, version, row))


def size_of(lake: Lake, row: TraceRow) -> tuple[int, int]:
    """Return how many files and bytes a trace has."""
    with lake_errors(lake):
        files = Trace(row.url, lake.storage_options).files(row.version)
    return len(files), sum(file.size for file in files)


def unseen_since(conn: Connection[Any], since: Epoch) -> str:
    """Return the condition on rows of a buffer that came after an epoch."""
    condition = sql.SQL("NOT (pg_visible_in_snapshot(__xid, {}::pg_snapshot) OR __xid = {}::xid8)")
    made = condition.format(sql.Literal(since.snapshot), sql.Literal(since.xid))
    return made.as_string(conn)


def tidied(trace: Trace, known: Recorded, standing: Standing) -> Standing:
    """Merge the many small files of past epochs.

    Those before the earliest that anybody may ask for become one. What the merge before this one
    replaced goes now: no version that counts names it.
    """
    row = known.row
    if len(trace.files(row.version)) <= MANY_FILES:
        return standing
    trace.vacuum([row.version, standing.version])
    version = trace.compact(standing.version, upto=row.epoch, keep_after=known.keep_after)
    return replace(standing, version=version, since=known.keep_after)


def _rows(conn: Connection[Any], columns: TraceColumns, rest: str) -> Iterator[pa.RecordBatch]:
    return copy_out(conn, *_select(columns, rest))


def _select(columns: TraceColumns, rest: str) -> tuple[str, Columns]:
    wires = [(_shown(text), wire_of(type)) for text, type in columns]
    values = [
        text if text == traces.RETIRED else outgoing(text, wire_of(type), type)
        for text, type in columns
    ]
    return f"SELECT {listed([*values, rest])}", [*wires, (WEIGHT, INTEGER)]


def _net_rows(
    conn: Connection[Any], columns: TraceColumns, changes: str
) -> Iterator[pa.RecordBatch]:
    """Leave out what came and went again; values are told apart by their text."""
    named = [(physical(i), text) for i, (text, _) in enumerate(columns) if text != traces.RETIRED]
    texts = listed(f"({text})::text" for _, text in named)
    group = f" GROUP BY {texts}" if texts else ""
    firsts = [f"(array_agg({text}))[1] AS {name}" for name, text in named]
    summed = f"SELECT {listed([*firsts, f'sum({WEIGHT}) AS {WEIGHT}'])} {changes}{group}"
    held = tuple(
        (text if text == traces.RETIRED else physical(i), type)
        for i, (text, type) in enumerate(columns)
    )
    return _rows(conn, held, f"{WEIGHT} FROM ({summed} HAVING sum({WEIGHT}) <> 0) AS net")


def _shown(text: str) -> str:
    """Return a column's name as the user knows it; an expression as it is."""
    is_name = re.fullmatch(r'"(?:[^"]|"")*"', text) is not None
    return text[1:-1].replace('""', '"') if is_name else text


@dataclass(frozen=True, slots=True)
class OwnLake(Lake):
    """The lake as one transaction sees it: the names of what it makes begin with its own."""

    mark: str = ""

    def new_url(self, what: str) -> str:
        """Return a place that nobody else uses, and that tells who made it."""
        return Lake.new_url(self, f"{self.mark}-{what}")


def own_lake(conn: Connection[Any], lake: Lake, epoch: Epoch) -> Lake:
    """Return the lake for the transaction of this epoch."""
    mark = f"{_database(conn)}-{epoch.xid}"
    return OwnLake(_root(lake), lake.storage_options, lake.spark, mark)


def sweep(conn: Connection[Any], lake: Lake) -> None:
    """Delete the files of traces that nobody reads; a crash in between leaves them for later."""
    for row in traces.list_unread(conn):
        _drop(lake, row.url)
        traces.drop_trace(conn, row.trace_id)
    sweep_orphans(conn, lake)


def sweep_orphans(conn: Connection[Any], lake: Lake) -> None:
    """Delete what transactions left that were rolled back, by a kill or otherwise."""
    for url in list_orphans(conn, lake):
        _drop(lake, url)


def find_fault(lake: Lake, row: TraceRow) -> str | None:
    """Say what the lake lacks of a trace that the catalog names; None if nothing."""
    trace = Trace(row.url, lake.storage_options)
    try:
        with lake_errors(lake):
            names = [file.name for file in trace.files(row.version)]
            found = trace.storage().get_file_info(names)
    except StreamTableDamaged as error:
        return error.what
    missing = [info.base_name for info in found if info.type == fs.FileType.NotFound]
    return f"{len(missing)} of its files are missing, such as {missing[0]}" if missing else None


def list_orphans(conn: Connection[Any], lake: Lake) -> list[str]:
    """Return what such transactions left."""
    mark = re.compile(rf"{_database(conn)}-(\d+)-.*")
    made = [found for name in _directories(lake) if (found := mark.fullmatch(name))]
    columns = {
        "urls": [f"{_root(lake)}/{found[0]}" for found in made],
        "xids": [found[1] for found in made],
    }
    return [url for (url,) in conn.execute(_ORPHANS, columns).fetchall()]


@contextmanager
def lake_errors(lake: Lake) -> Iterator[None]:
    """Raise an error of ours if the lake cannot be read or written."""
    try:
        yield
    except (OSError, DeltaError) as error:
        raise ServerResources(
            f"the lake at {lake.url} fails: {error}",
            "it cannot be reached, is full, or refuses these rights",
            "see to it, then refresh again",
        ) from error


def _database(conn: Connection[Any]) -> str:
    """Return what tells this database from all others: several may share a lake."""
    row = conn.execute(_DATABASE).fetchone()
    assert row is not None
    return str(row[0])


def _root(lake: Lake) -> str:
    """Return where the lake is, from wherever one looks."""
    return lake.url.rstrip("/") if "://" in lake.url else os.path.abspath(lake.url)


def _directories(lake: Lake) -> list[str]:
    root = _root(lake)
    storage: fs.FileSystem
    if "://" in root:
        storage = fs.PyFileSystem(DeltaStorageHandler(root, dict(lake.storage_options)))
    else:
        storage = fs.SubTreeFileSystem(root, fs.LocalFileSystem())
    with lake_errors(lake):
        found = storage.get_file_info(fs.FileSelector("", allow_not_found=True))
    return [info.base_name for info in found if info.type == fs.FileType.Directory]


def _drop(lake: Lake, url: str) -> None:
    with lake_errors(lake), suppress(FileNotFoundError):  # another sweeps it at the same time
        Trace(url, lake.storage_options).drop()
