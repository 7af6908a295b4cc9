"""Carries out the requests that SQL functions left, one after the other, as those who asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import Connection

from headwater.api.facade import Headwater
from headwater.catalog.history import error_code
from headwater.catalog.requests import (
    CHANNEL,
    LOCK_KEY,
    Request,
    claim_request,
    fail_lost,
    fail_request,
    finish_request,
    may_act_as,
)
from headwater.catalog.settings import SETTINGS
from headwater.database.verbs import carry_out
from headwater.errors import HeadwaterError, LockTimeout, MissingRights, RequestLost, Unavailable
from headwater.sql.functions import PINNED_SETTINGS

POLL_SECONDS = 5.0  # a notification comes sooner; this is for those that got lost

# Of what a request carries, these are taken over: it must not name another user.
_SETTINGS = {"search_path", *PINNED_SETTINGS, *(setting.name for setting in SETTINGS)}

Report = Callable[[Request, Exception | None], None]


@contextmanager
def serving(conn: Connection[Any]) -> Iterator[None]:
    """Be the one who serves this database; raise LockTimeout if somebody is already."""
    row = conn.execute("SELECT pg_try_advisory_lock(%s)", [LOCK_KEY]).fetchone()
    if row is None or not row[0]:
        raise LockTimeout(
            "another process serves the requests of this database",
            "requests are carried out in their order, so one process at a time does it",
            "leave it to that one, or end it first",
        )
    try:
        fail_lost(conn, _LOST)
        yield
    finally:
        if not conn.closed:
            conn.execute("SELECT pg_advisory_unlock(%s)", [LOCK_KEY])


_LOST = RequestLost(
    "the process that carried this request out ended before the request did",
    "nothing is known of how far it came; what it did stands as a whole or not at all",
    "look whether it was done, and if not, ask again",
)


def serve_waiting(conn: Connection[Any], report: Report) -> int:
    """Carry out all requests that wait, and return how many."""
    count = 0
    while (request := claim_request(conn)) is not None:
        count += 1
        error = _serve(conn, request)
        report(request, error)
    return count


def serve_forever(
    conn: Connection[Any],
    report: Report,
    until: Callable[[], bool],
    poll_seconds: float = POLL_SECONDS,
) -> None:
    """Carry requests out as they come, until told to stop; between two requests only."""
    conn.execute(f"LISTEN {CHANNEL}")
    while not until():
        serve_waiting(conn, report)
        for _ in conn.notifies(timeout=poll_seconds, stop_after=1):
            pass  # what it says is in the table


def serve_until(
    connect: Callable[[], Connection[Any]], report: Report, over: threading.Event
) -> None:
    """Carry requests out until `over`, on a connection that is made anew when it is lost.

    While another process serves them, wait for it to end.
    """
    while not over.is_set():
        try:
            with connect() as conn, serving(conn):
                serve_forever(conn, report, over.is_set, poll_seconds=1.0)
        except (Unavailable, psycopg.OperationalError):
            over.wait(POLL_SECONDS)  # the daemon itself says that the server is away


def _serve(conn: Connection[Any], request: Request) -> Exception | None:
    """Carry out one request; what goes wrong with it is its own affair."""
    try:
        _check_rights(conn, request)
        with _acting_as(conn, request):
            result = carry_out(Headwater.over(conn), request.verb, request.arguments)
    except (HeadwaterError, psycopg.Error) as error:
        if conn.closed:
            raise
        fail_request(conn, request.request_id, error_code(error) or "XX000", str(error))
        return error
    finish_request(conn, request.request_id, result)
    return None


def _check_rights(conn: Connection[Any], request: Request) -> None:
    if not may_act_as(conn, request.requester):
        raise MissingRights(
            f"no request is carried out as {request.requester}",
            "it is a superuser or is gone, and roles that are no superuser could have written this",
            "call the verb through Python or the command line as that role",
        )


@contextmanager
def _acting_as(conn: Connection[Any], request: Request) -> Iterator[None]:
    """Have the role and the settings of whoever asked, for the session, and give them back."""
    try:
        for name in _SETTINGS & request.settings.keys():
            conn.execute("SELECT set_config(%s, %s, false)", [name, request.settings[name]])
        conn.execute("SELECT set_config('role', %s, false)", [request.requester])
        yield
    finally:
        if not conn.closed:
            conn.execute("RESET ROLE")
            conn.execute("RESET ALL")
