"""Moving stream tables in a transaction of the caller's, inside the server.

A connection of ours takes locks first, then one snapshot, and ends. Here the transaction may be
READ COMMITTED, with a snapshot for each statement; it may have written to sources already, and may
go on to do so. Hence three rules. Whoever reads several times must have all that is read hold
still: it is locked until the end. Changes that this very transaction wrote belong to no snapshot:
they are read by all their readers at once, and deleted. And what must be filled after a lock cannot
be filled under a snapshot that is older than the lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from psycopg import Connection
from psycopg.errors import SerializationFailure

from headwater.api.sources import lockable, movable, together
from headwater.api.transactions import lock_tables
from headwater.catalog import streams
from headwater.catalog.model import StreamTable, Tracking
from headwater.catalog.rows import is_inside
from headwater.catalog.tracking import list_tracking
from headwater.errors import WrongTransaction
from headwater.postgres.cleaning import clean_at_once, clean_seen


def refuse_frozen(conn: Connection[Any]) -> None:
    """Raise WrongTransaction if the caller's snapshot may be older than locks taken now.

    What others committed in between would be neither in the fill nor in a buffer.
    """
    if is_inside(conn) and _is_frozen(conn):
        raise WrongTransaction(
            "a stream table cannot be filled under REPEATABLE READ or SERIALIZABLE in the server",
            "the snapshot of this transaction may be older than the last writes to the sources",
            "call it in a transaction of level READ COMMITTED, the default",
        )


def refuse_stale(conn: Connection[Any]) -> None:
    """Raise WrongTransaction, as a 40001, if anybody has committed since the caller's snapshot.

    Asked once the sources are locked: if nobody has, the snapshot shows all that was ever written
    to them. Which tables a commit was about cannot be told: the snapshot does not show it.
    """
    if not (is_inside(conn) and _is_frozen(conn)):
        return
    with conn.transaction(force_rollback=True):
        conn.execute("CREATE TEMPORARY TABLE headwater_now ()")
        row = conn.execute(_COMMITTED_SINCE).fetchone()
    if row is not None and row[0]:
        raise WrongTransaction(
            "a stream table cannot be filled here: other transactions have committed since the"
            " snapshot was taken",
            "what they wrote to the sources would be neither in the fill nor followed later",
            "begin again, or call it in a transaction of level READ COMMITTED, the default",
        ) from SerializationFailure("the snapshot is older than the last commit")


# The newest xid is that of the subtransaction which made the temporary table a moment ago.
_COMMITTED_SINCE = """
WITH taken AS (
    SELECT pg_current_snapshot() AS snapshot,
           pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS unseen,
           (SELECT xmin::text::bigint FROM pg_class
             WHERE oid = 'pg_temp.headwater_now'::regclass) AS newest
), later AS (
    SELECT pg_snapshot_xip(snapshot) AS xid FROM taken
    UNION ALL
    SELECT generate_series(unseen, unseen + ((newest - unseen) & 4294967295))::text::xid8 FROM taken
)
SELECT EXISTS (SELECT FROM later WHERE pg_xact_status(xid) = 'committed')
"""


def settle(conn: Connection[Any], pgt_ids: list[int]) -> list[int]:
    """Return the tables that must move with these, and lock all that is read and written."""
    moved = list(pgt_ids)
    _lock(conn, moved)
    while True:
        more = [pgt_id for pgt_id in _companions(conn, moved) if pgt_id not in moved]
        if not more:
            return moved
        moved += more
        _lock(conn, more)


def clean_read(conn: Connection[Any], moved: list[int]) -> None:
    """Delete the changes that have been read by all: this transaction's own at any rate."""
    relids = _oids(conn, _TABLES, moved)
    for source in _read_by(conn, moved):
        if set(source.tracked_by_pgt_ids) <= set(moved) or _is_own(conn, source, relids):
            clean_at_once(conn, source)
        else:
            clean_seen(conn, source)


def _is_frozen(conn: Connection[Any]) -> bool:
    row = conn.execute("SELECT current_setting('transaction_isolation')").fetchone()
    return row is None or row[0] != "read committed"


def _lock(conn: Connection[Any], pgt_ids: list[int]) -> None:
    """Lock sources before stream tables, as writers come by; sources only where it is needed.

    Under a frozen snapshot a table that moved since is a conflict, which is found out first.
    """
    if not _is_frozen(conn):
        lock_tables(conn, lockable(conn, _oids(conn, _SOURCES, pgt_ids)))
        lock_tables(conn, lockable(conn, _oids(conn, _TABLES, pgt_ids)))
        return
    lock_tables(conn, lockable(conn, _oids(conn, _TABLES, pgt_ids)))
    conn.execute(f"{_TABLES} FOR NO KEY UPDATE", (pgt_ids,))


_TABLES = "SELECT pgt_relid::int8 FROM pgtrickle.pgt_stream_tables WHERE pgt_id = ANY (%s)"
# A FULL table is computed by one statement, under one snapshot; and its sources may be anything.
_SOURCES = (
    "SELECT DISTINCT d.source_relid::int8 FROM pgtrickle.pgt_dependencies d"
    " JOIN pgtrickle.pgt_stream_tables st ON st.pgt_id = d.pgt_id WHERE st.pgt_id = ANY (%s)"
    " AND d.source_type = 'TABLE' AND st.effective_mode <> 'FULL'"
)


def _oids(conn: Connection[Any], query: str, pgt_ids: list[int]) -> set[int]:
    return {row[0] for row in conn.execute(query, (pgt_ids,)).fetchall()}


def _companions(conn: Connection[Any], moved: list[int]) -> list[int]:
    """Return who else reads changes that this transaction made; who cannot move is rebuilt."""
    found: list[int] = []
    relids = _oids(conn, _TABLES, moved)
    for source in _read_by(conn, moved):
        others = set(source.tracked_by_pgt_ids) - set(moved)
        if others and _is_own(conn, source, relids):
            for pgt_id in sorted(others):
                found += _along(conn, streams.get_by_id(conn, pgt_id), source)
    return found


def _along(conn: Connection[Any], st: StreamTable, source: Tracking) -> list[int]:
    """Return a reader with all that it reads; nothing if its next refresh computes it anew."""
    if st.effective_engine == "spark":
        raise WrongTransaction(
            f"this transaction has written to {source.source_name}, which {st.qualified_name}"
            " reads on Spark",
            "what it wrote must be read by all its readers at once, and Spark is not in the server",
            "commit first, then refresh",
        )
    if st.needs_reinit or not st.is_populated:
        return []
    tables = movable(together(conn, st), st)
    if any(t.status != "ACTIVE" or t.effective_engine == "spark" for t in tables):
        why = f"{source.source_name} was read by others in the transaction that wrote to it"
        streams.mark_for_rebuild(conn, [st.pgt_id], why)
        return []
    return [t.pgt_id for t in tables]


def _read_by(conn: Connection[Any], moved: Iterable[int]) -> list[Tracking]:
    return [t for t in list_tracking(conn) if set(t.tracked_by_pgt_ids) & set(moved)]


def _is_own(conn: Connection[Any], source: Tracking, moved: set[int]) -> bool:
    """Tell whether a buffer has, or is about to have, changes by this transaction."""
    if source.source_relid in moved:
        return True
    row = conn.execute(
        f"SELECT EXISTS (SELECT FROM {source.buffer_name} WHERE __xid = pg_current_xact_id())"
    ).fetchone()
    return row is not None and bool(row[0])
