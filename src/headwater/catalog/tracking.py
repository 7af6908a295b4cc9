"""Records how the changes of each source are captured."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg import sql

from headwater.catalog.model import Tracking
from headwater.catalog.rows import (
    Connection,
    columns_of,
    cursor_of,
    identifiers,
    names_of,
    parameters_of,
    placeholders,
)

_SELECT = sql.SQL("SELECT {} FROM pgtrickle.pgt_change_tracking ").format(columns_of(Tracking))
_NAMES = names_of(Tracking)
_UPSERT = sql.SQL(
    "INSERT INTO pgtrickle.pgt_change_tracking ({}) VALUES ({})"
    " ON CONFLICT (source_relid) DO UPDATE SET {}"
).format(
    identifiers(_NAMES),
    placeholders(_NAMES),
    sql.SQL(", ").join(
        sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in _NAMES[1:]
    ),
)


def find_tracking(conn: Connection, relid: int) -> Tracking | None:
    """Return how relation `relid` is captured, or None if it is not."""
    with cursor_of(conn, Tracking) as cursor:
        query = _SELECT + sql.SQL("WHERE source_relid = %s::oid")
        return cursor.execute(query, [relid]).fetchone()


def list_tracking(conn: Connection, relids: Iterable[int] | None = None) -> tuple[Tracking, ...]:
    """Return how these relations, or all, are captured, by relation; others are left out."""
    query = _SELECT + sql.SQL(
        "WHERE %(relids)s::oid[] IS NULL OR source_relid = ANY (%(relids)s::oid[])"
        " ORDER BY source_relid"
    )
    wanted = None if relids is None else list(relids)
    with cursor_of(conn, Tracking) as cursor:
        return tuple(cursor.execute(query, {"relids": wanted}))


def upsert_tracking(conn: Connection, tracking: Tracking) -> None:
    """Record how a source is captured, in place of what was recorded before."""
    conn.execute(_UPSERT, parameters_of(tracking))


def drop_tracking(conn: Connection, relid: int) -> None:
    """Forget how relation `relid` is captured; its triggers and buffer are not touched."""
    conn.execute("DELETE FROM pgtrickle.pgt_change_tracking WHERE source_relid = %s::oid", [relid])
