"""A query to what the server says about it.

The query becomes a temporary view inside a savepoint that is rolled back: the server checks it,
prints it in canonical form and records what it depends on, and nothing of that remains.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection
from psycopg.rows import dict_row

from headwater.algebra.ops import Source
from headwater.algebra.schema import Column, Schema
from headwater.errors import InvalidArgument, UnsupportedQuery
from headwater.sql.relations import Analysis, Attribute, Function, Relation
from headwater.sql.type_catalog import TypeCatalog

_VIEW = "pg_temp.headwater_analysis"
_FUNCTION_OIDS = re.compile(r":(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)")
_VALUE_FUNCTION = re.compile(r"\{SQLVALUEFUNCTION :op (\d+)")
# Printed by the server under a name that is not the function's own.
_PRINTED_AGGREGATES = frozenset({(None, "json_objectagg"), (None, "json_arrayagg")})


@dataclass
class _Findings:
    """What is collected over the query and the views that it reads."""

    relations: dict[tuple[str | None, str], Relation] = field(default_factory=dict)
    functions: set[int] = field(default_factory=set)
    clock: bool = False


def analyse(conn: Connection[Any], query: str) -> Analysis:
    """Ask the server about `query`; its own errors pass unchanged.

    Needs an open transaction. The caller's search_path resolves the names in the query.
    """
    query = query.strip().rstrip(";").strip()
    if not query:
        raise InvalidArgument("the query is empty", "there is nothing to maintain", "give a SELECT")
    types = TypeCatalog(conn)
    findings = _Findings()
    with _undone(conn):
        # binary: the extended protocol, which takes one statement only
        conn.execute(f"CREATE TEMPORARY VIEW {_VIEW} AS {query}", binary=True)
        with _empty_search_path(conn):
            canonical, tree, columns = _read_view(conn, types)
            if not columns:
                raise InvalidArgument(
                    "the query has no columns",
                    "its rows would hold nothing that could be read",
                    "select at least one column",
                )
            _collect(conn, types, findings, _VIEW, tree)
            qualified = _qualified(conn, canonical)
    functions, aggregates = _functions(conn, findings)
    return Analysis(canonical, qualified, columns, findings.relations, aggregates, functions)


@contextmanager
def _undone(conn: Connection[Any]) -> Iterator[None]:
    """Run the block in a savepoint and roll it back."""
    with conn.transaction(force_rollback=True):
        yield


@contextmanager
def _empty_search_path(conn: Connection[Any]) -> Iterator[None]:
    """Make the server qualify every name that it prints; undone with the savepoint around it."""
    conn.execute("SET LOCAL search_path = ''")
    yield


def describe(conn: Connection[Any], select: str) -> Schema:
    """Return the columns of a SELECT with exact types; nothing remains in the database."""
    types = TypeCatalog(conn)
    with _undone(conn), _empty_search_path(conn):
        conn.execute(f"CREATE TEMPORARY VIEW {_VIEW} AS {select}", binary=True)
        return _columns(conn, types, _VIEW)


def _read_view(conn: Connection[Any], types: TypeCatalog) -> tuple[str, str, Schema]:
    row = conn.execute(
        "SELECT pg_get_viewdef(ev_class), ev_action::text FROM pg_rewrite"
        f" WHERE ev_class = '{_VIEW}'::regclass"
    ).fetchone()
    assert row is not None
    return row[0].strip().rstrip(";"), row[1], _columns(conn, types, _VIEW)


def _columns(conn: Connection[Any], types: TypeCatalog, relation: str) -> Schema:
    rows = conn.execute(
        "SELECT attname, atttypid::int8, atttypmod, attcollation::int8 FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (relation,),
    ).fetchall()
    return tuple(Column(name, types.get(*how)) for name, *how in rows)


def _qualified(conn: Connection[Any], canonical: str) -> str:
    """Return the query with every column qualified by its alias.

    The server leaves the alias out only in a top-level query over one relation; inside another
    query it always prints it.
    """
    with _undone(conn):
        conn.execute(
            f"CREATE TEMPORARY VIEW {_VIEW}_qualified AS SELECT * FROM ({canonical}) AS q",
            binary=True,
        )
        row = conn.execute(f"SELECT pg_get_viewdef('{_VIEW}_qualified'::regclass)").fetchone()
    assert row is not None
    return str(row[0])


# --- relations ---

_RELATIONS = """
SELECT c.oid::int8, n.nspname, c.relname, format('%%I.%%I', n.nspname, c.relname) AS shown,
       c.relkind, c.relpersistence, c.relispartition,
       EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid) AS has_parent,
       EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid) AS has_children,
       EXISTS (SELECT FROM pg_partition_tree(c.oid) p JOIN pg_class f ON f.oid = p.relid
                WHERE f.relkind = 'f') AS has_foreign_leaf,
       row_security_active(c.oid) AS row_security,
       n.nspname IN ('pg_catalog', 'information_schema', 'pg_toast') AS is_system,
       CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END AS view_query,
       (SELECT r.ev_action::text FROM pg_rewrite r WHERE r.ev_class = c.oid AND c.relkind = 'v'
         AND r.ev_type = '1') AS view_tree,
       ARRAY(SELECT ARRAY(SELECT a.attname::text
                            FROM unnest(i.indkey[0:i.indnkeyatts - 1]) k(attnum)
                            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum)
                    ::text
               FROM pg_index i JOIN pg_class ic ON ic.oid = i.indexrelid
               JOIN pg_am am ON am.oid = ic.relam AND am.amname = 'btree'
              WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
                AND i.indexprs IS NULL AND i.indimmediate
                AND NOT EXISTS (SELECT FROM unnest(i.indkey[0:i.indnkeyatts - 1]) k(attnum)
                                  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
                                 WHERE NOT a.attnotnull)
              ORDER BY i.indisprimary DESC, i.indnkeyatts, i.indexrelid)::text[] AS keys,
       d.columns AS used
  FROM (SELECT refobjid, array_agg(refobjsubid) AS columns FROM pg_depend
         WHERE classid = 'pg_rewrite'::regclass AND refclassid = 'pg_class'::regclass
           AND objid IN (SELECT oid FROM pg_rewrite WHERE ev_class = %(view)s::regclass)
           AND refobjid <> %(view)s::regclass
         GROUP BY refobjid) AS d
  JOIN pg_class c ON c.oid = d.refobjid JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""


