"""The lake as users see it: reading sources and results as they were, and keeping it tidy."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from headwater.api.reconcile import reconcile
from headwater.api.transactions import lock_buffers
from headwater.catalog import epochs, streams, traces, tracking
from headwater.catalog.model import TraceRow
from headwater.catalog.settings import read_settings
from headwater.errors import InvalidArgument, NotFound
from headwater.postgres.quote import identifier
from headwater.results import LakeColumn, LakeView, Vacuumed
from headwater.spark.lake import get_lake

if TYPE_CHECKING:
    from headwater.spark.travel import DataFrame

Moment = int | datetime


def read_at(conn: Connection[Any], name: str, when: Moment) -> DataFrame:
    """Return a source or stream table as it was at an epoch, or at the last one before a moment.

    What a refresh brought into the lake counts: a source is shown as the last refresh that read it
    before then found it. The frame reads files when it is asked for rows.
    """
    from headwater.spark.travel import read_rows  # noqa: PLC0415 - an optional package

    found = _copies(conn, name)
    epoch = _epoch_of(conn, name, when)
    reaching = [row for row in found if row.since <= epoch]
    if not reaching:
        raise _too_early(conn, name, when, found)
    return read_rows(get_lake(conn), reaching[0], epoch)


def lake_view(conn: Connection[Any], name: str) -> LakeView:
    """Say where the lake holds a source or stream table, and how anyone can read it."""
    from headwater.spark import travel  # noqa: PLC0415 - an optional package

    row = _copies(conn, name)[0]
    columns = (LakeColumn(at, shown, wire.spark) for at, shown, wire in travel.shown_columns(row))
    return LakeView(
        name,
        row.url,
        row.version,
        row.epoch,
        row.since,
        tuple(columns),
        spark=travel.in_spark(row),
        delta_rs=travel.in_delta_rs(row),
        sql=travel.in_sql(row),
    )


def vacuum(conn: Connection[Any]) -> tuple[Vacuumed, ...]:
    """Delete what nobody can ask the lake for any more, and merge small files.

    Each trace is held against refreshes while that lasts, one after the other.
    """
    from headwater.spark import ingest  # noqa: PLC0415 - an optional package
    from headwater.spark.rewriting import tidy  # noqa: PLC0415

    reconcile(conn)
    lake, retention = get_lake(conn), read_settings(conn).lake_retention
    ingest.sweep(conn, lake)
    done = []
    for relid, name, held in _held(conn):
        with conn.transaction():
            lock_buffers(conn, [held])
            for row in traces.list_of_source(conn, relid):
                before = ingest.size_of(lake, row)
                keep_after = traces.earliest_needed(conn, row, retention)
                version, deleted = tidy(lake, row, keep_after, _key(conn, relid))
                traces.record_version(conn, row.trace_id, (version, row.epoch), keep_after)
                done.append(Vacuumed(name, row.url, *before, len(deleted)))
    epochs.prune_epochs(conn, retention)
    return tuple(done)


def vacuum_if_used(conn: Connection[Any]) -> tuple[Vacuumed, ...]:
    """Do the same, unless no stream table has anything in the lake."""
    tables = streams.list_stream_tables(conn)
    return vacuum(conn) if any(t.effective_engine == "spark" for t in tables) else ()


def _held(conn: Connection[Any]) -> list[tuple[int, str, str]]:
    """What may have traces: oid, name, and what a refresh that writes to them holds."""
    sources = [
        (t.source_relid, t.source_name, str(t.buffer_name)) for t in tracking.list_tracking(conn)
    ]
    tables = [t for t in streams.list_stream_tables(conn) if not t.publish]
    return sources + [(t.pgt_relid, t.qualified_name, t.qualified_name) for t in tables]


def _key(conn: Connection[Any], relid: int) -> list[str]:
    """The columns of the primary key, in quotes; a stream table has that which it is found by."""
    query = (
        "SELECT a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[])"
        " WITH ORDINALITY AS k (attnum, place)"
        " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum"
        " WHERE i.indrelid = %s::oid AND i.indisprimary ORDER BY k.place"
    )
    st = streams.find_by_relid(conn, relid)
    names = [row[0] for row in conn.execute(query, (relid,))]
    return [identifier(name) for name in (names or (st and st.key_columns) or ())]


def _copies(conn: Connection[Any], name: str) -> list[TraceRow]:
    """Return the traces of a relation that this role may read; most columns first, then newest."""
    from headwater.spark.travel import shown_columns  # noqa: PLC0415 - an optional package

    found = [row for row in traces.list_readable(conn, _relid(conn, name)) if shown_columns(row)]
    if not found:
        raise NotFound(
            f"the lake holds no copy of {name}",
            "it has copies of what stream tables on Spark read, for the role that owns them, and of"
            " the results of those that were filled under pg_trickle.lake_results = on",
            "create a stream table on Spark over it, or set pg_trickle.lake_results and alter it",
        )
    return sorted(found, key=lambda row: (-len(shown_columns(row)), -row.epoch))


def _relid(conn: Connection[Any], name: str) -> int:
    row = conn.execute("SELECT to_regclass(%s)::oid::int8", (name,)).fetchone()
    if row is not None and row[0] is not None:
        return int(row[0])
    return streams.get_stream_table(conn, name).pgt_relid


def _epoch_of(conn: Connection[Any], name: str, when: Moment) -> int:
    row = conn.execute(
        "SELECT max(epoch), now() < %s::timestamptz FROM pgtrickle.pgt_epochs",
        (when if isinstance(when, datetime) else None,),
    ).fetchone()
    assert row is not None
    newest, is_later = row
    if is_later or (isinstance(when, int) and when > newest):
        raise InvalidArgument(
            f"{name} cannot be read at {when}: that is in the future",
            f"the newest epoch is {newest}",
            "name that one, an earlier one, or a moment that has passed",
        )
    return when if isinstance(when, int) else epochs.find_latest(conn, when) or 0


def _too_early(
    conn: Connection[Any], name: str, when: Moment, found: list[TraceRow]
) -> InvalidArgument:
    first = epochs.get_epoch(conn, min(row.since for row in found))
    return InvalidArgument(
        f"{name} cannot be read at {when}: that is too long ago",
        f"its copy in the lake reaches back to epoch {first.epoch}, {first.data_timestamp}: to the"
        " last time that it was loaded anew, or as pg_trickle.lake_retention says",
        "name a later epoch or moment",
    )
