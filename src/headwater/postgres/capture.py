"""Capture: statement triggers that write the changes of a source into its buffer.

One buffer per source, `pgtrickle_changes.changes_<oid>(__xid, __weight, <columns used>)`. Each
statement adds its rows with one INSERT … SELECT from the transition tables; an UPDATE adds the old
rows with weight −1 and the new ones with +1, and rows whose used columns stay cancel out in one
hashed GROUP BY. Nothing else is written: no sequence, no index, no notification.

The functions run as their owner with a pinned search_path, so a writer needs no rights here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from psycopg import Connection

from headwater.algebra.schema import Column
from headwater.catalog.model import Tracking
from headwater.catalog.streams import mark_for_rebuild
from headwater.catalog.traces import retire_columns
from headwater.catalog.tracking import drop_tracking, find_tracking, upsert_tracking
from headwater.postgres.quote import dollar_quoted, identifier, image, listed, restored
from headwater.sql.type_catalog import TypeCatalog

EVENTS = ("insert", "update", "delete", "truncate")
SCHEMA = "pgtrickle_changes"
_XID = "pg_catalog.pg_current_xact_id()"


def buffer_name(relid: int) -> str:
    """Return the qualified name of a source's buffer."""
    return f"{SCHEMA}.changes_{relid}"


def trigger_name(relid: int, event: str) -> str:
    """Return the name of the trigger for an event; it stands on the source and all its leaves."""
    return f"pg_trickle_cdc_{relid}_{event}"


def function_name(relid: int, event: str) -> str:
    """Return the qualified name of the capture function for an event."""
    return f"{SCHEMA}.capture_{relid}_{event}"


def sync_capture(conn: Connection[Any], relid: int) -> None:
    """Make the capture of a source fit the stream tables that read it now.

    Creates it at first use, grows and shrinks its columns, and removes it at last use. A column
    whose type was altered starts anew: whoever reads it is rebuilt, others do not see it. Where it
    has to put triggers back, changes were missed: all readers are rebuilt. The caller holds SHARE
    ROW EXCLUSIVE on the source: no writer is between two versions of a trigger.

    Until it is called again after the source was altered, the functions name no column: they ask
    for a rebuild instead, and no writer fails.
    """
    consumers, wanted = _demand(conn, relid)
    known = find_tracking(conn, relid)
    if not consumers or not relation_name(conn, relid):
        remove_capture(conn, relid)
        return
    gap = find_gap(conn, known) if known else None
    if known and gap:
        mark_for_rebuild(conn, known.tracked_by_pgt_ids, gap)
    columns = _columns(conn, relid, wanted)
    _sync_buffer(conn, relid, columns, known)
    leaves = list_leaves(conn, relid)
    fits = _fits(relid, _oid(conn, buffer_name(relid)), (relid, *leaves))
    arrays = _arrays(conn, relid)
    for event in EVENTS:
        conn.execute(function_sql(relid, event, columns, fits, arrays))
    for carrier in set(known.leaves if known else ()) - set(leaves):
        _drop_triggers(conn, relid, carrier)
    for carrier in (relid, *leaves):
        _sync_triggers(conn, relid, carrier)
    retire_columns(conn, relid, [c.name for c in columns])
    since = known.generation if known and not gap else None
    upsert_tracking(conn, _tracking(conn, relid, columns, consumers, (leaves, since)))
    _grant(conn, relid, consumers)


def find_gap(conn: Connection[Any], known: Tracking) -> str | None:
    """Say why changes of a source may have been missed; None if its triggers are all in place."""
    leaves = list_leaves(conn, known.source_relid)
    if set(leaves) != set(known.leaves):
        return f"{known.source_name} has other partitions or children than before"
    names = [trigger_name(known.source_relid, event) for event in EVENTS]
    carriers = [known.source_relid, *leaves]
    row = conn.execute(
        "SELECT count(*) FROM pg_trigger WHERE tgrelid = ANY(%s::int8[]::oid[])"
        " AND tgname = ANY(%s) AND tgenabled = 'A'",
        (carriers, names),
    ).fetchone()
    if row is not None and row[0] == len(carriers) * len(names):
        return None
    return f"triggers on {known.source_name} or its partitions were missing or disabled"