def _collect(
    conn: Connection[Any], types: TypeCatalog, findings: _Findings, view: str, tree: str
) -> None:
    """Add the relations that a view reads and, below views, what those read."""
    findings.functions |= {int(oid) for oid in _FUNCTION_OIDS.findall(tree)}
    findings.clock |= _VALUE_FUNCTION.search(tree) is not None
    with conn.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_RELATIONS, {"view": view}).fetchall()
    for row in rows:
        # what every search_path holds, named or not, is printed without a schema
        is_implicit = row["nspname"] == "pg_catalog" or row["relpersistence"] == "t"
        schema = None if is_implicit else row["nspname"]
        key = schema, row["relname"]
        if key in findings.relations:
            continue
        findings.relations[key] = _relation(conn, types, row)
        if row["relkind"] == "v":
            _collect(conn, types, findings, row["shown"], row["view_tree"])


def _relation(conn: Connection[Any], types: TypeCatalog, row: dict[str, Any]) -> Relation:
    attributes = _attributes(conn, types, row["oid"])
    keys = () if row["relkind"] == "r" and row["has_children"] else row["keys"]
    source = Source(row["oid"], row["shown"], tuple(tuple(_array(key)) for key in keys))
    query = None
    if row["relkind"] == "v":
        query = _qualified(conn, row["view_query"].strip().rstrip(";"))
    used = {attnum for attnum in row["used"] if attnum > 0}
    virtual = [a.name for n, a in attributes if a.is_virtual and n in used]
    obstacle = _obstacle(row, virtual)
    return Relation(source, row["relkind"], tuple(a for _, a in attributes), query, obstacle)


def _array(text: str) -> list[str]:
    """Read a text[] literal of names."""
    items = re.findall(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)', text)
    return [re.sub(r"\\(.)", r"\1", quoted) if quoted else plain for quoted, plain in items]


