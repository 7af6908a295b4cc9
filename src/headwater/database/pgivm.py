"""The functions of pg_ivm as verbs: each IMMV is an IMMEDIATE stream table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import psycopg
from psycopg import Connection

from headwater.api.create import create_stream_table, make_request
from headwater.api.facade import Headwater
from headwater.api.immediate import suspend
from headwater.catalog import streams
from headwater.catalog.model import StreamTable
from headwater.catalog.names import quote_identifier, split_name
from headwater.errors import ForeignExtension, InvalidArgument
from headwater.postgres.quote import identifier, listed
from headwater.postgres.storage import empty_states
from headwater.sql.analyse import describe

OURS = "headwater:"  # begins the comment on a schema that we made
_WITH_COLUMNS = re.compile(r'\s*((?:"(?:[^"]|"")*"|[^"(])+)\((.*)\)\s*', re.DOTALL)
_COLUMN = re.compile(r'\s*("(?:[^"]|"")+"|[^\s",()]+)\s*(,|$)')
_OPTIONS = {
    "schedule": None,
    "refresh_mode": "IMMEDIATE",
    "initialize": True,
    "engine": "postgres",
    "cdc_mode": None,
    "publish": True,
}


def create_immv(hw: Headwater, arguments: Mapping[str, Any]) -> Any:
    """Create an IMMV; the name may carry a list of column names."""
    return _create(hw.connection, arguments, adopt=False)


def restore_immv(hw: Headwater, arguments: Mapping[str, Any]) -> Any:
    """Make an IMMV out of a table that is there, with rows computed anew."""
    return _create(hw.connection, arguments, adopt=True)


def _create(conn: Connection[Any], arguments: Mapping[str, Any], *, adopt: bool) -> Any:
    name, columns = split_columns(arguments["immv"])
    query = _renamed(conn, str(arguments["view_definition"]), columns)
    if adopt:
        _drop_hidden(conn, name)
    request = make_request(conn, name, query, {**_OPTIONS, "adopt": adopt})
    made = create_stream_table(conn, request)
    st = streams.get_stream_table(conn, made.name)
    _depend(conn, st)
    return {"rows": _count(conn, st), "warnings": [*made.warnings, *_index_notes(st)]}


def _depend(conn: Connection[Any], st: StreamTable) -> None:
    """Let the server know which tables the IMMV reads, so that only CASCADE drops them.

    Not so stream tables: they may be built anew. Without the event trigger that takes the view away
    again, it would outlive the IMMV.
    """
    row = conn.execute(_READS, [st.pgt_id]).fetchone()
    if row is None or not row[0]:
        return
    conn.execute("SELECT set_config('pg_trickle.installing', 'on', true)")
    conn.execute(
        f"CREATE OR REPLACE VIEW pgtrickle_state.reads_{st.pgt_id} AS SELECT FROM {listed(row[0])}"
    )
    conn.execute("SELECT set_config('pg_trickle.installing', 'off', true)")


_READS = """
SELECT ARRAY(SELECT d.source_relid::regclass::text FROM pgtrickle.pgt_dependencies d
               JOIN pg_class c ON c.oid = d.source_relid
              WHERE d.pgt_id = %s AND c.relkind IN ('r', 'p')
                AND d.source_relid NOT IN (SELECT pgt_relid FROM pgtrickle.pgt_stream_tables
                                            WHERE pgt_relid IS NOT NULL)
              ORDER BY d.source_relid)
 WHERE EXISTS (SELECT FROM pg_event_trigger WHERE evtname = 'pgivm_follow_drop')
