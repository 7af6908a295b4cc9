"""SQL functions where the server cannot run them: requests, and the process that serves them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import errors

from headwater.api.facade import Headwater, open_connection
from headwater.catalog.requests import Request
from headwater.cli import main
from headwater.database.serve import serve_forever, serve_waiting, serving
from headwater.errors import LockTimeout
from tests.battery.oracle import find_difference
from tests.servers import Server

Connection = psycopg.Connection[Any]
TOTALS = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"


@pytest.fixture
def dsn(pg18: Server) -> Iterator[str]:
    dsn = pg18.create_database()
    with Headwater(dsn) as hw:
        hw.init()
    yield dsn
    pg18.drop_database(dsn)


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, customer text, amount int)")
        connection.execute("INSERT INTO orders VALUES (1, 'ann', 3), (2, 'bob', 5), (3, 'ann', 7)")
        yield connection


def ask(conn: Connection, call: str, *values: object) -> tuple[int, list[str]]:
    """Call a function; return the number of its request, and what the server had to say."""
    said: list[str] = []
    conn.add_notice_handler(lambda diag: said.append(f"{diag.severity}: {diag.message_primary}"))
    conn.execute(call.encode(), values)
    [(request_id,)] = conn.execute("SELECT max(request_id) FROM pgtrickle.pgt_requests").fetchall()
    return request_id, said


def serve(dsn: str) -> int:
    seen: list[Request] = []
    with open_connection(dsn) as conn, serving(conn):
        return serve_waiting(conn, lambda request, error: seen.append(request))


def status(conn: Connection, request_id: int) -> tuple[Any, ...]:
    query = "SELECT status, error_code FROM pgtrickle.request_status(%s)"
    [row] = conn.execute(query, [request_id]).fetchall()
    return tuple(row)


def test_a_request_is_carried_out_after_commit(conn: Connection, dsn: str) -> None:
    conn.execute("CREATE SCHEMA own; SET search_path = own, public")
    with conn.transaction():
        request_id, said = ask(conn, "SELECT pgtrickle.create_stream_table('totals', %s)", TOTALS)
        assert serve(dsn) == 0  # not committed yet
    assert said[0].startswith(f"WARNING: request {request_id} waits, and nobody serves")
    assert status(conn, request_id) == ("queued", None)
    assert serve(dsn) == 1
    assert status(conn, request_id) == ("done", None)
    assert find_difference(conn, TOTALS, "own.totals") is None
    conn.execute("INSERT INTO orders VALUES (4, 'cid', 1)")
    refreshed, _ = ask(conn, "SELECT pgtrickle.refresh_stream_table('totals')")
    proved, _ = ask(conn, "SELECT * FROM pgtrickle.verify_stream_table('totals')")
    dropped, _ = ask(conn, "SELECT pgtrickle.drop_stream_table('totals')")
    assert serve(dsn) == 3
    results = conn.execute(
        "SELECT request_id, result ->> 'action', result -> 'equal' FROM pgtrickle.pgt_requests"
        " WHERE request_id > %s ORDER BY 1",
        [request_id],
    ).fetchall()
    assert results == [
        (refreshed, "DIFFERENTIAL", None),
        (proved, None, True),
        (dropped, None, None),
    ]
    assert conn.execute("SELECT to_regclass('own.totals')").fetchall() == [(None,)]


def test_rollback_takes_the_request_back(conn: Connection, dsn: str) -> None:
    with conn.transaction(force_rollback=True):
        ask(conn, "SELECT pgtrickle.create_stream_table('totals', %s)", TOTALS)
    assert serve(dsn) == 0


def test_a_failure_says_why(conn: Connection, dsn: str) -> None:
    ours, _ = ask(conn, "SELECT pgtrickle.create_stream_table('a', 'SELECT now() FROM orders')")
    theirs, _ = ask(conn, "SELECT pgtrickle.create_stream_table('a', 'SELECT nope FROM orders')")
    serve(dsn)
    assert status(conn, ours) == ("failed", "HW-101")
    assert status(conn, theirs) == ("failed", "42703")
    with pytest.raises(psycopg.Error, match="HW-101") as raised:
        conn.execute("SELECT pgtrickle.wait_for_request(%s)", [ours])
    assert raised.value.sqlstate == "HW101"
    with pytest.raises(errors.UndefinedColumn, match='column "nope" does not exist'):
        conn.execute("SELECT pgtrickle.wait_for_request(%s)", [theirs])
    with pytest.raises(psycopg.Error, match="there is no request 99"):
        conn.execute("SELECT pgtrickle.wait_for_request(99)")


def test_a_process_serves_as_requests_come(conn: Connection, dsn: str) -> None:
    served: list[int] = []
    end = threading.Event()
    ready = threading.Event()

    def run() -> None:
        with open_connection(dsn) as own, serving(own):
            ready.set()
            serve_forever(own, lambda request, _: served.append(request.request_id), end.is_set)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(30)
        with open_connection(dsn) as other, pytest.raises(LockTimeout), serving(other):
            pass
        call = "SELECT pgtrickle.create_stream_table('totals', %s)"
        request_id, said = ask(conn, call, TOTALS)
        assert said[0].startswith(f"NOTICE: request {request_id} will be carried out after COMMIT")
        waited = conn.execute("SELECT pgtrickle.wait_for_request(%s)", [request_id]).fetchall()
        assert waited == [("done",)]
        assert served == [request_id]
    finally:
        end.set()
        conn.execute("NOTIFY pg_trickle_requests")
        thread.join(60)
    assert not thread.is_alive()
    assert conn.execute("SELECT pgtrickle.is_served()").fetchall() == [(False,)]


def test_requests_are_carried_out_as_those_who_asked(pg18: Server) -> None:
    dsn = pg18.create_database()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("CREATE ROLE keeper; CREATE ROLE member IN ROLE keeper")
        conn.execute("CREATE ROLE boss SUPERUSER")
        try:
            _as_members(conn, dsn)
        finally:
            conn.execute("RESET ROLE")
            pg18.drop_database(dsn)
            with psycopg.connect(pg18.dsn("postgres"), autocommit=True) as other:
                other.execute("DROP ROLE member, keeper, boss")


def _as_members(conn: Connection, dsn: str) -> None:
    conn.execute("GRANT ALL ON SCHEMA public TO keeper, member")
    database = "DO $$ BEGIN EXECUTE format('GRANT CREATE, TEMP ON DATABASE %I TO keeper, member',"
    conn.execute((database + " current_database()); END $$").encode())
    with Headwater(dsn) as hw:
        hw.connection.execute("SET ROLE keeper")
        hw.init()
    conn.execute("CREATE TABLE secret (id int); CREATE TABLE mine (id int)")
    conn.execute("ALTER TABLE mine OWNER TO member; INSERT INTO mine VALUES (1)")
    conn.execute("SET ROLE member")
    good, _ = ask(conn, "SELECT pgtrickle.create_stream_table('a', 'SELECT id FROM mine')")
    bad, _ = ask(conn, "SELECT pgtrickle.create_stream_table('b', 'SELECT id FROM secret')")
    conn.execute(
        "INSERT INTO pgtrickle.pgt_requests (verb, arguments, requester) VALUES"
        ' (\'create_stream_table\', \'{"name": "c", "query": "TABLE secret"}\', \'boss\')'
    )
    serve(dsn)
    assert status(conn, good) == ("done", None)
    assert status(conn, bad) == ("failed", "HW-110")
    assert status(conn, bad + 1) == ("failed", "HW-110")
    owner = "SELECT relowner::regrole::text FROM pg_class WHERE oid = 'a'::regclass"
    assert conn.execute(owner.encode()).fetchall() == [("member",)]


def test_a_request_that_was_lost_on_the_way(conn: Connection, dsn: str) -> None:
    request_id, _ = ask(conn, "SELECT pgtrickle.create_stream_table('totals', %s)", TOTALS)
    conn.execute("UPDATE pgtrickle.pgt_requests SET status = 'running'")
    assert serve(dsn) == 0
    assert status(conn, request_id) == ("failed", "HW-306")


def test_the_command_serves_once_and_uninstall_takes_all(conn: Connection, dsn: str) -> None:
    ask(conn, "SELECT pgtrickle.create_stream_table('totals', %s)", TOTALS)
    done = CliRunner().invoke(main, ["--dsn", dsn, "serve-requests", "--once"])
    assert (done.exit_code, done.output.strip()) == (0, "request 1, create_stream_table: done")
    assert find_difference(conn, TOTALS, "totals") is None
    with Headwater(dsn) as hw:
        hw.uninstall()
    left = "SELECT nspname FROM pg_namespace WHERE nspname ~ '^pg(trickle|ivm)'"
    assert conn.execute(left.encode()).fetchall() == []
