"""Generated schemas, queries and changes in IMMEDIATE mode: the oracle after each statement."""

from __future__ import annotations

import secrets
from random import Random

import psycopg
import pytest

import headwater
from tests.integration.postgres.test_generated import (
    ROUNDS,
    Run,
    go,
    seed_of,
    shared_database,
    tidy,
)
from tests.scale import scaled

pytestmark = pytest.mark.generated

SCHEMAS = scaled(6)  # on each of two servers

__all__ = ["shared_database"]


class ImmediateRun(Run):
    """Looks at all tables after each statement, before its commit; refreshes nothing."""

    def write(self, statements: tuple[str, ...]) -> None:
        is_undone = statements[0] == "ROLLBACK"
        self.script.append("BEGIN;")
        with self.conn.transaction(force_rollback=is_undone):
            for statement in statements[is_undone:]:
                try:
                    with self.conn.transaction():
                        self.conn.execute(statement.encode())
                except psycopg.errors.UniqueViolation:
                    continue
                self.script.append(f"{statement};")
                self.look_around()
        self.script.append("ROLLBACK;" if is_undone else "COMMIT;")

    def refresh(self) -> None:
        self.look_around()

    def look_around(self) -> None:
        for table, query in list(self.live.items()):
            self.look(table, query)
            self.followed += table in self.live


@pytest.mark.parametrize("number", range(SCHEMAS))
def test_generated_queries_follow_every_statement(shared_database: str, number: int) -> None:
    seed = seed_of(number)
    with (
        psycopg.connect(shared_database, autocommit=True) as conn,
        headwater.connect(shared_database) as hw,
    ):
        run = ImmediateRun(hw, conn, mode="IMMEDIATE")
        try:
            go(run, Random(seed), f"i{secrets.token_hex(4)}", ROUNDS)
        finally:
            tidy(run)
    assert not run.failures, f"HEADWATER_TEST_SEED={seed}\n" + "".join(run.failures)
    assert run.followed
