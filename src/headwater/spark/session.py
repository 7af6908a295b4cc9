"""Turns a user's Spark options into the one Spark session of this process.

Spark runs at most one context per process, in a Java virtual machine that pyspark starts and talks
to. What that machine prints goes to a log in a scratch directory, which also holds the warehouse
and is deleted when the session stops; the end of the log is quoted in errors.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import InvalidArgument, MissingComponent, SparkFailed
from headwater.spark.java import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
_TAIL_LINES = 8
_STOP_SECONDS = 30

_REQUIRED = {
    "spark.sql.ansi.enabled": "true",  # overflow, division by zero, bad casts raise: PostgreSQL's
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",  # "A" and "a" are two columns in PostgreSQL
    # A product that needs more than 38 digits raises; else digits after the point would go.
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
}
_SETTINGS = {
    **_REQUIRED,
    "spark.app.name": "headwater",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",  # Hive's would write metastore_db where we are
    "spark.sql.adaptive.enabled": "true",  # does nothing for deltas, and helps a full refresh
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A trace is a list of files; Spark would start a job to look at more than 32 of them.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Keys of a small delta prune row groups; longer lists than this gain nothing over a scan.
    "spark.sql.parquet.pushdown.inFilterThreshold": "500",
    # The older form counts in nanoseconds, in which others read no year after 2262.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Spark describes every plan, and one with parts that are kept grows with each of them.
    "spark.sql.maxPlanStringLength": "65536",
}
_LOCAL_SETTINGS = {
    # The executors are on this machine: no other one needs to reach the driver.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Deltas are small: with 2 partitions a refresh took 231 ms where Spark's 200 took 850.
    "spark.sql.shuffle.partitions": "2",
}
_DELTA_LISTS = {
    "spark.jars.packages": DELTA_PACKAGE,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
}
_DELTA_SETTINGS = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """How to run Spark: `options` are Spark's own, by name, and win over ours.

    `delta` loads Delta's connector, which the engine itself does not need: it reads traces as
    Parquet files and writes them through delta-rs. The first such start downloads the connector.
    """

    master: str = "local[*]"
    options: tuple[tuple[str, str], ...] = ()
    delta: bool = False


@dataclass(frozen=True)
class _Running:
    """A started session with what it takes to end it."""

    options: SparkOptions
    session: SparkSession
    quick: SparkSession
    jvm: _Jvm


@dataclass(frozen=True)
class _Jvm:
    """The virtual machine that pyspark talks to through `gateway`; `scratch` is its directory."""

    gateway: Any  # py4j is not typed
    scratch: Path
    owner: int  # the process that started it; a fork of that one must leave it alone

    @property
    def process(self) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = self.gateway.proc
        return process

    def is_alive(self) -> bool:
        """Say whether the virtual machine still runs."""
        return self.process.poll() is None

    def find_exit_code(self) -> int | None:
        """Return how the virtual machine ended; its connections may break a moment earlier."""
        try:
            return self.process.wait(1)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> None:
        """End the virtual machine, which goes when its standard input closes; delete its files."""
        self.gateway.shutdown()
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)


# The mutable state of this module: Spark itself allows one context per process.
_running: _Running | None = None
_lock = threading.RLock()


def start_session(options: SparkOptions | None = None) -> SparkSession:
    """Return the running session if it has equal options, or start one.

    A session whose virtual machine has died is replaced by a new one.
    """
    global _running  # noqa: PLW0603 - see above
    wanted = options or SparkOptions()
    with _lock:
        if _running is not None and not _running.jvm.is_alive():
            stop_session()
        if _running is None:
            _running = _start(wanted)
            atexit.register(stop_session)
        if _running.options != wanted:
            raise InvalidArgument(
                "Spark runs already, with other options",
                why=f"a process has one Spark session, and this one runs {_running.options}",
                fix="use the same options, or call stop_session() first",
            )
        return _running.session


def quick_session(options: SparkOptions | None = None) -> SparkSession:
    """Return a session beside that one for small statements: planned once, not stage by stage."""
    start_session(options)
    with _lock:
        assert _running is not None
        return _running.quick


def stop_session() -> None:
    """Stop the session and its virtual machine; without one, or in a fork, do nothing."""
    global _running
    with _lock:
        if _running is None or _running.jvm.owner != os.getpid():
            return
        running, _running = _running, None
        atexit.unregister(stop_session)
        if running.jvm.is_alive():
            running.session.stop()
        _forget_context()
        running.jvm.end()


def kill_machine() -> None:
    """End the virtual machine at once, whatever it is at: who waits for it gets an error.

    The next start replaces it. Without one, or in a fork, do nothing.
    """
    running = _running  # who starts or stops one holds the lock, perhaps for ever
    if running is not None and running.jvm.owner == os.getpid():
        running.jvm.process.kill()


@contextmanager
def spark_errors() -> Iterator[None]:
    """Raise SparkFailed instead of an error that means that the virtual machine has died.

    Other errors, such as that of a failed statement, pass unchanged.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - an optional package

    try:
        with _quiet_py4j():
            yield
    except (Py4JError, OSError) as error:
        code = None if _running is None else _running.jvm.find_exit_code()
        if _running is None or code is None:
            raise
        logged = _read_log(_running.jvm.scratch)
        raise SparkFailed(
            "Spark has died",
            why="\n".join([f"its virtual machine ended with code {code}", *logged]),
            fix="try again, which starts Spark anew; if memory ran out, raise spark.driver.memory",
        ) from error


