"""Who leads: one session per database, known by an advisory lock that goes with the session."""

from __future__ import annotations

import os
import socket

from headwater.catalog.rows import Connection, fetch_scalar, is_inside

LOCK_KEY = 0x686561646C656164  # "headlead"; pgtrickle.is_led() looks for it
WAKE_CHANNEL = "pg_trickle_wake"


def try_to_lead(conn: Connection, version: str) -> bool:
    """Become the one who leads for as long as this session lives; False if another one does."""
    if not fetch_scalar(conn, b"SELECT pg_try_advisory_lock(%s)", [LOCK_KEY]):
        return False
    conn.execute(
        "INSERT INTO pgtrickle.pgt_leader"
        " (backend_pid, host, process_id, version, since, last_wake)"
        " VALUES (pg_backend_pid(), %s, %s, %s, now(), now()) ON CONFLICT (is_only) DO UPDATE"
        " SET backend_pid = excluded.backend_pid, host = excluded.host, since = excluded.since,"
        " process_id = excluded.process_id, version = excluded.version, last_wake = now()",
        [socket.gethostname(), os.getpid(), version],
    )
    return True


def resign(conn: Connection) -> None:
    """Let another one lead."""
    conn.execute("SELECT pg_advisory_unlock(%s)", [LOCK_KEY])


def record_wake(conn: Connection) -> None:
    """Write down that the leader is awake; a crash may lose it."""
    conn.execute(
        "WITH quick AS (SELECT set_config('synchronous_commit', 'off', true))"
        " UPDATE pgtrickle.pgt_leader SET last_wake = clock_timestamp() FROM quick"
    )


def wake(conn: Connection) -> None:
    """Have the leader look now: a stream table was created or altered.

    Not in a transaction of the caller's, which could then not be prepared: the leader looks soon.
    """
    if is_inside(conn):
        return
    conn.execute("SELECT pg_notify(%s, '')", [WAKE_CHANNEL])
