"""A query to what the server says about it.

The query becomes a temporary view inside a savepoint that is rolled back: the server checks it,
prints it in canonical form and records what it depends on, and nothing of that remains.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from psycopg import Connection, errors
from psycopg.rows import dict_row

from headwater.algebra.ops import Source
from headwater.algebra.schema import Column, Schema
from headwater.errors import InvalidArgument, UnsupportedQuery
from headwater.sql.policies import Policy, condition_for, passes_with_time
from headwater.sql.printed import mended
from headwater.sql.relations import Analysis, Attribute, Function, Relation
from headwater.sql.type_catalog import TypeCatalog

_VIEW = "pg_temp.headwater_analysis"
_FUNCTION_OIDS = re.compile(r":(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)")
_VALUE_FUNCTION = re.compile(r"\{SQLVALUEFUNCTION :op (\d+)")
_FIRST_USER = 9  # those before ask for the time, those from it on for the session
# Printed by the server under a name that is not the function's own.
_PRINTED_AGGREGATES = frozenset({(None, "json_objectagg"), (None, "json_arrayagg")})


@dataclass
class _Findings:
    """What is collected over the query and the views that it reads, by the role that reads it."""

    reader: int
    relations: dict[tuple[str | None, str], Relation] = field(default_factory=dict)
    functions: set[int] = field(default_factory=set)
    user: bool = False


def analyse(conn: Connection[Any], query: str, reader: int | None = None) -> Analysis:
    """Ask the server about `query`; its own errors pass unchanged.

    Needs an open transaction. The caller's search_path resolves the names in the query. What
    row-level security hides, it hides from the `reader`, a role; None: from the current one.
    """
    query = query.strip().rstrip(";").strip()
    if not query:
        raise InvalidArgument("the query is empty", "there is nothing to maintain", "give a SELECT")
    types = TypeCatalog(conn)
    findings = _Findings(_current_role(conn) if reader is None else reader)
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
    functions, aggregates, sets = _functions(conn, findings)
    return Analysis(canonical, qualified, columns, findings.relations, aggregates, sets, functions)


def _current_role(conn: Connection[Any]) -> int:
    [(oid,)] = conn.execute("SELECT current_user::regrole::oid::int8 AS oid").fetchall()
    return int(oid)


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
        try:
            conn.execute(f"CREATE TEMPORARY VIEW {_VIEW} AS {select}", binary=True)
        except errors.InvalidTableDefinition as error:
            raise UnsupportedQuery(
                "a part of the query gives a record, whose columns have no declared types",
                "values of type record cannot be stored",
                "use the columns one by one, or a composite type, or refresh_mode => 'FULL'",
            ) from error
        return _columns(conn, types, _VIEW)


def _read_view(conn: Connection[Any], types: TypeCatalog) -> tuple[str, str, Schema]:
    row = conn.execute(
        "SELECT pg_get_viewdef(ev_class), ev_action::text FROM pg_rewrite"
        f" WHERE ev_class = '{_VIEW}'::regclass"
    ).fetchone()
    assert row is not None
    return mended(row[0]).strip().rstrip(";"), row[1], _columns(conn, types, _VIEW)


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
    return mended(row[0])


# --- relations ---

_RELATIONS = """
SELECT c.oid::int8, n.nspname, c.relname, format('%%I.%%I', n.nspname, c.relname) AS shown,
       c.relkind, c.relpersistence, c.relispartition,
       EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid) AS has_parent,
       EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid) AS has_children,
       EXISTS (SELECT FROM pg_partition_tree(c.oid) p JOIN pg_class f ON f.oid = p.relid
                WHERE f.relkind = 'f') AS has_foreign_leaf,
       ARRAY(SELECT r.oid::int8 FROM pg_roles r
              WHERE c.relrowsecurity AND NOT (r.rolsuper OR r.rolbypassrls)
                AND (c.relforcerowsecurity OR NOT pg_has_role(r.oid, c.relowner, 'USAGE'))
                AND r.oid IN (%(reader)s::int8::oid, (SELECT v.relowner FROM pg_class v
                                                       WHERE v.oid = %(view)s::regclass))
       ) AS hides_from,
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
       ARRAY(SELECT a.attname::text FROM pg_attribute a
              WHERE a.attrelid = c.oid AND a.attnum = ANY (d.columns)) AS used
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
    _note_functions(findings, tree)
    with conn.cursor(row_factory=dict_row) as cursor:
        asked = {"view": view, "reader": findings.reader}
        rows = cursor.execute(_RELATIONS, asked).fetchall()
    for row in rows:
        # what every search_path holds, named or not, is printed without a schema
        is_implicit = row["nspname"] == "pg_catalog" or row["relpersistence"] == "t"
        schema = None if is_implicit else row["nspname"]
        key = schema, row["relname"]
        if key in findings.relations:
            known = findings.relations[key]
            obstacle = known.obstacle or _obstacle_of_view(row, view)
            used = known.used | _used(known, row)
            findings.relations[key] = replace(known, used=used, obstacle=obstacle)
            continue
        found = _relation(conn, types, row)
        obstacle = found.obstacle or _obstacle_of_view(row, view)
        found = replace(found, used=_used(found, row), obstacle=obstacle)
        findings.relations[key] = (
            _with_policy(conn, findings, found) if findings.reader in row["hides_from"] else found
        )
        if row["relkind"] == "v":
            _collect(conn, types, findings, row["shown"], row["view_tree"])