def spark_settings(options: SparkOptions, warehouse: Path) -> dict[str, str]:
    """Return what Spark is started with: ours, and above them the user's."""
    user = dict(options.options)
    settings = {"spark.sql.warehouse.dir": str(warehouse), **_SETTINGS}
    if options.master.startswith("local"):  # local[n], and local-cluster[n,cores,memory]
        settings |= _LOCAL_SETTINGS
    if options.delta:
        settings |= _DELTA_SETTINGS
        user |= {name: _extend(user.get(name, ""), item) for name, item in _DELTA_LISTS.items()}
    _check_required(user)
    return {**settings, "spark.master": options.master, **user}


def executors_python(
    settings: Mapping[str, str], environment: Mapping[str, str] = os.environ
) -> str:
    """Return the Python that executors run: on this machine ours, which has what they need."""
    ours = sys.executable if settings["spark.master"].startswith("local") else "python3"
    named = environment.get("PYSPARK_PYTHON") or settings.get("spark.pyspark.python")
    return named or ours


def _check_required(user: Mapping[str, str]) -> None:
    """Refuse what would change results."""
    for name, value in _REQUIRED.items():
        if user.get(name, value).lower() != value.lower():
            raise InvalidArgument(
                f"the Spark option {name} cannot be {user[name]}",
                why=f"results are those of PostgreSQL only if it is {value}",
                fix="leave the option out",
            )


def _extend(items: str, item: str) -> str:
    """Add `item` to a list with commas, unless the user lists it, in whatever version."""
    name = item.rpartition(":")[0] or item
    return items if name in items else ",".join(filter(None, (items, item)))


def _start(options: SparkOptions) -> _Running:
    _require_pyspark()
    require_java()
    _require_no_other_context()
    scratch = Path(tempfile.mkdtemp(prefix="headwater-spark-"))
    settings = spark_settings(options, scratch / "warehouse")
    try:
        jvm = _launch(settings, scratch)
        session = _connect(jvm, settings)
        quick = session.newSession()
        quick.conf.set("spark.sql.adaptive.enabled", "false")
        return _Running(options, session, quick, jvm)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _launch(settings: dict[str, str], scratch: Path) -> _Jvm:
    """Start the virtual machine, with everything that it prints in the log."""
    from pyspark import SparkConf  # noqa: PLC0415 - the CLI starts without pyspark
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with (scratch / "log").open("ab") as log, _failing(scratch):
        streams = {"stdout": log, "stderr": log}
        gateway = launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
    return _Jvm(gateway, scratch, os.getpid())


def _connect(jvm: _Jvm, settings: dict[str, str]) -> SparkSession:
    """Start Spark in the virtual machine, which ends if that fails."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - as above
    from pyspark.sql import SparkSession  # noqa: PLC0415

    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    try:
        with _failing(jvm.scratch):
            # Not through the builder: SPARK_REMOTE in the environment would turn it elsewhere.
            session = SparkSession(SparkContext(conf=conf, gateway=jvm.gateway))
            session.sparkContext.pythonExec = executors_python(settings)
    except BaseException:
        _forget_context()
        jvm.end()
        raise
    os.truncate(jvm.scratch / "log", 0)  # what a good start prints explains no later error
    return session


@contextmanager
def _quiet_py4j() -> Iterator[None]:
    """Keep py4j from logging, to the root logger, the broken connection that it also raises."""

    def is_foreign(record: logging.LogRecord) -> bool:
        return "py4j" not in Path(record.pathname).parts

    root = logging.getLogger()
    root.addFilter(is_foreign)
    try:
        yield
    finally:
        root.removeFilter(is_foreign)


@contextmanager
def _failing(scratch: Path) -> Iterator[None]:
    """Turn the errors of a start into SparkFailed, with the end of the log."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - an optional package
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        raise SparkFailed(
            "Spark does not start",
            why="\n".join([*_without_frames(str(error))[:2], *_read_log(scratch)]),
            fix="correct the master or the options that this names, and see docs/how-to/spark.md",
        ) from error


def _read_log(scratch: Path) -> list[str]:
    """Return the last lines of the log."""
    log = scratch / "log"
    return _without_frames(log.read_text(errors="replace"))[-_TAIL_LINES:] if log.exists() else []


def _without_frames(text: str) -> list[str]:
    """Return the lines of `text` that are not frames of a stack in Java."""
    lines = (line.rstrip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(("\tat ", "\t..."))]


def _require_pyspark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise MissingComponent(
            "Spark is not installed",
            why="the Spark engine needs the package pyspark",
            fix="pip install 'headwater[spark]'",
        )


def _require_no_other_context() -> None:
    from pyspark import SparkContext  # noqa: PLC0415 - as above

    if SparkContext._active_spark_context is not None:
        raise InvalidArgument(
            "this process runs a Spark session that headwater did not start",
            why="a process has one Spark session, and headwater's needs settings of its own",
            fix="stop that session, or call headwater from another process",
        )
    _forget_context()


def _forget_context() -> None:
    """Make pyspark forget a virtual machine that is gone or about to go.

    `stop` leaves it in place for the next context, which would then ignore options of the launch,
    such as packages and the driver's memory.
    """
    from pyspark import SparkContext  # noqa: PLC0415 - as above
    from pyspark.sql import SparkSession  # noqa: PLC0415

    context = SparkContext._active_spark_context
    if context is not None:
        context._jsc = None  # nobody is there to be told
        context.stop()
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    SparkContext._gateway = None
    SparkContext._jvm = None
