"""IMMEDIATE tables: whole statements, rights, DDL, failures, and what the verbs do with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import IsolationLevel

import headwater
from headwater.cli import main
from headwater.errors import InvalidArgument, UnsupportedQuery
from tests.battery.oracle import find_difference

Connection = psycopg.Connection[Any]

SETUP = """
CREATE TABLE customers (id int PRIMARY KEY, name text, region text,
    boss int REFERENCES customers ON DELETE CASCADE);
CREATE TABLE orders (id int PRIMARY KEY, amount int,
    customer int REFERENCES customers ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE log (customer int, what text);
INSERT INTO customers VALUES (1, 'ann', 'n', NULL), (2, 'bob', 's', 1), (3, 'cyd', 'n', 2);
INSERT INTO orders VALUES (1, 10, 1), (2, 20, 1), (3, 30, 2), (4, NULL, 3);
INSERT INTO log VALUES (1, 'x'), (1, 'x');
"""
QUERIES = {
    "totals": "SELECT customer, sum(amount) AS s, count(*) AS n FROM orders GROUP BY customer",
    "peaks": "SELECT customer, max(amount) AS m, count(*) AS n FROM orders GROUP BY customer",
    "joined": "SELECT o.id, c.name, o.amount FROM orders o JOIN customers c ON c.id = o.customer",
    "padded": "SELECT c.id AS c, o.id AS o, l.what FROM customers c"
    " LEFT JOIN orders o ON o.customer = c.id LEFT JOIN log l ON l.customer = c.id",
    "regions": "SELECT c.region, sum(o.amount) AS s, min(o.amount) AS m"
    " FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.region",
    "bosses": "SELECT a.id AS a, b.name AS b FROM customers a"
    " LEFT JOIN customers b ON b.id = a.boss",
    "over": "SELECT r.region, count(j.id) AS n FROM regions r LEFT JOIN joined j ON r.s >= j.amount"
    " GROUP BY r.region",
}


@pytest.fixture
def hw(conn: Connection, database: str) -> Iterator[headwater.Headwater]:
    conn.execute(SETUP.encode())
    with headwater.connect(database) as made:
        yield made


@pytest.fixture
def followed(hw: headwater.Headwater) -> headwater.Headwater:
    for name, query in QUERIES.items():
        hw.create_stream_table(name, query, refresh_mode="IMMEDIATE")
    return hw


def differences(conn: Connection) -> dict[str, str]:
    found = {name: find_difference(conn, query, name) for name, query in QUERIES.items()}
    return {name: fault for name, fault in found.items() if fault}


def status_of(hw: headwater.Headwater, name: str) -> headwater.Status:
    return next(s for s in hw.pgt_status() if s.name == name)


STATEMENTS = {
    "foreign-key cascade": "DELETE FROM customers WHERE id = 2",
    "a cascade of keys": "UPDATE customers SET id = 10 WHERE id = 3",
    "a tree that refers to itself": "DELETE FROM customers WHERE id = 1",
    "both sides of a join": "WITH c AS (INSERT INTO customers VALUES (7, 'new', 'n') RETURNING id),"
    " o AS (UPDATE orders SET amount = amount + 1 RETURNING id), l AS (INSERT INTO log"
    " VALUES (7, 'y')) UPDATE customers SET name = upper(name), region = 's' WHERE id = 1",
    "three tables emptied": "WITH l AS (DELETE FROM log), o AS (DELETE FROM orders WHERE id < 3)"
    " DELETE FROM customers WHERE id = 3",
    "MERGE with all actions": "MERGE INTO orders o USING (VALUES (1, 5), (2, -1), (9, 9))"
    " AS v (id, amount) ON o.id = v.id WHEN MATCHED AND v.amount < 0 THEN DELETE"
    " WHEN MATCHED THEN UPDATE SET amount = v.amount, customer = 3"
    " WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.amount, 2)",
    "ON CONFLICT, some of each": "INSERT INTO orders VALUES (1, 1, 3), (8, 8, 2)"
    " ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, customer = excluded.customer",
    "ON CONFLICT, old rows only": "INSERT INTO customers VALUES (1, 'anew', 's'), (2, 'bo', 'n')"
    " ON CONFLICT (id) DO UPDATE SET name = excluded.name, region = excluded.region",
    "nothing": "UPDATE orders SET amount = amount + 1 WHERE false",
    "an error that is caught": "DO $$ BEGIN BEGIN DELETE FROM customers; INSERT INTO orders"
    " VALUES (1, 1, 1); RAISE EXCEPTION 'no'; EXCEPTION WHEN OTHERS THEN"
    " UPDATE orders SET amount = 77 WHERE id = 1; END; END $$",
    "TRUNCATE of one source": "TRUNCATE log",
    "TRUNCATE with what refers to it": "TRUNCATE customers CASCADE",
    "many rows": "INSERT INTO orders SELECT n, n, n % 3 + 1 FROM generate_series(100, 400) AS n",
}


def test_whole_statements(followed: headwater.Headwater, conn: Connection) -> None:
    for name, statement in STATEMENTS.items():
        with conn.transaction(force_rollback=True):
            conn.execute(statement.encode())
            assert differences(conn) == {}, name
            conn.execute("UPDATE orders SET amount = 1000; UPDATE customers SET region = 'x'")
            assert differences(conn) == {}, name
        assert differences(conn) == {}
    for name, statement in STATEMENTS.items():
        conn.execute(statement.encode())
        assert differences(conn) == {}, name
        conn.execute(RESTORE.encode())


RESTORE = "TRUNCATE customers, orders, log;" + SETUP.partition("log (customer int, what text);")[2]
TRIGGERS = {
    "before each row": "BEFORE UPDATE ON orders FOR EACH ROW",
    "after each row": "AFTER UPDATE ON orders FOR EACH ROW",
    "after the statement, before ours": "AFTER UPDATE ON orders",
    "before the statement": "BEFORE UPDATE ON orders",
}


def test_triggers_that_write_again(followed: headwater.Headwater, conn: Connection) -> None:
    conn.execute("CREATE SEQUENCE again_ids START 500")
    conn.execute(
        "CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF pg_trigger_depth() > 1 THEN RETURN coalesce(new, old); END IF;"
        " UPDATE customers SET name = name || '+', region = 'x' WHERE id = 1;"
        " INSERT INTO log VALUES (2, 'again');"
        " INSERT INTO orders VALUES (nextval('again_ids'), 5, 2);"
        " DELETE FROM orders WHERE id = 3; RETURN coalesce(new, old); END $$"
    )
    for called, (name, when) in product(("a_first", "z_last"), TRIGGERS.items()):
        with conn.transaction(force_rollback=True):
            conn.execute(f"CREATE TRIGGER {called} {when} EXECUTE FUNCTION again()".encode())
            conn.execute("UPDATE orders SET amount = amount + 1 WHERE id IN (1, 2)")
            assert conn.execute("SELECT count(*) FROM log WHERE what = 'again'").fetchone() != (0,)
            assert differences(conn) == {}, (called, name)


def test_savepoints_and_two_phases(followed: headwater.Headwater, conn: Connection) -> None:
    with conn.transaction():
        conn.execute("INSERT INTO orders VALUES (20, 5, 1)")
        with conn.transaction(force_rollback=True):
            conn.execute("DELETE FROM customers")
        conn.execute("UPDATE customers SET name = 'kept' WHERE id = 1")
        assert differences(conn) == {}
    for ending in ("COMMIT", "ROLLBACK"):
        conn.execute("BEGIN")
        conn.execute("DELETE FROM customers WHERE id = 2")
        conn.execute("INSERT INTO orders VALUES (21, 5, 1) ON CONFLICT (id) DO NOTHING")
        conn.execute("PREPARE TRANSACTION 'two'")
        conn.execute(f"{ending} PREPARED 'two'".encode())
        assert differences(conn) == {}


def test_truncate_under_a_frozen_snapshot_is_refused(
    followed: headwater.Headwater, conn: Connection
) -> None:
    conn.isolation_level = IsolationLevel.REPEATABLE_READ
    with (
        pytest.raises(psycopg.errors.FeatureNotSupported, match="cannot be truncated"),
        conn.transaction(),
    ):
        conn.execute("TRUNCATE log")
    assert differences(conn) == {}


def test_it_is_shown_as_what_it_is(followed: headwater.Headwater, conn: Connection) -> None:
    status = status_of(followed, "public.totals")
    assert (status.refresh_mode, status.effective_mode, status.engine, status.target_lag) == (
        "IMMEDIATE",
        "IMMEDIATE",
        "postgres",
        None,
    )
    assert status.current_lag is not None
    assert status.current_lag.total_seconds() == 0
    later = status_of(followed, "public.totals")
    assert status.data_timestamp is not None
    assert later.data_timestamp is not None
    assert later.data_timestamp > status.data_timestamp
    rows = conn.execute("SELECT schedule, refresh_mode FROM pgtrickle.pgt_stream_tables").fetchall()
    assert set(rows) == {(None, "IMMEDIATE")}
    assert conn.execute("SELECT * FROM pgtrickle.change_buffer_sizes()").fetchall() == []


def test_from_the_command_line(hw: headwater.Headwater, conn: Connection) -> None:
    def run(*words: str) -> Any:
        result = CliRunner().invoke(main, ["--dsn", hw.dsn, *words, "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout or "null")

    made = run("create", "totals", QUERIES["totals"], "--mode", "IMMEDIATE")
    assert (made["effective_mode"], made["engine"]) == ("IMMEDIATE", "postgres")
    conn.execute("DELETE FROM orders WHERE id = 1")
    assert find_difference(conn, QUERIES["totals"], "totals") is None
    run("alter", "totals", "--status", "SUSPENDED")
    conn.execute("DELETE FROM orders WHERE id = 2")
    run("alter", "totals", "--status", "ACTIVE")
    assert run("refresh", "totals")[0]["action"] == "FULL"
    assert "locks: groups, by their own rows" in run("explain", "totals")["operators"]
    run("alter", "totals", "--mode", "DIFFERENTIAL")
    assert run("refresh", "totals")[0]["action"] == "NO_DATA"
    assert find_difference(conn, QUERIES["totals"], "totals") is None


def test_explain_tells_locks_and_recomputes(followed: headwater.Headwater) -> None:
    how = {name: followed.explain_st(name).operators for name in QUERIES}
    assert "locks: groups, by their own rows" in how["totals"]
    assert "locks: groups" in how["peaks"]
    assert (
        "locks: values of public.customers (id), values of public.orders (customer)"
        in how["joined"]
    )
    assert any(
        line.startswith("locks: one lock for the whole table: the result") for line in how["padded"]
    )
    assert any("recomputed when its extremum leaves" in line for line in how["peaks"])
    assert "triggers: each trigger follows its own change" in how["totals"]
    explained = followed.explain_st("joined")
    assert explained.mode == "IMMEDIATE"
    assert '"public"."joined"' in explained.sql


def test_writers_need_no_rights(followed: headwater.Headwater, conn: Connection) -> None:
    conn.execute("CREATE ROLE imm_writer")
    try:
        conn.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON orders TO imm_writer")
        with conn.transaction():
            conn.execute("SET LOCAL ROLE imm_writer")
            conn.execute("SET LOCAL search_path = pg_temp")
            conn.execute("SET LOCAL DateStyle = 'SQL, DMY'")
            conn.execute("INSERT INTO public.orders VALUES (30, 3, 1)")
            conn.execute("UPDATE public.orders SET customer = 2 WHERE id = 1")
            with pytest.raises(psycopg.errors.InsufficientPrivilege), conn.transaction():
                conn.execute("SELECT * FROM public.totals")
        assert differences(conn) == {}
    finally:
        conn.execute("DROP OWNED BY imm_writer; DROP ROLE imm_writer")


def test_maintenance_runs_as_the_owner(hw: headwater.Headwater, conn: Connection) -> None:
    conn.execute("CREATE ROLE imm_owner SUPERUSER")
    try:
        conn.execute("CREATE TABLE seen (who text)")
        conn.execute(
            "CREATE FUNCTION note(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS"
            " $$ BEGIN IF current_user <> 'imm_owner' THEN RAISE EXCEPTION 'as %', current_user;"
            " END IF; RETURN v; END $$"
        )
        with headwater.connect(hw.dsn + "&options=-c%20role%3Dimm_owner") as other:
            other.create_stream_table(
                "owned", "SELECT id, public.note(amount) AS a FROM orders", refresh_mode="IMMEDIATE"
            )
        conn.execute("INSERT INTO orders VALUES (31, 3, 1)")
        rows = conn.execute("SELECT a FROM owned WHERE id = 31").fetchall()
        assert rows == [(3,)]
        hw.drop_stream_table("owned")
    finally:
        conn.execute("DROP OWNED BY imm_owner; DROP ROLE imm_owner")


def test_an_owner_without_more_rights(conn: Connection, database: str) -> None:
    """No superuser anywhere: no event triggers, and no settings of functions that need one."""
    conn.execute("CREATE ROLE imm_plain LOGIN")
    try:
        name = conn.info.dbname
        conn.execute(f"GRANT CREATE ON DATABASE {name} TO imm_plain".encode())
        conn.execute("GRANT ALL ON SCHEMA public TO imm_plain")
        with (
            psycopg.connect(database, user="imm_plain", autocommit=True) as own,
            headwater.connect(database.replace("postgres@", "imm_plain@")) as hw,
        ):
            own.execute(SETUP.encode())
            for table, query in QUERIES.items():
                hw.create_stream_table(table, query, refresh_mode="IMMEDIATE")
            own.execute("DELETE FROM customers WHERE id = 3")
            conn.execute("UPDATE customers SET region = 'x'")
            own.execute("TRUNCATE log")
            assert differences(own) == {}
            own.execute("ALTER TABLE orders ALTER COLUMN amount TYPE bigint")
            for table in QUERIES:
                hw.refresh_stream_table(table)
            own.execute("UPDATE orders SET amount = 5000000000")
            assert differences(own) == {}
            hw.uninstall()
    finally:
        conn.execute("DROP OWNED BY imm_plain; DROP ROLE imm_plain")


def test_a_deferred_constraint_is_no_key(hw: headwater.Headwater, conn: Connection) -> None:
    conn.execute("CREATE TABLE late (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v int)")
    hw.create_stream_table("seen", "SELECT id, v FROM late", refresh_mode="IMMEDIATE")
    with conn.transaction():
        conn.execute("INSERT INTO late VALUES (1, 1)")
        conn.execute("INSERT INTO late VALUES (1, 2)")
        assert find_difference(conn, "SELECT id, v FROM late", "seen") is None
        conn.execute("UPDATE late SET id = v")
    assert find_difference(conn, "SELECT id, v FROM late", "seen") is None


def test_others_cannot_write(followed: headwater.Headwater, conn: Connection) -> None:
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="is a stream table"):
        conn.execute("DELETE FROM totals")


def test_a_failure_aborts_the_writer(followed: headwater.Headwater, conn: Connection) -> None:
    followed.create_stream_table(
        "divided", "SELECT id, 100 / amount AS d FROM orders", refresh_mode="IMMEDIATE"
    )
    with pytest.raises(psycopg.errors.DivisionByZero):
        conn.execute("INSERT INTO orders VALUES (40, 0, 1)")
    assert conn.execute("SELECT count(*) FROM orders WHERE id = 40").fetchone() == (0,)
    with conn.transaction():
        conn.execute("SET LOCAL pg_trickle.refreshing = 'on'")
        conn.execute("DELETE FROM joined WHERE id = 1")
    with pytest.raises(psycopg.Error, match="does not hold the rows that it should") as failed:
        conn.execute("DELETE FROM orders WHERE id = 1")
    assert failed.value.sqlstate == "HW203"
    assert followed.refresh_stream_table("joined").action == "FULL"
    conn.execute("DELETE FROM orders WHERE id = 1")
    assert differences(conn) == {}


def test_refresh_computes_anew(followed: headwater.Headwater, conn: Connection) -> None:
    conn.execute("ALTER TABLE orders DISABLE TRIGGER ALL")
    conn.execute("INSERT INTO orders VALUES (41, 9, 1)")
    conn.execute("ALTER TABLE orders ENABLE TRIGGER ALL")
    assert not followed.verify("totals").equal
    for action in ("REINITIALIZE", "FULL"):
        for name, query in QUERIES.items():
            stopped = action == "REINITIALIZE" and "orders" in query
            assert followed.refresh_stream_table(name).action == (action if stopped else "FULL")
        assert differences(conn) == {}
    assert followed.refresh_history("totals")[0].action == "FULL"
    conn.execute("SET session_replication_role = replica")
    conn.execute("INSERT INTO orders VALUES (42, 9, 1)")
    assert differences(conn) == {}


def test_created_empty_and_filled_later(hw: headwater.Headwater, conn: Connection) -> None:
    query = QUERIES["totals"]
    hw.create_stream_table("totals", query, refresh_mode="IMMEDIATE", initialize=False)
    conn.execute("INSERT INTO orders VALUES (50, 1, 1)")
    assert conn.execute("SELECT count(*) FROM totals").fetchone() == (0,)
    assert status_of(hw, "public.totals").status == "INITIALIZING"
    hw.refresh_stream_table("totals")
    conn.execute("INSERT INTO orders VALUES (51, 1, 1)")
    assert find_difference(conn, query, "totals") is None


def test_suspended_for_a_bulk_load(followed: headwater.Headwater, conn: Connection) -> None:
    followed.alter_stream_table("joined", status="SUSPENDED")
    conn.execute("INSERT INTO orders SELECT n, n, 1 FROM generate_series(1000, 3000) AS n")
    assert list(differences(conn)) == ["joined"]
    assert status_of(followed, "public.joined").status == "SUSPENDED"
    with pytest.raises(InvalidArgument):
        followed.refresh_stream_table("joined")
    followed.alter_stream_table("joined", status="ACTIVE")
    conn.execute("UPDATE orders SET amount = 2 WHERE id > 2000")
    assert differences(conn) == {}


def test_resuming_compiles_over_what_was_altered(hw: headwater.Headwater, conn: Connection) -> None:
    query = "SELECT customer, count(*) AS n, max(amount) AS most FROM orders GROUP BY customer"
    hw.create_stream_table("totals", query, refresh_mode="IMMEDIATE")
    hw.alter_stream_table("totals", status="SUSPENDED")
    conn.execute("ALTER TABLE orders ALTER COLUMN amount TYPE float8")
    hw.alter_stream_table("totals", status="ACTIVE")
    conn.execute("INSERT INTO orders VALUES (61, 1e30, 1), (62, 0.1, 1)")
    assert find_difference(conn, query, "totals") is None
    assert status_of(hw, "public.totals").status == "ACTIVE"


def test_beside_deferred_tables(hw: headwater.Headwater, conn: Connection) -> None:
    """IMMEDIATE over deferred over IMMEDIATE, one of them also beside the source."""
    made = {
        "now": ("SELECT customer, sum(amount) AS s FROM orders GROUP BY customer", "IMMEDIATE"),
        "later": ("SELECT s, count(*) AS n FROM now GROUP BY s", "DIFFERENTIAL"),
        "again": (
            "SELECT l.s, l.n, c.name FROM later l JOIN customers c ON c.id = l.n",
            "IMMEDIATE",
        ),
    }
    for name, (query, mode) in made.items():
        hw.create_stream_table(name, query, refresh_mode=mode)
    for _ in range(2):
        conn.execute("UPDATE orders SET amount = coalesce(amount, 0) + 10")
        conn.execute("UPDATE customers SET name = name || '!'")
        assert find_difference(conn, made["now"][0], "now") is None
        assert find_difference(conn, made["again"][0], "again") is None
        assert hw.refresh_stream_table("later").action == "DIFFERENTIAL"
        assert all(find_difference(conn, made[name][0], name) is None for name in made)
    assert hw.refresh_stream_table("later").action == "NO_DATA"
    assert hw.refresh_stream_table("again").action == "FULL"
    assert all(hw.verify(name).equal for name in made)


def test_the_modes_change_both_ways(hw: headwater.Headwater, conn: Connection) -> None:
    query = QUERIES["regions"]
    hw.create_stream_table("regions", query, refresh_mode="FULL", schedule="5m")
    for mode in ("IMMEDIATE", "DIFFERENTIAL", "IMMEDIATE", "FULL", "IMMEDIATE", "AUTO"):
        hw.alter_stream_table("regions", refresh_mode=mode)
        conn.execute("UPDATE orders SET amount = coalesce(amount, 0) + 1")
        if mode != "IMMEDIATE":
            assert find_difference(conn, query, "regions") is not None
            hw.refresh_stream_table("regions")
        assert find_difference(conn, query, "regions") is None, mode
        own = "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'pgt\\_imm%'"
        assert (conn.execute(own).fetchone() != (0,)) == (mode == "IMMEDIATE")
    other = (
        "SELECT c.name AS region, sum(o.amount) AS s FROM orders o JOIN customers c"
        " ON c.id = o.customer GROUP BY c.name"
    )
    hw.alter_stream_table("regions", refresh_mode="IMMEDIATE", query=other)
    conn.execute("UPDATE customers SET name = 'same'")
    assert find_difference(conn, other, "regions") is None


def test_an_altered_source_is_followed_after_a_refresh(
    followed: headwater.Headwater, conn: Connection
) -> None:
    conn.execute("ALTER TABLE orders ALTER COLUMN amount TYPE bigint")
    conn.execute("INSERT INTO orders (id, customer) VALUES (60, 1)")
    conn.execute("DELETE FROM orders WHERE id = 60")
    assert status_of(followed, "public.joined").status == "ERROR"
    for name in QUERIES:
        followed.refresh_stream_table(name)
    conn.execute("INSERT INTO orders (id, customer, amount) VALUES (60, 1, 5000000000)")
    assert differences(conn) == {}


def test_altering_a_source_can_be_refused(followed: headwater.Headwater, conn: Connection) -> None:
    conn.execute("SET pg_trickle.block_source_ddl = on")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="is in the way"):
        conn.execute("ALTER TABLE orders RENAME COLUMN amount TO other")
    conn.execute("ALTER TABLE orders ADD COLUMN more int")
    conn.execute("INSERT INTO orders VALUES (62, 1, 1, 1)")
    assert differences(conn) == {}


def test_renamed_and_dropped_by_hand(followed: headwater.Headwater, conn: Connection) -> None:
    conn.execute('CREATE SCHEMA "Else Where"')
    conn.execute('ALTER TABLE totals RENAME TO "Totals "')
    conn.execute('ALTER TABLE "Totals " SET SCHEMA "Else Where"')
    conn.execute("INSERT INTO orders VALUES (63, 1, 1)")
    assert find_difference(conn, QUERIES["totals"], '"Else Where"."Totals "') is None
    assert followed.verify('"Else Where"."Totals "').equal
    conn.execute("DROP TABLE peaks")
    conn.execute("INSERT INTO orders VALUES (64, 1, 1)")
    with conn.transaction():
        conn.execute("INSERT INTO orders VALUES (65, 1, 1)")
        conn.execute("DROP TABLE bosses")
        conn.execute("DELETE FROM customers WHERE id = 2")
    assert {s.name for s in followed.pgt_status()} == {
        '"Else Where"."Totals "',
        *(f"public.{name}" for name in ("joined", "padded", "regions", "over")),
    }


def test_nothing_is_left_behind(followed: headwater.Headwater, conn: Connection) -> None:
    for name in ("over", "totals", "peaks", "joined", "padded", "regions", "bosses"):
        followed.drop_stream_table(name)
    rest = conn.execute(
        "SELECT tgname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        " WHERE tgname LIKE 'pgt%' AND relnamespace <> 'pgtrickle'::regnamespace UNION ALL"
        " SELECT proname FROM pg_proc WHERE pronamespace = 'pgtrickle_state'::regnamespace"
        " UNION ALL SELECT relname FROM pg_class"
        " WHERE relnamespace = 'pgtrickle_state'::regnamespace"
    ).fetchall()
    assert rest == []
    conn.execute("DELETE FROM customers")


def test_user_triggers_see_true_rows(followed: headwater.Headwater, conn: Connection) -> None:
    conn.execute("CREATE TABLE audit (op text, was int, now int)")
    conn.execute(
        "CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO public.audit VALUES (tg_op, old.amount, new.amount); RETURN NULL; END $$"
    )
    conn.execute(
        "CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON joined FOR EACH ROW"
        " EXECUTE FUNCTION audit()"
    )
    conn.execute("UPDATE orders SET amount = amount + 5 WHERE id = 1")
    conn.execute("INSERT INTO orders VALUES (70, 7, 1)")
    conn.execute("DELETE FROM orders WHERE id = 2")
    conn.execute("UPDATE customers SET region = 'other'")
    assert conn.execute("TABLE audit").fetchall() == [
        ("UPDATE", 10, 15),
        ("INSERT", None, 7),
        ("DELETE", 20, None),
    ]


def test_what_is_refused(hw: headwater.Headwater) -> None:
    with pytest.raises(InvalidArgument, match="Spark"):
        hw.create_stream_table("st", QUERIES["totals"], refresh_mode="IMMEDIATE", engine="spark")
    with pytest.raises(UnsupportedQuery):
        hw.create_stream_table(
            "st", "SELECT id, random() AS r FROM orders", refresh_mode="IMMEDIATE"
        )
    below = "orders"
    for level in range(16):
        hw.create_stream_table(f"st{level}", f"SELECT id FROM {below}", refresh_mode="IMMEDIATE")
        below = f"st{level}"
    with pytest.raises(InvalidArgument, match="stand on each other"):
        hw.create_stream_table("deepest", f"SELECT id FROM {below}", refresh_mode="IMMEDIATE")


def test_a_schedule_that_was_asked_for_is_said_to_be_ignored(hw: headwater.Headwater) -> None:
    query, said = QUERIES["totals"], []
    for n, schedule in enumerate((None, "1m", "5m")):
        made = hw.create_stream_table(
            f"totals_{n}", query, schedule=schedule, refresh_mode="IMMEDIATE"
        )
        said.append(made.warnings)
    ignored = "the schedule 5m is ignored: with IMMEDIATE the table follows every write"
    assert said == [(), (), (ignored,)]


def test_a_schedule_is_refused_for_what_stays_immediate(
    hw: headwater.Headwater, conn: Connection
) -> None:
    hw.create_stream_table("totals", QUERIES["totals"], refresh_mode="IMMEDIATE")
    with pytest.raises(InvalidArgument, match="follows every write"):
        hw.alter_stream_table("totals", schedule="5m")
    hw.alter_stream_table("totals", schedule=None)
    hw.alter_stream_table("totals", schedule="5m", refresh_mode="DIFFERENTIAL")
    rows = conn.execute("SELECT schedule, refresh_mode FROM pgtrickle.pgt_stream_tables").fetchall()
    assert rows == [("5m", "DIFFERENTIAL")]


def test_the_state_tells_locks_and_the_last_fill(conn: Connection, hw: headwater.Headwater) -> None:
    top = "SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 2"
    for name, query in {
        **{n: QUERIES[n] for n in ("totals", "peaks", "joined")},
        "top": top,
    }.items():
        hw.create_stream_table(name, query, refresh_mode="IMMEDIATE")
    rows = conn.execute(
        "SELECT pgt_name, lock_mode, last_update_xid::text = frontier ->> 'xid',"
        " pg_xact_status(last_update_xid) FROM pgtrickle.pgt_ivm_state"
        " JOIN pgtrickle.pgt_stream_tables USING (pgt_id) ORDER BY pgt_id"
    ).fetchall()
    modes = dict.fromkeys(("totals", "peaks", "joined"), "ROW_EXCLUSIVE") | {"top": "EXCLUSIVE"}
    assert rows == [(name, mode, True, "committed") for name, mode in modes.items()]


@pytest.mark.parametrize("is_told", [True, False], ids=["event triggers", "none"])
@pytest.mark.parametrize("how", ["RENAME COLUMN n TO m", "DROP COLUMN n"])
def test_a_stream_table_that_lost_a_column_lets_writers_go_on(
    conn: Connection, hw: headwater.Headwater, how: str, is_told: bool
) -> None:
    hw.create_stream_table("totals", QUERIES["totals"], refresh_mode="IMMEDIATE")
    if not is_told:
        conn.execute("DROP EVENT TRIGGER pgt_follow_ddl; DROP EVENT TRIGGER pgt_follow_drop")
    conn.execute(f"ALTER TABLE totals {how}".encode())
    conn.execute("INSERT INTO orders VALUES (5, 50, 1)")
    stopped = conn.execute("SELECT status, last_error FROM pgtrickle.pgt_stream_tables").fetchall()
    assert stopped == [("ERROR", "the stream table has no column n any more")]
    hw.alter_stream_table("totals", query=QUERIES["totals"])
    conn.execute("INSERT INTO orders VALUES (6, 60, 2)")
    assert status_of(hw, "public.totals").status == "ACTIVE"
    assert find_difference(conn, QUERIES["totals"], "totals") is None
