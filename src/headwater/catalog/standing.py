"""All that a refresh needs to know of a set of stream tables, read at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg import sql
from psycopg.rows import class_row

from headwater.catalog.epochs import ask_for_epoch, recorded_epoch
from headwater.catalog.model import Dependency, Epoch, StreamTable, Tracking
from headwater.catalog.rows import Connection, columns_of, cursor_of
from headwater.catalog.settings import Settings, answered_settings, ask_for_settings
from headwater.graph import upstream_first


@dataclass(frozen=True, slots=True)
class Standing:
    """A stream table, the epoch at which it stands, and how its sources are captured."""

    table: StreamTable
    epoch: Epoch | None
    sources: tuple[Tracking, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `move_if_unchanged` found.

    `pgt_ids` begins with the table's own id. The epoch is set if it moved the tables; the history
    row `running`, the names of all tables, and of the buffers and followers to lock, if a refresh
    must follow.
    """

    verdict: str
    name: str | None
    pgt_ids: list[int] | None
    epoch: int | None
    data_timestamp: datetime | None
    running: int | None
    names: list[str] | None
    buffers: list[str] | None
    followers: list[str] | None


_TABLES = (
    sql.SQL("SELECT {} FROM pgtrickle.pgt_stream_tables WHERE pgt_id = ANY (%s)")
    .format(columns_of(StreamTable))
    .as_bytes()
)
_DEPENDENCIES = (
    sql.SQL(
        "SELECT {} FROM pgtrickle.pgt_dependencies WHERE pgt_id = ANY (%s)"
        " ORDER BY pgt_id, source_relid"
    )
    .format(columns_of(Dependency))
    .as_bytes()
)
_TRACKING = (
    sql.SQL(
        "SELECT {} FROM pgtrickle.pgt_change_tracking"
        " WHERE tracked_by_pgt_ids && %s::int8[] ORDER BY source_relid"
    )
    .format(columns_of(Tracking))
    .as_bytes()
)
_EPOCHS = (
    sql.SQL(
        "SELECT {} FROM pgtrickle.pgt_epochs WHERE epoch IN"
        " (SELECT epoch FROM pgtrickle.pgt_stream_tables WHERE pgt_id = ANY (%s))"
    )
    .format(columns_of(Epoch))
    .as_bytes()
)


def load_standings(conn: Connection, pgt_ids: list[int]) -> tuple[Standing, ...]:
    """Return the stream tables of these ids, each after those that it reads; one round trip."""
    with conn.pipeline():
        asked = _Asked(conn, pgt_ids)
    return asked.answer()


def open_epoch(
    conn: Connection, pgt_ids: list[int]
) -> tuple[Epoch, tuple[Standing, ...], Settings]:
    """Record a new epoch and return all that a refresh to it must know, in one round trip."""
    with conn.pipeline():
        recorded = ask_for_epoch(conn)
        asked = _Asked(conn, pgt_ids)
        settings = ask_for_settings(conn)
    return recorded_epoch(recorded), asked.answer(), answered_settings(settings)


class _Asked:
    """The queries after stream tables, sent, and their answer, read later."""

    def __init__(self, conn: Connection, pgt_ids: list[int]) -> None:
        self._tables = cursor_of(conn, StreamTable).execute(_TABLES, [pgt_ids])
        self._dependencies = cursor_of(conn, Dependency).execute(_DEPENDENCIES, [pgt_ids])
        self._tracking = cursor_of(conn, Tracking).execute(_TRACKING, [pgt_ids])
        self._epochs = cursor_of(conn, Epoch).execute(_EPOCHS, [pgt_ids])

    def answer(self) -> tuple[Standing, ...]:
        found = {st.pgt_id: st for st in self._tables}
        edges, sources = self._dependencies.fetchall(), self._tracking.fetchall()
        stands = {epoch.epoch: epoch for epoch in self._epochs}
        return tuple(
            Standing(
                st,
                stands.get(st.epoch) if st.epoch is not None else None,
                tuple(t for t in sources if st.pgt_id in t.tracked_by_pgt_ids),
            )
            for st in _ordered(found, edges)
        )


def _ordered(found: dict[int, StreamTable], edges: list[Dependency]) -> list[StreamTable]:
    by_relid = {st.pgt_relid: st.pgt_id for st in found.values()}
    reads: dict[int, list[int]] = {pgt_id: [] for pgt_id in sorted(found)}
    for edge in edges:
        if edge.source_relid in by_relid:
            reads[edge.pgt_id].append(by_relid[edge.source_relid])
    return [found[pgt_id] for pgt_id in upstream_first(reads)]


def move_if_unchanged(conn: Connection, name: str) -> Verdict:
    """Finish a refresh with nothing to do in one call, or say what there is to do."""
    with conn.cursor(binary=True, row_factory=class_row(Verdict)) as cursor:
        query = (
            "SELECT verdict, name, pgt_ids, epoch, data_timestamp, running, names,"
            " buffers, followers"
            " FROM pgtrickle.move_if_unchanged(%s)"
        )
        found = cursor.execute(query, [name]).fetchone()
    assert found is not None
    return found
