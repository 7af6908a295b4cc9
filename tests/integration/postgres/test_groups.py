"""Refresh groups: whichever member is refreshed, all move, in one transaction to one epoch."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

import headwater
from headwater.cli import main
from headwater.errors import AlreadyExists, HeadwaterError, InvalidArgument, NotFound, QueryFailed
from tests.battery.oracle import find_difference
from tests.daemons import SLOWLY, daemon, until, waiting

Connection = psycopg.Connection[Any]

# a and b are the group; b reads below, over reads a, alone is of no group.
QUERIES = {
    "a": "SELECT g, sum(x) AS total FROM t GROUP BY g",
    "below": "SELECT id, g FROM u",
    "b": "SELECT g, count(*) AS n FROM below GROUP BY g",
    "over": "SELECT total FROM a",
    "alone": "SELECT id FROM t",
}


@pytest.fixture
def hw(database: str, conn: Connection) -> Iterator[headwater.Headwater]:
    conn.execute("CREATE TABLE t (id int PRIMARY KEY, g int, x int)")
    conn.execute("CREATE TABLE u (id int PRIMARY KEY, g int)")
    conn.execute("INSERT INTO t SELECT n, n % 3, n FROM generate_series(1, 9) AS n")
    conn.execute("INSERT INTO u VALUES (1, 1), (2, 2)")
    with headwater.connect(database) as connected:
        for name, query in QUERIES.items():
            connected.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")
        yield connected


def epochs(conn: Connection) -> dict[str, int]:
    query = "SELECT pgt_name, epoch FROM pgtrickle.pgt_stream_tables"
    return dict(conn.execute(query).fetchall())


def check(conn: Connection, *names: str) -> None:
    """See these stand at one epoch and equal their queries."""
    stand = epochs(conn)
    assert len({stand[name] for name in names}) == 1, stand
    for name in names:
        assert find_difference(conn, QUERIES[name], name) is None, name


def test_all_members_move_whichever_is_refreshed(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_refresh_group("g", ["a", "public.b"])
    [group] = hw.refresh_groups()
    assert (group.group_name, group.members, group.epoch) == ("g", ("public.a", "public.b"), None)
    for refreshed, moved in (("a", "a below b"), ("b", "a below b"), ("over", "a below b over")):
        conn.execute("UPDATE t SET x = x + 1; INSERT INTO u SELECT max(id) + 1, 1 FROM u")
        before = epochs(conn)
        result = hw.refresh_stream_table(refreshed)
        assert (result.name, result.action) == (f"public.{refreshed}", "DIFFERENTIAL")
        check(conn, *moved.split())
        after = epochs(conn)
        assert {name for name in after if after[name] != before[name]} == {*moved.split()}
        for name in moved.split():
            newest = hw.refresh_history(name)[0]
            assert (newest.status, newest.epoch) == ("COMPLETED", result.epoch), name
        [group] = hw.refresh_groups()
        assert (group.epoch, group.data_timestamp) == (result.epoch, result.data_timestamp)
    assert hw.refresh_stream_table("b").action == "NO_DATA"
    check(conn, "a", "below", "b")
    hw.alter_stream_table("a", query="SELECT g, sum(x) AS total FROM t WHERE x > 0 GROUP BY g")
    check(conn, "a", "below", "b")
    hw.create_stream_table("later", "SELECT n FROM b", refresh_mode="DIFFERENTIAL")
    check(conn, "a", "below", "b")
    hw.drop_refresh_group("g")
    conn.execute("UPDATE t SET x = x + 1; DELETE FROM u WHERE id = 1")
    before = epochs(conn)
    hw.refresh_stream_table("a")
    assert epochs(conn)["b"] == before["b"]
    assert hw.refresh_groups() == ()


def test_one_that_fails_or_dies_takes_nobody_along(
    hw: headwater.Headwater, conn: Connection, database: str
) -> None:
    """The second member fails; the third waits in the middle of its refresh and is killed."""
    conn.execute(SLOWLY)
    hw.create_stream_table("fragile", "SELECT id, 100 / x AS y FROM t", refresh_mode="DIFFERENTIAL")
    hw.create_stream_table("slow", "SELECT slowly(x) AS y FROM t", refresh_mode="DIFFERENTIAL")
    hw.create_refresh_group("g", ["a", "fragile", "slow"])
    hw.refresh_stream_table("a")
    before = epochs(conn)
    conn.execute("UPDATE t SET x = 0 WHERE id = 1")
    with pytest.raises(QueryFailed, match=r"public\.fragile"):
        hw.refresh_stream_table("a")
    assert epochs(conn) == before
    status = {s.name: (s.status, s.errors) for s in hw.pgt_status()}
    assert (status["public.fragile"], status["public.a"]) == (("ERROR", 1), ("ACTIVE", 0))
    assert hw.refresh_history("a")[0].status == "FAILED"
    conn.execute("UPDATE t SET x = 50 WHERE id = 1")

    def refresh() -> None:
        with headwater.connect(database) as other, pytest.raises(HeadwaterError):
            other.refresh_stream_table("a")

    with psycopg.connect(database) as holder:
        holder.execute("SELECT pg_advisory_xact_lock(7)")
        thread = threading.Thread(target=refresh)
        thread.start()
        until(lambda: waiting(conn) == 1)
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks"
            " WHERE locktype = 'advisory' AND objid = 7 AND NOT granted"
        )
        thread.join()
    assert epochs(conn) == before
    hw.refresh_stream_table("slow")
    check(conn, "a")
    assert find_difference(conn, "SELECT id, 100 / x AS y FROM t", "fragile") is None
    assert len({epochs(conn)[name] for name in ("a", "fragile", "slow")}) == 1


def test_what_is_refused_and_what_is_forgotten(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_refresh_group("g", ["a", "b"])
    hw.create_stream_table("now", "SELECT id FROM u", refresh_mode="IMMEDIATE")
    refused: list[tuple[type[HeadwaterError], str, str, list[str]]] = [
        (AlreadyExists, "a refresh group g already", "g", ["over", "alone"]),
        (InvalidArgument, "needs a name", " ", ["over", "alone"]),
        (InvalidArgument, "at least two members", "h", ["over"]),
        (InvalidArgument, "named 2 times", "h", ["over", "public.over"]),
        (InvalidArgument, "is in the refresh group g already", "h", ["a", "over"]),
        (InvalidArgument, "it is IMMEDIATE", "h", ["over", "now"]),
        (NotFound, "there is no stream table t", "h", ["over", "t"]),
    ]
    for kind, what, name, members in refused:
        with pytest.raises(kind, match=what):
            hw.create_refresh_group(name, members)
    with pytest.raises(NotFound, match="there is no refresh group h"):
        hw.drop_refresh_group("h")
    with pytest.raises(InvalidArgument, match="it is in the refresh group g"):
        hw.alter_stream_table("b", refresh_mode="IMMEDIATE")
    hw.alter_stream_table("b", status="SUSPENDED")
    with pytest.raises(InvalidArgument, match=r"public\.b is suspended"):
        hw.refresh_stream_table("a")
    held = {f.subject: f.detail for f in hw.health_check() if f.check == "held"}
    why = "it cannot move past public.b, which moves with its refresh group and which is suspended"
    assert held == {"public.a": why, "public.over": why}
    hw.alter_stream_table("b", status="ACTIVE")
    hw.drop_stream_table("b")
    assert [g.members for g in hw.refresh_groups()] == [("public.a",)]
    conn.execute("DROP TABLE over, a")
    assert [g.members for g in hw.refresh_groups()] == [()]


def test_the_daemon_moves_them_together(hw: headwater.Headwater, conn: Connection) -> None:
    """Of one lag the group takes the pace of its tightest member."""
    hw.connection.execute("SET pg_trickle.min_target_lag_seconds = 1")
    hw.alter_stream_table("a", "3s")
    hw.alter_stream_table("b", "1h")
    hw.create_refresh_group("g", ["a", "b"])
    with daemon(hw.dsn) as process:
        process.wait_for("leading")
        conn.execute("UPDATE t SET x = x + 1; INSERT INTO u VALUES (3, 1)")
        query = "SELECT sum(n) = 3 FROM b"
        until(lambda: conn.execute(query).fetchall() == [(True,)], lambda: process.events[-20:])
    check(conn, "a", "below", "b")


def test_from_the_command_line(hw: headwater.Headwater) -> None:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["--dsn", hw.dsn, "group", *arguments])
        assert result.exit_code == 0, result.stderr
        return result.stdout

    made = run("create", "g", "a", "b")
    assert made == "created the refresh group g: public.a, public.b\n"
    [group] = json.loads(run("list", "--json"))
    assert (group["group_name"], group["members"]) == ("g", ["public.a", "public.b"])
    assert "public.a, public.b" in run("list")
    assert json.loads(run("drop", "g", "--json")) == {"dropped": "g"}
    assert json.loads(run("create", "h", "a", "b", "--json"))["group_name"] == "h"
    assert run("drop", "h") == "dropped the refresh group h\n"
    assert run("list") == ""


def test_in_the_server(inside: str) -> None:
    """In the caller's transaction, with codes as SQLSTATE."""
    with psycopg.connect(inside, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (id int PRIMARY KEY, g int, x int)")
        for name in ("a", "alone"):
            call = "SELECT pgtrickle.create_stream_table(%s, %s)"
            conn.execute(call, [name, QUERIES[name]])
        with conn.transaction():
            conn.execute("SELECT pgtrickle.create_refresh_group('g', ARRAY['a', 'public.alone'])")
            conn.execute("INSERT INTO t VALUES (1, 1, 1)")
            conn.execute("SELECT pgtrickle.refresh_stream_table('a')")
        listed = "SELECT group_name, members, epoch IS NOT NULL FROM pgtrickle.refresh_groups()"
        assert conn.execute(listed).fetchall() == [("g", ["public.a", "public.alone"], True)]
        check(conn, "a", "alone")
        for call, code in (
            ("create_refresh_group('g', ARRAY['a', 'alone'])", "HW104"),
            ("create_refresh_group('h', ARRAY['a', 'nothing'])", "HW103"),
            ("create_refresh_group('h', NULL)", "HW102"),
            ("create_refresh_group(NULL, ARRAY['a', 'alone'])", "HW102"),
            ("drop_refresh_group('h')", "HW103"),
        ):
            with pytest.raises(psycopg.Error) as error:
                conn.execute(f"SELECT pgtrickle.{call}".encode())
            assert error.value.sqlstate == code, call
        conn.execute("SELECT pgtrickle.drop_refresh_group('g')")
        assert conn.execute(listed).fetchall() == []
