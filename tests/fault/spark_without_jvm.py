"""Refreshes on Spark while its virtual machine is killed: a process that must survive that.

Prints, for each moment of the blow, the code of the error and the action of the refresh after it.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import psycopg

import headwater
from headwater.errors import HeadwaterError
from headwater.spark import compute, relations, session, traces


def kill() -> None:
    """Kill the virtual machine and wait until it is gone."""
    running = session._running
    assert running is not None
    os.kill(running.jvm.process.pid, signal.SIGKILL)
    running.jvm.process.wait()


def before_reading(*args: Any) -> Any:
    """Kill it when a trace is opened."""
    kill()
    return ORIGINALS["read_trace"](*args)


def before_collecting(self: compute.Compute, statement: str) -> Any:
    """Kill it when the statement has been planned, and before it runs."""
    frame = ORIGINALS["_run"](self, statement)
    kill()
    return frame


# It does not live long enough for what the second compiler would gain.
SHORT = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
ORIGINALS: dict[str, Any] = {"read_trace": traces.read_trace, "_run": compute.Compute._run}
BLOWS = (
    (relations, "read_trace", before_reading),
    (compute.Compute, "_run", before_collecting),
)


def main(dsn: str, lake: str, name: str, change: str) -> None:
    with (
        headwater.connect(dsn, lake=lake, spark_options=SHORT) as hw,
        psycopg.connect(dsn, autocommit=True) as conn,
    ):
        session.start_session(session.SparkOptions(options=tuple(SHORT.items())))
        for owner, attribute, blow in BLOWS:
            conn.execute(change.encode())
            setattr(owner, attribute, blow)
            try:
                hw.refresh_stream_table(name)
            except HeadwaterError as error:
                sys.stdout.write(f"{error.code} ")
            setattr(owner, attribute, ORIGINALS[attribute])
            sys.stdout.write(f"{hw.refresh_stream_table(name).action}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
