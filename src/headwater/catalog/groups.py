"""Records which stream tables move together."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg import sql

from headwater.catalog.rows import Connection, fetch_scalar

_FIND = sql.SQL("SELECT group_name FROM pgtrickle.pgt_refresh_groups WHERE %s = ANY (members)")
_EXISTS = sql.SQL("SELECT EXISTS (SELECT FROM pgtrickle.pgt_refresh_groups WHERE group_name = %s)")


def lock_groups(conn: Connection) -> None:
    """Let nobody else change groups until the end of the transaction: a table is in one at most."""
    conn.execute("LOCK TABLE pgtrickle.pgt_refresh_groups IN SHARE ROW EXCLUSIVE MODE")


def record_group(conn: Connection, name: str, members: Iterable[int]) -> None:
    """Record a group whose name and members were checked."""
    conn.execute(
        "INSERT INTO pgtrickle.pgt_refresh_groups (group_name, members) VALUES (%s, %s)",
        [name, list(members)],
    )


def drop_group(conn: Connection, name: str) -> bool:
    """Forget a group; False if there is none of that name."""
    query = "DELETE FROM pgtrickle.pgt_refresh_groups WHERE group_name = %s"
    return conn.execute(query, [name]).rowcount > 0


def has_group(conn: Connection, name: str) -> bool:
    """Tell whether there is a group of that name."""
    return bool(fetch_scalar(conn, _EXISTS, [name]))


def find_group_of(conn: Connection, pgt_id: int) -> str | None:
    """Return the name of the group that a stream table is in, or None."""
    found = fetch_scalar(conn, _FIND, [pgt_id])
    return None if found is None else str(found)


def list_names(conn: Connection) -> tuple[str, ...]:
    """Return the names of all groups."""
    query = "SELECT group_name FROM pgtrickle.pgt_refresh_groups ORDER BY group_name"
    return tuple(row[0] for row in conn.execute(query).fetchall())
