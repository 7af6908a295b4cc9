"""One home, one server: it outlives any user that is killed, and goes with the last to leave."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import unquote

import psycopg
import pytest

from headwater import embedded
from headwater.errors import InvalidArgument, MissingComponent, ServerUnreachable
from tests.servers import Embedded

pytestmark = pytest.mark.skipif(
    Embedded.find_missing() is not None, reason=f"not run: {Embedded.find_missing()}"
)

# Starts the server of the home given, tells its DSN, and ends when its input does.
USER = """
import sys
from pathlib import Path
from headwater import embedded
server = embedded.start(Path(sys.argv[1]))
print(server.dsn, flush=True)
sys.stdin.read()
server.stop()
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory with a short name: the socket fits into it."""
    with tempfile.TemporaryDirectory(prefix="hw-", dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory) / "home"


def test_data_survive_a_stop(home: Path) -> None:
    server = embedded.start(home)
    assert server.dsn == f"postgresql://postgres@/postgres?host={quoted(home)}&port=5432"
    execute(server.dsn, "CREATE TABLE kept AS SELECT 1 AS x")
    server.stop()
    server.stop()
    assert not is_running(server.dsn)
    with started(home) as again:
        assert query(again.dsn, "TABLE kept") == [(1,)]


def test_server_is_18_logical_and_local(home: Path) -> None:
    with started(home) as server:
        settings = ["server_version_num", "wal_level", "listen_addresses"]
        version, *rest = [str(query(server.dsn, f"SHOW {name}")[0][0]) for name in settings]
        order = query(server.dsn, "SELECT x FROM unnest(ARRAY['b', 'B', 'é', 'a']) AS x ORDER BY x")
    assert (int(version) // 10000, rest) == (18, ["logical", ""])
    assert [text for (text,) in order] == ["B", "a", "b", "é"]


def test_socket_is_open_to_the_owner_only(home: Path) -> None:
    with started(home):
        assert (home / "postgres").stat().st_mode & 0o777 == 0o700
        assert (home / "postgres" / ".s.PGSQL.5432").stat().st_mode & 0o777 == 0o700


def test_last_of_two_in_one_process_stops_it(home: Path) -> None:
    first, second = embedded.start(home), embedded.start(home)
    assert first.dsn == second.dsn
    first.stop()
    assert is_running(second.dsn)
    second.stop()
    assert not is_running(second.dsn)


def test_two_processes_share_it(home: Path) -> None:
    with user(home) as (first, first_dsn), user(home) as (second, second_dsn):
        assert first_dsn == second_dsn
        leave(first)
        assert is_running(second_dsn)
        leave(second)
        assert not is_running(second_dsn)


def test_many_start_at_once(home: Path) -> None:
    users = [subprocess.Popen(command(home), stdin=-1, stdout=-1, text=True) for _ in range(4)]
    assert len({read_dsn(process) for process in users}) == 1
    for process in users:
        leave(process)
    with started(home) as server:
        assert query(server.dsn, "SELECT 1") == [(1,)]


def test_killed_user_leaves_it_to_the_others(home: Path) -> None:
    with user(home) as (first, dsn), user(home) as (second, _):
        execute(dsn, "CREATE TABLE kept AS SELECT 1 AS x")
        first.kill()
        first.wait()
        assert query(dsn, "TABLE kept") == [(1,)]
        leave(second)
        assert not is_running(dsn)


def test_next_user_finds_what_a_killed_one_left_running(home: Path) -> None:
    with user(home) as (first, dsn):
        execute(dsn, "CREATE TABLE kept AS SELECT 1 AS x")
        first.kill()
        first.wait()
    assert is_running(dsn)
    with started(home) as server:
        assert server.dsn == dsn
        assert query(dsn, "TABLE kept") == [(1,)]
    assert not is_running(dsn)


def test_killed_server_starts_again(home: Path) -> None:
    with started(home) as server:
        execute(server.dsn, "CREATE TABLE kept AS SELECT 1 AS x")
        with psycopg.connect(server.dsn):  # a session that outlives its postmaster for a moment
            os.kill(postmaster(home), signal.SIGKILL)
            with started(home) as again:
                assert query(again.dsn, "TABLE kept") == [(1,)]


def test_unfinished_initdb_is_made_again(home: Path) -> None:
    half = home / "postgres" / "data.new-1"
    half.mkdir(parents=True)
    (home / "postgres").chmod(0o700)
    with started(home) as server:
        assert query(server.dsn, "SELECT 1") == [(1,)]
    assert not half.exists()


@pytest.mark.parametrize("name", ["d" * 110, 'it\'s, "quoted" $HOME ö'])
def test_home_that_no_socket_fits_into(home: Path, name: str) -> None:
    with started(home / name) as server:
        place = Path(unquote(server.dsn.partition("host=")[2].partition("&")[0]))
        assert place.parent == Path(tempfile.gettempdir())
        assert query(server.dsn, "SELECT 1") == [(1,)]
    assert not place.exists()
    with started(home / name) as server:
        assert query(server.dsn, "SELECT 1") == [(1,)]


def test_clients_settings_do_not_reach_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "1234")
    monkeypatch.setenv("PGDATA", "/nowhere")
    with started(home) as server:
        assert query(server.dsn, "SHOW port") == [("5432",)]


def test_fault_of_the_server_is_told(home: Path) -> None:
    embedded.start(home).stop()
    with (home / "postgres" / "data" / "postgresql.conf").open("a") as conf:
        conf.write("no_such_parameter = 1\n")
    with pytest.raises(ServerUnreachable, match="does not start") as caught:
        embedded.start(home)
    assert str(home / "postgres" / "log") in caught.value.fix
    assert "no_such_parameter" in caught.value.why


def test_home_that_is_a_file(home: Path) -> None:
    home.write_text("")
    with pytest.raises(InvalidArgument, match="cannot be used"):
        embedded.start(home)


def test_missing_wheel(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(MissingComponent) as caught:
        embedded.start(home)
    assert caught.value.fix == "pip install 'headwater[embedded]'"
    assert not home.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
class TestUsers:
    def test_ordinary_user(self, home: Path) -> None:
        assert as_nobody(home) == "1"
        assert (home / "postgres").owner() == "nobody"

    def test_root_runs_it_as_the_owner(self, home: Path) -> None:
        as_nobody(home)
        with started(home):
            assert Path(f"/proc/{postmaster(home)}").owner() == "nobody"

    def test_data_of_another_user(self, home: Path) -> None:
        embedded.start(home).stop()
        home.chmod(0o755)
        assert as_nobody(home).startswith("HW-102: ")

    def test_root_opens_no_more_than_the_way(self, home: Path) -> None:
        home.mkdir()
        home.chmod(0o700)
        with started(home):
            assert home.stat().st_mode & 0o777 == 0o701


@contextmanager
def started(home: Path) -> Iterator[embedded.EmbeddedServer]:
    server = embedded.start(home)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def user(home: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that uses the server of `home`."""
    process = subprocess.Popen(command(home), stdin=-1, stdout=-1, text=True)
    try:
        yield process, read_dsn(process)
    finally:
        leave(process)


