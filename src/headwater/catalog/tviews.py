"""The rows of pgt_tviews: what is known of documents besides the stream table that holds them."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.catalog.rows import Connection

TOUCHED = "updated_at"  # a column of the table that its query does not have
TOUCHING = "pgt_touch"  # the trigger that sets it
TELLING = "pgt_patch"  # the trigger that writes down what becomes of documents


@dataclass(frozen=True, slots=True)
class TviewRow:
    """A row of pgt_tviews."""

    pgt_id: int
    entity: str
    view: str
    owns_view: bool
    key_columns: tuple[str, ...]
    link_columns: tuple[str, ...]
    data_column: str


def record_tview(conn: Connection, row: TviewRow) -> None:
    """Write down a new tview; the row goes with that of its stream table."""
    conn.execute(
        "INSERT INTO pgtrickle.pgt_tviews (pgt_id, entity, view_relid, owns_view, key_columns,"
        " link_columns, data_column) VALUES (%s, %s, %s::regclass, %s, %s, %s, %s)",
        (
            row.pgt_id,
            row.entity,
            row.view,
            row.owns_view,
            list(row.key_columns),
            list(row.link_columns),
            row.data_column,
        ),
    )


def drop_view(conn: Connection, pgt_id: int) -> None:
    """Drop the view that was made with a tview; PostgreSQL refuses if others read it."""
    found = conn.execute(
        "SELECT c.oid::regclass::text FROM pgtrickle.pgt_tviews t"
        " JOIN pg_class c ON c.oid = t.view_relid WHERE t.pgt_id = %s AND t.owns_view",
        (pgt_id,),
    ).fetchall()
    for (view,) in found:
        conn.execute(f"DROP VIEW {view}")


def find_key(conn: Connection, pgt_id: int) -> tuple[str, ...] | None:
    """Return the key of the documents in a stream table; None if it holds none."""
    query = "SELECT key_columns FROM pgtrickle.pgt_tviews WHERE pgt_id = %s"
    row = conn.execute(query, (pgt_id,)).fetchone()
    return tuple(row[0]) if row is not None else None


def own_columns(conn: Connection, relid: int) -> tuple[str, ...]:
    """Return the columns of a stream table that its query does not have."""
    query = "SELECT FROM pg_trigger WHERE tgrelid = %s::int8::oid AND tgname = %s"
    return (TOUCHED,) if conn.execute(query, (relid, TOUCHING)).fetchone() is not None else ()
