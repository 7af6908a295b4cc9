"""Two transactions at once, at every isolation level: a COMMIT table misses neither of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import psycopg
import pytest
from psycopg import IsolationLevel

import headwater
from headwater.postgres import commit_code, immediate_view
from headwater.postgres.immediate_locks import Locks
from tests.battery.oracle import find_difference
from tests.scenarios.test_immediate_races import (
    LEVELS,
    QUERIES,
    RACES,
    SETUP,
    Race,
    differences,
    reset,
    run,
)
from tests.servers import Server

READ_COMMITTED = IsolationLevel.READ_COMMITTED


@pytest.fixture(scope="module")
def dsn(server: Server) -> Iterator[str]:
    """One database for all: each test leaves the rows as they were."""
    database = server.create_database()
    with psycopg.connect(database, autocommit=True) as conn, headwater.connect(database) as hw:
        conn.execute(SETUP.encode())
        for name, query in QUERIES.items():
            hw.create_stream_table(name, query, refresh_mode="COMMIT")
    yield database
    server.drop_database(database)


def attempt(dsn: str, level: IsolationLevel, texts: tuple[str, ...], end: Event) -> str:
    """Run statements with a snapshot of now, and commit when told to; say how it ended."""
    with psycopg.connect(dsn) as conn:
        conn.isolation_level = level
        conn.execute("SET statement_timeout = '20s'")
        conn.commit()
        conn.execute("SELECT 1 FROM customers LIMIT 1")
        try:
            run(conn, texts)
            assert end.wait(20)
            conn.commit()
        except psycopg.errors.SerializationFailure:
            conn.rollback()
            return "40001"
        return "committed"


def again(dsn: str, level: IsolationLevel, texts: tuple[str, ...], outcome: str) -> None:
    """A transaction that failed goes through when it is run alone."""
    if outcome == "40001":
        assert level is not READ_COMMITTED
        now = Event()
        now.set()
        assert attempt(dsn, level, texts, now) == "committed"


def overlapped(dsn: str, level: IsolationLevel, race: Race, second_is_last: bool) -> None:
    """Both write before either commits, unless the one must wait for the rows of the other."""
    ends = {"first": Event(), "second": Event()}
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(attempt, dsn, level, race.first, ends["first"])
        time.sleep(0.1)
        second = pool.submit(attempt, dsn, level, race.second, ends["second"])
        time.sleep(0.15)
        for name in ("first", "second") if second_is_last else ("second", "first"):
            ends[name].set()
            time.sleep(0.1)
        outcomes = first.result(timeout=60), second.result(timeout=60)
    again(dsn, level, race.first, outcomes[0])
    again(dsn, level, race.second, outcomes[1])


@pytest.mark.costly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name.lower())
def test_races_leave_nothing_stale(dsn: str, level: IsolationLevel) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        for race in RACES:
            if level is not READ_COMMITTED and "TRUNCATE" in race.name:
                continue  # refused there
            for second_is_last in (True, False)[: 2 if level is READ_COMMITTED else 1]:
                overlapped(dsn, level, race, second_is_last)
                assert differences(conn) == {}, (race.name, second_is_last)
                reset(conn)


@pytest.mark.costly
@pytest.mark.timeout(300)
def test_races_of_commits_that_compute_all(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every change is a bulk load here."""
    monkeypatch.setattr(commit_code, "SMALL", 0)
    calls = "SELECT sum(calls) > 0 FROM pg_stat_user_functions WHERE funcname LIKE '%recompute'"
    with psycopg.connect(database, autocommit=True) as conn, headwater.connect(database) as hw:
        conn.execute(SETUP.encode())
        for name, query in QUERIES.items():
            hw.create_stream_table(name, query, refresh_mode="COMMIT")
        for setting in ("pg_trickle.commit_full_ratio = 0", "track_functions = 'pl'"):
            conn.execute(f'ALTER DATABASE "{conn.info.dbname}" SET {setting}'.encode())
        for level in LEVELS[:2]:
            for race in RACES:
                if level is not READ_COMMITTED and "TRUNCATE" in race.name:
                    continue
                conn.execute("ANALYZE")
                overlapped(database, level, race, second_is_last=True)
                assert differences(conn) == {}, (race.name, level)
                reset(conn)
        assert conn.execute(calls).fetchall() == [(True,)]


@pytest.mark.costly
@pytest.mark.parametrize("level", LEVELS[1:], ids=lambda level: level.name.lower())
def test_a_frozen_snapshot_that_missed_something_is_a_serialization_failure(
    dsn: str, level: IsolationLevel
) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        for race in RACES[:8]:
            with psycopg.connect(dsn) as second:
                second.isolation_level = level
                second.execute("SELECT 1 FROM customers LIMIT 1")
                run(conn, race.first)
                with pytest.raises(psycopg.errors.SerializationFailure):
                    _commit(second, race)
                second.rollback()
            assert differences(conn) == {}, race.name
            reset(conn)


def _commit(conn: psycopg.Connection[tuple[object, ...]], race: Race) -> None:
    run(conn, race.second)
    conn.commit()


def test_commits_in_any_order_do_not_deadlock(dsn: str) -> None:
    """Each worker has rows of its own, and writes tables in an order of its own; the groups and
    join values of all are the same."""

    def work(number: int) -> int:
        done = 0
        statements = (
            f"UPDATE orders SET amount = amount + 1 WHERE (id - 1) / 3 = {number}",
            f"UPDATE customers SET name = name || '.' WHERE id = {number + 1}",
            f"INSERT INTO events SELECT k, {number} FROM unnest('{{a,b,c}}'::text[]) AS k",
        )
        with psycopg.connect(dsn, autocommit=True) as conn:
            until = time.monotonic() + 4
            while time.monotonic() < until:
                with conn.transaction():
                    for n in range(3):
                        conn.execute(statements[(number + done + n) % 3].encode())
                done += 1
        return done

    with ThreadPoolExecutor(4) as pool:
        assert all(done > 0 for done in pool.map(work, range(4)))
    with psycopg.connect(dsn, autocommit=True) as conn:
        assert differences(conn) == {}
        reset(conn)


def test_without_locks_something_is_missed(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The races are real: it is the locks that make them harmless."""
    monkeypatch.setattr(immediate_view, "choose_locks", lambda plan: Locks())
    slow = (
        "CREATE TABLE pauses (n int);"
        "CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(0.6); RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER pause AFTER INSERT ON pauses DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION pause()"
    )
    parent, child = RACES[0].first, RACES[0].second
    race = Race("between its flush and its end", (*parent, "INSERT INTO pauses VALUES (1)"), child)
    with psycopg.connect(database, autocommit=True) as conn, headwater.connect(database) as hw:
        conn.execute(SETUP.encode())
        conn.execute(slow.encode())
        hw.create_stream_table("joined", QUERIES["joined"], refresh_mode="COMMIT")
        overlapped(database, READ_COMMITTED, race, second_is_last=True)
        assert find_difference(conn, QUERIES["joined"], "joined") is not None