def _attributes(
    conn: Connection[Any], types: TypeCatalog, oid: int
) -> tuple[tuple[int, Attribute], ...]:
    rows = conn.execute(
        "SELECT attnum, attname, atttypid::int8, atttypmod, attcollation::int8,"
        " attnotnull AND NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = attrelid"
        " AND contype = 'n' AND NOT convalidated AND attnum = ANY (conkey)) AS is_never_null,"
        " attgenerated = 'v' AS is_virtual FROM pg_attribute"
        " WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (oid,),
    ).fetchall()
    return tuple((n, Attribute(name, types.get(*how), nn, v)) for n, name, *how, nn, v in rows)


def _obstacle(row: dict[str, Any], virtual: list[str]) -> tuple[str, str, str] | None:
    """Say why changes of a relation cannot be captured by triggers, or None if they can."""
    name = row["shown"]
    full = "use refresh_mode => 'FULL'"
    cases = (
        (row["relkind"] == "v", "", "", ""),
        (row["is_system"], "is a system catalog", "the server fires no triggers on it", full),
        (
            row["relpersistence"] == "t",
            "is a temporary table",
            "other sessions cannot read it",
            "use a permanent table",
        ),
        (
            row["relpersistence"] == "u",
            "is an unlogged table",
            "a crash empties it without any write that could be captured",
            f"ALTER TABLE {name} SET LOGGED, or {full}",
        ),
        (
            row["relkind"] == "m",
            "is a materialized view",
            "the server fires no triggers when it is refreshed",
            f"make it a stream table with the same query, or {full}",
        ),
        (
            row["relkind"] == "f" or row["has_foreign_leaf"],
            "is a foreign table, or has one as a partition",
            "the server cannot see changes made elsewhere",
            full,
        ),
        (
            row["relispartition"] or row["has_parent"],
            "is a partition or a child of another table",
            "a statement that names the parent fires no trigger of the child",
            f"read the parent, with a condition that picks these rows, or {full}",
        ),
        (
            row["row_security"],
            "has row-level security that applies to the owner of the stream table",
            "captured changes are not filtered by policies",
            f"let a role that no policy applies to own the stream table, or {full}",
        ),
        (
            bool(virtual),
            f"has the virtual generated column {', '.join(virtual)}, which the query reads",
            "its value is not in the rows that triggers see",
            f"make the column STORED, write its expression into the query, or {full}",
        ),
    )
    for applies, what, why, fix in cases:
        if applies:
            return (f"{name} {what}: its changes cannot be captured", why, fix) if what else None
    return None


# --- functions ---


def _functions(
    conn: Connection[Any], findings: _Findings
) -> tuple[tuple[Function, ...], frozenset[tuple[str | None, str]]]:
    rows = conn.execute(
        "SELECT p.proname, n.nspname, p.provolatile, p.prokind, p.proretset FROM pg_proc p"
        " JOIN pg_namespace n ON n.oid = p.pronamespace WHERE p.oid = ANY(%s::int8[]::oid[])"
        " ORDER BY 2, 1",
        (sorted(findings.functions),),
    ).fetchall()
    functions = [Function(n, v, s == "pg_catalog", r) for n, s, v, _, r in rows]
    if findings.clock:
        functions.append(
            Function("CURRENT_TIMESTAMP, CURRENT_USER and their kin", "s", True, False)
        )
    aggregates = {
        (None if s == "pg_catalog" else s, name) for name, s, _, kind, _ in rows if kind == "a"
    }
    plain = {
        (None if s == "pg_catalog" else s, name) for name, s, _, kind, _ in rows if kind == "f"
    }
    _refuse_ambiguous(aggregates & plain)
    return tuple(functions), frozenset(aggregates) | _PRINTED_AGGREGATES


def _refuse_ambiguous(names: Iterable[tuple[str | None, str]]) -> None:
    for schema, name in names:
        raise UnsupportedQuery(
            f"{schema}.{name} names both an aggregate and a plain function in this query",
            "the canonical text does not tell which of the two a call means",
            "rename one of them",
        )
