"""Makes the server able to run the verbs itself: PL/Python, and the way to this package."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import Connection, sql

import headwater
from headwater.errors import MissingComponent, MissingRights

_FUNCTION = """
CREATE OR REPLACE FUNCTION pgtrickle.run_inside(verb text, arguments jsonb, path text) RETURNS jsonb
LANGUAGE plpython3u AS {body}
"""
# First in the path while importing, last afterwards: other functions of the session share it.
_BODY = """
import sys
if "headwater.database.inside" not in sys.modules:
    before = list(sys.path)
    sys.path[:0] = {paths}
    try:
        import headwater.database.inside
    finally:
        sys.path[:] = before + [p for p in {paths} if p not in before]
return sys.modules["headwater.database.inside"].run(plpy, verb, arguments, path)
"""
_CHECK = """
DO LANGUAGE plpython3u {body}
"""
_CHECK_BODY = """
import sys
sys.path[:0] = {paths}
import headwater.database.inside
"""


def default_paths() -> tuple[str, ...]:
    """Return the directories that this process imports the package and its driver from."""
    found = (str(Path(str(p.__file__)).resolve().parents[1]) for p in (headwater, psycopg))
    return tuple(dict.fromkeys(found))


def install_inside(conn: Connection[Any], paths: Sequence[str] = ()) -> tuple[str, ...]:
    """Let the server run the verbs, and check that it can; return where it imports them from.

    The paths are part of the function, which only a superuser can replace: a setting could be set
    by anybody, and with it code be run as the server's own user.
    """
    chosen = tuple(paths) or default_paths()
    listed = repr(list(chosen))
    try:
        with conn.transaction():
            _create_language(conn)
            _check_import(conn, listed)
            body = sql.Literal(_BODY.format(paths=listed)).as_string(conn)
            conn.execute(_FUNCTION.format(body=body).encode())
    except psycopg.errors.InsufficientPrivilege as error:
        raise MissingRights(
            f"the role may not set this up: {error.diag.message_primary}",
            why="PL/Python is an untrusted language: only a superuser creates functions in it",
            fix="run `headwater init --in-database` as a superuser, once; or leave it out and run"
            " `headwater serve-requests`",
        ) from error
    return chosen


def _create_language(conn: Connection[Any]) -> None:
    row = conn.execute(
        "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'plpython3u')"
    ).fetchone()
    if row is None or not row[0]:
        raise MissingComponent(
            "this server has no PL/Python",
            why="the extension plpython3u is not installed where the server looks for extensions",
            fix="install it (on Debian: apt-get install postgresql-plpython3-15), or leave"
            " --in-database out and run `headwater serve-requests`",
        )
    conn.execute("CREATE EXTENSION IF NOT EXISTS plpython3u SCHEMA pg_catalog")


def _check_import(conn: Connection[Any], listed: str) -> None:
    """Import the package in the server, where another Python may run as another user."""
    body = sql.Literal(_CHECK_BODY.format(paths=listed)).as_string(conn)
    try:
        with conn.transaction():
            conn.execute(_CHECK.format(body=body).encode())
    except psycopg.errors.ExternalRoutineException as error:
        raise MissingComponent(
            f"the server's Python cannot import headwater: {error.diag.message_primary}",
            why=f"it looked in {listed}, as the operating system user of the server and with the"
            f" server's own version of Python; here it is {sys.version.split()[0]}",
            fix="install headwater for that Python where the server may read it, with"
            " `pip install --target DIRECTORY headwater`, and name it: --python-path DIRECTORY",
        ) from error
