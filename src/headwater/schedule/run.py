"""The loop: leads a database, has done what the planner says, and stops when told to."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import psycopg
from psycopg import Connection

from headwater.catalog import history, leader
from headwater.catalog.history import RefreshOutcome
from headwater.catalog.install import is_at_home
from headwater.catalog.settings import Settings, read_settings
from headwater.errors import HeadwaterError, InvalidArgument
from headwater.results import Vacuumed
from headwater.schedule.log import Log
from headwater.schedule.plan import Plan, Start, make_plan
from headwater.schedule.quiet import move_quiet
from headwater.schedule.snapshot import read_snapshot
from headwater.schedule.watch import Watch, stop_unfollowed
from headwater.schedule.workers import Ended, Workers

STANDBY_SECONDS = 1.0  # between two attempts to lead
RELOAD_SECONDS = 5.0  # between two looks at the settings
BUFFER_SECONDS = 30.0  # between two looks at the buffers
PRUNE_SECONDS = 600.0
LONGEST_PAUSE = 30.0  # between two attempts to connect
LAKE_SECONDS = 60.0  # between two looks whether the lake is to be tidied
_NEVER = -1e9

Serve = Callable[[threading.Event], None]
Tidy = Callable[[Connection[Any]], Sequence[Vacuumed]]


@dataclass(frozen=True, slots=True)
class Task:
    """A database to look after: how to connect to it, and who serves its requests and its lake.

    `prepare` sees to the catalog, on every new connection of the one who leads.
    """

    name: str
    connect: Callable[[], Connection[Any]]
    prepare: Callable[[Connection[Any]], object] = lambda conn: None
    serve: Serve | None = None
    tidy: Tidy | None = None
    stop_seconds: Callable[[], float] = lambda: 30.0


class Daemon:
    """Looks after one database until it is told to stop."""

    def __init__(self, task: Task, log: Log) -> None:
        self._task = task
        self._log = log
        self._stopping = threading.Event()
        self._reloading = threading.Event()
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self.is_leading = False
        self.running = 0

    def stop(self) -> None:
        """Ask for the end; from a signal handler, too."""
        self._stopping.set()
        self.wake()

    def reload(self) -> None:
        """Have the settings read again at once."""
        self._reloading.set()
        self.wake()

    def wake(self) -> None:
        """End the pause of the loop."""
        try:
            self._bell.send(b"!")
        except BlockingIOError:
            return  # it rings already

    def run(self) -> None:
        """Lead whenever nobody else does; after a lost connection, try again."""
        pause = 1.0
        while not self._stopping.is_set():
            try:
                with self._task.connect() as conn:
                    self._task.prepare(conn)
                    pause = 1.0
                    self._wait_and_lead(conn)
            except (HeadwaterError, psycopg.Error) as error:
                text = str(error).strip().splitlines()[0]
                self._log("error", "disconnected", database=self._task.name, error=text)
                self._stopping.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _wait_and_lead(self, conn: Connection[Any]) -> None:
        is_told = False
        while not self._stopping.is_set():
            if leader.try_to_lead(conn, version("headwater")):
                self._log("info", "leading", database=self._task.name)
                self.is_leading = True
                try:
                    self._lead(conn)
                finally:
                    self.is_leading = False
                leader.resign(conn)
                return
            if not is_told:
                self._log("info", "standing by", database=self._task.name)
                is_told = True
            self._stopping.wait(STANDBY_SECONDS)

    def _lead(self, conn: Connection[Any]) -> None:
        """Have the refreshes done until told to stop or the connection is lost."""
        lost = history.close_lost(conn)
        if lost:
            self._log("warning", "closed lost refreshes", database=self._task.name, count=lost)
        over = threading.Event()
        beside = self._start_beside(over)
        workers = Workers(self._task.connect, self.wake)
        try:
            _Term(conn, workers, self._log, self._task).run(self._pause, self._reloading)
        finally:
            over.set()
            for ended in workers.finish(self._task.stop_seconds()):
                report(self._log, ended)
            for thread in beside:
                thread.join(self._task.stop_seconds())
        self._log("info", "stopped", database=self._task.name)

    def _start_beside(self, over: threading.Event) -> list[threading.Thread]:
        """Start what goes on beside the loop until the term is over."""
        wanted = [self._task.serve, self._tidy_lake if self._task.tidy is not None else None]
        threads = [threading.Thread(target=w, args=[over], daemon=True) for w in wanted if w]
        for thread in threads:
            thread.start()
        return threads

    def _tidy_lake(self, over: threading.Event) -> None:
        """Have the lake tidied from time to time; what failed is tried again the next time."""
        tidied, pause = time.monotonic(), LAKE_SECONDS
        while not over.is_set():
            try:
                with self._task.connect() as conn:
                    every = read_settings(conn).lake_vacuum_seconds
                    pause = min(every or LAKE_SECONDS, LAKE_SECONDS)
                    if every and time.monotonic() - tidied >= every:
                        tidied = time.monotonic()
                        self._tidy(conn)
            except Exception as error:  # noqa: BLE001 - Spark's and the lake's are of many kinds
                text = f"{type(error).__name__}: {error}".splitlines()[0]
                self._log("warning", "lake not tidied", database=self._task.name, error=text)
            over.wait(pause)

    def _tidy(self, conn: Connection[Any]) -> None:
        assert self._task.tidy is not None
        done = self._task.tidy(conn)
        facts = {"traces": len(done), "deleted": sum(each.deleted for each in done)}
        self._log("info", "tidied the lake", database=self._task.name, **facts)

    def _pause(self, conn: Connection[Any], seconds: float, running: int) -> bool | None:
        """Wait for a notification, a refresh that ends, or the time.

        True: somebody wants us to look; None: the end was asked for.
        """
        self.running = running
        if self._stopping.is_set():
            return None
        ears = [conn.fileno(), self._ear.fileno()]
        ready, _, _ = select.select(ears, [], [], max(seconds, 0.0))
        if ears[1] in ready:
            self._ear.recv(4096)
        is_called = ears[0] in ready and bool(list(conn.notifies(timeout=0)))
        return None if self._stopping.is_set() else is_called


class _Term:
    """The time for which one leads: settings, the queue, and when each thing was last done."""

    def __init__(self, conn: Connection[Any], workers: Workers, log: Log, task: Task) -> None:
        self._conn, self._workers, self._log, self._task = conn, workers, log, task
        self._settings = Settings()
        self._watch = Watch()
        self._queue: list[Start] = []
        self._now = 0.0  # the server's clock at the last look
        self._done: dict[str, float] = {}

    def run(
        self,
        pause: Callable[[Connection[Any], float, int], bool | None],
        reloading: threading.Event,
    ) -> None:
        """Look, start, wait, again and again."""
        self._conn.execute(f"LISTEN {leader.WAKE_CHANNEL}")
        look_at = 0.0
        while True:
            if reloading.is_set():
                reloading.clear()
                self._done.pop("reload", None)
            if self._is_time("reload", RELOAD_SECONDS):
                self._reload()
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + self._look()
            self._begin()
            is_called = pause(self._conn, look_at - time.monotonic(), len(self._workers))
            for ended in self._workers.collect():
                report(self._log, ended)
            if is_called is None:
                return
            if is_called:
                look_at = 0.0

    def _is_time(self, what: str, every: float) -> bool:
        now = time.monotonic()
        if now - self._done.get(what, _NEVER) < every:
            return False
        self._done[what] = now
        return True

    def _reload(self) -> None:
        """Read the settings as a new session has them: ALTER DATABASE and ROLE do not reach old
        ones."""
        with self._task.connect() as fresh:
            try:
                settings = read_settings(fresh)
            except InvalidArgument as error:  # what was in force stays so
                self._log("error", "bad setting", code=error.code, error=error.what)
                return
        if settings != self._settings:
            self._log.level = settings.log_level
            self._workers.forget_connections()
            self._settings = settings

    def _look(self) -> float:
        """Plan anew, and return the seconds until the next look."""
        leader.record_wake(self._conn)
        if not is_at_home(self._conn):
            return self._wait_for_restore()
        snapshot = read_snapshot(self._conn, self._settings, self._workers.running)
        plan = make_plan(snapshot)
        self._now, self._queue = snapshot.now, self._with_changes(plan.starts)
        names = {table.pgt_id: table.name for table in snapshot.tables}
        for pgt_id in plan.skips:
            self._skip(pgt_id, names[pgt_id])
        slots = len(self._workers), self._settings.max_concurrent_refreshes
        self._tell(self._watch.look(self._conn, snapshot, plan, slots))
        self._tidy()
        return self._pause_after(plan)

    def _with_changes(self, starts: Sequence[Start]) -> list[Start]:
        """Return what needs a refresh; where many are due, the quiet ones are moved at once."""
        free = [start for start in starts if self._workers.can_take(start)]
        if len(free) <= self._settings.max_concurrent_refreshes:
            return list(starts)
        try:
            moved = move_quiet(self._conn, free)
        except psycopg.DatabaseError as error:
            if self._conn.closed:
                raise
            self._log("warning", "not moved at once", error=str(error).strip().splitlines()[0])
            return list(starts)  # the refresh at fault will say so
        self._log("debug", "moved at once", count=len(moved))
        return [start for start in starts if start.pgt_id not in moved]

    def _wait_for_restore(self) -> float:
        """Start nothing in a database that is a copy of another; requests are served."""
        self._queue = []
        if self._is_time("restore", LONGEST_PAUSE):
            fix = "headwater init --restore"
            self._log("error", "restored from another database", database=self._task.name, fix=fix)
        return self._settings.scheduler_interval_ms / 1000

    def _pause_after(self, plan: Plan) -> float:
        """Look at every interval, and sooner where something becomes due between."""
        interval = self._settings.scheduler_interval_ms / 1000
        return min(interval, max(plan.look_again - self._now, 0.01))

    def _skip(self, pgt_id: int, name: str) -> None:
        why = "its last refresh still runs; the next one covers both"
        history.record_refresh(
            self._conn, pgt_id, RefreshOutcome(action="SKIP", status="SKIPPED", reason=why)
        )
        self._log("warning", "skipped", st=name, reason=why)

    def _tell(self, alerts: list[tuple[str, str]]) -> None:
        for event, name in alerts:
            self._log("warning", event, st=name)

    def _tidy(self) -> None:
        if self._is_time("buffers", BUFFER_SECONDS):
            self._tell(self._watch.look_at_buffers(self._conn, self._settings))
            self._tell(stop_unfollowed(self._conn))
            history.close_lost(self._conn)  # sessions of one that led before may end late
        if self._is_time("history", PRUNE_SECONDS):
            history.prune_history(self._conn, self._settings.history_retention)

    def _begin(self) -> None:
        """Start what is due and has room, oldest first; what is in the way of it ends first."""
        waiting: list[Start] = []
        for place, start in enumerate(self._queue):
            if len(self._workers) >= self._settings.max_concurrent_refreshes:
                waiting += self._queue[place:]
                break
            if self._workers.can_take(start):
                self._workers.begin(start, self._now)
            else:
                waiting.append(start)
        self._queue = waiting


def report(log: Log, ended: Ended) -> None:
    """Write down what became of a refresh."""
    if ended.error is not None:
        log("error", "refresh failed", st=ended.start.name, code=ended.error.code,
            retry=ended.error.retry.value, error=ended.error.what)  # fmt: skip
    elif ended.result is not None:
        level = "debug" if ended.result.action == "NO_DATA" else "info"
        log(level, "refreshed", st=ended.start.name, action=ended.result.action,
            rows=ended.result.rows, epoch=ended.result.epoch, seconds=ended.seconds,
            reason=ended.result.reason)  # fmt: skip
