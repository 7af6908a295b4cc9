"""A verb inside the server: in the caller's transaction, all of it or nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import psycopg
from psycopg import Connection

from headwater.api.facade import Headwater
from headwater.api.sources import together
from headwater.catalog import install, streams
from headwater.catalog.settings import read_settings
from headwater.database.session import Session
from headwater.database.verbs import carry_out
from headwater.errors import HeadwaterError, LakeMissing
from headwater.postgres.refresh import COSTS
from headwater.sql.functions import PINNED_SETTINGS

# What the verbs set until the end of a transaction of their own; here it is the caller's.
TOUCHED = (
    *PINNED_SETTINGS,
    *COSTS,
    *("search_path", "jit", "work_mem", "synchronous_commit", "client_min_messages", "role"),
    *("enable_seqscan", "enable_mergejoin"),
    *("pg_trickle.refreshing", "pg_trickle.installing", "pg_trickle.capturing"),
    *("pg_trickle.snapshot", "pg_trickle.refresher"),
)


def run(plpy: Any, verb: str, arguments: str, path: str) -> str:
    """Carry out a verb and return, as JSON, its result, its error, or why it must be queued.

    Errors are handed over, not raised: PL/Python would put its own words around them. Names mean
    what they mean under `path`, the search_path of the caller.
    """
    session = Session(plpy)
    conn = cast("Connection[Any]", session)
    try:
        with session.transaction(), _settings_kept(session):
            session.execute("SELECT set_config('search_path', %s, true)", [path])
            install.require(conn)
            given = json.loads(arguments)
            reason = needs_spark(conn, verb, given)
            if reason is not None:
                return json.dumps({"queue": reason})
            result = carry_out(Headwater.over(conn), verb, given)
    except LakeMissing:
        return json.dumps({"queue": "it reads what Spark maintains"})
    except (HeadwaterError, psycopg.Error) as error:
        return json.dumps({"error": described(error)})
    return json.dumps({"result": result, "notices": _notices(result)})


@contextmanager
def _settings_kept(session: Session) -> Iterator[None]:
    """Leave the caller's settings as they were; after an error the subtransaction does."""
    before = _read_settings(session)
    if before["client_min_messages"] not in ("warning", "error"):  # of all that a drop takes along
        session.execute("SELECT set_config('client_min_messages', 'warning', true)")
    yield
    changed = {n: v for n, v in _read_settings(session).items() if before[n] != v}
    for name in sorted(changed, key=lambda name: name != "role"):
        session.execute("SELECT set_config(%s, %s, true)", [name, before[name] or ""])


def _read_settings(session: Session) -> dict[str, str | None]:
    query = "SELECT name, current_setting(name, true) FROM unnest(%s::text[]) AS name"
    return {name: value or None for name, value in session.execute(query, [list(TOUCHED)])}


def needs_spark(conn: Connection[Any], verb: str, arguments: Mapping[str, Any]) -> str | None:
    """Say why a verb cannot be carried out in the server, where Spark is not; None if it can."""
    engine = arguments.get("engine")
    if engine == "auto":
        engine = read_settings(conn).default_engine
    if isinstance(engine, str) and engine.lower() == "spark":
        return "engine 'spark' was asked for"
    if arguments.get("publish") is False:
        return "publish => false keeps the result in the lake"
    if verb in ("refresh_stream_table", "verify_stream_table", "alter_stream_table"):
        st = streams.find_stream_table(conn, str(arguments.get("name")))
        on_spark = [t for t in together(conn, st) if t.effective_engine == "spark"] if st else []
        if on_spark and _computes(verb, arguments):
            return f"{on_spark[0].qualified_name} is maintained by Spark"
    return None


def _computes(verb: str, arguments: Mapping[str, Any]) -> bool:
    """Tell whether a verb computes rows; suspending a table and the like does not."""
    return verb != "alter_stream_table" or bool({"refresh_mode", "engine", "query"} & {*arguments})


def described(error: HeadwaterError | psycopg.Error) -> dict[str, str | None]:
    """Return the fields of an error as the server reports it.

    A conflict keeps the SQLSTATE by which clients know that they may try again.
    """
    if isinstance(error, HeadwaterError):
        cause = error.__cause__
        state = cause.sqlstate if isinstance(cause, psycopg.Error) else None
        own = error.code.replace("-", "")
        return {
            "message": f"{error.code}: {error.what}",
            "detail": error.why,
            "hint": error.fix,
            "sqlstate": state if state and state.startswith("40") else own,
        }
    return {
        "message": error.diag.message_primary or str(error),
        "detail": error.diag.message_detail,
        "hint": error.diag.message_hint,
        "sqlstate": error.sqlstate or "XX000",
    }


def _notices(result: Any) -> list[str]:
    return list(result.get("warnings", ())) if isinstance(result, dict) else []
