"""Who has the tables and functions that maintain a stream table: its owner."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

_GIVE = """
WITH own (id, role) AS (
    SELECT st.pgt_id, pg_get_userbyid(st.owner) FROM pgtrickle.pgt_stream_tables st
     WHERE st.pgt_id = %s
)
SELECT format('ALTER TABLE %%s OWNER TO %%I', c.oid::regclass, own.role)
  FROM own, pg_class c
 WHERE c.relnamespace = 'pgtrickle_state'::regnamespace AND c.relkind = 'r'
   AND c.relname ~ format('^(state|kept|locks|since|pending)_%%s(_[0-9]+)*$', own.id)
   AND pg_get_userbyid(c.relowner) <> own.role
UNION ALL
SELECT format('ALTER FUNCTION %%s OWNER TO %%I', p.oid::regprocedure, own.role)
  FROM own, pg_proc p
 WHERE p.pronamespace = 'pgtrickle_state'::regnamespace
   AND p.proname ~ format('^follow_%%s(_|$)', own.id)
   AND pg_get_userbyid(p.proowner) <> own.role
UNION ALL
SELECT format('GRANT USAGE ON SCHEMA pgtrickle, pgtrickle_state TO %%I', own.role)
  FROM own
 WHERE NOT (has_schema_privilege(own.role, 'pgtrickle', 'USAGE')
            AND has_schema_privilege(own.role, 'pgtrickle_state', 'USAGE'))
UNION ALL
SELECT format('GRANT INSERT ON pgtrickle.pgt_commits TO %%I', own.role)
  FROM own
 WHERE NOT has_table_privilege(own.role, 'pgtrickle.pgt_commits', 'INSERT')
"""


def give_to_owner(conn: Connection[Any], pgt_id: int) -> None:
    """Let the owner of a stream table have what maintains it, whoever had that made.

    The functions of its triggers run with the rights of whoever has them.
    """
    for (statement,) in conn.execute(_GIVE, [pgt_id]).fetchall():
        conn.execute(statement)
