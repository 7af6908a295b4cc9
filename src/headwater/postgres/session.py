"""The settings under which maintenance runs, whoever started it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import Connection, Cursor

from headwater.catalog.settings import Settings
from headwater.catalog.standing import Standing
from headwater.sql.functions import PINNED_SETTINGS

_READ = "SELECT " + ", ".join(f"current_setting('{n}') AS {n}" for n in PINNED_SETTINGS)
_SET = (
    "SELECT set_config(name, value, true) FROM unnest(%(names)s::text[], %(values)s::text[])"
    " AS settings (name, value) UNION ALL"
    " SELECT set_config('pg_trickle.caller', current_user, true)"
    " || set_config('role', rolname, true) FROM pg_roles"
    " WHERE oid = %(owner)s::int8::oid AND rolname <> current_user"
)
_BACK = "SELECT set_config('role', current_setting('pg_trickle.caller'), true)"


def read_pinned(conn: Connection[Any]) -> dict[str, str]:
    """Return the settings that rendering functions depend on, as they are now.

    Floats go through their text in a refresh, so they are pinned to show all their digits.
    """
    row = conn.execute(_READ).fetchone()
    assert row is not None
    pinned = dict(zip(PINNED_SETTINGS, row, strict=True))
    return {**pinned, "extra_float_digits": str(max(1, int(pinned["extra_float_digits"])))}


@dataclass(frozen=True, slots=True)
class Pinned:
    """The statement that pinned a session; in a pipeline it may not have run yet."""

    cursor: Cursor[Any]
    settings: int

    @property
    def is_other(self) -> bool:
        """Whether the session has another role than before."""
        return self.cursor.rowcount > self.settings


def pin(conn: Connection[Any], standing: Standing, settings: Settings, **more: str) -> Pinned:
    """Run the rest of the transaction as the table's owner, under the settings of its creation.

    JIT costs more than any small statement gains; names are all qualified. The epoch at which the
    table stands goes along, for the statements that read changes.
    """
    st, epoch = standing.table, standing.epoch
    values = {
        "search_path": "pg_catalog, pg_temp",
        "jit": "off",
        "work_mem": settings.refresh_work_mem,
        "pg_trickle.refreshing": "on",
        "pg_trickle.snapshot": epoch.snapshot if epoch else "",
        "pg_trickle.refresher": epoch.xid if epoch else "",
        **st.pinned_settings,
        **more,
    }
    arguments = {"names": list(values), "values": list(values.values()), "owner": st.owner}
    return Pinned(conn.execute(_SET, arguments), len(values))


def unpin(conn: Connection[Any], pinned: Pinned) -> None:
    """Be who we were again, for the catalog's sake; that need not be who logged in."""
    if pinned.is_other:
        conn.execute(_BACK)
