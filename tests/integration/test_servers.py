"""The servers of the tests are what they claim to be."""

from __future__ import annotations

import psycopg
import pytest

from tests.servers import Server


def test_version(server: Server, conn: psycopg.Connection) -> None:
    assert conn.info.server_version // 10_000 == server.version


def test_settings(conn: psycopg.Connection) -> None:
    names = ["fsync", "listen_addresses", "max_prepared_transactions"]
    assert [conn.execute(f"SHOW {name}").fetchone() for name in names] == [("off",), ("",), ("20",)]


def test_text_sorts_by_code_point(conn: psycopg.Connection) -> None:
    words = ["b", "B", "a", "é", "Z", "_"]
    rows = conn.execute("SELECT w FROM unnest(%s::text[]) AS w ORDER BY w", [words]).fetchall()
    assert [word for (word,) in rows] == sorted(words)


def test_committed_rows_survive_a_crash(server: Server, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("CREATE TABLE kept (x int)")
        conn.execute("INSERT INTO kept VALUES (1)")
        conn.execute("BEGIN")
        conn.execute("INSERT INTO kept VALUES (2)")
        server.restart("immediate")
        with pytest.raises(psycopg.OperationalError):
            conn.execute("SELECT 1")
    with psycopg.connect(database) as conn:
        assert conn.execute("SELECT x FROM kept").fetchall() == [(1,)]


def test_drop_ends_sessions_and_prepared_transactions(server: Server) -> None:
    dsn = server.create_database()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("BEGIN")
        conn.execute("CREATE TABLE t ()")
        conn.execute("PREPARE TRANSACTION 'left over'")
        server.drop_database(dsn)
        with pytest.raises(psycopg.OperationalError):
            conn.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(dsn)
