"""The doctor on capture: triggers, functions, buffers, and what writers move tables by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from psycopg import Connection

from headwater.algebra.walk import scans
from headwater.api.refresh import refresh_stream_table
from headwater.api.sources import lockable
from headwater.api.symptoms import Check, Symptom
from headwater.api.transactions import lock_tables
from headwater.catalog import streams, tracking
from headwater.catalog.alerts import send_alert
from headwater.catalog.model import StreamTable, follows_writers
from headwater.postgres.capture import (
    find_gap,
    list_leaves,
    relation_name,
    remove_capture,
    sync_capture,
)
from headwater.postgres.quote import identifier
from headwater.postgres.storage import load_plan

# Buffers and capture functions are named by the oid of their source.
_ORPHANS = """
SELECT made.relid, array_agg(made.name ORDER BY made.name) FROM (
    SELECT substring(p.proname FROM '^capture_(\\d+)_')::int8 AS relid, p.proname::text AS name
      FROM pg_proc p WHERE p.pronamespace = 'pgtrickle_changes'::regnamespace
    UNION ALL
    SELECT substring(c.relname FROM '^changes_(\\d+)$')::int8, c.relname::text
      FROM pg_class c WHERE c.relnamespace = 'pgtrickle_changes'::regnamespace
       AND c.relkind IN ('r', 'p')) AS made
 WHERE made.relid IS NOT NULL
   AND NOT EXISTS (SELECT FROM pgtrickle.pgt_change_tracking t
                    WHERE t.source_relid = made.relid::oid)
 GROUP BY 1 ORDER BY 1
"""
_USELESS = """
SELECT t.source_relid::int8, t.source_name,
       NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = t.source_relid) AS is_gone
  FROM pgtrickle.pgt_change_tracking t
 WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = t.source_relid)
    OR EXISTS (SELECT FROM unnest(t.tracked_by_pgt_ids) AS reader
                WHERE reader NOT IN (SELECT st.pgt_id FROM pgtrickle.pgt_stream_tables st))
 ORDER BY 2
"""
_STRAY_TRIGGERS = """
SELECT g.tgrelid::regclass::text, g.tgname FROM pg_trigger g
  JOIN pg_proc p ON p.oid = g.tgfoid AND p.pronamespace = 'pgtrickle_changes'::regnamespace
 WHERE NOT EXISTS (SELECT FROM pgtrickle.pgt_change_tracking t
                    WHERE g.tgrelid = ANY (t.source_relid || t.leaves)
                      AND starts_with(p.proname, format('capture_%s_', t.source_relid)))
 ORDER BY 1, 2
