"""Turns the snapshot of a refresher's transaction into a numbered epoch."""

from __future__ import annotations

from datetime import datetime

from psycopg import Cursor, sql
from psycopg.rows import scalar_row

from headwater.catalog.model import Epoch
from headwater.catalog.rows import Connection, columns_of, cursor_of, fetch_scalar, is_inside
from headwater.errors import NotFound, bug

_COLUMNS = columns_of(Epoch)
_RECORD = (
    sql.SQL("""
    INSERT INTO pgtrickle.pgt_epochs (snapshot, xid, data_timestamp)
    SELECT pg_current_snapshot(), pg_current_xact_id(), transaction_timestamp()
    RETURNING {}""")
    .format(_COLUMNS)
    .as_bytes()
)
# In a transaction of the caller's, who may write on after it: what this transaction writes is not
# seen at the epoch, whatever its snapshot says of it. What it wrote before is deleted when it is
# read, so that nobody reads it twice.
_RECORD_INSIDE = (
    sql.SQL("""
    INSERT INTO pgtrickle.pgt_epochs (snapshot, xid, data_timestamp)
    SELECT format('%s:%s:%s', pg_snapshot_xmin(now.s), pg_snapshot_xmax(now.s),
               (SELECT string_agg(x::text, ',' ORDER BY x)
                  FROM (SELECT pg_snapshot_xip(now.s) AS x UNION SELECT now.own
                         WHERE now.own < pg_snapshot_xmax(now.s)) AS running))::pg_snapshot,
           '0', CASE current_setting('transaction_isolation') WHEN 'read committed'
                     THEN clock_timestamp() ELSE transaction_timestamp() END
      FROM (SELECT pg_current_snapshot() AS s, pg_current_xact_id() AS own) AS now
    RETURNING {}""")
    .format(_COLUMNS)
    .as_bytes()
)
_UNUSED = sql.SQL("""
      FROM pgtrickle.pgt_epochs e
     WHERE e.epoch < (SELECT max(epoch) FROM pgtrickle.pgt_epochs)
       AND NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables st WHERE st.epoch = e.epoch)
       AND NOT EXISTS (SELECT FROM pgtrickle.pgt_traces t WHERE e.epoch IN (t.epoch, t.since))
       AND NOT (e.in_lake AND e.epoch >= coalesce(
           (SELECT max(old.epoch) FROM pgtrickle.pgt_epochs old
             WHERE old.in_lake AND old.data_timestamp <= now() - %(retention)s::interval), 0))
       AND NOT EXISTS (SELECT FROM pgtrickle.pgt_refresh_history h
                        WHERE h.epoch = e.epoch AND h.status = 'RUNNING')""")


def record_epoch(conn: Connection) -> Epoch:
    """Record the snapshot of this transaction as a new epoch.

    The caller runs REPEATABLE READ: in READ COMMITTED the next statement sees a later snapshot. In
    the transaction of a user it may run READ COMMITTED, with all that is read locked.
    """
    return recorded_epoch(ask_for_epoch(conn))


def ask_for_epoch(conn: Connection) -> Cursor[Epoch]:
    """Send the statement that records an epoch; in a pipeline, without waiting for it."""
    return cursor_of(conn, Epoch).execute(_RECORD_INSIDE if is_inside(conn) else _RECORD)


def recorded_epoch(cursor: Cursor[Epoch]) -> Epoch:
    """Return the epoch that was asked for."""
    epoch = cursor.fetchone()
    if epoch is None:
        raise bug("no epoch was recorded", why="the INSERT returned no row")
    return epoch


def get_epoch(conn: Connection, epoch: int) -> Epoch:
    """Return an epoch by its number; raise NotFound if it was pruned or never recorded."""
    query = sql.SQL("SELECT {} FROM pgtrickle.pgt_epochs WHERE epoch = %s").format(_COLUMNS)
    with cursor_of(conn, Epoch) as cursor:
        found = cursor.execute(query, [epoch]).fetchone()
    if found is None:
        raise NotFound(
            f"there is no epoch {epoch}",
            why="no stream table stands at it any more, so it was deleted, or it never was",
            fix="use the epoch that the stream table's catalog row names",
        )
    return found


def mark_in_lake(conn: Connection, epoch: Epoch) -> None:
    """Record that a trace has rows of an epoch, so that it can be read as of then."""
    conn.execute("UPDATE pgtrickle.pgt_epochs SET in_lake = true WHERE epoch = %s", [epoch.epoch])


def find_latest(conn: Connection, moment: datetime) -> int | None:
    """Return the last epoch not after a moment in which something came to the lake, or from which
    on something is there."""
    query = b"""
        SELECT max(epoch) FROM pgtrickle.pgt_epochs WHERE data_timestamp <= %s
           AND (in_lake OR epoch IN (SELECT since FROM pgtrickle.pgt_traces))"""
    found = fetch_scalar(conn, query, [moment])
    return None if found is None else int(found)


def prune_epochs(conn: Connection, retention: str) -> int:
    """Delete the epochs that nothing stands at and return how many went.

    The newest stays, and so do those of refreshes that run, and those of which the lake has rows
    as far back as it can be read. An epoch that another transaction
    is about to stand at is locked by it, and skipped. Call it in READ COMMITTED: the second
    statement must see what was committed before the first one had its locks.
    """
    with conn.transaction(), conn.cursor(row_factory=scalar_row) as cursor:
        query = sql.SQL("SELECT e.epoch {} FOR UPDATE OF e SKIP LOCKED").format(_UNUSED)
        locked = cursor.execute(query, {"retention": retention}).fetchall()
        query = sql.SQL(
            "DELETE FROM pgtrickle.pgt_epochs"
            " WHERE epoch = ANY (%(locked)s) AND epoch IN (SELECT e.epoch {})"
        ).format(_UNUSED)
        return cursor.execute(query, {"locked": locked, "retention": retention}).rowcount
