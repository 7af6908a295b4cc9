"""`bench schedule`: what a cycle of the daemon costs over many stream tables without changes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from psycopg import Connection

from headwater.api import Headwater
from headwater.bench.process import cpu_seconds, is_local
from headwater.bench.report import Json, Table
from headwater.bench.shop import SCHEMA, execute
from headwater.catalog.settings import Settings
from headwater.schedule.plan import make_plan
from headwater.schedule.quiet import move_quiet
from headwater.schedule.snapshot import read_snapshot

SOURCES = 20
ALONE = 100  # refreshes that are measured by themselves
LATER = 3600.0  # seconds from now, when every table is due
MOST_CPU, MOST_MS = 1.0, 10.0  # the targets: seconds of a cycle, milliseconds of one NO_DATA


@dataclass(frozen=True, slots=True)
class Round:
    """A cycle in which all tables were due and none had changes.

    Seconds of CPU of the daemon and of its session in the server, None where that cannot be seen;
    then milliseconds of a refresh by itself: the median, and the one that 95 of 100 stay below.
    """

    tables: int
    daemon_cpu: float
    server_cpu: float | None
    no_data_ms: float
    most_ms: float

    @property
    def cpu(self) -> float:
        """The seconds of both."""
        return self.daemon_cpu + (self.server_cpu or 0.0)


def measure(hw: Headwater, conn: Connection[Any], tables: int, rounds: int) -> Iterator[Round]:
    """Build the tables, have all of them moved again and again, and drop them."""
    _drop(hw, conn)
    try:
        names = _build(hw, conn, tables)
        for number in range(rounds + 1):
            found = _round(hw, names)
            if number:  # the first one warms up
                yield found
    finally:
        _drop(hw, conn)


def _build(hw: Headwater, conn: Connection[Any], tables: int) -> list[str]:
    execute(conn, f"CREATE SCHEMA {SCHEMA}")
    for n in range(SOURCES):
        execute(conn, f"CREATE TABLE {SCHEMA}.t{n} (id int PRIMARY KEY, g int, x int)")
    names = [f"{SCHEMA}.s{n}" for n in range(tables)]
    for n, name in enumerate(names):
        query = f"SELECT g, count(*) AS n, sum(x) AS x FROM {SCHEMA}.t{n % SOURCES} GROUP BY g"
        hw.create_stream_table(name, query, "1h", "DIFFERENTIAL", engine="postgres")
    return names


def _round(hw: Headwater, names: list[str]) -> Round:
    """Look, plan and move as the daemon does, by its clock in an hour; then some by themselves."""
    conn = hw.connection
    pid = conn.info.backend_pid if is_local(conn) else None
    server, daemon = cpu_seconds(pid) if pid else 0.0, time.process_time()
    snapshot = read_snapshot(conn, Settings(), {})
    starts = make_plan(replace(snapshot, now=snapshot.now + LATER)).starts
    moved = len(move_quiet(conn, starts))
    daemon = time.process_time() - daemon
    server = cpu_seconds(pid) - server if pid else 0.0
    if moved != len(names):
        raise RuntimeError(f"{moved} of {len(names)} tables moved: others use this database")
    alone = [_refresh(hw, name) for name in names[:ALONE]]
    most = statistics.quantiles(alone, n=20)[-1] if len(alone) > 1 else alone[0]
    return Round(len(names), daemon, server if pid else None, statistics.median(alone), most)


def _refresh(hw: Headwater, name: str) -> float:
    began = time.perf_counter()
    result = hw.refresh_stream_table(name)
    if result.action != "NO_DATA":
        raise RuntimeError(f"{name} had something to do: {result}")
    return (time.perf_counter() - began) * 1000


def _drop(hw: Headwater, conn: Connection[Any]) -> None:
    for status in hw.pgt_status():
        if status.name.startswith(f"{SCHEMA}."):
            hw.drop_stream_table(status.name)
    execute(conn, f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def tell(found: Round) -> str:
    """Return a round in words."""
    return f"{found.tables:,} tables: {found.cpu:.3f} s of CPU, NO_DATA {found.no_data_ms:.2f} ms"


def schedule_json(host: Json, rounds: list[Round]) -> Json:
    """Return the rounds as JSON."""
    shown = [asdict(each) | {"cpu": each.cpu} for each in rounds]
    return {"bench": "schedule", "host": host, "rounds": shown, "missed": missed(rounds)}


def missed(rounds: list[Round]) -> list[str]:
    """Say which targets the medians of the rounds miss."""
    cpu = statistics.median(each.cpu for each in rounds)
    ms = statistics.median(each.no_data_ms for each in rounds)
    targets = {
        f"a cycle takes {cpu:.2f} s of CPU, more than {MOST_CPU:g}": cpu <= MOST_CPU,
        f"NO_DATA takes {ms:.1f} ms, more than {MOST_MS:g}": ms <= MOST_MS,
    }
    return [told for told, is_met in targets.items() if not is_met]


def schedule_tables(rounds: list[Round]) -> tuple[Table, ...]:
    """Return one table of rounds."""
    heads = ("tables", "CPU s", "of the daemon", "of the server", "NO_DATA ms", "95 of 100 below")
    lines = tuple(
        (f"{r.tables:,}", f"{r.cpu:.3f}", f"{r.daemon_cpu:.3f}",
         "" if r.server_cpu is None else f"{r.server_cpu:.3f}",
         f"{r.no_data_ms:.2f}", f"{r.most_ms:.2f}")
        for r in rounds
    )  # fmt: skip
    return (Table("A cycle over stream tables without changes", heads, lines, 0),)