def _demand(conn: Connection[Any], relid: int) -> tuple[list[int], list[str]]:
    """Which stream tables follow the changes of a source, and which columns they use.

    One that is kept in the lake follows itself, with all its columns.
    """
    rows = conn.execute(
        "SELECT st.pgt_id, d.columns_used FROM pgtrickle.pgt_dependencies d"
        " JOIN pgtrickle.pgt_stream_tables st USING (pgt_id)"
        " WHERE d.source_relid = %s AND d.source_type IN ('TABLE', 'STREAM_TABLE')"
        " AND (st.effective_mode = 'DIFFERENTIAL' OR st.effective_engine = 'spark')"
        " UNION ALL SELECT st.pgt_id, ARRAY(SELECT a.attname::text FROM pg_attribute a"
        " WHERE a.attrelid = st.pgt_relid AND a.attnum > 0 AND NOT a.attisdropped)"
        " FROM pgtrickle.pgt_stream_tables st"
        " WHERE st.pgt_relid = %s AND st.plan ->> 'keeps_result' = 'true' ORDER BY 1",
        (relid, relid),
    ).fetchall()
    return [row[0] for row in rows], sorted({name for _, used in rows for name in used})


def _columns(conn: Connection[Any], relid: int, wanted: Sequence[str]) -> list[Column]:
    """Return the wanted columns in table order, with their exact types."""
    types = TypeCatalog(conn)
    with conn.transaction():
        conn.execute("SET LOCAL search_path = ''")
        rows = conn.execute(
            "SELECT attname, atttypid::int8, atttypmod, attcollation::int8 FROM pg_attribute"
            " WHERE attrelid = %s AND attnum > 0 AND attname = ANY(%s) AND NOT attisdropped"
            " ORDER BY attnum",
            (relid, list(wanted)),
        ).fetchall()
        return [Column(name, types.get(*how)) for name, *how in rows]


def _arrays(conn: Connection[Any], relid: int) -> frozenset[str]:
    """Return the columns that hold arrays, also by way of a domain."""
    rows = conn.execute(
        "SELECT a.attname::text FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
        " WHERE a.attrelid = %s AND a.attnum > 0 AND t.typcategory = 'A'",
        (relid,),
    ).fetchall()
    return frozenset(name for (name,) in rows)


def _sync_buffer(
    conn: Connection[Any], relid: int, columns: Sequence[Column], known: Tracking | None
) -> None:
    buffer = buffer_name(relid)
    definition = {c.name: _definition(c) for c in columns}
    if known is None:
        parts = listed(["__xid xid8 NOT NULL", "__weight int NOT NULL", *definition.values()])
        conn.execute(f"CREATE TABLE {buffer} ({parts})")
        return
    stored = _columns(conn, _oid(conn, buffer), known.columns)
    steps = [f"DROP COLUMN {identifier(c.name)}" for c in stored if c not in columns]
    steps += [f"ADD COLUMN {definition[c.name]}" for c in columns if c not in stored]
    if steps:
        conn.execute(f"ALTER TABLE {buffer} {listed(steps)}")


def _oid(conn: Connection[Any], relation: str) -> int:
    row = conn.execute("SELECT %s::regclass::oid::int8", (relation,)).fetchone()
    assert row is not None
    return int(row[0])


def _definition(column: Column) -> str:
    collate = f" COLLATE {column.type.collation}" if column.type.collation else ""
    return f"{identifier(column.name)} {column.type.name}{collate}"


def is_stale(conn: Connection[Any], known: Tracking) -> bool:
    """Tell whether captured columns were altered, so that none is captured for now."""
    row = conn.execute(
        "SELECT pgtrickle.fits_buffer(%s::int8::oid, %s::regclass)",
        (known.source_relid, known.buffer_name),
    ).fetchone()
    return row is not None and not row[0]


def _fits(relid: int, buffer: int, carriers: Sequence[int]) -> str:
    """Return the condition under which a function may name columns; a constant in most plans."""
    below = listed(f"'{oid}'::regclass" for oid in carriers)
    asked = f"('{relid}'::regclass, '{buffer}'::regclass, ARRAY[{below}])"
    return f"pgtrickle.is_captured{asked} IS TRUE OR pgtrickle.look_at_capture{asked}"


