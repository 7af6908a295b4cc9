"""Tables that become IMMEDIATE, cease to be or go, while a transaction of another is under way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import IsolationLevel

import headwater
from tests.battery.oracle import find_difference
from tests.scenarios.test_immediate_races import LEVELS, QUERIES, SETUP, Connection, reset, run


@dataclass(frozen=True)
class Switch:
    """What is done to a stream table while another session has a transaction under way."""

    name: str
    before: str | None  # the mode in which the table stands before; None: it does not
    act: Callable[[headwater.Headwater, str, str], object]
    after: str = "IMMEDIATE"


def create(hw: headwater.Headwater, name: str, query: str) -> object:
    return hw.create_stream_table(name, query, refresh_mode="IMMEDIATE")


def resume(hw: headwater.Headwater, name: str, _: str) -> None:
    hw.alter_stream_table(name, status="SUSPENDED")
    with psycopg.connect(hw.dsn, autocommit=True) as conn:
        conn.execute("UPDATE customers SET name = name || '*'")
    hw.alter_stream_table(name, status="ACTIVE")


SWITCHES = (
    Switch("create", None, create),
    Switch(
        "alter from DIFFERENTIAL",
        "DIFFERENTIAL",
        lambda hw, name, _: hw.alter_stream_table(name, refresh_mode="IMMEDIATE"),
    ),
    Switch(
        "alter to DIFFERENTIAL",
        "IMMEDIATE",
        lambda hw, name, _: hw.alter_stream_table(name, refresh_mode="DIFFERENTIAL"),
        "DIFFERENTIAL",
    ),
    Switch("re-sync", "IMMEDIATE", lambda hw, name, _: hw.refresh_stream_table(name)),
    Switch("suspend and resume", "IMMEDIATE", resume),
    Switch("drop", "IMMEDIATE", lambda hw, name, _: hw.drop_stream_table(name), "gone"),
)
SWITCHED = ("plain", "sums", "joined")
WRITES = (
    "INSERT INTO orders VALUES (90, 1, 9, 'n')",
    "UPDATE orders SET amount = amount + 1, customer = 2 WHERE id = 4",
    "DELETE FROM orders WHERE id = 12",
)


@pytest.fixture
def tables(database: str) -> Iterator[headwater.Headwater]:
    with psycopg.connect(database, autocommit=True) as conn, headwater.connect(database) as hw:
        conn.execute(SETUP.encode())
        yield hw


def stand(hw: headwater.Headwater, switch: Switch) -> None:
    """Let the tables be as they are before the switch."""
    known = {s.name for s in hw.pgt_status()}
    for name in SWITCHED:
        if f"public.{name}" in known:
            hw.drop_stream_table(name)
        if switch.before is not None:
            hw.create_stream_table(name, QUERIES[name], refresh_mode=switch.before)


def act(hw: headwater.Headwater, switch: Switch) -> None:
    for name in SWITCHED:
        switch.act(hw, name, QUERIES[name])


def settle(hw: headwater.Headwater, switch: Switch) -> dict[str, str]:
    """Return how the tables differ from their queries, after a refresh where they are deferred."""
    if switch.after == "gone":
        return {}
    if switch.after == "DIFFERENTIAL":
        for name in SWITCHED:
            hw.refresh_stream_table(name)
    with psycopg.connect(hw.dsn, autocommit=True) as conn:
        found = {name: find_difference(conn, QUERIES[name], name) for name in SWITCHED}
    return {name: fault for name, fault in found.items() if fault}


@pytest.mark.costly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name.lower())
def test_a_switch_waits_for_writers(tables: headwater.Headwater, level: IsolationLevel) -> None:
    """A transaction has written when the table is created, altered or dropped."""
    failures = []
    for switch in SWITCHES:
        stand(tables, switch)
        with psycopg.connect(tables.dsn) as writer, ThreadPoolExecutor(1) as pool:
            writer.isolation_level = level
            run(writer, WRITES)
            acted = pool.submit(act, tables, switch)
            time.sleep(0.3)
            writer.commit()
            acted.result(timeout=60)
        if found := settle(tables, switch):
            failures.append(f"{switch.name}: {found}")
        with psycopg.connect(tables.dsn, autocommit=True) as conn:
            reset(conn)
    assert failures == []


@pytest.mark.costly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name.lower())
def test_a_snapshot_from_before_a_switch_is_fresh_enough_or_fails(
    tables: headwater.Headwater, level: IsolationLevel
) -> None:
    """A transaction has looked, but not written, when the table is created, altered or dropped."""
    failures = []
    for switch in SWITCHES:
        for write in WRITES:
            stand(tables, switch)
            with psycopg.connect(tables.dsn) as writer:
                writer.isolation_level = level
                writer.execute("SELECT 1 FROM pg_class LIMIT 1")
                with psycopg.connect(tables.dsn, autocommit=True) as conn:
                    conn.execute("UPDATE customers SET name = name || '!', region = 'r7'")
                act(tables, switch)
                ended = finish(writer, write)
            if ended == "40001" and level is IsolationLevel.READ_COMMITTED:
                failures.append(f"{switch.name}, {write}: 40001")
            if found := settle(tables, switch):
                failures.append(f"{switch.name}, {write} ({ended}): {found}")
            with psycopg.connect(tables.dsn, autocommit=True) as conn:
                reset(conn)
    assert failures == []


def finish(writer: Connection, write: str) -> str:
    try:
        writer.execute(write.encode())
        writer.commit()
    except psycopg.errors.SerializationFailure:
        writer.rollback()
        return "40001"
    return "committed"