def command(home: Path) -> list[str]:
    return [sys.executable, "-c", USER, str(home)]


def read_dsn(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def leave(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.communicate()
    for stream in (process.stdin, process.stdout):
        if stream is not None and not stream.closed:
            stream.close()


def as_nobody(home: Path) -> str:
    """Start the server as user nobody, and return one row of it or the error."""
    home.mkdir(exist_ok=True)
    nobody = pwd.getpwnam("nobody")
    if not (home / "postgres").exists():
        shutil.chown(home, nobody.pw_uid, nobody.pw_gid)
    context = get_context("fork")  # the child may not read the interpreter's files any more
    ours, theirs = context.Pipe()
    child = context.Process(target=answer_as, args=(nobody, home, theirs))
    child.start()
    theirs.close()
    text = ours.recv()
    child.join()
    assert isinstance(text, str)
    return text


def answer_as(account: pwd.struct_passwd, home: Path, pipe: Connection) -> None:
    os.setgroups([])
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)
    try:
        with started(home) as server:
            pipe.send(str(query(server.dsn, "SELECT 1")[0][0]))
    except InvalidArgument as error:
        pipe.send(str(error))


def postmaster(home: Path) -> int:
    return int((home / "postgres" / "data" / "postmaster.pid").read_text().splitlines()[0])


def quoted(home: Path) -> str:
    return str(home / "postgres").replace("/", "%2F")


def is_running(dsn: str) -> bool:
    return psycopg.pq.PGconn.ping(dsn.encode()) == psycopg.pq.Ping.OK


def execute(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(statement.encode())


def query(dsn: str, text: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute(text.encode()).fetchall()
