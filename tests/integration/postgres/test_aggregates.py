"""Every aggregate of the server is followed through every kind of change, in both modes."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

import headwater
from headwater.errors import UnsupportedQuery
from tests.aggregate_cases import CHANGES, REFUSED, SETUP, families, query, rows
from tests.battery.oracle import find_difference
from tests.servers import Server

Connection = psycopg.Connection[Any]
MODES = {"d": "DIFFERENTIAL", "i": "IMMEDIATE"}
_EVERY = """
SELECT p.oid::int8, p.oid::regprocedure::text FROM pg_proc p
 WHERE p.prokind = 'a' AND p.pronamespace IN ('pg_catalog'::regnamespace, 'public'::regnamespace)
"""


@pytest.fixture
def source(conn: Connection) -> Connection:
    conn.execute(SETUP)
    conn.execute(rows(range(0, 60, 2), has_xml(conn)).encode())
    return conn


def has_xml(conn: Connection) -> bool:
    """Tell whether the server was built with XML; without, a column of it holds only NULL."""
    try:
        conn.execute("SELECT '<a/>'::xml")
    except psycopg.errors.FeatureNotSupported:
        return False
    return True


def queries(conn: Connection) -> dict[str, str]:
    own = families(conn.info.server_version // 10000)
    made = {name: query(calls) for name, calls in own.items()}
    for name in ("counts", "sums", "variances", "booleans"):
        made[f"all_{name}"] = query(own[name], key="")
    return made


def test_every_aggregate_has_a_case(source: Connection) -> None:
    covered: set[int] = set()
    refused = {"refused": query(REFUSED)} if source.info.server_version >= 180000 else {}
    for name, sql in (queries(source) | refused).items():
        source.execute(f"CREATE VIEW v_{name} AS {sql}".encode())
        [(tree,)] = source.execute(
            f"SELECT ev_action::text FROM pg_rewrite WHERE ev_class = 'v_{name}'::regclass".encode()
        )
        covered |= {int(oid) for oid in re.findall(r":aggfnoid (\d+)", tree)}
    every = dict(source.execute(_EVERY).fetchall())
    assert sorted(shown for oid, shown in every.items() if oid not in covered) == []


@pytest.mark.costly
@pytest.mark.timeout(300)
def test_every_aggregate_follows(database: str, source: Connection) -> None:
    wanted = queries(source)
    xml = has_xml(source)
    changes = (
        rows(range(1, 80, 3), xml) + "ON CONFLICT DO NOTHING",
        *CHANGES,
        rows(range(0, 30), xml),
    )
    failures: list[str] = []
    with headwater.connect(database) as hw:
        for short, mode in MODES.items():
            for name, sql in wanted.items():
                hw.create_stream_table(f"{short}_{name}", sql, refresh_mode=mode)
        for change in ("SELECT", *changes):
            source.execute(change.encode())
            for name in wanted:
                action = hw.refresh_stream_table(f"d_{name}").action
                assert action == ("DIFFERENTIAL" if change != "SELECT" else "NO_DATA"), name
            failures += wrong(source, wanted, change)
    assert failures == []


def wrong(conn: Connection, wanted: dict[str, str], change: str) -> list[str]:
    """Return the tables that differ from their queries, with the rows."""
    found = []
    for short in MODES:
        for name, sql in wanted.items():
            if fault := find_difference(conn, sql, f"{short}_{name}"):
                found.append(f"{short}_{name} after {change.strip()[:50]}: {fault}")
    return found


def test_extremum_of_a_record_is_refused(pg18: Server) -> None:
    dsn = pg18.create_database()
    with psycopg.connect(dsn, autocommit=True) as conn, headwater.connect(dsn) as hw:
        conn.execute(SETUP)
        for call in REFUSED:
            with pytest.raises(UnsupportedQuery) as refused:
                hw.create_stream_table("st", query([call]), refresh_mode="DIFFERENTIAL")
            assert refused.value.why == "values of type record cannot be stored"
    pg18.drop_database(dsn)
