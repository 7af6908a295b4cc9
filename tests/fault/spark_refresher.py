"""Refreshes a stream table on Spark and dies at a step of it: a process made to be killed.

The steps are those of the code itself: functions that it calls are wrapped from here, so that
production knows nothing of it. Before it dies it says which virtual machine it leaves behind.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import headwater
from headwater.api import refresh
from headwater.postgres.refresh import Stopwatch
from headwater.spark import compute, loading, session
from headwater.spark.compute import Compute
from headwater.spark.reading import Reading
from headwater.spark.traces import Trace

# Functions at whose end, or at whose beginning, a step is reached; the other steps are those that
# the refresh itself takes the time of: spark, land, apply.
AFTER = {
    "epoch": (refresh, "_opened"),
    "append": (Trace, "append"),
    "loaded": (loading, "_run"),
    "before commit": (refresh, "_clean_sole"),
}
BEFORE = {"after commit": (refresh, "_clean_shared")}
# It does not live long enough for what the second compiler would gain.
SHORT = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}


class Fuse:
    """Ends this process when a step is reached for the n-th time."""

    def __init__(self, step: str, times: int) -> None:
        self._step, self._left = step, times

    def reached(self, step: str) -> None:
        """Count a step, and die at the one that was asked for."""
        self._left -= step == self._step
        if self._left == 0:
            running = session._running
            jvm = f"{running.jvm.process.pid} {running.jvm.scratch}" if running else "none"
            sys.stdout.write(f"{jvm}\n")
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)


def arm(fuse: Fuse) -> None:
    """Wrap every step."""
    for step, (owner, name) in AFTER.items():
        _wrap(owner, name, partial(_then, fuse, step))
    for step, (owner, name) in BEFORE.items():
        _wrap(owner, name, partial(_first, fuse, step))
    _wrap(Compute, "stream", lambda call: _streamed(call(), fuse))
    _watch_executors(fuse)
    original = Stopwatch.step

    @contextmanager
    def timed(watch: Stopwatch, name: str) -> Iterator[None]:
        with original(watch, name):
            yield
        fuse.reached(name)

    setattr(Stopwatch, "step", timed)  # noqa: B010 - mypy refuses the plain form


def _wrap(owner: Any, name: str, around: Callable[[Callable[[], Any]], Any]) -> None:
    function = getattr(owner, name)
    setattr(owner, name, lambda *args, **named: around(lambda: function(*args, **named)))


def _then(fuse: Fuse, step: str, call: Callable[[], Any]) -> Any:
    result = call()
    fuse.reached(step)
    return result


def _first(fuse: Fuse, step: str, call: Callable[[], Any]) -> Any:
    fuse.reached(step)
    return call()


def _watch_executors(fuse: Fuse) -> None:
    """Reach the step "range" when executors have begun a file of a first load."""
    run = loading._run

    def watched(lake: Any, plan: Any, reading: Reading) -> Any:
        threading.Thread(target=watch, args=(Path(reading.source.url),), daemon=True).start()
        return run(lake, plan, reading)

    def watch(place: Path) -> None:
        while not list(place.glob("*.parquet")):
            time.sleep(0.001)
        fuse.reached("range")

    setattr(loading, "_run", watched)  # noqa: B010 - as below


def _streamed(batches: Iterator[Any], fuse: Fuse) -> Iterator[Any]:
    """Spark has written its result to files, and the first of them has been read."""
    for batch in batches:
        fuse.reached("stream")
        yield batch


def main(dsn: str, lake: str, name: str, step: str, times: str) -> None:
    arm(Fuse(step, int(times)))
    if step == "stream":
        compute.MANY_ROWS = 0  # all results take the way of large ones
    with headwater.connect(dsn, lake=lake, spark_options=SHORT) as hw:
        hw.refresh_stream_table(name)


if __name__ == "__main__":
    main(*sys.argv[1:])
