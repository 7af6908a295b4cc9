"""What the server knows about types: names, collations, equality."""

from __future__ import annotations

from typing import Any

from psycopg import Connection, sql

from headwater.algebra.schema import SqlType

# Types whose equal values are the same bytes; text types also need a deterministic collation.
_IMAGES = {
    *("bool", "bytea", "char", "name", "int8", "int2", "int4", "text", "oid", "varchar", "date"),
    *("time", "timestamp", "timestamptz", "timetz", "uuid", "macaddr", "macaddr8", "bit", "varbit"),
    *("xid8", "pg_lsn", "money", "inet", "cidr"),
}
_IMAGES_WITH_LENGTH = {"numeric", "bpchar"}  # a fixed scale or width makes the image unique

_DESCRIBE = """
WITH RECURSIVE base AS (
    SELECT t.oid, t.typbasetype, t.typtype FROM pg_type t WHERE t.oid = %(oid)s
    UNION ALL
    SELECT t.oid, t.typbasetype, t.typtype FROM base b JOIN pg_type t ON t.oid = b.typbasetype
)
SELECT t.typname, n.nspname = 'pg_catalog' AS built_in, t.typtype = 'e' AS is_enum,
       format_type(%(oid)s, %(typmod)s) AS name,
       (SELECT format('%%I.%%I', cn.nspname, c.collname) FROM pg_collation c
          JOIN pg_namespace cn ON cn.oid = c.collnamespace
         WHERE c.oid = %(collation)s) AS collation,
       coalesce((SELECT c.collisdeterministic FROM pg_collation c
                  WHERE c.oid = %(collation)s), true)
           AS deterministic,
       (SELECT format('OPERATOR(%%I.%%s)', opn.nspname, o.oprname)
          FROM pg_opclass oc
          JOIN pg_am am ON am.oid = oc.opcmethod AND am.amname IN ('btree', 'hash')
          JOIN pg_amop ao ON ao.amopfamily = oc.opcfamily AND ao.amoplefttype = t.oid
               AND ao.amoprighttype = t.oid
               AND ao.amopstrategy = CASE am.amname WHEN 'btree' THEN 3 ELSE 1 END
          JOIN pg_operator o ON o.oid = ao.amopopr JOIN pg_namespace opn ON opn.oid = o.oprnamespace
         WHERE oc.opcintype = t.oid AND oc.opcdefault AND opn.nspname <> 'pg_catalog'
         ORDER BY am.amname LIMIT 1) AS own_operator
  FROM base b JOIN pg_type t ON t.oid = b.oid JOIN pg_namespace n ON n.oid = t.typnamespace
 WHERE b.typtype <> 'd'
"""


class TypeCatalog:
    """Types of one database, asked once each; names are printed for an empty search_path."""

    def __init__(self, conn: Connection[Any]) -> None:
        self._conn = conn
        self._known: dict[tuple[int, int, int], SqlType] = {}

    def get(self, oid: int, typmod: int, collation: int) -> SqlType:
        """Return the type of a column as pg_attribute describes it."""
        key = oid, typmod, collation
        if key not in self._known:
            self._known[key] = self._describe(*key)
        return self._known[key]

    def _describe(self, oid: int, typmod: int, collation: int) -> SqlType:
        arguments = {"oid": oid, "typmod": typmod, "collation": collation}
        row = self._conn.execute(_DESCRIBE, arguments).fetchone()
        if row is None:  # a pseudo-type, such as record
            return SqlType("record", None, None, is_image=False)
        name, built_in, is_enum, shown, collate, deterministic, own_operator = row
        is_image = is_enum or (built_in and deterministic and _is_image(name, shown))
        equality = own_operator or "="
        if not is_image and own_operator is None and not self._has_equality(shown):
            return SqlType(shown, collate, None, is_image=False)
        return SqlType(shown, collate, equality, is_image)

    def _has_equality(self, shown: str) -> bool:
        """Ask the server to group by the type; arrays and composites depend on what they hold."""
        try:
            with self._conn.transaction():
                probe = f"SELECT DISTINCT x FROM (SELECT NULL::{shown} AS x) AS probe LIMIT 0"
                self._conn.execute(sql.SQL(probe))
        except Exception as error:
            if getattr(error, "sqlstate", None) != "42883":  # undefined_function: no such operator
                raise
            return False
        return True


def _is_image(name: str, shown: str) -> bool:
    return name in _IMAGES or (name in _IMAGES_WITH_LENGTH and "(" in shown)
