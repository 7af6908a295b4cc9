"""The settings under which maintenance runs, whoever started it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import Connection

from headwater.catalog.rows import is_inside
from headwater.catalog.settings import Settings
from headwater.catalog.standing import Standing
from headwater.sql import clock
from headwater.sql.functions import PINNED_SETTINGS

_READ = "SELECT " + ", ".join(f"current_setting('{n}') AS {n}" for n in PINNED_SETTINGS)
_SET = (
    "SELECT set_config(name, value, true) FROM unnest(%(names)s::text[], %(values)s::text[])"
    " AS settings (name, value)"
)
_BACK = "SELECT set_config('role', %s, true)"
_UNDO = "pgt_change"


def read_pinned(conn: Connection[Any]) -> dict[str, str]:
    """Return the settings that rendering functions depend on, as they are now.

    Floats go through their text in a refresh, so they are pinned to show all their digits.
    """
    row = conn.execute(_READ).fetchone()
    assert row is not None
    pinned = dict(zip(PINNED_SETTINGS, row, strict=True))
    return {**pinned, "extra_float_digits": str(max(1, int(pinned["extra_float_digits"])))}


def pin(conn: Connection[Any], standing: Standing, settings: Settings, **more: str) -> None:
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
        clock.NOW: epoch.data_timestamp.isoformat() if epoch else "",
        clock.BEFORE: epoch.data_timestamp.isoformat() if epoch else "",
        **st.pinned_settings,
        **more,
    }
    if standing.is_of_another:
        values["role"] = str(standing.owner)
    arguments = {"names": list(values), "values": list(values.values())}
    conn.execute(_SET, arguments, prepare=True)


def unpin(conn: Connection[Any], standing: Standing) -> None:
    """Be who we were again, for the catalog's sake; that need not be who logged in."""
    if standing.is_of_another:
        conn.execute(_BACK, [standing.caller])


@contextmanager
def undoable(conn: Connection[Any]) -> Iterator[None]:
    """Run the block so that `undo` can undo it alone after an error of the server.

    psycopg's own blocks would wait for answers in the midst of a batch.
    """
    if is_inside(conn):
        with conn.transaction():
            yield
        return
    conn.execute(f"SAVEPOINT {_UNDO}")
    yield
    conn.execute(f"RELEASE {_UNDO}")


def undo(conn: Connection[Any]) -> None:
    """Undo the block that failed; inside the server that happened as it was left."""
    if not is_inside(conn):
        conn.execute(f"ROLLBACK TO {_UNDO}")
