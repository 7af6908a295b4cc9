"""The soak: writers, accidents and a daemon for some time, and then everything is as it should."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import psutil  # type: ignore[import-untyped]
import psycopg

from tests.daemons import until
from tests.servers import Server
from tests.soak.accidents import KILLS, Stage, accidents
from tests.soak.watch import Calm, Seen, watching
from tests.soak.world import TABLES, create, find_differences, pending_rows
from tests.soak.writers import writing

Connection = psycopg.Connection[Any]

PATIENCE = 240.0  # seconds for a first start of Spark, and for the last changes, on a busy machine
WITHIN = 0.95  # of the samples
GROWTH = 1.25, 50.0  # times and megabytes that a daemon may have more in the end

FILLED = "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE is_populated"
FAILED = """
SELECT st.pgt_name, h.error_class, h.error_code, left(h.error_message, 300)
  FROM pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables st USING (pgt_id)
 WHERE h.status = 'FAILED' AND h.error_class NOT IN ('system', 'schema')
"""


class Soak:
    """One run of so many seconds, by one seed, and the story of what was done, in order."""

    def __init__(self, server: Server, home: Path, seconds: float, seed: int) -> None:
        self._random = Random(seed)
        self._stage = Stage(server, server.create_database(), home, self._random)
        self._seconds, self._seed = seconds, seed
        self._began = time.monotonic()
        self.story = [f"seed {seed}, {seconds:.0f} seconds"]

    def run(self, *, is_timed: bool) -> None:
        """Do all of it; a failure tells the story. `is_timed`: lags and memory are judged, too,
        which wants a machine with nothing else to do."""
        try:
            seen = self._run()
            self._tell(self._weighed(seen))
            if is_timed:
                self._judge(seen)
        except BaseException as error:
            error.add_note("what was done:\n  " + "\n  ".join(self.story))
            raise
        finally:
            self._stage.end_daemon()
            self._stage.server.drop_database(self._stage.dsn)
        _, alive = psutil.wait_procs(self._stage.machines, timeout=PATIENCE)
        assert not alive, "virtual machines outlive their daemons"

    def _run(self) -> Seen:
        stage, calm, stop = self._stage, Calm(), Event()
        with stage.verbs() as hw:
            create(hw)
        stage.start_daemon()
        self._wait(lambda conn: conn.execute(FILLED).fetchall() == [(len(TABLES),)])
        self._tell("all tables are filled")
        with watching(stage, calm, stop) as seen, writing(stage.dsn, self._seed, stop) as ended:
            self._befall(calm, stop)
        self._tell(f"writers: {dict(sum(ended, Counter[str]()))}")
        self._tell(str(seen))
        self._settle()
        assert seen.compared > 0
        with psycopg.connect(stage.dsn) as conn:
            assert conn.execute(FAILED).fetchall() == []
        return seen

    def _befall(self, calm: Calm, stop: Event) -> None:
        """Let accidents happen; in the last third the daemon is left alive, to see it grow."""
        gap = min(self._seconds / 18, 20.0)
        end = time.monotonic() + self._seconds
        for accident in accidents(self._random):
            if stop.wait(min(self._random.uniform(0.5, 1.5) * gap, end - time.monotonic())):
                return
            left = end - time.monotonic()
            if left <= gap:
                break
            if accident is KILLS[0] and left < self._seconds / 3:
                continue
            self._tell(accident.name)
            with calm.broken_by(accident):
                accident.happen(self._stage)
        stop.wait(max(end - time.monotonic(), 0))

    def _settle(self) -> None:
        """Nobody writes any more: every table becomes equal to its query, every buffer empty."""
        self._wait(lambda conn: not find_differences(conn), find_differences)
        self._tell("every table equals its query")
        self._wait(lambda conn: not pending_rows(conn), pending_rows)
        with self._stage.verbs() as hw:
            until(lambda: not hw.health_check(), hw.health_check, PATIENCE)
            assert {line.status for line in hw.pgt_status()} == {"ACTIVE"}

    def _weighed(self, seen: Seen) -> str:
        early, late = seen.growth_of(self._stage.daemon.pid)
        assert self._stage.end_daemon(signal.SIGTERM) == 0
        return f"memory of the last daemon: {early:.0f} MB, then {late:.0f} MB"

    def _judge(self, seen: Seen) -> None:
        """Say whether lags and memory were as promised."""
        early, late = seen.growth_of(self._stage.daemon.pid)
        assert early > 0, "the last daemon did not use Spark"
        assert seen.counted.total() > seen.taken.total() / 4, "hardly a sample counts"
        assert seen.share >= WITHIN
        assert late < GROWTH[0] * early + GROWTH[1]

    def _wait(self, find: Any, state: Any = lambda conn: "") -> None:
        with psycopg.connect(self._stage.dsn, autocommit=True) as conn:
            until(lambda: find(conn), lambda: self._state(state(conn)), PATIENCE)

    def _state(self, of: object) -> str:
        told = [event for event in self._stage.daemon.events if event["event"] != "skipped"]
        return f"{of}\nthe daemon said: {told[-20:]}"

    def _tell(self, what: str) -> None:
        self.story.append(f"{time.monotonic() - self._began:7.1f} s  {what}")