def function_sql(
    relid: int, event: str, columns: Sequence[Column], fits: str, arrays: frozenset[str]
) -> str:
    """Return the statement that makes the capture function of one event."""
    body: dict[str, Callable[[int, Sequence[Column]], str]] = {
        "insert": _insert,
        "update": partial(_update, arrays=arrays),
        "delete": _delete,
        "truncate": _truncate,
    }
    code = (
        f"BEGIN\nIF {fits} THEN\n{body[event](relid, columns)};\n"
        f"ELSE\n{_marker(relid)};\nEND IF;\nRETURN NULL;\nEND"
    )
    settings = _ROUND_TRIP if event == "update" and _has_texts(columns) else ""
    return (
        f"CREATE OR REPLACE FUNCTION {function_name(relid, event)}() RETURNS trigger"
        f" LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp{settings}"
        f" AS {dollar_quoted(code)}"
    )


# Values that go through their text must come back as they were, whatever the writer has set.
_ROUND_TRIP = (
    " SET extra_float_digits = 1 SET DateStyle = 'ISO' SET IntervalStyle = 'postgres'"
    " SET xmloption = content"
)


def _has_texts(columns: Sequence[Column]) -> bool:
    return not all(column.type.is_image for column in columns)


def _into(relid: int, columns: Sequence[Column]) -> str:
    names = [identifier(c.name) for c in columns]
    return f"INSERT INTO {buffer_name(relid)} ({listed(['__xid', '__weight', *names])})"


def _insert(relid: int, columns: Sequence[Column]) -> str:
    values = listed([_XID, "1", *(identifier(c.name) for c in columns)])
    return f"{_into(relid, columns)}\nSELECT {values} FROM new_rows"


def _delete(relid: int, columns: Sequence[Column]) -> str:
    values = listed([_XID, "-1", *(identifier(c.name) for c in columns)])
    return f"{_into(relid, columns)}\nSELECT {values} FROM old_rows"


def _update(relid: int, columns: Sequence[Column], arrays: frozenset[str]) -> str:
    """Cancel equal images; without any used column an UPDATE changes nothing."""
    if not columns:
        return "NULL"
    names = [identifier(c.name) for c in columns]
    images = listed(image(n, c) for n, c in zip(names, columns, strict=True))
    values = listed(
        [_XID, "sum(__w)", *(_one_of(n, c, arrays) for n, c in zip(names, columns, strict=True))]
    )
    both = (
        f"SELECT -1 AS __w, {listed(names)} FROM old_rows"
        f"\nUNION ALL SELECT 1, {listed(names)} FROM new_rows"
    )
    return (
        f"{_into(relid, columns)}\nSELECT {values} FROM ({both}) AS changes"
        f"\nGROUP BY {images} HAVING sum(__w) <> 0"
    )


def _one_of(value: str, column: Column, arrays: frozenset[str]) -> str:
    """Return a value of a group of equal images without the name of its type, which may change.

    Arrays must name it: they aggregate into arrays of another type.
    """
    if column.type.is_image or column.name in arrays:
        return restored(value, column)
    return f"(array_agg({value}))[1]"


def _truncate(relid: int, columns: Sequence[Column]) -> str:
    """Write the rows of the table that is truncated, without its children, negatively.

    Under an older snapshot (REPEATABLE READ, SERIALIZABLE) TRUNCATE removes rows that the
    transaction cannot see: a row of weight 0 then asks for a rebuild.
    """
    names = [identifier(c.name) for c in columns]
    copy = (f"{_into(relid, columns)}\nSELECT {listed([_XID, '-1', *names])} FROM ONLY %s").replace(
        "'", "''"
    )
    return (
        "IF current_setting('transaction_isolation') = 'read committed' THEN\n"
        f"EXECUTE format('{_escaped(copy)}', TG_RELID::regclass);\n"
        "ELSE\n"
        f"{_marker(relid)};\n"
        "END IF"
    )


def _marker(relid: int) -> str:
    """Ask all readers of a source for a rebuild."""
    return f"INSERT INTO {buffer_name(relid)} (__xid, __weight) VALUES ({_XID}, 0)"


def _escaped(statement: str) -> str:
    """Double the % signs of names; only the last placeholder is format's own."""
    head, mark, tail = statement.rpartition("%s")
    return head.replace("%", "%%") + mark + tail


def list_leaves(conn: Connection[Any], relid: int) -> tuple[int, ...]:
    """Return the partitions and children below a table, at any depth: statements may name them."""
    rows = conn.execute(
        "WITH RECURSIVE tree AS (SELECT inhrelid FROM pg_inherits WHERE inhparent = %s"
        " UNION SELECT i.inhrelid FROM tree t JOIN pg_inherits i ON i.inhparent = t.inhrelid)"
        " SELECT inhrelid::int8 FROM tree ORDER BY 1",
        (relid,),
    ).fetchall()
    return tuple(row[0] for row in rows)


