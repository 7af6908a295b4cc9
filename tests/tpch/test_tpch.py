"""All of TPC-H as stream tables: after every refresh stream each equals its query."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import headwater
from headwater.bench import tpch
from headwater.bench.tpch_queries import FIRST, QUERIES
from tests.tpch.streams import KEYS, STREAMS, Stream

SCALE = float(os.environ.get("HEADWATER_TPCH_SCALE", tpch.LEAST_SCALE))  # `make tpch` takes 0.1

# What the specification leaves open: which of equal rows are the first ones.
TIES = {"q2": "s_address, s_phone, s_comment", "q3": "l_orderkey", "q10": "c_custkey",
        "q18": "o_orderkey", "q21": "numwait"}  # fmt: skip
LEAST = 3  # contents that each must have had
VIEWS = QUERIES | {
    f"{name}_first": f"{QUERIES[name]}, {TIES[name]} LIMIT {count}" for name, count in FIRST.items()
}

# Both ways, but the query, which takes long, runs once.
DIFFERENCE = """
WITH wanted AS MATERIALIZED ({0})
SELECT (SELECT count(*) FROM (TABLE wanted EXCEPT ALL TABLE {1}) AS missing),
       (SELECT count(*) FROM (TABLE {1} EXCEPT ALL TABLE wanted) AS extra)"""


@dataclass
class Run:
    """Some views in one database, and what became of each."""

    hw: headwater.Headwater
    conn: psycopg.Connection[Any]
    mode: str
    engine: str = "postgres"
    failures: list[str] = field(default_factory=list)
    seen: dict[str, set[str]] = field(default_factory=dict)

    def create(self, name: str) -> headwater.Created:
        made = self.hw.create_stream_table(
            name, VIEWS[name], refresh_mode=self.mode, engine=self.engine
        )
        assert made.effective_mode == self.mode
        self.seen[name] = set()
        self.look(name, "create")
        return made

    def follow(self, *streams: Stream) -> None:
        """Let everything follow streams that come together."""
        when = ", ".join(stream.name for stream in streams)
        with self.conn.transaction():
            for stream in streams:
                for statement in stream.split():
                    self.conn.execute(statement.encode())
        for name in self.seen:
            if self.mode == "DIFFERENTIAL":
                action = self.hw.refresh_stream_table(name).action
                if action not in ("DIFFERENTIAL", "NO_DATA"):
                    self.failures.append(f"{name}, {when}: {action}")
            self.look(name, when)

    def look(self, name: str, when: str) -> None:
        [(missing, extra)] = self.conn.execute(
            DIFFERENCE.format(VIEWS[name], name).encode()
        ).fetchall()
        if missing or extra:
            self.failures.append(f"{name}, {when}: {missing} rows missing, {extra} too many")
        rows = self.conn.execute(f"SELECT md5(string_agg(t::text, '' ORDER BY t)) FROM {name} t")
        self.seen[name].add(str(rows.fetchall()))


def in_schema(database: str) -> str:
    """Return the DSN that finds the tables of TPC-H."""
    options = f"{os.environ['PGOPTIONS']} -c search_path={tpch.SCHEMA}"
    return make_conninfo(database, options=options)


@pytest.fixture
def run(database: str, mode: str) -> Iterator[Run]:
    dsn = in_schema(database)
    with psycopg.connect(dsn, autocommit=True) as conn, headwater.connect(dsn) as hw:
        tpch.build(conn, SCALE)
        allow_nulls(conn)
        yield Run(hw, conn, mode)


def allow_nulls(conn: psycopg.Connection[Any]) -> None:
    """Let everything but keys be NULL."""
    for table, keys in KEYS.items():
        rows = conn.execute(
            "SELECT attname FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0 AND attname <> ALL (%s)",
            [table, list(keys)],
        ).fetchall()
        drops = ", ".join(f"ALTER {column} DROP NOT NULL" for (column,) in rows)
        conn.execute(f"ALTER TABLE {table} {drops}".encode())


@pytest.mark.costly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["DIFFERENTIAL", "IMMEDIATE"])
def test_all_queries_follow_every_stream(run: Run) -> None:
    for name in VIEWS:
        run.create(name)
    for stream in STREAMS:
        run.follow(stream)
    assert run.failures == []
    assert {name for name, contents in run.seen.items() if len(contents) < LEAST} == set()


def test_there_are_22_queries() -> None:
    assert list(QUERIES) == [f"q{n}" for n in range(1, 23)]
