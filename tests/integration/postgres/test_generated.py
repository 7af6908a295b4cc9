"""Generated schemas, queries and changes: after each round the oracle holds, incrementally.

`make generated` draws new ones every time. A failure prints its seed and the SQL that leads to it;
HEADWATER_TEST_SEED=<seed> draws it again.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import psycopg
import pytest

import headwater
from headwater.errors import InexactValue, UnsupportedQuery
from tests.battery.oracle import Connection, find_difference
from tests.integration.postgres.generator import (
    Query,
    draw_round,
    draw_rows,
    draw_statement,
    draw_tables,
)
from tests.integration.postgres.queries import QueryMaker
from tests.scale import scaled
from tests.servers import Server

pytestmark = pytest.mark.generated

SCHEMAS = scaled(25)  # on each of two servers
QUERIES = 10
ROUNDS = 4
INCREMENTAL = ("DIFFERENTIAL", "NO_DATA")


@dataclass
class Run:
    """One schema with its queries; everything done to it is kept, to be printed on failure."""

    hw: headwater.Headwater
    conn: Connection
    script: list[str] = field(default_factory=list)
    live: dict[str, Query] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    followed: int = 0
    engine: str = "postgres"
    mode: str = "DIFFERENTIAL"
    refused: list[str] = field(default_factory=list)

    def execute(self, statement: str) -> None:
        self.script.append(f"{statement};")
        self.conn.execute(statement.encode())

    def write(self, statements: tuple[str, ...]) -> None:
        is_undone = statements[0] == "ROLLBACK"
        self.script.append("BEGIN;")
        with self.conn.transaction(force_rollback=is_undone):
            for statement in statements[is_undone:]:
                try:
                    with self.conn.transaction():
                        self.conn.execute(statement.encode())
                        self.script.append(f"{statement};")
                except psycopg.errors.UniqueViolation:
                    continue
        self.script.append("ROLLBACK;" if is_undone else "COMMIT;")

    def create(self, table: str, query: Query) -> None:
        try:
            self.hw.create_stream_table(
                table, query.sql, refresh_mode=self.mode, engine=self.engine
            )
        except UnsupportedQuery as refusal:
            if not refusal.what.startswith("the query cannot run on Spark"):
                self.fail(table, query, f"create: {refusal}")
            self.refused.append(refusal.what)
            return
        except InexactValue as refusal:
            self.refuse(table, query, refusal)
            return
        except (headwater.HeadwaterError, psycopg.Error) as error:
            self.fail(table, query, f"create: {type(error).__name__}: {error}")
            return
        self.live[table] = query
        self.look(table, query)

    def refresh(self) -> None:
        for table, query in list(self.live.items()):
            try:
                action = self.hw.refresh_stream_table(table).action
            except InexactValue as refusal:
                self.refuse(table, query, refusal)
                continue
            except headwater.HeadwaterError as error:
                self.fail(table, query, str(error))
                continue
            self.followed += action == "DIFFERENTIAL"
            if action not in INCREMENTAL:
                self.fail(table, query, f"{action} instead of the incremental path")
            self.look(table, query)

    def refuse(self, table: str, query: Query, refusal: InexactValue) -> None:
        """Only Spark has values that it cannot hold; such a table is not followed any further."""
        if self.engine != "spark":
            self.fail(table, query, str(refusal))
        self.refused.append(refusal.what)
        if self.live.pop(table, None) is not None:
            self.hw.drop_stream_table(table)

    def look(self, table: str, query: Query) -> None:
        difference = find_difference(self.conn, query.sql, table)
        if difference is not None and table in self.live:
            self.fail(table, query, difference)

    def fail(self, table: str, query: Query, why: str) -> None:
        self.live.pop(table, None)
        script = "\n".join(self.script)
        self.failures.append(f"\n{table}: {why}\n--- query\n{query.sql};\n--- script\n{script}\n")


def seed_of(number: int) -> str:
    """Draw anew in `make generated`; else the same every time: a run fails by its own change."""
    drawn = secrets.token_hex(6) if scaled(1) > 1 else f"schema {number}"
    return os.environ.get("HEADWATER_TEST_SEED") or drawn


@pytest.fixture(scope="module")
def shared_database(server: Server) -> Iterator[str]:
    dsn = server.create_database()
    yield dsn
    server.drop_database(dsn)


@pytest.mark.parametrize("number", range(SCHEMAS))
def test_generated_queries_follow_generated_changes(shared_database: str, number: int) -> None:
    seed = seed_of(number)
    random = Random(seed)
    with (
        psycopg.connect(shared_database, autocommit=True) as conn,
        headwater.connect(shared_database) as hw,
    ):
        run = Run(hw, conn)
        try:
            go(run, random, f"g{secrets.token_hex(4)}", ROUNDS)
        finally:
            tidy(run)
    assert not run.failures, f"HEADWATER_TEST_SEED={seed}\n" + "".join(run.failures)
    assert run.followed, f"HEADWATER_TEST_SEED={seed}: no refresh was incremental"


def go(  # noqa: PLR0913 - each of the last by its name
    run: Run, random: Random, schema: str, rounds: int, depth: int = 3, *, all_change: bool = False
) -> None:
    """Draw tables and queries, then rounds of changes, each followed by a refresh.

    `all_change` has every round write to every table, so that few refreshes find nothing to do.
    """
    run.execute(f"CREATE SCHEMA {schema}")
    tables = draw_tables(random, schema)
    for table in tables:
        run.execute(table.create())
        if random.random() < 0.8:
            run.execute(draw_rows(random, table, range(1, 8)))
    maker = QueryMaker(random, tables)
    for number in range(QUERIES):
        run.create(f"{schema}.st{number}", maker.draw(depth))
    for _ in range(rounds):
        for statements in draw_round(random, tables):
            run.write(statements)
        for table in tables if all_change else ():
            run.write((draw_statement(random, table),))
        run.refresh()


def tidy(run: Run) -> None:
    """Drop what stands, so that the next schema does not pay for it."""
    for table in list(run.live):
        run.hw.drop_stream_table(table)
    for statement in run.script[:1]:
        run.conn.execute(f"DROP SCHEMA {statement.split()[-1].rstrip(';')} CASCADE".encode())
