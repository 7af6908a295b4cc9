"""Polling: sources whose changes nobody captures, followed by comparing snapshots.

A materialized view or foreign table gets a *mirror*, a stream table of all its rows in FULL mode:
each refresh reads the source and writes what differs into the mirror, whose changes are captured as
those of any stream table. The query is maintained over mirrors. The last reader takes its mirror
along.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

from psycopg import Connection

from headwater.api.create import Request, create_stream_table, make_request
from headwater.api.drop import drop_stream_table
from headwater.api.sources import reads
from headwater.catalog import streams
from headwater.catalog.model import follows_writers
from headwater.catalog.names import qualified_name
from headwater.errors import HeadwaterError, InvalidArgument
from headwater.graph import inverted
from headwater.results import Created
from headwater.sql.analyse import analyse
from headwater.sql.relations import Relation
from headwater.sql.relocate import Name, with_relations

_SCHEMA, _PREFIX = "pgtrickle_state", "mirror_"
_POLLED = ("m", "f")  # pg_class.relkind


def create_polled(conn: Connection[Any], request: Request) -> Created:
    """Create a stream table that reads mirrors where the server tells of no changes."""
    if follows_writers(request.mode):
        raise InvalidArgument(
            f"cdc_mode 'poll' with refresh_mode {request.mode}",
            "sources are polled when a stream table is refreshed, and no write would do that",
            "use refresh_mode DIFFERENTIAL with a schedule",
        )
    with conn.transaction(force_rollback=True):
        analysis = analyse(conn, request.query)
    polled = {k: r for k, r in analysis.relations.items() if r.kind in _POLLED}
    made: list[str] = []
    mirrors: dict[Name, str] = {}
    try:
        for key, relation in polled.items():
            known = _find_mirror(conn, relation)
            mirrors[key] = known or _mirror(conn, relation, request)
            made += [] if known else [mirrors[key]]
        query = with_relations(analysis, mirrors)
        created = create_stream_table(conn, replace(request, query=query))
    except HeadwaterError:
        for name in made:
            drop_stream_table(conn, name)
        raise
    return created


def _find_mirror(conn: Connection[Any], relation: Relation) -> str | None:
    """Return the mirror of a relation, by what it reads: its name may have the oid that the
    relation had in the database that this one is a copy of."""
    row = conn.execute(
        "SELECT format('%%I.%%I', st.pgt_schema, st.pgt_name) FROM pgtrickle.pgt_stream_tables st"
        " JOIN pgtrickle.pgt_dependencies d USING (pgt_id) WHERE st.pgt_schema = %s"
        " AND starts_with(st.pgt_name, %s) AND d.source_relid = %s::int8::oid",
        (_SCHEMA, _PREFIX, relation.source.oid),
    ).fetchone()
    return row[0] if row else None


def _free_name(conn: Connection[Any], relation: Relation) -> str:
    names = (f"{_PREFIX}{relation.source.oid}{'_' * more}" for more in count())
    shown = (qualified_name(_SCHEMA, name) for name in names)
    return next(name for name in shown if streams.find_stream_table(conn, name) is None)


def _mirror(conn: Connection[Any], relation: Relation, request: Request) -> str:
    options = {
        "refresh_mode": "FULL",
        "schedule": None,
        "engine": "postgres",
        "cdc_mode": None,
        "initialize": request.initialize,
        "publish": True,
    }
    name = _free_name(conn, relation)
    query = f"SELECT * FROM {relation.source.name}"
    create_stream_table(conn, make_request(conn, name, query, options))
    return name


def list_unread(conn: Connection[Any]) -> list[str]:
    """Return the mirrors that no stream table reads any more."""
    readers = inverted(reads(conn))
    return [
        st.qualified_name
        for st in streams.list_stream_tables(conn)
        if st.pgt_schema == _SCHEMA and st.pgt_name.startswith(_PREFIX)
        if not readers.get(st.pgt_relid)
    ]


def drop_unread(conn: Connection[Any]) -> None:
    """Drop those."""
    for name in list_unread(conn):
        drop_stream_table(conn, name)
