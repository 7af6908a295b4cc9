"""Daemons for the tests: real processes, and what they wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

MAIN = "from headwater.cli import main; main()"
# Waits inside the server for as long as somebody has the lock 7.
SLOWLY = """
CREATE FUNCTION slowly(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
$$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN n; END $$
"""
PATIENCE = 60.0  # seconds after which a test gives up; none asserts how quick a thing was


class Process:
    """A `headwater run`, and the events that it logged."""

    def __init__(self, dsn: str, *options: str, **environment: str) -> None:
        command = [sys.executable, "-c", MAIN, "--dsn", dsn, "run", "--json", *options]
        settings = {
            "HEADWATER_SCHEDULER_INTERVAL_MS": "200",
            "HEADWATER_LOG_LEVEL": "debug",
            "HEADWATER_HTTP": "off",
        }
        self._process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **settings, **environment},
        )
        self.pid = self._process.pid
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            known = line.startswith("{")
            self.events.append(json.loads(line) if known else {"event": "said", "text": line})

    def wait_for(self, event: str, **facts: object) -> dict[str, Any]:
        """Return the first event with these facts."""

        def find() -> dict[str, Any] | None:
            wanted = {"event": event, **facts}.items()
            found = next((e for e in list(self.events) if wanted <= e.items()), None)
            assert found or self._process.poll() is None, self.events[-20:]
            return found

        found: dict[str, Any] = until(find, lambda: self.events[-20:])
        return found

    def end(self, number: int = 15) -> int:
        """Send a signal, and return the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        code = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def close(self) -> None:
        """Kill it if it still runs, and let go of what it wrote."""
        self.end(9)
        assert self._process.stderr is not None
        self._process.stderr.close()


@contextmanager
def daemon(dsn: str, *options: str, **environment: str) -> Iterator[Process]:
    """Run a daemon, and kill it at the end if it still runs."""
    process = Process(dsn, *options, **environment)
    try:
        yield process
    finally:
        process.close()


def waiting(conn: psycopg.Connection[Any]) -> int:
    """Return how many sessions wait for the lock 7."""
    row = conn.execute(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted"
    ).fetchone()
    assert row is not None
    return int(row[0])


def until(
    find: Callable[[], Any], state: Callable[[], object] = lambda: "", patience: float = PATIENCE
) -> Any:
    """Ask again and again until the answer is true, and return it."""
    end = time.monotonic() + patience
    while not (found := find()):
        assert time.monotonic() < end, state()
        time.sleep(0.05)
    return found