def _note_functions(findings: _Findings, tree: str) -> None:
    findings.functions |= {int(oid) for oid in _FUNCTION_OIDS.findall(tree)}
    findings.user |= any(int(op) >= _FIRST_USER for op in _VALUE_FUNCTION.findall(tree))


def _used(relation: Relation, row: dict[str, Any]) -> frozenset[str]:
    """Return the columns that one query depends on; what is inside a view is asked of that."""
    return frozenset(row["used"]) if relation.query is None else frozenset()


def _relation(conn: Connection[Any], types: TypeCatalog, row: dict[str, Any]) -> Relation:
    attributes = _attributes(conn, types, row["oid"])
    keys = () if row["relkind"] == "r" and row["has_children"] else row["keys"]
    source = Source(row["oid"], row["shown"], tuple(tuple(_array(key)) for key in keys))
    query = None
    if row["relkind"] == "v":
        query = _qualified(conn, mended(row["view_query"]).strip().rstrip(";"))
    virtual = _virtual(conn, row["shown"], attributes)
    return Relation(source, row["relkind"], attributes, query, _obstacle(row), virtual)


def _with_policy(conn: Connection[Any], findings: _Findings, relation: Relation) -> Relation:
    """Add what row-level security lets the reader see, and the functions that this calls."""
    [(recorded,)] = conn.execute(
        "SELECT pgtrickle.policy_of(%s::int8::oid, %s::int8::oid)",
        (relation.source.oid, findings.reader),
    ).fetchall()
    condition, name = condition_for(recorded), relation.source.name
    select = f"SELECT ({condition}) AS visible FROM {name} AS source"
    with _undone(conn):
        conn.execute(f"CREATE TEMPORARY VIEW {_VIEW}_policy AS {select}", binary=True)
        row = conn.execute(
            f"SELECT ev_action::text FROM pg_rewrite WHERE ev_class = '{_VIEW}_policy'::regclass"
        ).fetchone()
    assert row is not None
    if "{SUBLINK" in row[0] or passes_with_time(condition):
        refusal = _hidden(name, "it hides them by other tables, or as time passes")
        return replace(relation, policy=Policy(recorded, None), obstacle=refusal)
    _note_functions(findings, row[0])
    return replace(relation, policy=Policy(recorded, _qualified(conn, select)))


