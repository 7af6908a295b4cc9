"""Turns an empty database, or one with an older catalog, into one with the current catalog."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from operator import itemgetter

from psycopg import errors as pg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from headwater.catalog.rows import Connection, fetch_scalar
from headwater.errors import (
    AlreadyExists,
    CatalogMissing,
    CatalogRestored,
    CatalogTooNew,
    MissingRights,
    UnsupportedServer,
    bug,
)

SERVER_MINIMUM = 150000
LOCK_KEY = 0x6865616477617472  # "headwatr"; one installer at a time in each database

_HAS_OUR_PGIVM = sql.SQL(
    "SELECT starts_with(obj_description(to_regnamespace('pgivm'), 'pg_namespace'), 'headwater:')"
)
_MIGRATION_FILE = re.compile(r"(\d{4})_\w+\.sql")


def check_server(conn: Connection) -> None:
    """Raise UnsupportedServer unless the server is PostgreSQL 15 or newer and takes writes."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        [(number, version, in_recovery)] = cursor.execute(
            "SELECT current_setting('server_version_num')::int, current_setting('server_version'),"
            " pg_is_in_recovery()"
        ).fetchall()
    refuse_old_version(number, version)
    if in_recovery:
        raise UnsupportedServer(
            "headwater cannot work on a server in recovery",
            why="a standby takes no writes, and every refresh writes",
            fix="connect to the primary; the standby receives the stream tables from it",
        )


def refuse_old_version(number: int, version: str) -> None:
    """Raise UnsupportedServer if `number` (as in server_version_num) is below the minimum."""
    if number < SERVER_MINIMUM:
        raise UnsupportedServer(
            f"headwater needs PostgreSQL 15 or newer; this server is {version}",
            why="maintenance relies on MERGE and on unique indexes with NULLS NOT DISTINCT",
            fix="upgrade the server, or connect to another one",
        )


def current_version(conn: Connection) -> int:
    """Return the version of the catalog in this database, 0 if there is none."""
    with _rights_explained():
        if not fetch_scalar(
            conn, sql.SQL("SELECT to_regclass('pgtrickle.pgt_catalog_version') IS NOT NULL")
        ):
            return 0
        latest = "SELECT coalesce(max(version), 0) FROM pgtrickle.pgt_catalog_version"
        return int(fetch_scalar(conn, sql.SQL(latest)))


def latest_version(migrations: Traversable | None = None) -> int:
    """Return the version that `install` brings a catalog to."""
    return len(_migration_files(migrations))


def install(conn: Connection, migrations: Traversable | None = None) -> list[int]:
    """Apply the migrations that this database lacks and return their numbers.

    Each step commits together with its version row (inside a transaction of the caller: with
    that one). Installers wait for one another, so any number may run at once. `migrations` is
    the directory of numbered files; by default the one in this package.
    """
    check_server(conn)
    steps = _list_migrations(migrations)
    version = current_version(conn)
    _refuse_newer(version, len(steps))
    numbered = list(enumerate(steps, start=1))[version:]
    return [number for number, step in numbered if _apply(conn, number, step)]


def require(conn: Connection) -> None:
    """Raise CatalogMissing or CatalogTooNew unless the catalog is the one this package knows."""
    version, latest = current_version(conn), latest_version()
    _refuse_newer(version, latest)
    if version == latest:
        return
    raise CatalogMissing(
        f"the catalog is at version {version}, and this headwater needs version {latest}"
        if version
        else "this database holds no headwater catalog",
        why="stream tables are recorded in the schema pgtrickle of each database",
        fix="run `headwater init` on this database",
    )


def is_at_home(conn: Connection) -> bool:
    """Tell whether the catalog was made in this database, and not in one that this is a copy of."""
    return bool(fetch_scalar(conn, b"SELECT pgtrickle.is_at_home()"))


def require_home(conn: Connection) -> None:
    """Raise CatalogRestored unless the catalog was made in this database.

    Elsewhere its oids may be those of any table, which a verb would then rename, empty or drop.
    """
    if not is_at_home(conn):
        raise CatalogRestored(
            "the catalog came from another database",
            why="a dump was restored here, or this database is a copy; the relations that the"
            " catalog names have other oids here, and its epochs are of other transactions",
            fix="run `headwater init --restore`, or SELECT * FROM"
            " pgtrickle.restore_stream_tables(): it finds the relations by their names",
        )


