"""Scripts of a pg_ivm user, run by psql, and what the layer does where it cannot be."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import errors

from headwater.api.facade import Headwater
from headwater.cli import main
from headwater.database.pgivm import install_pgivm, split_columns
from headwater.errors import ForeignExtension, InvalidArgument
from tests.servers import Server

SCRIPTS = Path(__file__).parent / "pgivm"
PSQL = "/usr/lib/postgresql/15/bin/psql"
Connection = psycopg.Connection[Any]
PLANTED = "SELECT garden, count(*) AS n FROM plants GROUP BY garden"

# Compares an IMMV with its definition, EXCEPT ALL both ways, and fails if they differ.
SAME = """
CREATE FUNCTION same(immv regclass) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    query text := pgivm.get_immv_def(immv);
    different boolean;
BEGIN
    EXECUTE format('SELECT EXISTS ((%1$s) EXCEPT ALL TABLE %2$s)'
                   ' OR EXISTS (TABLE %2$s EXCEPT ALL (%1$s))', query, immv) INTO STRICT different;
    ASSERT NOT different, format('%s is not what %s gives', immv, query);
    RETURN true;
END $$
"""


@pytest.fixture
def conn(inside: str) -> Iterator[Connection]:
    with psycopg.connect(inside, autocommit=True) as connection:
        install_pgivm(connection)
        connection.execute(SAME)
        yield connection


def psql(dsn: str, script: str) -> str:
    """Run a script as a user would; an error ends it, and every boolean that it shows is true."""
    done = subprocess.run(
        [PSQL, "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", dsn, "-f", str(SCRIPTS / script)],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PGOPTIONS": "-c client_min_messages=warning"},
    )  # fmt: skip
    shown = {cell for line in done.stdout.splitlines() for cell in line.split("|")}
    assert "f" not in shown, done.stdout
    return done.stderr


@pytest.mark.parametrize(
    "script", ["joins", "aggregates", "nested", "cascades", "odd", "lifecycle"]
)
def test_scripts_run_unchanged(conn: Connection, inside: str, script: str) -> None:
    assert psql(inside, f"{script}.sql") == ""


def test_what_we_refuse_is_refused_here_too(conn: Connection) -> None:
    conn.execute("CREATE TABLE base (i int, j int)")
    refused = {
        "SELECT i, random() FROM base": "HW101",
        "SELECT i FROM base FOR UPDATE": "HW101",
        "SELECT nope FROM base": "42703",
        "SELECT i FROM base TABLESAMPLE system (1)": "HW101",
    }
    for query, state in refused.items():
        with pytest.raises(psycopg.Error) as raised:
            conn.execute("SELECT pgivm.create_immv('mv', %s)", [query])
        assert (query, raised.value.sqlstate) == (query, state)
    with pytest.raises(psycopg.Error, match="too many column names"):
        conn.execute("SELECT pgivm.create_immv('mv(a, b)', 'SELECT i FROM base')")
    conn.execute("SELECT pgtrickle.create_stream_table('later', 'SELECT i FROM base')")
    with pytest.raises(psycopg.Error, match="is not an IMMV"):
        conn.execute("SELECT pgivm.refresh_immv('later', true)")
    assert conn.execute("SELECT count(*) FROM pgivm.pg_ivm_immv").fetchall() == [(0,)]


def test_unique_indexes(conn: Connection) -> None:
    conn.execute("CREATE TABLE a (i int PRIMARY KEY, j int, k int)")
    conn.execute("CREATE TABLE b (i int, l int, PRIMARY KEY (i, l))")
    expected = {
        "SELECT i, j FROM a": ["i"],
        "SELECT j, k FROM a": None,
        "SELECT j, k, count(*) FROM a GROUP BY j, k": ["j", "k"],
        "SELECT DISTINCT j, k FROM a": ["j", "k"],
        "SELECT a.i, b.i AS bi, b.l FROM a JOIN b ON b.l = a.j": ["i", "bi", "l"],
        "SELECT count(*) FROM a": [],
    }
    for n, (query, columns) in enumerate(expected.items()):
        conn.execute("SELECT pgivm.create_immv(%s, %s)", [f"mv{n}", query])
        found = conn.execute(
            "SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_index x"
            " JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = ANY (x.indkey)"
            " WHERE x.indrelid = %s::regclass AND x.indisunique",
            [f"mv{n}"],
        ).fetchall()
        assert (query, found[0][0]) == (query, columns or None)


def test_a_native_table_and_an_immv_are_the_same(conn: Connection) -> None:
    conn.execute("CREATE TABLE base (i int, j int); INSERT INTO base VALUES (1, 2), (1, 3)")
    query = "SELECT i, sum(j) AS total FROM base GROUP BY i"
    conn.execute("SELECT pgivm.create_immv('wrapped', %s)", [query])
    create = "SELECT pgtrickle.create_stream_table('native', %s, refresh_mode => 'IMMEDIATE')"
    conn.execute(create, [query])
    rows = conn.execute(
        "SELECT canonical_query, refresh_mode, effective_mode, effective_engine, schedule,"
        " key_columns, plan FROM pgtrickle.pgt_stream_tables ORDER BY pgt_id"
    ).fetchall()
    assert rows[0] == rows[1]
    listed = conn.execute("SELECT pgivm.get_immv_def('native') = pgivm.get_immv_def('wrapped')")
    assert listed.fetchall() == [(True,)]


def test_another_pgivm_is_left_alone(inside: str, server_path: str) -> None:
    with psycopg.connect(inside, autocommit=True) as conn:
        conn.execute("CREATE SCHEMA pgivm; CREATE TABLE pgivm.pg_ivm_immv (immvrelid regclass)")
        with pytest.raises(ForeignExtension) as raised:
            install_pgivm(conn)
        assert raised.value.code == "HW-114"
        command = ["--dsn", inside, "init", "--in-database", "--python-path", server_path]
        failed = CliRunner().invoke(main, command)
        assert (failed.exit_code, "HW-114" in failed.output) == (2, True)
        done = CliRunner().invoke(main, [*command, "--no-pgivm"])
        assert (done.exit_code, "the server runs headwater itself" in done.output) == (0, True)
        with Headwater(inside) as hw:
            hw.uninstall()
        left = "SELECT nspname FROM pg_namespace WHERE nspname ~ '^pg(trickle|ivm)'"
        assert conn.execute(left.encode()).fetchall() == [("pgivm",)]


def test_init_sets_it_all_up_and_uninstall_takes_it_away(pg15: Server, server_path: str) -> None:
    dsn = pg15.create_database()
    for _ in range(2):  # a second time changes nothing
        command = ["--dsn", dsn, "init", "--in-database", "--python-path", server_path, "--json"]
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE base (i int); INSERT INTO base VALUES (1), (2)")
        made = conn.execute("SELECT pgivm.create_immv('mv', 'SELECT i FROM base')").fetchall()
        assert made == [(2,)]
        with Headwater(dsn) as hw:
            hw.uninstall()
        left = "SELECT nspname FROM pg_namespace WHERE nspname ~ '^pg(trickle|ivm)'"
        assert conn.execute(left.encode()).fetchall() == []
        conn.execute("INSERT INTO base VALUES (3)")
        with pytest.raises(errors.InvalidSchemaName):
            conn.execute("SELECT pgivm.get_immv_def('mv')")
    pg15.drop_database(dsn)


@pytest.mark.parametrize(
    ("given", "split"),
    [
        ("mv", ("mv", ())),
        ("s.mv(a, b)", ("s.mv", ("a", "b"))),
        ('"odd (name)"', ('"odd (name)"', ())),
        ('mv("A b", c)', ("mv", ("A b", "c"))),
    ],
)
def test_names_with_columns(given: str, split: tuple[str, tuple[str, ...]]) -> None:
    assert split_columns(given) == split


@pytest.mark.parametrize("given", ["mv()", "mv(a,,b)", "mv(a b)", "mv(a,)"])
def test_wrong_lists_of_columns(given: str) -> None:
    with pytest.raises(InvalidArgument):
        split_columns(given)


@pytest.mark.parametrize(
    "call",
    [
        "SELECT pgivm.create_immv('late', 'SELECT i, count(*) AS n FROM base GROUP BY i')",
        "SELECT pgivm.refresh_immv('mv', true)",
        "SELECT pgivm.refresh_immv('mv', false), pgivm.refresh_immv('mv', true)",
    ],
)
def test_a_writer_waits_and_is_followed(conn: Connection, inside: str, call: str) -> None:
    """Whatever is done to an IMMV in an open transaction, no write slips in between."""
    conn.execute("CREATE TABLE base (i int); INSERT INTO base VALUES (1), (2)")
    conn.execute("SELECT pgivm.create_immv('mv', 'SELECT i, count(*) AS n FROM base GROUP BY i')")

    def write() -> None:
        with psycopg.connect(inside, autocommit=True) as other:
            other.execute("INSERT INTO base VALUES (1), (7)")
            other.execute("DELETE FROM base WHERE i = 2")

    writer = threading.Thread(target=write)
    with conn.transaction():
        conn.execute("INSERT INTO base VALUES (5)")
        conn.execute(call.encode())
        writer.start()
        conn.execute("SELECT pg_sleep(0.2)")
        conn.execute("INSERT INTO base VALUES (6)")
    writer.join()
    immvs = conn.execute("SELECT immvrelid::text, same(immvrelid) FROM pgivm.pg_ivm_immv")
    assert {equal for _, equal in immvs.fetchall()} == {True}


def test_dropping_a_table_of_several_immvs_warns_of_nothing(conn: Connection) -> None:
    conn.execute("CREATE TABLE plants (garden int)")
    for name in ("first", "second", "third"):
        conn.execute("SELECT pgivm.create_immv(%s, %s)", [name, PLANTED])
    said: list[tuple[str | None, str | None]] = []
    conn.add_notice_handler(lambda d: said.append((d.severity_nonlocalized, d.message_primary)))
    with pytest.raises(errors.DependentObjectsStillExist):
        conn.execute("DROP TABLE plants")
    conn.execute("DROP TABLE plants CASCADE")
    assert {severity for severity, _ in said} == {"NOTICE"}
    cascades = [message for _, message in said if "drop cascades to table" in str(message)]
    assert cascades == [
        f"drop cascades to table public.{name}" for name in ("first", "second", "third")
    ]
    assert conn.execute("SELECT count(*) FROM pgivm.pg_ivm_immv").fetchall() == [(0,)]


FROZEN = ["REPEATABLE READ", "SERIALIZABLE"]
FILLS = ["SELECT pgivm.create_immv('late', $$" + PLANTED + "$$)", "SELECT pgivm.refresh_immv('mv')"]


@pytest.fixture
def gardens(conn: Connection, inside: str) -> Iterator[Connection]:
    """A second connection to a database with one IMMV."""
    conn.execute("CREATE TABLE plants (garden int); INSERT INTO plants VALUES (1), (1), (2)")
    conn.execute("SELECT pgivm.create_immv('mv', %s)", [PLANTED])
    with psycopg.connect(inside, autocommit=True) as other:
        yield other
    immvs = conn.execute("SELECT immvrelid::text, same(immvrelid) FROM pgivm.pg_ivm_immv")
    assert {equal for _, equal in immvs.fetchall()} == {True}


@pytest.mark.parametrize("fill", FILLS, ids=["create", "refresh"])
@pytest.mark.parametrize("level", FROZEN)
def test_filled_under_a_snapshot_that_shows_everything(
    conn: Connection, gardens: Connection, level: str, fill: str
) -> None:
    while True:
        conn.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
        conn.execute("INSERT INTO plants VALUES (3)")
        gardens.execute("BEGIN; INSERT INTO plants VALUES (7); ROLLBACK")
        try:
            conn.execute(fill.encode())
            break
        except psycopg.errors.SerializationFailure:  # autovacuum commits, too, as it likes
            conn.execute("ROLLBACK")
    conn.execute("INSERT INTO plants VALUES (1), (4)")
    immvs = conn.execute("SELECT same(immvrelid) FROM pgivm.pg_ivm_immv").fetchall()
    assert set(immvs) == {(True,)}
    conn.execute("COMMIT")
    gardens.execute("DELETE FROM plants WHERE garden IN (1, 3)")


@pytest.mark.parametrize("fill", FILLS, ids=["create", "refresh"])
@pytest.mark.parametrize("level", FROZEN)
@pytest.mark.parametrize("began", ["before", "after", "waited for"])
def test_not_filled_without_what_others_have_committed(
    conn: Connection, gardens: Connection, level: str, fill: str, began: str
) -> None:
    """Whether the other transaction began before the snapshot, after it, or is waited for."""
    write = b"BEGIN; INSERT INTO plants VALUES (1), (9)"
    begin = f"BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM plants".encode()
    for statement, session in ((write, gardens), (begin, conn))[:: -1 if began == "after" else 1]:
        session.execute(statement)
    committing = threading.Timer(0.3 if began == "waited for" else 0, gardens.commit)
    committing.start()
    if began != "waited for":
        committing.join()
    with pytest.raises(errors.SerializationFailure):
        conn.execute(fill.encode())
    committing.join()
    conn.execute("ROLLBACK")
    conn.execute(fill.encode())  # begun again, it is well


def test_a_failing_view_fails_the_writer(conn: Connection) -> None:
    conn.execute("CREATE TABLE base (i int); INSERT INTO base VALUES (1)")
    conn.execute("SELECT pgivm.create_immv('mv', 'SELECT 10 / i AS x FROM base')")
    with conn.transaction():
        with pytest.raises(errors.DivisionByZero), conn.transaction():
            conn.execute("INSERT INTO base VALUES (0)")
        conn.execute("INSERT INTO base VALUES (2)")
    assert conn.execute("SELECT same('mv')").fetchall() == [(True,)]
