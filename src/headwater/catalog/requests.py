"""Turns rows of pgt_requests into requests to carry out, and records what became of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from headwater.catalog.rows import Connection
from headwater.errors import HeadwaterError

CHANNEL = "pg_trickle_requests"
LOCK_KEY = 0x6865616472657173  # "headreqs"; pgtrickle.is_served() looks for it


@dataclass(frozen=True, slots=True)
class Request:
    """A verb that somebody wants carried out, as whom, and under which settings."""

    request_id: int
    verb: str
    arguments: dict[str, Any]
    requester: str
    settings: dict[str, str]


def claim_request(conn: Connection) -> Request | None:
    """Mark the oldest open request as running and return it; None if there is none."""
    with conn.cursor(row_factory=class_row(Request)) as cursor:
        return cursor.execute(
            "UPDATE pgtrickle.pgt_requests SET status = 'running', started_at = clock_timestamp()"
            " WHERE request_id = (SELECT min(request_id) FROM pgtrickle.pgt_requests"
            " WHERE status = 'queued') AND status = 'queued'"
            " RETURNING request_id, verb, arguments, requester, settings"
        ).fetchone()


def finish_request(conn: Connection, request_id: int, result: Any) -> None:
    """Record that a request was carried out, and its result."""
    conn.execute(
        "UPDATE pgtrickle.pgt_requests SET status = 'done', finished_at = clock_timestamp(),"
        " result = %s WHERE request_id = %s",
        [Jsonb(result), request_id],
    )


def fail_request(conn: Connection, request_id: int, code: str, text: str) -> None:
    """Record that a request failed, and why."""
    conn.execute(
        "UPDATE pgtrickle.pgt_requests SET status = 'failed', finished_at = clock_timestamp(),"
        " error_code = %s, error_message = %s WHERE request_id = %s",
        [code, text, request_id],
    )


def fail_lost(conn: Connection, why: HeadwaterError) -> int:
    """Fail the requests that somebody began and nobody ended; return how many there were.

    For whoever holds the lock of those who serve: then nobody else is carrying them out.
    """
    return conn.execute(
        "UPDATE pgtrickle.pgt_requests SET status = 'failed', finished_at = clock_timestamp(),"
        " error_code = %s, error_message = %s WHERE status = 'running'",
        [why.code, str(why)],
    ).rowcount


def may_act_as(conn: Connection, role: str) -> bool:
    """Tell whether requests of a role can be trusted to be its own.

    Whoever may write the catalog can put another's name into a request. That gives nothing to a
    role that could become a superuser anyway; to any other it must not give that.
    """
    row = conn.execute(
        "SELECT NOT r.rolsuper OR o.rolsuper FROM pg_roles r, pg_namespace n"
        " JOIN pg_roles o ON o.oid = n.nspowner"
        " WHERE r.rolname = %s AND n.nspname = 'pgtrickle'",
        [role],
    ).fetchone()
    return row is not None and bool(row[0])