def uninstall(conn: Connection) -> None:
    """Remove every trace of headwater from this database; do nothing if there is none.

    Capture and guard triggers go with the functions that they call. The stream tables stay as
    plain tables that nothing maintains. Objects of the user that depend on the catalog, such as
    a view over pgt_status, go too.
    """
    with _rights_explained(), _exclusive_transaction(conn):
        if current_version(conn):
            conn.execute(
                "DROP SCHEMA IF EXISTS pgtrickle_changes, pgtrickle_state, pgtrickle CASCADE"
            )
            if fetch_scalar(conn, _HAS_OUR_PGIVM):
                conn.execute("DROP SCHEMA pgivm CASCADE")


def _list_migrations(directory: Traversable | None) -> list[str]:
    """Return the text of every migration, in order; number n stands at index n - 1."""
    return [file.read_text(encoding="utf-8") for file in _migration_files(directory)]


def _migration_files(directory: Traversable | None) -> list[Traversable]:
    place = directory or files("headwater.catalog") / "migrations"
    named = [(f, m) for f in place.iterdir() if (m := _MIGRATION_FILE.fullmatch(f.name))]
    numbered = sorted(((int(match[1]), file) for file, match in named), key=itemgetter(0))
    numbers = [number for number, _ in numbered]
    if numbers != list(range(1, len(numbers) + 1)):
        raise bug(
            f"the migrations are numbered {numbers}",
            why="they must be numbered from 1 without gaps, each number once",
        )
    return [file for _, file in numbered]


def _apply(conn: Connection, number: int, step: str) -> bool:
    """Apply one migration and record it; False if another installer was first."""
    with _rights_explained(), _exclusive_transaction(conn):
        if current_version(conn) >= number:
            return False
        try:
            conn.execute(step.encode())
        except pg.DuplicateSchema as error:
            raise AlreadyExists(
                "a schema that headwater needs exists already, and holds no headwater catalog",
                why=f"{error.diag.message_primary}; perhaps the extension pg_trickle is installed",
                fix="drop or rename that schema, or use another database",
            ) from error
        conn.execute("INSERT INTO pgtrickle.pgt_catalog_version (version) VALUES (%s)", [number])
    return True


@contextmanager
def _exclusive_transaction(conn: Connection) -> Iterator[None]:
    """Open a transaction that holds the installers' lock, with a fixed search_path and no notices.

    Inside a transaction of the caller this is a savepoint, and the caller's settings come back.
    """
    is_outermost = conn.info.transaction_status == TransactionStatus.IDLE
    with conn.transaction(), conn.cursor(row_factory=tuple_row) as cursor:
        if is_outermost:
            # A snapshot from before the wait for the lock would hide what the other one did.
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK_KEY])
        [settings] = cursor.execute(
            "SELECT current_setting('search_path'), current_setting('client_min_messages')"
        ).fetchall()
        _set_locally(conn, ("pg_catalog, pg_temp", "warning"))
        yield
        _set_locally(conn, settings)


def _set_locally(conn: Connection, settings: tuple[str, ...]) -> None:
    conn.execute(
        "SELECT set_config('search_path', %s, true), set_config('client_min_messages', %s, true)",
        settings,
    )


@contextmanager
def _rights_explained() -> Iterator[None]:
    try:
        yield
    except pg.InsufficientPrivilege as error:
        raise MissingRights(
            f"the role may not do this: {error.diag.message_primary}",
            why="headwater keeps its catalog in schemas of this database that its role owns",
            fix="GRANT CREATE ON DATABASE to that role, or connect as the owner of the catalog",
        ) from error


def _refuse_newer(version: int, latest: int) -> None:
    if version > latest:
        raise CatalogTooNew(
            f"the catalog is at version {version}, and this headwater knows {latest}",
            why="a newer headwater installed or upgraded it",
            fix="upgrade headwater here: pip install --upgrade headwater",
        )
