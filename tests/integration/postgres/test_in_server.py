"""The SQL functions in the server: in the caller's transaction, with the caller's rights."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, takewhile
from typing import Any

import psycopg
import pytest
from psycopg import errors

from headwater.database.setup import install_inside
from headwater.errors import MissingComponent, MissingRights
from tests.battery.oracle import find_difference

Connection = psycopg.Connection[Any]
TOTALS = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
LARGE = "SELECT id, customer FROM orders WHERE amount > 3"
BOTH = "SELECT t.customer, t.total, l.id FROM totals t JOIN large l ON l.customer = t.customer"


@pytest.fixture
def conn(inside: str) -> Iterator[Connection]:
    with psycopg.connect(inside, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, customer text, amount int)")
        connection.execute("INSERT INTO orders VALUES (1, 'ann', 3), (2, 'bob', 5), (3, 'ann', 7)")
        yield connection


def create(conn: Connection, name: str, query: str, **more: object) -> None:
    given = "".join(f", {key} => {value!r}" for key, value in more.items())
    call = f"SELECT pgtrickle.create_stream_table(%s, %s{given})".encode()
    conn.execute(call, [name, query])


def refresh(conn: Connection, name: str) -> str:
    conn.execute("SELECT pgtrickle.refresh_stream_table(%s)", [name])
    query = "SELECT action FROM pgtrickle.refresh_history(%s, 1)"
    [(action,)] = conn.execute(query, [name]).fetchall()
    return str(action)


def check(conn: Connection, **tables: str) -> None:
    for name, query in tables.items():
        assert find_difference(conn, query, name) is None, name
        proof = "SELECT equal FROM pgtrickle.verify_stream_table(%s)"
        assert conn.execute(proof, [name]).fetchall() == [(True,)], name


def test_a_table_is_created_and_read_in_one_transaction(conn: Connection) -> None:
    with conn.transaction():
        create(conn, "totals", TOTALS)
        check(conn, totals=TOTALS)
    check(conn, totals=TOTALS)


def test_rollback_leaves_nothing(conn: Connection) -> None:
    counts = (
        b"SELECT (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_proc),"
        b" (SELECT count(*) FROM pg_trigger), (SELECT count(*) FROM pgtrickle.pgt_stream_tables)"
    )
    create(conn, "warm", "SELECT 1 AS one FROM orders")
    before = conn.execute(counts).fetchall()
    with conn.transaction(force_rollback=True):
        create(conn, "totals", TOTALS)
        create(conn, "now", TOTALS, refresh_mode="IMMEDIATE")
        create(conn, "above", "SELECT count(*) AS n FROM totals")
    assert conn.execute(counts).fetchall() == before


def test_writes_before_and_after_a_refresh_in_one_transaction(conn: Connection) -> None:
    create(conn, "totals", TOTALS)
    with conn.transaction():
        conn.execute("INSERT INTO orders VALUES (4, 'cid', 1)")
        assert refresh(conn, "totals") == "DIFFERENTIAL"
        check(conn, totals=TOTALS)
        conn.execute("INSERT INTO orders VALUES (5, 'cid', 1)")
        assert refresh(conn, "totals") == "DIFFERENTIAL"
        check(conn, totals=TOTALS)
        conn.execute("UPDATE orders SET amount = amount + 1")
    assert refresh(conn, "totals") == "DIFFERENTIAL"
    check(conn, totals=TOTALS)
    assert refresh(conn, "totals") == "NO_DATA"


def test_tables_that_share_a_source_move_together(conn: Connection) -> None:
    create(conn, "totals", TOTALS, refresh_mode="DIFFERENTIAL")
    create(conn, "large", LARGE, refresh_mode="DIFFERENTIAL")
    create(conn, "both_", BOTH, refresh_mode="DIFFERENTIAL")
    with conn.transaction():
        conn.execute("INSERT INTO orders VALUES (4, 'cid', 9)")
        refresh(conn, "totals")
        check(conn, totals=TOTALS, large=LARGE)
        refresh(conn, "both_")
        check(conn, totals=TOTALS, large=LARGE, both_=BOTH)
        conn.execute("DELETE FROM orders WHERE id = 2")
        refresh(conn, "large")  # and totals with it; both_ is behind
        conn.execute("DELETE FROM orders WHERE customer = 'ann'")
    assert refresh(conn, "both_") == "DIFFERENTIAL"
    check(conn, totals=TOTALS, large=LARGE, both_=BOTH)


def test_a_new_table_beside_one_that_waits_for_changes(conn: Connection) -> None:
    create(conn, "totals", TOTALS, refresh_mode="DIFFERENTIAL")
    with conn.transaction():
        conn.execute("INSERT INTO orders VALUES (4, 'cid', 9)")
        create(conn, "large", LARGE, refresh_mode="DIFFERENTIAL")
        conn.execute("INSERT INTO orders VALUES (5, 'cid', 9)")
    refresh(conn, "large")
    assert refresh(conn, "totals") == "DIFFERENTIAL"
    check(conn, totals=TOTALS, large=LARGE)


def test_a_suspended_reader_is_rebuilt_later(conn: Connection) -> None:
    create(conn, "totals", TOTALS)
    create(conn, "large", LARGE)
    conn.execute("SELECT pgtrickle.suspend_stream_table('large')")
    with conn.transaction():
        conn.execute("INSERT INTO orders VALUES (4, 'cid', 9)")
        refresh(conn, "totals")
    conn.execute("SELECT pgtrickle.resume_stream_table('large')")
    assert refresh(conn, "large") == "REINITIALIZE"
    check(conn, totals=TOTALS, large=LARGE)


def test_a_subtransaction_that_is_rolled_back(conn: Connection) -> None:
    create(conn, "totals", TOTALS)
    with conn.transaction():
        with conn.transaction(force_rollback=True):
            conn.execute("INSERT INTO orders VALUES (4, 'cid', 9)")
            refresh(conn, "totals")
        conn.execute("INSERT INTO orders VALUES (5, 'dan', 9)")
        refresh(conn, "totals")
        check(conn, totals=TOTALS)
    check(conn, totals=TOTALS)


def test_switching_modes_in_one_transaction(conn: Connection) -> None:
    create(conn, "totals", TOTALS)
    with conn.transaction():
        for mode in ("IMMEDIATE", "FULL", "DIFFERENTIAL", "IMMEDIATE"):
            conn.execute("UPDATE orders SET amount = amount + 1 WHERE id = 2")
            call = "SELECT pgtrickle.alter_stream_table('totals', refresh_mode => %s)"
            conn.execute(call, [mode])
            check(conn, totals=TOTALS)
        conn.execute("INSERT INTO orders VALUES (9, 'eve', 1)")
        check(conn, totals=TOTALS)
    conn.execute("DELETE FROM orders WHERE id = 9")
    check(conn, totals=TOTALS)


def test_settings_role_and_guard_are_the_callers(conn: Connection) -> None:
    create(conn, "totals", TOTALS)
    conn.execute("CREATE ROLE keeper; CREATE SCHEMA own AUTHORIZATION keeper")
    conn.execute("ALTER TABLE totals OWNER TO keeper; GRANT SELECT ON orders TO keeper")
    keeper = "(SELECT oid FROM pg_roles WHERE rolname = 'keeper')"
    conn.execute(f"UPDATE pgtrickle.pgt_stream_tables SET owner = {keeper}".encode())
    conn.execute("GRANT USAGE ON SCHEMA pgtrickle_changes, pgtrickle_state TO keeper")
    conn.execute("GRANT ALL ON ALL TABLES IN SCHEMA pgtrickle_changes, pgtrickle_state TO keeper")
    shown = (
        b"SELECT current_user::text, current_setting('search_path'), current_setting('DateStyle'),"
        b" current_setting('work_mem'), current_setting('synchronous_commit'),"
        b" current_setting('jit'), coalesce(current_setting('pg_trickle.refreshing', true), '')"
    )
    with conn.transaction():
        conn.execute("SET LOCAL DateStyle = 'SQL, DMY'; SET LOCAL IntervalStyle = 'iso_8601'")
        conn.execute("SET LOCAL search_path = public, own")
        before = conn.execute(shown).fetchall()
        conn.execute("INSERT INTO orders VALUES (4, 'cid', 9)")
        refresh(conn, "totals")
        assert conn.execute(shown).fetchall() == before
        with pytest.raises(errors.ObjectNotInPrerequisiteState), conn.transaction():
            conn.execute("DELETE FROM totals")
    check(conn, totals=TOTALS)
    conn.execute("DROP TABLE totals; DROP OWNED BY keeper; DROP ROLE keeper")


def test_errors_of_the_server_pass_unchanged(conn: Connection) -> None:
    with conn.transaction():
        with pytest.raises(errors.UndefinedColumn) as raised, conn.transaction():
            create(conn, "bad", "SELECT nope FROM orders")
        assert raised.value.diag.message_primary == 'column "nope" does not exist'
        with pytest.raises(errors.SyntaxError), conn.transaction():
            create(conn, "bad", "SELECT 1 AS one; DROP TABLE orders")
        create(conn, "totals", TOTALS)  # the transaction goes on
    check(conn, totals=TOTALS)


def test_our_errors_say_what_why_and_fix(conn: Connection) -> None:
    with pytest.raises(psycopg.Error) as raised:
        create(conn, "bad", "SELECT now() AS moment FROM orders")
    diag = raised.value.diag
    assert raised.value.sqlstate == "HW101"
    assert str(diag.message_primary).startswith("HW-101: ")
    assert diag.message_detail
    assert diag.message_hint


def test_repeatable_read_refreshes_and_fills_nothing_that_is_old(
    conn: Connection, inside: str
) -> None:
    create(conn, "totals", TOTALS)
    conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with conn.transaction():
        conn.execute("INSERT INTO orders VALUES (4, 'cid', 9)")
        with psycopg.connect(inside, autocommit=True) as other:
            other.execute("INSERT INTO orders VALUES (5, 'dan', 9)")
        assert refresh(conn, "totals") == "DIFFERENTIAL"
        check(conn, totals=TOTALS)
        with pytest.raises(errors.SerializationFailure, match="HW-113"), conn.transaction():
            create(conn, "large", LARGE)
    conn.isolation_level = None
    assert refresh(conn, "totals") == "DIFFERENTIAL"
    check(conn, totals=TOTALS)


def test_a_refresh_under_an_old_snapshot_conflicts(conn: Connection, inside: str) -> None:
    create(conn, "totals", TOTALS)
    conn.execute("INSERT INTO orders VALUES (4, 'cid', 9)")
    conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with conn.transaction():
        conn.execute("TABLE totals")
        with psycopg.connect(inside, autocommit=True) as other:
            refresh(other, "totals")
        with pytest.raises(errors.SerializationFailure), conn.transaction():
            refresh(conn, "totals")
    conn.isolation_level = None
    check(conn, totals=TOTALS)


@pytest.mark.parametrize("level", ["READ_COMMITTED", "REPEATABLE_READ"])
def test_writers_beside_refreshes(conn: Connection, inside: str, level: str) -> None:
    create(conn, "totals", TOTALS, refresh_mode="DIFFERENTIAL")
    create(conn, "large", LARGE, refresh_mode="DIFFERENTIAL")
    conn.isolation_level = psycopg.IsolationLevel[level]

    done = threading.Event()

    def write(start: int) -> None:
        with psycopg.connect(inside, autocommit=True) as other:
            for i in takewhile(lambda _: not done.is_set(), count(start)):
                other.execute("INSERT INTO orders VALUES (%s, %s, %s)", [i, f"c{i % 7}", i % 9])
                other.execute("UPDATE orders SET amount = amount + 1 WHERE id = %s", [i - 3])

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write, start) for start in (100_000, 200_000)]
        try:
            for number in range(12):
                with conn.transaction():
                    refresh(conn, ("totals", "large")[number % 2])
        finally:
            done.set()
        for writer in writers:
            writer.result()
    conn.isolation_level = None
    refresh(conn, "totals")
    refresh(conn, "large")
    check(conn, totals=TOTALS, large=LARGE)


def test_full_tables_lock_no_sources(conn: Connection) -> None:
    schemas = "SELECT nspname::text AS name FROM pg_namespace"
    create(conn, "schemas", schemas, refresh_mode="FULL")
    conn.execute("CREATE SCHEMA one_more")
    with conn.transaction():
        assert refresh(conn, "schemas") == "FULL"
        locks = (
            b"SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation ="
            b" 'pg_namespace'::regclass AND mode = 'ShareRowExclusiveLock'"
        )
        assert conn.execute(locks).fetchall() == [(0,)]
    check(conn, schemas=schemas)


def test_names_and_arguments(conn: Connection) -> None:
    conn.execute("CREATE SCHEMA s2; SET search_path = s2, public")
    conn.execute("SELECT pgtrickle.create_stream_table('a', %s, '5m', 'INCREMENTAL')", [TOTALS])
    conn.execute(
        "SELECT pgtrickle.create_stream_table('b', %s, target_lag => interval '5 min')", [TOTALS]
    )
    conn.execute("SELECT pgtrickle.create_stream_table('c', %s, NULL)", [TOTALS])
    conn.execute(
        "SELECT pgtrickle.create_or_replace_stream_table('c', %s, '2m', initialize => false)",
        [LARGE],
    )
    rows = conn.execute(
        "SELECT pgt_schema || '.' || pgt_name, schedule, refresh_mode"
        " FROM pgtrickle.pgt_stream_tables ORDER BY 1"
    ).fetchall()
    assert rows == [
        ("s2.a", "5m", "DIFFERENTIAL"),
        ("s2.b", "300s", "AUTO"),
        ("s2.c", "2m", "AUTO"),
    ]
    conn.execute("SELECT pgtrickle.create_stream_table('d', 'SELECT count(*) AS n FROM a')")
    with pytest.raises(psycopg.Error, match="HW-105"):
        conn.execute("SELECT pgtrickle.drop_stream_table('a')")
    conn.execute("SELECT pgtrickle.drop_stream_table('a', cascade => true)")
    facts = dict(conn.execute("SELECT * FROM pgtrickle.explain_st('b')").fetchall())
    assert facts["mode"] == "DIFFERENTIAL"
    facts = dict(conn.execute("SELECT * FROM pgtrickle.explain_query(%s)", [LARGE]).fetchall())
    assert "orders" in facts["canonical"]


def test_a_role_can_do_what_it_could_do_itself(conn: Connection) -> None:
    conn.execute("CREATE ROLE outsider; CREATE ROLE insider")
    conn.execute("GRANT CREATE ON SCHEMA public TO insider")
    try:
        conn.execute("GRANT USAGE ON SCHEMA pgtrickle TO insider")
        conn.execute("SET ROLE outsider")
        with pytest.raises(errors.InsufficientPrivilege):
            create(conn, "totals", TOTALS)
        conn.execute("SET ROLE insider")
        with pytest.raises(psycopg.Error, match="HW-110"):
            create(conn, "totals", TOTALS)
    finally:
        conn.execute("RESET ROLE; DROP OWNED BY insider; DROP ROLE insider, outsider")


def test_setup_says_what_is_missing(conn: Connection, pg18: Any) -> None:
    with pytest.raises(MissingComponent, match="cannot import headwater"):
        install_inside(conn, ["/nowhere"])
    conn.execute("CREATE ROLE plain; SET ROLE plain")
    with pytest.raises(MissingRights):
        install_inside(conn, ["/nowhere"])
    conn.execute("RESET ROLE; DROP ROLE plain")
    dsn = pg18.create_database()
    with (
        psycopg.connect(dsn, autocommit=True) as other,
        pytest.raises(MissingComponent, match="no PL/Python"),
    ):
        install_inside(other)
    pg18.drop_database(dsn)


def test_without_a_catalog_the_fix_is_named(conn: Connection) -> None:
    conn.execute("DELETE FROM pgtrickle.pgt_catalog_version WHERE version > 1")
    with pytest.raises(psycopg.Error, match="HW-108") as raised:
        create(conn, "totals", TOTALS)
    assert "headwater init" in str(raised.value.diag.message_hint)
