"""Documents by convention: a view of them, and the stream table that holds what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.rows import class_row

from headwater.algebra.keys import unique_keys
from headwater.api.create import (
    Request,
    check_name,
    compile_for,
    create_stream_table,
    make_request,
)
from headwater.api.drop import drop_stream_table
from headwater.catalog import streams, tviews
from headwater.catalog.model import StreamTable
from headwater.catalog.names import qualified_name, split_name
from headwater.catalog.tviews import TviewRow
from headwater.errors import (
    AlreadyExists,
    HeadwaterError,
    InvalidArgument,
    NotFound,
    UnsupportedQuery,
)
from headwater.postgres.compile import Compiled
from headwater.postgres.quote import identifier, listed, literal
from headwater.results import Created, Patch

TABLE, VIEW, KEY, LINK = "tv_", "v_", "pk_", "fk_"
TOUCHED = tviews.TOUCHED
_OPTIONS = {
    "schedule": None,
    "refresh_mode": "COMMIT",
    "initialize": True,
    "engine": "auto",
    "cdc_mode": None,
    "publish": True,
}


@dataclass(frozen=True, slots=True)
class Tview:
    """What is asked for, with the names that the convention gives where none was given."""

    schema: str
    table: str
    view: str  # qualified
    query: str | None  # of the view; None: it is there
    key: tuple[str, ...]
    data: str
    patches: bool  # whether what becomes of documents is told

    @property
    def entity(self) -> str:
        """What the documents are about."""
        return self.table.removeprefix(TABLE)


def make_tview(
    conn: Connection[Any], name: str, query: str | None, options: dict[str, Any]
) -> Tview:
    """Check the arguments of create, before anything is done."""
    given, table = split_name(name)
    row = conn.execute("SELECT coalesce(%s, current_schema())", (given,)).fetchone()
    if row is None or row[0] is None:
        raise InvalidArgument(
            f"there is no schema to create {name} in",
            "search_path names no existing schema",
            "write the name as schema.table",
        )
    schema, entity = str(row[0]), table.removeprefix(TABLE)
    view_schema, view = split_name(options["view"]) if options["view"] else (None, VIEW + entity)
    key: Sequence[str] = options["key"] or (KEY + entity,)
    shown = qualified_name(view_schema or schema, view)
    return Tview(schema, table, shown, query, tuple(key), options["data"], options["patches"])


def create_tview(conn: Connection[Any], wanted: Tview) -> Created:
    """Create the view, the stream table over it, and what documents have besides; or nothing."""
    check_name(conn, qualified_name(wanted.schema, wanted.table))
    _make_view(conn, wanted)
    made = None
    try:
        columns = _columns(conn, wanted)
        query = f"SELECT {listed(map(identifier, columns))} FROM {wanted.view}"
        name = qualified_name(wanted.schema, wanted.table)
        request = make_request(conn, name, query, {**_OPTIONS, "key": wanted.key})
        _check(wanted, _compiled(conn, request))
        made = create_stream_table(conn, request)
        _complete(conn, wanted, made, columns)
    except (HeadwaterError, psycopg.Error):
        if made is not None:
            drop_stream_table(conn, made.name)
        if wanted.query is not None:
            conn.execute(f"DROP VIEW {wanted.view}")
        raise
    return made


def _make_view(conn: Connection[Any], wanted: Tview) -> None:
    row = conn.execute("SELECT to_regclass(%s) IS NOT NULL", (wanted.view,)).fetchone()
    is_there = row is not None and bool(row[0])
    if wanted.query is not None and is_there:
        raise AlreadyExists(
            f"{wanted.view} exists already",
            f"the query becomes a view of that name, which the documents of {wanted.entity} are",
            "leave the query out if this is that view; else drop it, or say view => '…'",
        )
    if wanted.query is not None:
        conn.execute(f"CREATE VIEW {wanted.view} AS {wanted.query}")
    elif not is_there:
        raise NotFound(
            f"there is no view {wanted.view}",
            f"without a query the documents of {wanted.entity} are those of a view that is there",
            "give the query, or name the view",
        )


def _columns(conn: Connection[Any], wanted: Tview) -> tuple[str, ...]:
    rows = conn.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
        " AND NOT attisdropped ORDER BY attnum",
        (wanted.view,),
    ).fetchall()
    return tuple(name for (name,) in rows)


def _compiled(conn: Connection[Any], request: Request) -> Compiled:
    compiled, _ = compile_for(conn, request.query, request.mode, request.engine)
    return compiled


def _check(wanted: Tview, compiled: Compiled) -> None:
    """Refuse what is no document: no key, a key that is not proved to be one, no jsonb."""
    of = {c.name: c.type.name for c in compiled.columns}
    sure = {c.name for c in compiled.columns if not c.nullable}
    missing = [k for k in wanted.key if k not in sure]
    if missing:
        raise InvalidArgument(
            f"{wanted.view} has no column {', '.join(missing)} that is never NULL",
            f"a document is found by its key, by convention {KEY}{wanted.entity}",
            "select it, or say which columns are the key: key => '{…}'",
        )
    if of.get(wanted.data) != "jsonb":
        raise InvalidArgument(
            f"{wanted.view} has no column {wanted.data} of type jsonb",
            "that is where the document is",
            "select it AS data, or say which column it is: data => '…'",
        )
    found = unique_keys(compiled.incremental.view)
    if not any(key <= set(wanted.key) for key in found):
        known = " or ".join(f"({', '.join(sorted(key))})" for key in found)
        raise UnsupportedQuery(
            f"({', '.join(wanted.key)}) may not be unique in {wanted.view}",
            f"what is known to be unique is {known}" if known else "nothing is known to be unique",
            "select the primary key of the table that has one row for each document, and join"
            " others by their keys or aggregate them",
        )


def _complete(
    conn: Connection[Any], wanted: Tview, made: Created, columns: tuple[str, ...]
) -> None:
    """Add the time of the last change, an index for each link, and the row of the catalog.

    A key that is never NULL is one also to the documents that embed these.
    """
    st = streams.get_stream_table(conn, made.name)
    links = tuple(c for c in columns if c.startswith(LINK))
    with conn.transaction():
        conn.execute("SELECT set_config('pg_trickle.installing', 'on', true)")
        if TOUCHED not in columns:
            _touch(conn, made.name)
        if wanted.patches:
            _tell(conn, wanted, st)
        for column in wanted.key:
            conn.execute(f"ALTER TABLE {made.name} ALTER {identifier(column)} SET NOT NULL")
        for link in (link for link in links if (link,) != wanted.key):
            conn.execute(f"CREATE INDEX ON {made.name} ({identifier(link)})")
        row = TviewRow(
            st.pgt_id,
            wanted.entity,
            wanted.view,
            wanted.query is not None,
            wanted.key,
            links,
            wanted.data,
        )
        tviews.record_tview(conn, row)
        conn.execute("SELECT set_config('pg_trickle.installing', 'off', true)")


def _touch(conn: Connection[Any], table: str) -> None:
    column = f"{TOUCHED} timestamptz NOT NULL DEFAULT now()"
    conn.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
    conn.execute(
        f"CREATE TRIGGER {tviews.TOUCHING} BEFORE UPDATE ON {table}"
        " FOR EACH ROW EXECUTE FUNCTION pgtrickle.touch_document()"
    )


def _tell(conn: Connection[Any], wanted: Tview, st: StreamTable) -> None:
    """Have every change of a document written down, from now on."""
    arguments = listed(map(literal, (str(st.pgt_id), wanted.data, *wanted.key)))
    conn.execute(
        f"CREATE TRIGGER {tviews.TELLING} AFTER INSERT OR UPDATE OR DELETE ON {st.qualified_name}"
        f" FOR EACH ROW EXECUTE FUNCTION pgtrickle.note_patch({arguments})"
    )


def list_patches(conn: Connection[Any], after: str | None, name: str | None) -> tuple[Patch, ...]:
    """Return what was committed after a position, in the order of each document."""
    tview = streams.get_stream_table(conn, name).pgt_relid if name is not None else None
    with conn.cursor(row_factory=class_row(Patch)) as cursor:
        query = (
            "SELECT patch_id, xid::text::bigint AS xid, entity, kind, key, patch,"
            " position::text AS position FROM pgtrickle.patches(%s::pg_snapshot, %s::int8::oid)"
        )
        return tuple(cursor.execute(query, (after, tview)))


def trim_patches(conn: Connection[Any], before: str | None) -> int:
    """Delete what a reader at a position has read; return how many."""
    row = conn.execute("SELECT pgtrickle.trim_patches(%s::pg_snapshot)", (before,)).fetchone()
    assert row is not None
    return int(row[0])


def patch_position(conn: Connection[Any]) -> str:
    """Return how far a reader of now can see."""
    row = conn.execute("SELECT pgtrickle.patch_position()::text").fetchone()
    assert row is not None
    return str(row[0])
