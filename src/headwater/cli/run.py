"""`headwater run`."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.arguments import json_option
from headwater.cli.target import Target

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

    from psycopg import Connection

    from headwater.schedule.configuration import Configuration, Database
    from headwater.schedule.log import Log
    from headwater.schedule.run import Daemon, Task


@click.command()
@click.option(
    "--config",
    envvar="HEADWATER_CONFIG",
    show_envvar=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Databases and settings, in TOML; else the database of --dsn or --home.",
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Where to serve the status page, and figures for Prometheus at /metrics; or off."
    "  [default: 127.0.0.1:9187, if it is free]",
)
@json_option
@click.pass_obj
def run(target: Target, config: Path | None, http: str | None, as_json: bool) -> None:
    """Keep all stream tables within their lag, until told to stop.

    Of several such processes one leads each database, and the others stand by to take over. It
    also carries out what was asked for by SQL functions. SIGTERM and SIGINT end it, after the
    refreshes that run; SIGHUP has settings read again. What it does goes to standard error, one
    line an event; with --json, one JSON document a line.
    """
    from headwater.schedule.configuration import read_configuration  # noqa: PLC0415
    from headwater.schedule.log import Log  # noqa: PLC0415

    log = Log(lambda line: click.echo(line, err=True), as_json=as_json)

    def read() -> Configuration:
        return read_configuration(config, os.environ)

    with _databases(target, read()) as databases:
        _Process(read, databases, log).run(http)


@contextmanager
def _databases(target: Target, configuration: Configuration) -> Iterator[tuple[Database, ...]]:
    """Yield the databases of the file, or else the one of the global options."""
    from headwater.schedule.configuration import Database  # noqa: PLC0415

    if configuration.databases:
        yield configuration.databases
        return
    with target.connect() as hw:
        lake = target.lake_url()
        hw.connection.close()  # the daemon has its own
        yield (Database(hw.dsn, lake, target.spark_master, target.spark_options),)


class _Process:
    """The daemons of all databases, one thread each, and the signals."""

    def __init__(
        self, read: Callable[[], Configuration], databases: tuple[Database, ...], log: Log
    ) -> None:
        from headwater.schedule.run import Daemon  # noqa: PLC0415

        self._read, self._log = read, log
        self._configuration = read()
        self._fault: str | None = None  # of the file, as it was last told
        self._tasks = [self._task(database) for database in databases]
        self._reach()
        self._daemons: list[Daemon] = [Daemon(task, log) for task in self._tasks]

    def run(self, http: str | None) -> None:
        """Run until a signal ends it."""
        stop = threading.Event()

        def ask(number: int, frame: FrameType | None) -> None:
            stop.set()
            for daemon in self._daemons:
                daemon.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, ask)
        signal.signal(signal.SIGHUP, lambda number, frame: self._reload())
        with self._served_page(http or self._configuration.http):
            threads = [threading.Thread(target=daemon.run) for daemon in self._daemons]
            for thread in threads:
                thread.start()
            self._follow_file(threads)

    def _follow_file(self, threads: Sequence[threading.Thread]) -> None:
        """Take over what the file comes to say, until all threads have ended."""
        from headwater.schedule.run import RELOAD_SECONDS  # noqa: PLC0415

        looked_at = time.monotonic()
        while alive := [thread for thread in threads if thread.is_alive()]:
            alive[0].join(0.5)
            if time.monotonic() - looked_at >= RELOAD_SECONDS:
                looked_at = time.monotonic()
                self._reload(is_asked=False)

    @contextmanager
    def _served_page(self, given: str | None) -> Iterator[None]:
        """Serve the status page while the block lasts, unless that is off."""
        server = None if given == "off" else self._serve(given)
        try:
            yield
        finally:
            if server is not None:
                server.shutdown()
                server.server_close()

    def _serve(self, given: str | None) -> ThreadingHTTPServer | None:
        """Start serving; an address that nobody asked for may be taken."""
        from headwater.errors import InvalidArgument  # noqa: PLC0415
        from headwater.schedule.metrics import Source  # noqa: PLC0415
        from headwater.status.server import DEFAULT_ADDRESS, parse_address, serve  # noqa: PLC0415

        pairs = zip(self._tasks, self._daemons, strict=True)
        sources = [Source(task.name, task.connect, _state_of(daemon)) for task, daemon in pairs]
        address = parse_address(given or DEFAULT_ADDRESS, self._configuration.http_token)
        try:
            server = serve(address, sources)
        except InvalidArgument as error:
            if given is not None:
                raise
            self._log("warning", "no status page", error=error.what, reason=error.why)
            return None
        self._log("info", "status page", url=f"http://{given or DEFAULT_ADDRESS}/")
        return server

    def _task(self, database: Database) -> Task:
        from headwater.api.facade import default_lake, open_connection  # noqa: PLC0415
        from headwater.api.lake import vacuum_if_used  # noqa: PLC0415
        from headwater.catalog.install import install  # noqa: PLC0415
        from headwater.database.serve import serve_until  # noqa: PLC0415
        from headwater.schedule.configuration import with_settings  # noqa: PLC0415
        from headwater.schedule.run import Task  # noqa: PLC0415
        from headwater.spark.lake import Lake  # noqa: PLC0415
        from headwater.spark.session import SparkOptions  # noqa: PLC0415

        spark = SparkOptions(database.spark_master, database.spark_options)
        lake = Lake(database.lake or default_lake("./.headwater"), {}, spark)

        def connect() -> Connection[Any]:
            settings = self._configuration.settings
            return open_connection(with_settings(database.dsn, settings, os.environ), lake)

        return Task(
            database.name,
            connect,
            install,
            lambda over: serve_until(connect, self._served, over),
            vacuum_if_used,
            lambda: self._configuration.stop_seconds,
        )

    def _reach(self) -> None:
        """Try every database: one that is away comes later, if it is not the only one."""
        from headwater.errors import ServerUnreachable  # noqa: PLC0415

        away: list[ServerUnreachable] = []
        for task in self._tasks:
            try:
                with task.connect() as conn:
                    task.prepare(conn)
            except ServerUnreachable as error:
                away.append(error)
        if len(away) == len(self._tasks):
            raise away[0]

    def _served(self, request: Any, error: Exception | None) -> None:
        facts = {"request": request.request_id, "verb": request.verb, "role": request.requester}
        if error is None:
            self._log("info", "request done", **facts)
        else:
            self._log("warning", "request failed", **facts, error=str(error).splitlines()[0])

    def _reload(self, *, is_asked: bool = True) -> None:
        """Take over the settings of the file; the databases are those of the start.

        Unless it was asked for, only what is new is taken over, and told.
        """
        from headwater.errors import InvalidArgument  # noqa: PLC0415

        try:
            found = self._read()
        except InvalidArgument as error:
            if is_asked or error.what != self._fault:
                self._log("error", "bad configuration", code=error.code, error=error.what)
            self._fault = error.what
            return
        self._fault = None
        if found == self._configuration and not is_asked:
            return
        self._configuration = found
        for daemon in self._daemons:
            daemon.reload()
        self._log("info", "reloaded")


def _state_of(daemon: Daemon) -> Callable[[], dict[str, int]]:
    return lambda: {"leading": int(daemon.is_leading), "running_refreshes": daemon.running}
