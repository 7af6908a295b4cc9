"""The settings under which maintenance runs, whoever started it."""

from __future__ import annotations

from typing import Any

from psycopg import Connection, sql

from headwater.catalog.model import StreamTable
from headwater.catalog.settings import Settings
from headwater.sql.functions import PINNED_SETTINGS


def read_pinned(conn: Connection[Any]) -> dict[str, str]:
    """Return the settings that rendering functions depend on, as they are now."""
    names = listed_settings()
    row = conn.execute(f"SELECT {names}").fetchone()  # type: ignore[arg-type]
    assert row is not None
    return dict(zip(PINNED_SETTINGS, row, strict=True))


def listed_settings() -> str:
    """Return the SELECT list that reads the pinned settings."""
    return ", ".join(f"current_setting('{name}')" for name in PINNED_SETTINGS)


def pin(conn: Connection[Any], st: StreamTable, settings: Settings) -> None:
    """Run the rest of the transaction as the owner of `st`, under the settings it was created with.

    JIT costs more than any small statement gains; names are all qualified.
    """
    values = {
        "search_path": "pg_catalog, pg_temp",
        "jit": "off",
        "work_mem": settings.refresh_work_mem,
        "hash_mem_multiplier": "2",
        "pg_trickle.refreshing": "on",
        **st.pinned_settings,
    }
    calls = sql.SQL(", ").join(
        sql.SQL("set_config({}, {}, true)").format(name, value) for name, value in values.items()
    )
    conn.execute(sql.SQL("SELECT {}").format(calls))
    conn.execute(
        "SELECT set_config('role', rolname, true) FROM pg_roles"
        " WHERE oid = %s AND rolname <> current_user",
        (st.owner,),
    )


def unpin(conn: Connection[Any]) -> None:
    """Be ourselves again for the catalog's sake."""
    conn.execute("RESET ROLE")
