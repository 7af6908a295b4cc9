"""Dumps that are restored, copies of a database, and what the doctor finds and mends."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

import headwater
from headwater.cli import main
from headwater.errors import CatalogRestored
from headwater.postgres.capture import remove_capture
from tests.battery.oracle import find_difference
from tests.in_server import prepare
from tests.servers import Server

Connection = psycopg.Connection[Any]

SETUP = """
CREATE TABLE customers (id int PRIMARY KEY, name text);
CREATE TABLE orders (id int PRIMARY KEY, customer int REFERENCES customers, amount numeric)
    PARTITION BY RANGE (id);
CREATE TABLE orders_1 PARTITION OF orders FOR VALUES FROM (0) TO (100);
CREATE TABLE orders_2 PARTITION OF orders FOR VALUES FROM (100) TO (200);
INSERT INTO customers VALUES (1, 'ann'), (2, 'bob'), (3, NULL);
INSERT INTO orders SELECT n, 1 + n % 3, n FROM generate_series(1, 30) AS n;
CREATE MATERIALIZED VIEW m AS SELECT customer, count(*) AS n FROM orders GROUP BY customer;
"""
QUERIES = {
    "totals": "SELECT customer, sum(amount) AS total, max(amount) AS most FROM orders GROUP BY 1",
    '"Odd name"': "SELECT c.name, o.amount FROM orders o JOIN customers c ON c.id = o.customer",
    "best": "SELECT max(total) AS best FROM totals",
    "live": "SELECT c.name, sum(o.amount) AS s FROM orders o JOIN customers c ON c.id = o.customer"
    " GROUP BY c.name",
    "livelier": "SELECT count(*) AS n FROM live",
    "late": "SELECT customer, count(*) AS n FROM orders GROUP BY customer",
    "polled": "SELECT c.name, m.n FROM m JOIN customers c ON c.id = m.customer",
    "whole": "SELECT string_agg(name, ',' ORDER BY id) AS names FROM customers",
}
MODES = {"live": "IMMEDIATE", "livelier": "IMMEDIATE", "late": "COMMIT", "whole": "FULL"}
DOCUMENTS = "SELECT id AS pk_customer, jsonb_build_object('name', name) AS data FROM customers"


def create_all(hw: headwater.Headwater) -> None:
    for name, query in QUERIES.items():
        mode, cdc_mode = MODES.get(name, "DIFFERENTIAL"), "poll" if name == "polled" else None
        hw.create_stream_table(name, query, refresh_mode=mode, cdc_mode=cdc_mode)
    hw.create_tview("tv_customer", DOCUMENTS)


def write(conn: Connection, start: int) -> None:
    conn.execute("INSERT INTO orders VALUES (%s, 1, 7), (%s, 2, 8)", [start, start + 100])
    conn.execute("UPDATE orders SET amount = amount + 1 WHERE id < 5")
    conn.execute("DELETE FROM orders WHERE id = 6")


def check_all(hw: headwater.Headwater, conn: Connection) -> None:
    """Refresh and compare; then that changes are followed, and not computed anew."""
    for name, query in QUERIES.items():
        if MODES.get(name) not in ("IMMEDIATE", "COMMIT"):
            hw.refresh_stream_table(name)
        assert find_difference(conn, query, name) is None, name
    conn.execute("UPDATE orders SET amount = amount + 1 WHERE id = 20")
    assert hw.refresh_stream_table("totals").action == "DIFFERENTIAL"
    for name in ("totals", "live", "livelier", "late"):
        assert find_difference(conn, QUERIES[name], name) is None, name
    assert hw.verify("best").equal
    conn.execute("UPDATE customers SET name = 'eve' WHERE id = 3")
    view, rows = "SELECT view::text FROM pgtrickle.tviews", "(SELECT pk_customer, data FROM {})"
    assert conn.execute(view).fetchall() == [("v_customer",)]
    both = f"{rows.format('tv_customer')} EXCEPT ALL {rows.format('v_customer')}"
    assert conn.execute(both.encode()).fetchall() == []


@pytest.fixture
def hw(database: str, conn: Connection) -> Iterator[headwater.Headwater]:
    conn.execute(SETUP)
    with headwater.connect(database) as hw:
        create_all(hw)
        yield hw


def check_refused(copy: headwater.Headwater, conn: Connection) -> None:
    """Until it is restored nothing is done, and what is wrong is said everywhere."""
    conn.execute("CREATE TABLE junk (); DROP TABLE junk")  # heard by the event triggers
    with pytest.raises(CatalogRestored):
        copy.pgt_status()
    with pytest.raises(CatalogRestored):
        copy.refresh_stream_table("totals")
    assert [(f.severity, f.check) for f in copy.health_check()] == [("error", "restored")]
    assert [(d.check, d.is_fixed) for d in copy.doctor()] == [("restored", False)]


def test_a_dump_is_restored(
    hw: headwater.Headwater, conn: Connection, server: Server, database: str
) -> None:
    """As an archive by pg_restore on one server, as a script by psql on the other."""
    hw.alter_stream_table("whole", status="SUSPENDED")
    write(conn, 50)
    made = server.copy(database, "custom" if server.version == 18 else "plain")
    with headwater.connect(made) as copy, psycopg.connect(made, autocommit=True) as other:
        write(other, 60)
        check_refused(copy, other)
        result = CliRunner().invoke(main, ["--dsn", made, "init", "--restore", "--json"])
        outcomes = {r["name"]: r["outcome"] for r in json.loads(result.stdout)["restored"]}
        [mirror] = [name for name in outcomes if "mirror" in name]
        assert outcomes == {
            "public.totals": "marked", 'public."Odd name"': "marked", "public.best": "marked",
            "public.polled": "marked", "public.whole": "marked", mirror: "marked",
            "public.live": "rebuilt", "public.livelier": "rebuilt", "public.late": "rebuilt",
            "public.tv_customer": "rebuilt",
        }  # fmt: skip
        assert copy.restore_stream_tables() == ()
        write(other, 70)
        assert find_difference(other, QUERIES["live"], "live") is None
        assert {s.name: s.status for s in copy.pgt_status()}["public.whole"] == "SUSPENDED"
        copy.alter_stream_table("whole", status="ACTIVE")
        check_all(copy, other)
        assert copy.doctor() == ()
        reasons = {r.reason for r in copy.refresh_history("totals") if r.action == "REINITIALIZE"}
        assert "the catalog came from another database, by a dump or a copy" in reasons
        copy.create_stream_table("again", QUERIES["polled"], cdc_mode="poll")  # the same mirror
        assert len([s for s in copy.pgt_status() if "mirror" in s.name]) == 1
    server.drop_database(made)
    assert hw.restore_stream_tables() == ()
    hw.alter_stream_table("whole", status="ACTIVE")
    check_all(hw, conn)


def test_a_copy_of_a_database_is_another_one_and_may_miss_what_it_reads(
    hw: headwater.Headwater, server: Server, database: str
) -> None:
    hw.connection.close()
    made = server.clone(database)
    with headwater.connect(made) as copy, psycopg.connect(made, autocommit=True) as other:
        other.execute("DROP TABLE totals; ALTER TABLE customers RENAME TO clients")
        outcomes = {r.name: (r.outcome, r.detail) for r in copy.restore_stream_tables()}
        assert outcomes["public.totals"][0] == "gone"
        missing = "it reads public.customers, which is not here"
        assert outcomes["public.live"] == ("failed", missing)
        assert outcomes["public.livelier"][0] == "failed"
        assert outcomes["public.best"] == ("failed", "it reads public.totals, which is not here")
        [status] = [s for s in copy.pgt_status() if s.name == "public.live"]
        assert status.status == "ERROR"
        other.execute("INSERT INTO orders VALUES (99, 1, 1)")  # no trigger is in the way
    server.drop_database(made)


def test_sql_restores_too(pg15: Server, server_path: str) -> None:
    dsn = prepare(pg15, server_path)
    with headwater.connect(dsn) as hw, psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(SETUP)
        create_all(hw)
    made = pg15.copy(dsn)
    with psycopg.connect(made, autocommit=True) as conn:
        rows = conn.execute("SELECT * FROM pgtrickle.restore_stream_tables()").fetchall()
        assert Counter(outcome for _, outcome, _ in rows) == {"marked": 6, "rebuilt": 4}, rows
        write(conn, 60)
        conn.execute("SELECT pgtrickle.refresh_stream_table('best')")
        for name in ("totals", "best", "live", "livelier"):
            assert find_difference(conn, QUERIES[name], name) is None
    for each in (dsn, made):
        pg15.drop_database(each)


# What is done, and the checks that find it; {…} are ids and oids.
DAMAGES = (
    ("DELETE FROM pgtrickle.pgt_dependencies WHERE pgt_id = {polled};"
     "ALTER TABLE polled RENAME TO renamed", ["stray table", "unread mirror"]),
    ("CREATE FUNCTION pgtrickle_state.follow_991_open() RETURNS int LANGUAGE sql AS 'SELECT 1';"
     "CREATE TABLE pgtrickle_state.state_992 (); CREATE TABLE pgtrickle_state.locks_{totals} ()",
     ["left over"] * 3),
    ("INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, action, status, backend_pid)"
     " VALUES ({totals}, 'FULL', 'RUNNING', 2147483647)", ["lost refresh"]),
    ("DROP TABLE pgtrickle_state.state_{totals}", ["missing state"]),
    ("DROP TABLE pgtrickle_state.state_{live}", ["missing state"]),
    ("DROP INDEX pgt_{totals}_key, pgt_{odd}_key", ["missing index"] * 2),
    ("DROP TRIGGER pgt_guard ON totals; DELETE FROM totals;"
     "ALTER TABLE live DISABLE TRIGGER pgt_guard; DELETE FROM live", ["missing guard"] * 2),
    ("CREATE TABLE pgtrickle_changes.changes_993 (); CREATE FUNCTION"
     " pgtrickle_changes.capture_994_insert() RETURNS int LANGUAGE sql AS 'SELECT 1'",
     ["orphaned capture"] * 2),
    ("UPDATE pgtrickle.pgt_change_tracking SET tracked_by_pgt_ids = tracked_by_pgt_ids || 995::int8"
     " WHERE source_relid = {orders}", ["useless capture"]),
    ("CREATE TABLE stray (id int, customer int, amount int); CREATE TRIGGER odd"
     " AFTER INSERT ON stray REFERENCING NEW TABLE AS new_rows EXECUTE FUNCTION"
     " pgtrickle_changes.capture_{orders}_insert()", ["stray trigger"]),
    ("DROP TABLE pgtrickle_changes.changes_{orders}", ["broken capture"]),
    ("ALTER TABLE orders_1 DISABLE TRIGGER USER; DELETE FROM orders_1 WHERE id < 4",
     ["broken capture", "not followed", "not followed"]),
    ("DROP TRIGGER pgt_imm_{live}_{customers}_update ON customers;"
     "UPDATE customers SET name = 'zoe' WHERE id = 2", ["not followed"]),
)  # fmt: skip


def test_the_doctor_finds_and_mends(
    hw: headwater.Headwater, conn: Connection, database: str
) -> None:
    assert hw.doctor() == ()
    ids = dict(conn.execute("SELECT pgt_name, pgt_id FROM pgtrickle.pgt_stream_tables").fetchall())
    known = {name: oid(conn, name) for name in ("orders", "customers")}
    known |= {name: ids[name] for name in ("totals", "live", "polled")}
    known["odd"] = ids["Odd name"]
    for damage, checks in DAMAGES:
        conn.execute(damage.format(**known))
        mend(hw, conn, checks)
    remove_capture(conn, known["orders"])
    mend(hw, conn, ["missing capture"])
    check_command_line(hw, conn)


def check_command_line(hw: headwater.Headwater, conn: Connection) -> None:
    doctor = ["--dsn", hw.dsn, "doctor"]
    well = CliRunner().invoke(main, doctor)
    assert (well.exit_code, well.stdout) == (0, "nothing is left over, missing or broken\n")
    conn.execute("DROP TRIGGER pgt_guard ON totals")
    found = CliRunner().invoke(main, [*doctor, "--json"])
    assert (found.exit_code, [d["subject"] for d in json.loads(found.stdout)]) == (
        1, ["public.totals"],
    )  # fmt: skip
    fixed = CliRunner().invoke(main, [*doctor, "--fix"])
    assert fixed.exit_code == 0
    assert "missing guard  public.totals" in fixed.stdout


def mend(hw: headwater.Headwater, conn: Connection, checks: list[str]) -> None:
    """Have the doctor find this, mend it, and find nothing any more; then all must be right."""
    assert [d.check for d in hw.doctor()] == checks
    mended = hw.doctor(fix=True)
    assert [(d.check, d.fault) for d in mended if not d.is_fixed] == []
    assert hw.doctor() == ()
    for name in ("totals", '"Odd name"', "best"):
        hw.refresh_stream_table(name)
    for name in ("totals", '"Odd name"', "best", "live", "livelier", "late"):
        assert find_difference(conn, QUERIES[name], name) is None, (checks, name)
    conn.execute("UPDATE orders SET amount = amount + 1 WHERE id = 20")


def oid(conn: Connection, name: str) -> int:
    [(found,)] = conn.execute("SELECT %s::regclass::oid", [name]).fetchall()
    return int(found)
