"""COMMIT tables: nothing until the end of a transaction, then everything once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import IsolationLevel

import headwater
from headwater.errors import InvalidArgument, UnsupportedQuery
from tests.battery.oracle import find_difference
from tests.integration.postgres.test_immediate import (
    QUERIES,
    RESTORE,
    SETUP,
    STATEMENTS,
    Connection,
    differences,
    status_of,
)


@pytest.fixture
def hw(conn: Connection, database: str) -> Iterator[headwater.Headwater]:
    conn.execute(SETUP.encode())
    with headwater.connect(database) as made:
        yield made


@pytest.fixture
def followed(hw: headwater.Headwater) -> headwater.Headwater:
    for name, query in QUERIES.items():
        hw.create_stream_table(name, query, refresh_mode="COMMIT")
    return hw


def rows(conn: Connection, query: str) -> list[tuple[object, ...]]:
    return conn.execute(query.encode()).fetchall()


def left_over(conn: Connection) -> list[tuple[object, ...]]:
    """What a transaction should have cleaned up: markers, collected rows, the queue."""
    [(tables,)] = conn.execute(
        "SELECT array_agg(oid::regclass::text) FROM pg_class"
        " WHERE relname ~ '^pending_[0-9]+_[0-9]+$' AND relkind = 'r'"
    ).fetchall()
    found = [row for table in tables for row in rows(conn, f"TABLE {table}")]
    queued = rows(conn, "SELECT q FROM current_setting('pg_trickle.queued', true) q WHERE q <> ''")
    return found + queued + rows(conn, "SELECT xid FROM pgtrickle.pgt_commits")


def test_whole_transactions(followed: headwater.Headwater, conn: Connection) -> None:
    """Each statement alone, and with others, of which one is undone, in one transaction."""
    for name, statement in STATEMENTS.items():
        conn.execute(statement.encode())
        assert differences(conn) == {}, name
        conn.execute(RESTORE.encode())
        assert differences(conn) == {}, name
    several = list(STATEMENTS.values())
    for first, undone, last in zip(several, several[1:], several[2:], strict=False):
        with conn.transaction():
            conn.execute(first.encode())
            with conn.transaction(force_rollback=True):
                conn.execute(RESTORE.encode())
                conn.execute(undone.encode())
            conn.execute(RESTORE.encode())
            conn.execute(last.encode())
        assert differences(conn) == {}, (first, undone, last)
        conn.execute(RESTORE.encode())
    assert left_over(conn) == []


def test_a_document_is_written_once(followed: headwater.Headwater, conn: Connection) -> None:
    conn.execute(
        "CREATE TABLE written (what text, id text);"
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO public.written VALUES (TG_TABLE_NAME || ' ' || TG_OP,"
        " coalesce(to_jsonb(new), to_jsonb(old))::text); RETURN NULL; END $$;"
        "CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON totals"
        " FOR EACH ROW EXECUTE FUNCTION note();"
        "CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON joined"
        " FOR EACH ROW EXECUTE FUNCTION note();"
        "CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON over"
        " FOR EACH ROW EXECUTE FUNCTION note()"
    )
    before = rows(conn, "SELECT * FROM totals ORDER BY 1")
    with conn.transaction():
        for n in range(10):
            conn.execute("UPDATE orders SET amount = %s WHERE id = 1", [n])
            conn.execute("UPDATE customers SET name = %s WHERE id = 1", [f"ann{n}"])
        assert rows(conn, "SELECT * FROM totals ORDER BY 1") == before
    counts = Counter(what for (what,) in rows(conn, "SELECT what FROM written"))
    assert counts == {"totals UPDATE": 1, "joined UPDATE": 2, "over UPDATE": 1}
    conn.execute("TRUNCATE written")
    with conn.transaction():  # as it was: nothing to write
        conn.execute("UPDATE orders SET amount = 5 WHERE id = 3")
        conn.execute("UPDATE orders SET amount = 30 WHERE id = 3")
        conn.execute("INSERT INTO orders VALUES (70, 1, 1)")
        conn.execute("DELETE FROM orders WHERE id = 70")
    assert rows(conn, "TABLE written") == []
    assert differences(conn) == {}


def test_savepoints_and_two_phases(followed: headwater.Headwater, conn: Connection) -> None:
    with conn.transaction():
        with conn.transaction(force_rollback=True):  # before anything was queued
            conn.execute("UPDATE orders SET amount = 1")
        conn.execute("UPDATE orders SET amount = 2 WHERE id = 1")
        with conn.transaction(force_rollback=True):  # after
            conn.execute("DELETE FROM customers")
        with conn.transaction():
            conn.execute("UPDATE customers SET region = 'released' WHERE id = 2")
    assert differences(conn) == {}
    for ending, expected in (("COMMIT", 99), ("ROLLBACK", 99)):
        conn.execute("BEGIN")
        conn.execute("UPDATE orders SET amount = 99 WHERE id = 1 AND amount <> 99")
        conn.execute("UPDATE customers SET name = name || %s WHERE id = 1", [ending])
        conn.execute("PREPARE TRANSACTION 'two'")
        assert differences(conn) == {}
        conn.execute(f"{ending} PREPARED 'two'".encode())
        assert rows(conn, "SELECT amount FROM joined WHERE id = 1") == [(expected,)]
        assert differences(conn) == {}
    with pytest.raises(psycopg.errors.DivisionByZero):
        conn.execute("DELETE FROM orders; SELECT 1 / 0")
    assert (differences(conn), left_over(conn)) == ({}, [])
    conn.execute("UPDATE orders SET amount = 3 WHERE id = 1")
    assert rows(conn, "SELECT amount FROM joined WHERE id = 1") == [(3,)]


FLUSHES = ("SET CONSTRAINTS ALL IMMEDIATE", "SELECT pgtrickle.flush_commit()")


def test_flushed_early(followed: headwater.Headwater, conn: Connection) -> None:
    for flush in FLUSHES:
        with conn.transaction():
            conn.execute(flush.encode())
            for statement in STATEMENTS.values():  # some change two sources at once
                with conn.transaction(force_rollback=True):
                    conn.execute(statement.encode())
                    conn.execute(flush.encode())
                    assert differences(conn) == {}, statement
            conn.execute("UPDATE orders SET amount = 8 WHERE id = 1")
            assert differences(conn) != {}
            conn.execute(flush.encode())
            assert differences(conn) == {}
            conn.execute("UPDATE orders SET amount = 9 WHERE id = 1")
        assert rows(conn, "SELECT amount FROM joined WHERE id = 1") == [(9,)]
        assert (differences(conn), left_over(conn)) == ({}, [])
    conn.execute(
        "CREATE FUNCTION early() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pgtrickle.flush_commit(); RETURN NULL; END $$;"
        "CREATE TRIGGER zz AFTER UPDATE ON orders EXECUTE FUNCTION early()"
    )
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="inside a trigger"):
        conn.execute("UPDATE orders SET amount = 10")


def test_a_failure_names_table_and_key(hw: headwater.Headwater, conn: Connection) -> None:
    query = "SELECT customer, 100 / sum(amount) AS share FROM orders GROUP BY customer"
    hw.create_stream_table("shares", query, refresh_mode="COMMIT")
    ratios = "SELECT o.id, c.name, 100 / (o.amount - 5) AS r FROM orders o" \
        " JOIN customers c ON c.id = o.customer"  # fmt: skip
    hw.create_stream_table("ratios", ratios, refresh_mode="COMMIT")
    for amount, told in ((0, "public.shares, at (customer) = (2),"),
                         (5, "public.ratios, at (id) = (3),")):  # fmt: skip
        with (
            pytest.raises(psycopg.errors.DivisionByZero, match="cannot follow") as raised,
            conn.transaction(),
        ):
            conn.execute("UPDATE orders SET amount = %s WHERE id = 3", [amount])
        assert told in str(raised.value)
        assert rows(conn, "SELECT amount FROM orders WHERE id = 3") == [(30,)]
    conn.execute("UPDATE orders SET amount = 50 WHERE id = 3")
    assert rows(conn, "SELECT share FROM shares WHERE customer = 2") == [(2,)]
    assert left_over(conn) == []


def test_the_modes_change_both_ways(hw: headwater.Headwater, conn: Connection) -> None:
    names = ("totals", "joined", "padded")
    for name in names:
        hw.create_stream_table(name, QUERIES[name], refresh_mode="COMMIT")
    order = ("IMMEDIATE", "COMMIT", "DIFFERENTIAL", "COMMIT", "FULL", "COMMIT")
    for n, mode in enumerate(order):
        for name in names:
            hw.alter_stream_table(name, refresh_mode=mode)
            assert status_of(hw, f"public.{name}").effective_mode == mode
        conn.execute("UPDATE orders SET amount = %s WHERE id = 1", [n])
        conn.execute("DELETE FROM log WHERE ctid = (SELECT min(ctid) FROM log)")
        for name in names:
            if mode in ("DIFFERENTIAL", "FULL"):
                hw.refresh_stream_table(name)
            assert find_difference(conn, QUERIES[name], name) is None, (mode, name)
    hw.alter_stream_table("joined", status="SUSPENDED")
    conn.execute("UPDATE orders SET amount = amount + 1")
    hw.alter_stream_table("joined", status="ACTIVE")
    assert hw.refresh_stream_table("totals").action in ("FULL", "REINITIALIZE")
    conn.execute("UPDATE orders SET amount = amount + 1")
    assert all(hw.verify(name).equal for name in names)
    for name in names:
        hw.drop_stream_table(name)
    conn.execute("UPDATE orders SET amount = amount + 1")
    [(left,)] = rows(conn, "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'pgt_imm%'")
    assert left == 0


def test_beside_tables_of_other_modes(hw: headwater.Headwater, conn: Connection) -> None:
    """Over each other in every order; all are right after each commit and a refresh."""
    chain = {
        "now": ("IMMEDIATE", QUERIES["totals"]),
        "later": ("DIFFERENTIAL", QUERIES["joined"]),
        "end": ("COMMIT", "SELECT n.customer, n.s, c.name FROM now n"
                " JOIN customers c ON c.id = n.customer"),
        "over_later": ("COMMIT", "SELECT name, count(*) AS n FROM later GROUP BY name"),
        "at_once": ("IMMEDIATE", "SELECT e.name, sum(e.s) AS s FROM \"end\" e GROUP BY e.name"),
        "top": ("COMMIT", "SELECT a.name, a.s, o.n FROM at_once a"
                " LEFT JOIN over_later o ON o.name = a.name"),
        "last": ("DIFFERENTIAL", "SELECT s, count(*) AS n FROM top GROUP BY s"),
    }  # fmt: skip
    for name, (mode, query) in chain.items():
        hw.create_stream_table(name, query, refresh_mode=mode)
    for statement in STATEMENTS.values():
        conn.execute(statement.encode())
        for name in ("later", "last"):
            hw.refresh_stream_table(name)
        found = {
            name: find_difference(conn, query, f'"{name}"') for name, (_, query) in chain.items()
        }
        assert {name: fault for name, fault in found.items() if fault} == {}, statement
        conn.execute(RESTORE.encode())


def test_what_is_refused(hw: headwater.Headwater, conn: Connection) -> None:
    query = "SELECT id FROM orders WHERE amount > (SELECT avg(amount) FROM orders)"
    with pytest.raises(UnsupportedQuery, match="nothing links the rows of"):
        hw.create_stream_table("above", query, refresh_mode="COMMIT")
    hw.connection.execute("SET pg_trickle.commit_recompute = on")
    hw.create_stream_table("above", query, refresh_mode="COMMIT")
    conn.execute("UPDATE orders SET amount = amount * 2 WHERE id = 1")
    assert find_difference(conn, query, "above") is None
    with pytest.raises(UnsupportedQuery, match=r"now\(\)"):
        hw.create_stream_table("t", "SELECT id FROM orders WHERE now() > '2020-01-01'::timestamptz"
                               " + amount * interval '1 day'", refresh_mode="COMMIT")  # fmt: skip
    with pytest.raises(InvalidArgument, match="Spark"):
        hw.create_stream_table("t", QUERIES["totals"], refresh_mode="COMMIT", engine="spark")
    conn.isolation_level = IsolationLevel.REPEATABLE_READ
    fault = pytest.raises(psycopg.errors.FeatureNotSupported, match="cannot be truncated")
    with fault, conn.transaction():
        conn.execute("TRUNCATE orders")


def test_writers_and_owners_need_no_more_rights(database: str, conn: Connection) -> None:
    """The writer may write one table and nothing else."""
    conn.execute(SETUP.encode())
    with headwater.connect(database) as hw:
        for name in ("joined", "regions"):
            hw.create_stream_table(name, QUERIES[name], refresh_mode="COMMIT")
    conn.execute("DROP ROLE IF EXISTS commit_writer; CREATE ROLE commit_writer;"
                 "GRANT SELECT, UPDATE ON orders TO commit_writer")  # fmt: skip
    with conn.transaction():
        conn.execute("SET LOCAL ROLE commit_writer")
        conn.execute("UPDATE orders SET amount = amount + 1 WHERE id < 3")
    assert find_difference(conn, QUERIES["joined"], "joined") is None
    assert find_difference(conn, QUERIES["regions"], "regions") is None
    conn.execute("DROP OWNED BY commit_writer; DROP ROLE commit_writer")
