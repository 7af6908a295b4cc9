"""Looks at all stream tables every second: their lags, and whether those that follow are equal."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil  # type: ignore[import-untyped]
import psycopg

from tests.battery.oracle import find_difference
from tests.soak.accidents import Accident, Stage
from tests.soak.world import TABLES, downstream
from tests.soak.writers import is_expected

Connection = psycopg.Connection[Any]
EVERY = 1.0  # seconds
SETTLING = 60.0  # seconds and the lag of a table, after which it must have moved, come what may

LAGS = """
SELECT pgt_name, status, extract(epoch FROM data_timestamp)::float8,
       extract(epoch FROM clock_timestamp() - data_timestamp)::float8,
       extract(epoch FROM target_lag)::float8
  FROM pgtrickle.pgt_stream_tables WHERE pgt_name = ANY (%s)
"""
FOLLOWING = [name for name, table in TABLES.items() if table.follows]
# Before the snapshot: DDL that rewrites a table shows it empty to snapshots from before.
LOCK = "LOCK TABLE customers, orders, visits, {} IN ACCESS SHARE MODE".format(", ".join(FOLLOWING))


class Calm:
    """Since when nothing has befallen a stream table."""

    def __init__(self) -> None:
        self._since = dict.fromkeys(TABLES, 0.0)
        self._lock = threading.Lock()

    @contextmanager
    def broken_by(self, accident: Accident) -> Iterator[None]:
        """An accident takes as long as the block."""
        self._set(accident, float("inf"))
        yield
        self._set(accident, time.time())

    def is_settled(self, name: str, moved_at: float, lag: float) -> bool:
        """Whether the lag of a table counts: it has moved since, or had the time to."""
        with self._lock:
            since = self._since[name]
        return moved_at > since or time.time() > since + lag + SETTLING

    def _set(self, accident: Accident, moment: float) -> None:
        with self._lock:
            self._since.update(dict.fromkeys(accident.touches, moment))


@dataclass
class Seen:
    """What was seen: samples of lags by table, and the memory of daemons that had used Spark."""

    taken: Counter[str] = field(default_factory=Counter)
    counted: Counter[str] = field(default_factory=Counter)
    within: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    memory: list[tuple[int, float]] = field(default_factory=list)  # process, megabytes

    @property
    def share(self) -> float:
        """How many of the samples that count were within the lag asked for."""
        return self.within.total() / max(self.counted.total(), 1)

    def growth_of(self, pid: int) -> tuple[float, float]:
        """Return the most megabytes of one daemon in its first half and in its second."""
        memory = [megabytes for process, megabytes in self.memory if process == pid]
        half = len(memory) // 2
        return max(memory[:half], default=0.0), max(memory[half:], default=0.0)

    def __str__(self) -> str:
        lines = (
            f"{n}: {self.within[n]} of {self.counted[n]} ({self.taken[n]})" for n in self.taken
        )
        return "within the lag, of samples that count, of all:\n  " + "\n  ".join(lines)


def look(conn: Connection, calm: Calm, seen: Seen) -> None:
    """Take a sample of every lag, and compare what follows its writers, in one snapshot."""
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        conn.execute(LOCK.encode())
        rows = conn.execute(LAGS, [list(TABLES)]).fetchall()
        for name, status, moved_at, lag, target in rows:
            if TABLES[name].follows:
                if status == "ACTIVE":
                    fault = find_difference(conn, TABLES[name].query, name)
                    assert fault is None, f"{name}, which follows its writers: {fault}"
                    seen.compared += 1
                continue
            seen.taken[name] += 1
            if calm.is_settled(name, moved_at, target):
                seen.counted[name] += 1
                seen.within[name] += lag <= target


def weigh(stage: Stage, seen: Seen) -> None:
    """Note the memory of the daemon, once it has used Spark, for these or for what they read."""
    daemon = stage.daemon
    spark = {name for name, table in TABLES.items() if table.engine == "spark"}
    names = {f"public.{name}" for name in spark.union(*map(downstream, spark))}
    if any(e["event"] == "refreshed" and e["st"] in names for e in list(daemon.events)):
        try:
            size = psutil.Process(daemon.pid).memory_info().rss / 2**20
        except psutil.NoSuchProcess:
            return
        seen.memory.append((daemon.pid, size))


def watch(stage: Stage, calm: Calm, seen: Seen, stop: threading.Event) -> None:
    """Look until told to stop; a server that is away is looked at when it is back."""
    while not stop.is_set():
        try:
            # Without prepared statements: DDL changes the types of their results.
            with psycopg.connect(stage.dsn, autocommit=True, prepare_threshold=None) as conn:
                while not stop.wait(EVERY):
                    weigh(stage, seen)
                    look(conn, calm, seen)
        except psycopg.Error as error:
            if not is_expected(error):
                stop.set()
                raise
            stop.wait(EVERY)
        except AssertionError:
            stop.set()
            raise


@contextmanager
def watching(stage: Stage, calm: Calm, stop: threading.Event) -> Iterator[Seen]:
    """Watch for the time of the block; what is wrong stops all, and is raised at its end."""
    seen = Seen()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(watch, stage, calm, seen, stop)
        try:
            yield seen
        finally:
            stop.set()
        running.result(timeout=60)
