"""All that a refresh needs to know of a set of stream tables, read at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import class_row, tuple_row

from headwater.catalog.epochs import ask_for_epoch, recorded_epoch
from headwater.catalog.model import Epoch, StreamTable, Tracking
from headwater.catalog.rows import Connection, fetch_scalar, frozen, names_of
from headwater.catalog.settings import GIVEN, NAMES, Settings, parse_settings
from headwater.graph import upstream_first


@dataclass(frozen=True, slots=True)
class Standing:
    """A stream table, the epoch at which it stands, and how its sources are captured.

    `owner` is None if that role is gone, `pages` if the table is. `unseen` has for each source the
    changes that wait, and how many of them ask for a rebuild; None where nobody counted, or more
    are to come.
    """

    table: StreamTable
    epoch: Epoch | None
    sources: tuple[Tracking, ...]
    owner: str | None
    caller: str
    pages: int | None
    unseen: tuple[tuple[int, int, int], ...] | None = None

    @property
    def is_of_another(self) -> bool:
        """Whether the table belongs to another role than the one that asks."""
        return self.owner is not None and self.owner != self.caller

    def may_have_unseen(self, source_relid: int) -> bool:
        """Tell whether changes of a source wait, or may wait because nobody counted."""
        return self.unseen is None or any(
            oid == source_relid and rows > 0 for oid, rows, _ in self.unseen
        )


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


def _parts(row: str, model: type[Any]) -> list[str]:
    """Return the columns of `model` out of a composite, each under a name of its own."""
    as_text = {"snapshot", "xid"}
    return [
        f'(s.{row})."{name}"{"::text" if name in as_text else ""} AS {row}_{name}'
        for name in names_of(model)
    ]


_COLUMNS = ", ".join(
    [
        *_parts("st", StreamTable),
        *_parts("stands", Epoch),
        "s.reads, s.sources, s.owner, current_user::text AS caller, s.pages",
    ]
)
_STANDINGS = f"SELECT {_COLUMNS} FROM pgtrickle.standings(%(ids)s::int8[]) AS s"
_OPENED = (
    f"SELECT {_COLUMNS}, pgtrickle.unseen_changes((s.st).pgt_id, %(ids)s::int8[]) AS unseen,"
    f" ({GIVEN}) AS settings FROM pgtrickle.standings(%(ids)s::int8[]) AS s"
)
_TABLE = names_of(StreamTable)
_SPLIT = len(_TABLE)
_READS = _SPLIT + len(names_of(Epoch))


def load_standings(conn: Connection, pgt_ids: list[int]) -> tuple[Standing, ...]:
    """Return the stream tables of these ids, each after those that it reads."""
    with conn.cursor(binary=True, row_factory=tuple_row) as cursor:
        return _standings(cursor.execute(_STANDINGS, {"ids": pgt_ids}, prepare=True).fetchall())


def open_epoch(
    conn: Connection, pgt_ids: list[int]
) -> tuple[Epoch, tuple[Standing, ...], Settings]:
    """Record a new epoch and return all that a refresh to it must know, in one round trip."""
    with conn.pipeline():
        opening = Opening(conn, pgt_ids)
    return opening.answer()


class Opening:
    """The statements that open an epoch, sent, and their answer, read later."""

    def __init__(self, conn: Connection, pgt_ids: list[int]) -> None:
        self._recorded = ask_for_epoch(conn)
        values = {"ids": pgt_ids, "names": NAMES}
        cursor = conn.cursor(binary=True, row_factory=tuple_row)
        self._tables = cursor.execute(_OPENED, values, prepare=True)

    def answer(self) -> tuple[Epoch, tuple[Standing, ...], Settings]:
        """Return the epoch, the stream tables, and the settings of the session."""
        rows = self._tables.fetchall()
        return recorded_epoch(self._recorded), _standings(rows), parse_settings(rows[0][-1] or {})


def _standings(rows: Iterable[tuple[Any, ...]]) -> tuple[Standing, ...]:
    found, reads = {}, {}
    for values in rows:
        standing = _standing(values)
        found[standing.table.pgt_id] = standing
        reads[standing.table.pgt_id] = values[_READS]
    return tuple(found[pgt_id] for pgt_id in upstream_first(reads))


def _standing(values: tuple[Any, ...]) -> Standing:
    table = StreamTable(*map(frozen, _TABLE, values[:_SPLIT]))
    sources, owner, caller, pages, *more = values[_READS + 1 :]
    unseen = more[0] if more else None
    return Standing(
        table,
        Epoch(*values[_SPLIT:_READS]) if values[_SPLIT] is not None else None,
        tuple(_tracking(source) for source in sources or ()),
        owner,
        caller,
        pages,
        None if unseen is None else tuple((oid, rows, markers) for oid, rows, markers in unseen),
    )


def _tracking(source: dict[str, Any]) -> Tracking:
    return Tracking(**{name: frozen(name, value) for name, value in source.items()})


_MOVE = (
    "SELECT verdict, name, pgt_ids, epoch, data_timestamp, running, names, buffers, followers"
    " FROM pgtrickle.move_if_unchanged(coalesce("
    "(SELECT st.pgt_id FROM pgtrickle.pgt_stream_tables st"
    " WHERE st.pgt_relid = to_regclass(%(name)s)), pgtrickle.stream_table_id(%(name)s)))"
)


def move_if_unchanged(conn: Connection, name: str) -> Verdict:
    """Finish a refresh with nothing to do in one call, or say what there is to do."""
    with conn.cursor(binary=True, row_factory=class_row(Verdict)) as cursor:
        found = cursor.execute(_MOVE, {"name": name}, prepare=True).fetchone()
    assert found is not None
    return found


def move_all_unchanged(conn: Connection, pgt_ids: list[int]) -> list[int]:
    """Do the same for many tables in one transaction; return the ids of those that moved."""
    found = fetch_scalar(conn, b"SELECT pgtrickle.move_all_unchanged(%s::int8[])", [pgt_ids])
    return list(found)
