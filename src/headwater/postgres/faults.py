"""Errors of the server to errors of headwater, by SQLSTATE."""

from __future__ import annotations

import psycopg

from headwater.errors import (
    HeadwaterError,
    LockTimeout,
    MissingRights,
    QueryFailed,
    ServerResources,
    ServerUnreachable,
    SourceAltered,
    SourceDropped,
)

_LOCKS = {"40001", "40P01", "55P03"}
_CANCELED = "57014"
_EXACT: dict[str, tuple[type[HeadwaterError], str, str]] = {
    "42P01": (
        SourceDropped,
        "a relation that the query reads is gone",
        "restore it, or drop the stream table",
    ),
    "3F000": (
        SourceDropped,
        "a schema that the query reads is gone",
        "restore it, or drop the stream table",
    ),
    "42703": (
        SourceAltered,
        "a column that the query reads is gone",
        "alter the stream table's query",
    ),
    "42883": (
        SourceAltered,
        "a function or operator that the query uses is gone",
        "restore it, or alter the query",
    ),
    "42501": (
        MissingRights,
        "the owner of the stream table may not do that",
        "grant the owner the right",
    ),
}
_CLASSES: dict[str, tuple[type[HeadwaterError], str, str]] = {
    "08": (ServerUnreachable, "the connection to PostgreSQL was lost", "try again when it is back"),
    "53": (ServerResources, "the server ran out of a resource", "free some, then refresh again"),
    "58": (ServerResources, "the server met an operating system error", "look into its log"),
}


def classify(error: psycopg.Error, name: str) -> HeadwaterError:
    """Return our error for an error of the server while `name` was refreshed."""
    state = error.sqlstate or ""
    said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    what = f"refresh of {name} failed: {said}"
    if state == _CANCELED:
        why = "it was canceled, by statement_timeout or by hand"
        return LockTimeout(what, why, "refresh again")
    if state in _LOCKS:
        return LockTimeout(what, "another transaction was in the way", "refresh again")
    if not state and isinstance(error, psycopg.OperationalError):
        return ServerUnreachable(what, *_CLASSES["08"][1:])
    if state.startswith("57P"):
        return ServerUnreachable(what, "the server ended the session", "try again when it is back")
    found = _EXACT.get(state) or _CLASSES.get(state[:2])
    if found:
        return found[0](what, *found[1:])
    return QueryFailed(
        what,
        f"PostgreSQL raised it while it evaluated the query (SQLSTATE {state})",
        "correct the rows, or alter the query so that it does not fail on them",
    )
