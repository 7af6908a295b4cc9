"""Turns a look at all tables into alerts: one when a thing begins, none while it lasts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from psycopg import Connection

from headwater.catalog.alerts import send_alert
from headwater.catalog.settings import Settings
from headwater.schedule.plan import Plan, Snapshot, paces_of

LAG_FACTOR = 2  # times the lag asked for

_BUFFERS = """
SELECT source_name, buffer_name FROM pgtrickle.pgt_change_tracking
 WHERE pg_stat_get_live_tuples(to_regclass(buffer_name)) > %s
"""


class Watch:
    """Remembers what was told. Another leader tells again what still lasts."""

    def __init__(self) -> None:
        self._told: set[tuple[str, object]] = set()

    def look(
        self, conn: Connection[Any], snapshot: Snapshot, plan: Plan, slots: tuple[int, int]
    ) -> list[tuple[str, str]]:
        """Alert of tables that are behind; `slots` are how many refreshes run, and may.

        Returns event and name of what is new.
        """
        names = {table.pgt_id: table.name for table in snapshot.tables}
        new = []
        for pgt_id, lag, target in self._begun("lag_exceeded", _behind(snapshot)):
            facts = {"lag_seconds": round(lag, 3), "target_seconds": target}
            facts_held = {**facts, "reason": plan.held.get(pgt_id)}
            send_alert(conn, "lag_exceeded", names[pgt_id], **facts_held)
            new.append(("lag_exceeded", names[pgt_id]))
        late = ((pgt_id, by, 0.0) for pgt_id, by in plan.late.items())
        for pgt_id, by, _ in self._begun("scheduler_falling_behind", late):
            send_alert(conn, "scheduler_falling_behind", names[pgt_id], late_seconds=round(by, 3),
                       running=slots[0], max_concurrent_refreshes=slots[1])  # fmt: skip
            new.append(("scheduler_falling_behind", names[pgt_id]))
        return new

    def look_at_buffers(self, conn: Connection[Any], settings: Settings) -> list[tuple[str, str]]:
        """Alert of buffers with very many rows: by the server's estimate, then counted."""
        found = []
        for source, buffer in conn.execute(_BUFFERS, [settings.buffer_alert_rows]).fetchall():
            [(rows,)] = conn.execute(f"SELECT count(*) FROM {buffer}").fetchall()
            if rows > settings.buffer_alert_rows:
                found.append((source, float(rows), 0.0))
        new = []
        for source, rows, _ in self._begun("buffer_lag_warning", found):
            send_alert(conn, "buffer_lag_warning", None, source=source, pending_rows=int(rows))
            new.append(("buffer_lag_warning", str(source)))
        return new

    def _begun(
        self, event: str, lasting: Iterable[tuple[Any, float, float]]
    ) -> list[tuple[Any, float, float]]:
        """Return what lasts and was not told yet; forget what is over."""
        now = {(event, fact[0]): fact for fact in lasting}
        new = [fact for key, fact in now.items() if key not in self._told]
        self._told = {key for key in self._told if key[0] != event} | now.keys()
        return new


def stop_unfollowed(conn: Connection[Any]) -> list[tuple[str, str]]:
    """Stop tables that writers should maintain and do not; an alert goes with each.

    Where event triggers tell of every command there is nothing to find.
    """
    rows = conn.execute("SELECT pgtrickle.stop_unfollowed()").fetchall()
    return [("reinitialize_needed", str(name)) for (name,) in rows]


def _behind(snapshot: Snapshot) -> list[tuple[int, float, float]]:
    """Return the tables whose data are too old, how old, and the lag asked for."""
    paces = paces_of(snapshot.tables, snapshot.minimum_lag)
    found = []
    for table in snapshot.tables:
        is_watched = not table.is_immediate and table.status != "SUSPENDED"
        target = paces[table.pgt_id].lag if is_watched else None
        if target is None or table.data_time is None:
            continue
        lag = snapshot.now - table.data_time
        if lag > LAG_FACTOR * target:
            found.append((table.pgt_id, lag, target))
    return found