"""


def refresh_immv(hw: Headwater, arguments: Mapping[str, Any]) -> Any:
    """Compute an IMMV anew, or empty it and let writers go by until it is computed again."""
    conn = hw.connection
    st = streams.get_stream_table(conn, str(arguments["immv"]))
    if st.refresh_mode != "IMMEDIATE":
        raise InvalidArgument(
            f"{st.qualified_name} is not an IMMV",
            f"it is a stream table with refresh_mode {st.refresh_mode}",
            "call pgtrickle.refresh_stream_table",
        )
    if arguments["with_data"]:
        hw.alter_stream_table(st.qualified_name, status="ACTIVE")
        return {"rows": _count(conn, streams.get_by_id(conn, st.pgt_id))}
    suspend(conn, st)
    _empty(conn, st)
    return {"rows": 0}


def install_pgivm(conn: Connection[Any]) -> None:
    """Create the schema pgivm; raise ForeignExtension where a real pg_ivm, or anybody, has it."""
    with conn.transaction():
        refuse_foreign(conn)
        conn.execute("SELECT set_config('search_path', 'pg_catalog, pg_temp', true)")
        conn.execute((files("headwater.database") / "pgivm.sql").read_bytes())


def refuse_foreign(conn: Connection[Any]) -> None:
    """Raise ForeignExtension if the schema pgivm is there and not ours."""
    row = conn.execute(
        "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_ivm'),"
        " to_regnamespace('pgivm') IS NOT NULL AND NOT starts_with(coalesce("
        " obj_description(to_regnamespace('pgivm'), 'pg_namespace'), ''), %s)",
        [OURS],
    ).fetchone()
    assert row is not None
    if row[0] or row[1]:
        raise ForeignExtension(
            "the functions of pg_ivm cannot be installed beside "
            + ("the extension pg_ivm" if row[0] else "a schema pgivm that is not ours"),
            "they have the same names, and what is there is left alone",
            "leave them out with --no-pgivm; to move over, see docs/how-to/from-pg-ivm.md",
        )


def split_columns(given: str) -> tuple[str, tuple[str, ...]]:
    """Split `name(a, b)` into the name and the names of its columns."""
    found = _WITH_COLUMNS.fullmatch(given)
    if found is None:
        return given, ()
    columns, at, is_whole = [], 0, False
    while not is_whole and (match := _COLUMN.match(found[2], at)):
        columns.append(split_name(match[1])[1])
        at, is_whole = match.end(), not match[2]
    if not is_whole:
        raise InvalidArgument(
            f"{given!r} is not the name of an IMMV",
            "it is a name, or a name with a list of columns in parentheses",
            "write it like totals or totals(customer, amount)",
        )
    return found[1], tuple(columns)


def _renamed(conn: Connection[Any], query: str, columns: tuple[str, ...]) -> str:
    """Give the first columns of a query the names in the list, as CREATE VIEW does."""
    if not columns:
        return query
    query = query.strip().rstrip(";").strip()
    try:
        named = describe_here(conn, query, columns)
    except psycopg.errors.SyntaxError as error:
        stored = describe_here(conn, query)  # in which an error of the query itself comes again
        if len(columns) <= len(stored):
            raise
        raise InvalidArgument(
            "too many column names were specified",
            f"the query has {len(stored)} columns, the list {len(columns)}",
            "leave some out",
        ) from error
    names = listed(map(identifier, named))
    return f"SELECT {names} FROM ({query}) AS named ({names})"


def describe_here(conn: Connection[Any], query: str, columns: tuple[str, ...] = ()) -> list[str]:
    """Return the names of a query's columns, the first as given, under the caller's search_path."""
    given = f" ({listed(map(identifier, columns))})" if columns else ""
    with conn.transaction(force_rollback=True):
        conn.execute(f"CREATE TEMPORARY VIEW headwater_columns{given} AS {query}", binary=True)
        return [c.name for c in describe(conn, "SELECT * FROM pg_temp.headwater_columns")]


def _drop_hidden(conn: Connection[Any], name: str) -> None:
    """Drop the columns in which pg_ivm keeps its counters."""
    shown = ".".join(quote_identifier(part) for part in split_name(name) if part is not None)
    rows = conn.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0"
        " AND starts_with(attname, '__ivm_') AND NOT attisdropped",
        [shown],
    ).fetchall()
    for (column,) in rows:
        conn.execute(f"ALTER TABLE {shown} DROP COLUMN {identifier(column)}")


def _empty(conn: Connection[Any], st: StreamTable) -> None:
    """Take all rows away; those who read the table follow."""
    conn.execute("SELECT set_config('pg_trickle.refreshing', 'on', true)")
    conn.execute(f"DELETE FROM {st.qualified_name}")
    conn.execute("SELECT set_config('pg_trickle.refreshing', 'off', true)")
    empty_states(conn, st)
    streams.update_stream_table(conn, st.pgt_id, is_populated=False)


def _count(conn: Connection[Any], st: StreamTable) -> int:
    row = conn.execute(f"SELECT count(*) FROM {st.qualified_name}").fetchone()
    assert row is not None
    return int(row[0])


def _index_notes(st: StreamTable) -> list[str]:
    """Say on which columns the rows are unique, as pg_ivm says whether it made an index."""
    if not st.key_columns:
        return [f"no unique index on {st.qualified_name}: its rows have no key"]
    return [f"created a unique index on {st.qualified_name} ({', '.join(st.key_columns)})"]