def _obstacle_of_view(row: dict[str, Any], view: str) -> tuple[str, str, str] | None:
    """A view shows what its owner sees, and is taken apart into what the stream table's sees."""
    if view == _VIEW or not row["hides_from"]:
        return None
    return _hidden(row["shown"], f"{view} reads it with the rights of its own owner")


def _hidden(name: str, why: str) -> tuple[str, str, str]:
    return (
        f"{name} has row-level security whose effect cannot be followed",
        why,
        "let a role that no policy applies to own the stream table and the views in its query,"
        " or use refresh_mode => 'FULL'",
    )


def _virtual(conn: Connection[Any], shown: str, attributes: tuple[Attribute, ...]) -> str | None:
    """Return the qualified SELECT of the virtual columns of a table; None if it has none."""
    outputs = [
        f"({a.generated})::{a.type.name}"
        + (f" COLLATE {a.type.collation}" if a.type.collation else "")
        for a in attributes
        if a.generated is not None
    ]
    named = ", ".join(f"{output} AS c{at}" for at, output in enumerate(outputs))
    return _qualified(conn, f"SELECT {named} FROM {shown} AS source") if outputs else None


def _array(text: str) -> list[str]:
    """Read a text[] literal of names."""
    items = re.findall(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)', text)
    return [re.sub(r"\\(.)", r"\1", quoted) if quoted else plain for quoted, plain in items]


def _attributes(conn: Connection[Any], types: TypeCatalog, oid: int) -> tuple[Attribute, ...]:
    rows = conn.execute(
        "SELECT attname, atttypid::int8, atttypmod, attcollation::int8,"
        " attnotnull AND NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = attrelid"
        " AND contype = 'n' AND NOT convalidated AND attnum = ANY (conkey)) AS is_never_null,"
        " (SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = attrelid"
        " AND adnum = attnum AND attgenerated = 'v') AS generated FROM pg_attribute"
        " WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (oid,),
    ).fetchall()
    return tuple(Attribute(name, types.get(*how), nn, v) for name, *how, nn, v in rows)


def _obstacle(row: dict[str, Any]) -> tuple[str, str, str] | None:
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
    )
    for applies, what, why, fix in cases:
        if applies:
            return (f"{name} {what}: its changes cannot be captured", why, fix) if what else None
    return None


# --- functions ---


Named = frozenset[tuple[str | None, str]]


def _functions(
    conn: Connection[Any], findings: _Findings
) -> tuple[tuple[Function, ...], Named, Named]:
    """Return the functions of the query, the names of aggregates, and of those that return sets."""
    rows = conn.execute(
        "SELECT p.proname, CASE WHEN n.nspname <> 'pg_catalog' THEN n.nspname END, p.provolatile,"
        " p.prokind, p.proretset, p.oid::int8"
        " FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
        " WHERE p.oid = ANY(%s::int8[]::oid[]) ORDER BY n.nspname, p.proname",
        (sorted(findings.functions),),
    ).fetchall()
    functions = [Function(name, how, s is None, oid) for name, s, how, _, _, oid in rows]
    if findings.user:
        functions.append(Function("CURRENT_USER or one of its kin", "s", True))
    aggregates = {(s, name) for name, s, _, kind, _, _ in rows if kind == "a"}
    plain = {(s, name) for name, s, _, kind, _, _ in rows if kind == "f"}
    sets = {(s, name) for name, s, _, _, returns_set, _ in rows if returns_set}
    _refuse_ambiguous(aggregates & plain)
    return tuple(functions), frozenset(aggregates) | _PRINTED_AGGREGATES, frozenset(sets)


def _refuse_ambiguous(names: Iterable[tuple[str | None, str]]) -> None:
    for schema, name in names:
        raise UnsupportedQuery(
            f"{schema}.{name} names both an aggregate and a plain function in this query",
            "the canonical text does not tell which of the two a call means",
            "rename one of them",
        )
