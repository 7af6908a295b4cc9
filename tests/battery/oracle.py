"""The oracle: a query and the table that should equal it, EXCEPT ALL both ways.

It knows nothing of headwater: the table is whatever stands there, the query is the user's text, and
both are read through a connection of the test's own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import psycopg

Connection = psycopg.Connection[Any]

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attcollation::regcollation::text
  FROM pg_attribute a
 WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
# Values of types without an equality, and rows that may hold some, are compared by their text.
_SHOWN = """
SELECT coalesce(string_agg(format(CASE WHEN t.typtype = 'c' OR t.typname = ANY (%s) THEN '%%I::text'
                                       ELSE '%%I' END, a.attname), ', ' ORDER BY a.attnum), '')
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
 WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
"""
_WITHOUT = ["json", "xml", "point", "box", "path", "polygon", "line", "circle", "lseg"]
_BY_TEXT = [*_WITHOUT, *(f"_{name}" for name in _WITHOUT)]  # and arrays of them

Column = tuple[str, str, str]


def columns_of(conn: Connection, relation: str) -> list[Column]:
    """Return name, type and collation of a relation's columns."""
    return conn.execute(_COLUMNS, [relation]).fetchall()


def columns_of_query(conn: Connection, query: str) -> list[Column]:
    """Return name, type and collation of a query's columns, as the server sees them."""
    with conn.transaction(force_rollback=True):
        conn.execute(f"CREATE TEMPORARY VIEW probe AS {query}".encode())
        return columns_of(conn, "pg_temp.probe")


def find_difference(conn: Connection, query: str, table: str) -> str | None:
    """Return the rows that the table lacks or has too many, or None if both are the same bag."""
    [(shown,)] = conn.execute(_SHOWN, [_BY_TEXT, table]).fetchall()
    wanted, stored = (f"SELECT {shown} FROM ({part}) AS q" for part in (query, f"TABLE {table}"))
    missing = conn.execute(_first(f"{wanted} EXCEPT ALL {stored}")).fetchall()
    extra = conn.execute(_first(f"{stored} EXCEPT ALL {wanted}")).fetchall()
    return f"missing {missing}, extra {extra}" if missing or extra else None


def difference_test(conn: Connection, query: str, table: str) -> bytes:
    """Return the statement that tells whether query and table differ."""
    [(shown,)] = conn.execute(_SHOWN, [_BY_TEXT, table]).fetchall()
    wanted, stored = (f"SELECT {shown} FROM ({part}) AS q" for part in (query, f"TABLE {table}"))
    return (
        f"SELECT EXISTS ({wanted} EXCEPT ALL {stored}) OR EXISTS ({stored} EXCEPT ALL {wanted})"
    ).encode()


def _first(query: str) -> bytes:
    return f"SELECT * FROM ({query}) AS q LIMIT 4".encode()


Places = Mapping[str, frozenset[str]]


def places_of(conn: Connection, table: str) -> Places:
    """Return for each row, as text, where its copies are stored."""
    found: dict[str, set[str]] = defaultdict(set)
    for image, place in conn.execute(
        f"SELECT __t::text, __t.ctid::text FROM {table} AS __t".encode()
    ):
        found[image].add(place)
    return {image: frozenset(places) for image, places in found.items()}


def find_moved(before: Places, after: Places) -> list[str]:
    """Return rows that were there before and after, yet were written again."""
    return [
        image
        for image, count in Counter({i: len(p) for i, p in before.items()}).items()
        if len(before[image] & after.get(image, frozenset()))
        < min(count, len(after.get(image, frozenset())))
    ]
