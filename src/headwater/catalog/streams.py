"""Turns names, ids and relations into stream tables and their dependencies, and records both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches

from psycopg import sql

from headwater.catalog.alerts import send_alert
from headwater.catalog.model import Dependency, NewStreamTable, StreamTable
from headwater.catalog.names import quote_identifier, split_name
from headwater.catalog.rows import (
    Connection,
    assignments,
    columns_of,
    cursor_of,
    fetch_scalar,
    identifiers,
    names_of,
    parameters,
    parameters_of,
    placeholders,
)
from headwater.errors import InvalidArgument, NotFound

_SELECT = sql.SQL("SELECT {} FROM pgtrickle.pgt_stream_tables ").format(columns_of(StreamTable))
_INSERT = sql.SQL(
    "INSERT INTO pgtrickle.pgt_stream_tables ({}) VALUES ({}) RETURNING pgt_id"
).format(identifiers(names_of(NewStreamTable)), placeholders(names_of(NewStreamTable)))
_SELECT_DEPENDENCIES = sql.SQL("SELECT {} FROM pgtrickle.pgt_dependencies ").format(
    columns_of(Dependency)
)
_INSERT_DEPENDENCY = sql.SQL("INSERT INTO pgtrickle.pgt_dependencies ({}) VALUES ({})").format(
    identifiers(names_of(Dependency)), placeholders(names_of(Dependency))
)
_CHANGEABLE = frozenset(names_of(NewStreamTable))
_MOST_LISTED = 10


def find_stream_table(conn: Connection, name: str) -> StreamTable | None:
    """Return the stream table called `name`, or None.

    `name` is bare or qualified, quoted or not, and means what it means to PostgreSQL under the
    search_path of `conn`. A table that was dropped by hand is found by its name in the catalog.
    """
    parts = (quote_identifier(part) for part in split_name(name) if part is not None)
    return _find(conn, sql.SQL("pgt_id = pgtrickle.stream_table_id(%s)"), ".".join(parts))


def get_stream_table(conn: Connection, name: str) -> StreamTable:
    """Return the stream table called `name`; raise NotFound, with similar names, if none is."""
    found = find_stream_table(conn, name)
    if found is None:
        raise _not_found(conn, name)
    return found


def get_by_id(conn: Connection, pgt_id: int) -> StreamTable:
    """Return the stream table with that id; raise NotFound if there is none."""
    found = _find(conn, sql.SQL("pgt_id = %s"), pgt_id)
    if found is None:
        raise _no_such_id(pgt_id)
    return found


def owner_of(conn: Connection, relid: int) -> int:
    """Return the role that has a relation."""
    row = conn.execute(
        "SELECT relowner::int8 FROM pg_class WHERE oid = %s::int8::oid", [relid]
    ).fetchone()
    assert row is not None
    return int(row[0])


def find_by_relid(conn: Connection, relid: int) -> StreamTable | None:
    """Return the stream table that is stored in relation `relid`, or None."""
    return _find(conn, sql.SQL("pgt_relid = %s::oid"), relid)


def list_stream_tables(conn: Connection) -> tuple[StreamTable, ...]:
    """Return every stream table, oldest first."""
    with cursor_of(conn, StreamTable) as cursor:
        return tuple(cursor.execute(_SELECT + sql.SQL("ORDER BY pgt_id")))


def list_dependents(conn: Connection, relid: int) -> tuple[StreamTable, ...]:
    """Return the stream tables that read relation `relid` directly, oldest first."""
    condition = sql.SQL(
        "WHERE pgt_id IN (SELECT pgt_id FROM pgtrickle.pgt_dependencies"
        " WHERE source_relid = %s::oid) ORDER BY pgt_id"
    )
    with cursor_of(conn, StreamTable) as cursor:
        return tuple(cursor.execute(_SELECT + condition, [relid]))


def record_stream_table(conn: Connection, st: NewStreamTable) -> int:
    """Record a new stream table and return its id."""
    return int(fetch_scalar(conn, _INSERT, parameters_of(st)))


def update_stream_table(conn: Connection, pgt_id: int, **changes: object) -> None:
    """Set columns of one stream table, and updated_at; raise NotFound if it is gone."""
    unknown = sorted(changes.keys() - _CHANGEABLE)
    if unknown:
        raise InvalidArgument(
            f"a stream table has no column {', '.join(unknown)} that can be changed",
            why=f"the columns that can be are {', '.join(sorted(_CHANGEABLE))}",
            fix="name one of those",
        )
    setters = [sql.SQL("updated_at = now()")]
    query = sql.SQL("UPDATE pgtrickle.pgt_stream_tables SET {} WHERE pgt_id = {}").format(
        sql.SQL(", ").join([*setters, assignments(changes)] if changes else setters),
        sql.Literal(pgt_id),
    )
    if conn.execute(query, parameters(changes)).rowcount == 0:
        raise _no_such_id(pgt_id)


def mark_for_rebuild(conn: Connection, pgt_ids: Iterable[int], why: str) -> None:
    """Have stream tables computed anew by their next refresh; an earlier reason stays."""
    marked = conn.execute(
        "UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true, reinit_reason = %s,"
        " updated_at = now() WHERE pgt_id = ANY (%s) AND NOT needs_reinit"
        " RETURNING format('%%I.%%I', pgt_schema, pgt_name) AS name",
        [why, list(pgt_ids)],
    ).fetchall()
    for (name,) in marked:
        send_alert(conn, "reinitialize_needed", name, reason=why)


def drop_stream_table_rows(conn: Connection, pgt_id: int) -> None:
    """Delete a stream table's rows, its dependencies, history and group memberships included.

    Capture of its sources is not touched: `pgt_change_tracking` still names the id.
    """
    conn.execute(
        "UPDATE pgtrickle.pgt_refresh_groups SET members = array_remove(members, %(id)s::bigint)"
        " WHERE %(id)s::bigint = ANY (members)",
        {"id": pgt_id},
    )
    conn.execute("DELETE FROM pgtrickle.pgt_stream_tables WHERE pgt_id = %s", [pgt_id])


def record_dependencies(conn: Connection, pgt_id: int, dependencies: Iterable[Dependency]) -> None:
    """Make `dependencies` the dependencies of `pgt_id`, whatever id they carry, and no others."""
    conn.execute("DELETE FROM pgtrickle.pgt_dependencies WHERE pgt_id = %s", [pgt_id])
    rows = [parameters_of(replace(dependency, pgt_id=pgt_id)) for dependency in dependencies]
    with conn.cursor() as cursor:
        cursor.executemany(_INSERT_DEPENDENCY, rows)


def record_function_uses(conn: Connection, pgt_id: int, functions: Iterable[int]) -> None:
    """Make these the functions whose replacement a stream table notices, and no others."""
    conn.execute("DELETE FROM pgtrickle.pgt_function_uses WHERE pgt_id = %s", [pgt_id])
    conn.execute(
        "INSERT INTO pgtrickle.pgt_function_uses (pgt_id, function_oid, function_name, fingerprint)"
        " SELECT %s, p.oid, format('%%I.%%I(%%s)', n.nspname, p.proname,"
        " oidvectortypes(p.proargtypes)), pgtrickle.function_fingerprint(p.oid)"
        " FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
        " WHERE p.oid = ANY (%s::int8[]::oid[])",
        [pgt_id, list(functions)],
    )


def list_dependencies(conn: Connection, pgt_id: int) -> tuple[Dependency, ...]:
    """Return what one stream table reads, by name."""
    condition = sql.SQL("WHERE pgt_id = %s ORDER BY source_name, source_relid")
    with cursor_of(conn, Dependency) as cursor:
        return tuple(cursor.execute(_SELECT_DEPENDENCIES + condition, [pgt_id]))


def list_all_dependencies(conn: Connection) -> tuple[Dependency, ...]:
    """Return what every stream table reads, by stream table, then by name."""
    order = sql.SQL("ORDER BY pgt_id, source_name, source_relid")
    with cursor_of(conn, Dependency) as cursor:
        return tuple(cursor.execute(_SELECT_DEPENDENCIES + order))


def _find(conn: Connection, condition: sql.SQL, value: object) -> StreamTable | None:
    with cursor_of(conn, StreamTable) as cursor:
        return cursor.execute(_SELECT + sql.SQL("WHERE ") + condition, [value]).fetchone()


def _not_found(conn: Connection, name: str) -> NotFound:
    known = list_stream_tables(conn)
    similar = [st.qualified_name for st in known if _is_similar(name, st)]
    listing = [st.qualified_name for st in known[:_MOST_LISTED]] or ["none"]
    more = ["…"] if len(known) > _MOST_LISTED else []
    return NotFound(
        f"there is no stream table {name}",
        why=f"this database has {len(known)} stream tables: {', '.join(listing + more)}",
        fix=f"did you mean {' or '.join(similar[:3])}?" if similar else "create it first",
    )


def _is_similar(name: str, st: StreamTable) -> bool:
    """Compare without regard to quotes and case, with and without the schema."""
    given = name.replace('"', "").lower()
    known = (st.pgt_name.lower(), f"{st.pgt_schema}.{st.pgt_name}".lower())
    return bool(get_close_matches(given, known)) or given.endswith(f".{known[0]}")


def _no_such_id(pgt_id: int) -> NotFound:
    return NotFound(
        f"there is no stream table with the id {pgt_id}",
        why="it was dropped, or never existed",
        fix="see pgtrickle.pgt_stream_tables for those that exist",
    )