"""
_FOLLOWING = {
    "COMMIT": ("insert", "update", "delete", "truncate"),
    "IMMEDIATE": ("insert", "update", "delete", "truncate", "truncated"),
}


def _find_orphans(conn: Connection[Any]) -> Iterator[Symptom]:
    for relid, names in conn.execute(_ORPHANS).fetchall():
        detail = f"no source is captured by {', '.join(names)} in the schema pgtrickle_changes"
        yield Symptom(relation_name(conn, relid) or None, detail, relid)


def _drop_orphan(conn: Connection[Any], symptom: Symptom) -> None:
    with conn.transaction():
        lock_tables(conn, lockable(conn, [symptom.key]))
        remove_capture(conn, symptom.key)


def _find_useless(conn: Connection[Any]) -> Iterator[Symptom]:
    for relid, name, is_gone in conn.execute(_USELESS).fetchall():
        why = "the source is gone" if is_gone else "stream tables that read it are gone"
        yield Symptom(name, f"changes are captured although {why}", relid)


def _sync(conn: Connection[Any], symptom: Symptom) -> None:
    with conn.transaction():
        lock_tables(conn, lockable(conn, [symptom.key]))
        sync_capture(conn, symptom.key)


def _find_stray_triggers(conn: Connection[Any]) -> Iterator[Symptom]:
    for table, trigger in conn.execute(_STRAY_TRIGGERS).fetchall():
        yield Symptom(table, f"the trigger {trigger} captures changes of no source", trigger)


def _drop_trigger(conn: Connection[Any], symptom: Symptom) -> None:
    conn.execute(f"DROP TRIGGER IF EXISTS {identifier(symptom.key)} ON {symptom.subject}")


def _find_broken(conn: Connection[Any]) -> Iterator[Symptom]:
    for source in tracking.list_tracking(conn):
        row = conn.execute("SELECT to_regclass(%s) IS NULL", [source.buffer_name]).fetchone()
        if row is not None and row[0]:
            yield Symptom(source.source_name, "its buffer is missing: writers fail", source)
        elif gap := find_gap(conn, source):
            yield Symptom(source.source_name, gap, source)


def _capture_anew(conn: Connection[Any], symptom: Symptom) -> None:
    """Put triggers and buffer in place again; whoever reads them is computed anew."""
    known = symptom.key
    with conn.transaction():
        lock_tables(conn, lockable(conn, [known.source_relid]))
        send_alert(conn, "capture_broken", None, source=symptom.subject, reason=symptom.detail)
        streams.mark_for_rebuild(conn, known.tracked_by_pgt_ids, symptom.detail)
        remove_capture(conn, known.source_relid)
        sync_capture(conn, known.source_relid)


def _find_uncaptured(conn: Connection[Any]) -> Iterator[Symptom]:
    captured = {source.source_relid for source in tracking.list_tracking(conn)}
    for st in streams.list_stream_tables(conn):
        plan = load_plan(st)[0] if st.follows_changes and st.status != "ERROR" else None
        for scan in scans(plan.view) if plan is not None else ():
            name = relation_name(conn, scan.source.oid)
            if name and scan.source.oid not in captured:
                captured.add(scan.source.oid)
                yield Symptom(name, f"its changes, which {st.qualified_name} reads, are not"
                              " captured", scan.source.oid)  # fmt: skip


def _capture(conn: Connection[Any], symptom: Symptom) -> None:
    with conn.transaction():
        lock_tables(conn, lockable(conn, [symptom.key]))
        sync_capture(conn, symptom.key)
        known = tracking.find_tracking(conn, symptom.key)
        readers = known.tracked_by_pgt_ids if known else ()
        streams.mark_for_rebuild(conn, readers, "changes were not captured")


def _find_unfollowed(conn: Connection[Any]) -> Iterator[Symptom]:
    for st in streams.list_stream_tables(conn):
        is_followed = follows_writers(st.effective_mode) and _may_follow(conn, st)
        missing = _missing_triggers(conn, st) if is_followed and st.is_populated else 0
        if missing:
            detail = f"{missing} triggers that maintain it are missing or disabled"
            yield Symptom(st.qualified_name, detail, st)


def _may_follow(conn: Connection[Any], st: StreamTable) -> bool:
    """Tell whether nothing but its triggers keeps writers from maintaining a table."""
    if st.status != "ERROR":
        return st.status == "ACTIVE"
    row = conn.execute(
        "SELECT coalesce(pgtrickle.alteration_of(%(id)s), pgtrickle.obstacle_of(%(id)s)) IS NULL",
        {"id": st.pgt_id},
    ).fetchone()
    return row is not None and bool(row[0])


def _missing_triggers(conn: Connection[Any], st: StreamTable) -> int:
    plan, _ = load_plan(st)
    assert plan is not None
    missing, kinds = 0, _FOLLOWING[str(st.effective_mode)]
    for oid in {scan.source.oid for scan in scans(plan.view)}:
        carriers = [oid, *list_leaves(conn, oid)]
        row = conn.execute(
            "SELECT count(*) FROM pg_trigger WHERE tgrelid = ANY (%s::int8[]::oid[])"
            " AND tgname = ANY (%s) AND tgenabled = 'A'",
            (carriers, [f"pgt_imm_{st.pgt_id}_{oid}_{kind}" for kind in kinds]),
        ).fetchone()
        assert row is not None
        missing += len(carriers) * len(kinds) - row[0]
    return missing


def _follow_again(conn: Connection[Any], symptom: Symptom) -> None:
    refresh_stream_table(conn, symptom.key.qualified_name)


CHECKS = (
    Check("orphaned capture", "drop it", _find_orphans, _drop_orphan),
    Check("useless capture", "capture what is still read", _find_useless, _sync),
    Check("stray trigger", "drop it", _find_stray_triggers, _drop_trigger),
    Check("broken capture", "capture anew; its readers are computed anew", _find_broken,
          _capture_anew),
    Check("missing capture", "capture; its readers are computed anew", _find_uncaptured, _capture),
    Check("not followed", "compute the table anew and put the triggers back", _find_unfollowed,
          _follow_again),
)  # fmt: skip