_TRANSITIONS = {
    "insert": "AFTER INSERT ON {} REFERENCING NEW TABLE AS new_rows",
    "update": "AFTER UPDATE ON {} REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows",
    "delete": "AFTER DELETE ON {} REFERENCING OLD TABLE AS old_rows",
    "truncate": "BEFORE TRUNCATE ON {}",
}


def _drop_triggers(conn: Connection[Any], relid: int, carrier: int) -> None:
    """Leave a table that was detached in peace; it may also be gone."""
    shown = relation_name(conn, carrier)
    for event in EVENTS if shown else ():
        conn.execute(f"DROP TRIGGER IF EXISTS {trigger_name(relid, event)} ON {shown}")


def _sync_triggers(conn: Connection[Any], relid: int, carrier: int) -> None:
    """Create the triggers and let them fire ALWAYS, also in sessions of the replica role.

    No other command leaves a trigger in that state: one that was disabled and enabled again is
    found out.
    """
    shown = relation_name(conn, carrier)
    conn.execute("SELECT set_config('pg_trickle.capturing', 'on', true)")
    for event in EVENTS:
        when = _TRANSITIONS[event].format(shown)
        conn.execute(
            f"CREATE OR REPLACE TRIGGER {trigger_name(relid, event)} {when}"
            f" FOR EACH STATEMENT EXECUTE FUNCTION {function_name(relid, event)}()"
        )
        conn.execute(f"ALTER TABLE {shown} ENABLE ALWAYS TRIGGER {trigger_name(relid, event)}")
    conn.execute("SELECT set_config('pg_trickle.capturing', 'off', true)")


def relation_name(conn: Connection[Any], relid: int) -> str:
    """Return the qualified name that a relation has now, nothing if it is gone."""
    row = conn.execute(
        "SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s",
        (relid,),
    ).fetchone()
    return row[0] if row else ""


def _tracking(
    conn: Connection[Any],
    relid: int,
    columns: Sequence[Column],
    consumers: Sequence[int],
    how: tuple[tuple[int, ...], int | None],
) -> Tracking:
    """Return what is recorded of a capture: `how` has its leaves, and its generation if it goes on.

    A generation begins with the transaction that put the triggers in place.
    """
    leaves, since = how
    row = conn.execute(
        "SELECT (SELECT count(*) FROM pg_attribute WHERE attrelid = %s AND attnum > 0"
        " AND NOT attisdropped), pg_current_xact_id()::text::int8",
        (relid,),
    ).fetchone()
    assert row is not None
    known = find_tracking(conn, relid)
    made = Tracking(
        source_relid=relid,
        source_name=relation_name(conn, relid),
        trigger_name=f"pg_trickle_cdc_{relid}",
        function_name=f"{SCHEMA}.capture_{relid}",
        buffer_name=buffer_name(relid),
        columns=tuple(c.name for c in columns),
        all_columns=len(columns) == row[0],
        tracked_by_pgt_ids=tuple(consumers),
        leaves=leaves,
        generation=since if since is not None else row[1],
    )
    return replace(made, last_consumed_epoch=known.last_consumed_epoch) if known else made


def _grant(conn: Connection[Any], relid: int, consumers: Sequence[int]) -> None:
    """Let the owners of the stream tables, who maintenance runs as, read the buffer."""
    rows = conn.execute(
        "SELECT DISTINCT quote_ident(r.rolname) FROM pgtrickle.pgt_stream_tables st"
        " JOIN pg_roles r ON r.oid = st.owner"
        " WHERE st.pgt_id = ANY(%s) AND r.rolname <> current_user",
        (list(consumers),),
    ).fetchall()
    for (role,) in rows:
        conn.execute(f"GRANT USAGE ON SCHEMA {SCHEMA}, pgtrickle_state TO {role}")
        conn.execute(f"GRANT SELECT ON {buffer_name(relid)} TO {role}")


def remove_capture(conn: Connection[Any], relid: int) -> None:
    """Drop functions (and with them the triggers, wherever they stand) and the buffer."""
    for event in EVENTS:
        conn.execute(f"DROP FUNCTION IF EXISTS {function_name(relid, event)}() CASCADE")
    conn.execute(f"DROP TABLE IF EXISTS {buffer_name(relid)}")
    drop_tracking(conn, relid)
