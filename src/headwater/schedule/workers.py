"""Runs refreshes side by side: a thread and a connection each, none that move a common table."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection

from headwater.api.facade import Headwater
from headwater.api.refresh import record_failure
from headwater.errors import HeadwaterError, InvalidArgument, InvalidPlan, NotFound
from headwater.postgres.faults import classify
from headwater.results import RefreshResult
from headwater.schedule.plan import Start
from headwater.spark.session import kill_machine

_MOST_THREADS = 256
_GRACE_SECONDS = 10.0  # from a cancelled statement to the end of its refresh


@dataclass(frozen=True, slots=True)
class Ended:
    """A refresh that came to its end: its result, or what went wrong."""

    start: Start
    seconds: float
    result: RefreshResult | None = None
    error: HeadwaterError | None = None


class Workers:
    """The refreshes that run now. Call everything but `_work` from one thread."""

    def __init__(self, connect: Callable[[], Connection[Any]], wake: Callable[[], None]) -> None:
        self._connect = connect
        self._wake = wake
        self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="refresh")
        self._tasks: dict[Future[Ended], Start] = {}
        self._lock = threading.Lock()
        self._idle: list[Connection[Any]] = []
        self._busy: dict[Connection[Any], int] = {}  # and since which change of settings
        self._changes = 0
        self.running: dict[int, float] = {}  # what is moved, since when by the server's clock

    def __len__(self) -> int:
        return len(self._tasks)

    def can_take(self, start: Start) -> bool:
        """Tell whether nothing that runs is in the way; Spark takes one refresh at a time."""
        if start.on_spark and any(task.on_spark for task in self._tasks.values()):
            return False
        return self.running.keys().isdisjoint(start.moves)

    def begin(self, start: Start, now: float) -> None:
        """Start a refresh; the server's time is `now`."""
        self.running.update(dict.fromkeys(start.moves, now))
        task = self._threads.submit(self._work, start)
        self._tasks[task] = start
        task.add_done_callback(lambda _: self._wake())

    def collect(self) -> list[Ended]:
        """Return the refreshes that ended since the last call."""
        done = [task for task in self._tasks if task.done()]
        for task in done:
            for pgt_id in self._tasks.pop(task).moves:
                del self.running[pgt_id]
        return [task.result() for task in done]

    def forget_connections(self) -> None:
        """Have later refreshes connect anew, so that they see other settings."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._changes += 1
        for conn in idle:
            conn.close()

    def finish(self, seconds: float) -> list[Ended]:
        """Wait for what runs, cancel what then still does, and end; nothing is left half-done.

        What the server does not hold up waits for Spark: without that, it ends.
        """
        if self._runs_after(seconds):
            with self._lock:
                busy = list(self._busy)
            for conn in busy:
                with suppress(psycopg.Error):  # the server is gone, and the refresh with it
                    conn.cancel_safe(timeout=5)
            if self._runs_after(_GRACE_SECONDS):
                kill_machine()
        self._threads.shutdown(wait=True)
        self.forget_connections()
        return self.collect()

    def _runs_after(self, seconds: float) -> bool:
        return bool(wait(list(self._tasks), timeout=seconds).not_done)

    def _work(self, start: Start) -> Ended:
        """Refresh one table; whatever goes wrong is recorded, and the daemon goes on."""
        begun, conn = time.monotonic(), None
        try:
            conn = self._take()
            result = Headwater.over(conn).refresh_stream_table(start.name, wait=False)
            ended = Ended(start, time.monotonic() - begun, result)
        except Exception as error:  # noqa: BLE001 - one table must not end the daemon
            fault = _as_ours(error, start.name)
            _record(conn, start, fault)
            ended = Ended(start, time.monotonic() - begun, error=fault)
        if conn is not None:
            self._give(conn)
        return ended

    def _take(self) -> Connection[Any]:
        with self._lock:
            conn = self._idle.pop() if self._idle else None
        if conn is None:
            conn = self._connect()
            # A refresh whose daemon was killed would otherwise run on to its end.
            conn.execute("SET client_connection_check_interval = '2s'")
        with self._lock:
            self._busy[conn] = self._changes
        return conn

    def _give(self, conn: Connection[Any]) -> None:
        with self._lock:
            is_current = self._busy.pop(conn) == self._changes
            if is_current and not conn.closed:
                self._idle.append(conn)
        if not is_current:
            conn.close()


def _as_ours(error: Exception, name: str) -> HeadwaterError:
    if isinstance(error, HeadwaterError):
        return error
    if isinstance(error, psycopg.Error):
        return classify(error, name)
    what = f"refresh of {name} failed: {type(error).__name__}: {error}"
    return InvalidPlan(what, "nobody expected this error", "please report it, with the log")


def _record(conn: Connection[Any] | None, start: Start, fault: HeadwaterError) -> None:
    """Write down what the refresh itself could not; without a connection nobody can.

    A table that was suspended or dropped since the last look did not fail.
    """
    if conn is None or fault.is_recorded or isinstance(fault, InvalidArgument | NotFound):
        return
    try:
        record_failure(conn, start.pgt_id, fault)
    except (psycopg.Error, HeadwaterError):
        conn.close()  # the table is gone, or the server is: the next look shows which
