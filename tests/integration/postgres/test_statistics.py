"""Variances and their roots are PostgreSQL's to the last digit, whatever came and went."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import headwater
from headwater.algebra.calls import Kind
from headwater.algebra.expr import text
from headwater.algebra.ops import Aggregate
from headwater.algebra.walk import walk
from headwater.postgres.compile import compile_query
from headwater.sql import statistics
from headwater.sql.statistics import VARIANCES
from tests.battery.oracle import find_difference
from tests.scale import scaled

Connection = psycopg.Connection[Any]

COLUMNS = {
    "s": "smallint",
    "i": "integer",
    "b": "bigint",
    "n": "numeric",
    "f": "numeric(30,4)",
    "z": "numeric(9,-2)",
}
GROUPS = scaled(300)
MAX_ROWS = 7
# Where a number of digits changes, or a rounding goes the other way.
EXTREMES = {
    "s": ("32767", "-32768", "0"),
    "i": ("2147483647", "-2147483648"),
    "b": ("9223372036854775807", "-9223372036854775808"),
    "n": ("1e-400", "1e400", "9.99e99", "-0.000", "1e15", "1.00000000000000001"),
    "f": ("99999999999999999999999999.9999", "0.0001"),
    "z": ("9900", "-100"),
}
SPECIAL = ("NaN", "Infinity", "-Infinity")


def query() -> str:
    calls = [
        f"{function}({name})::text AS {function}_{name}"
        for name in COLUMNS
        for function in VARIANCES
    ]
    calls.append("stddev(n) FILTER (WHERE i > 0)::text AS some")
    calls.append("var_pop(n * f)::text AS product")
    return f"SELECT g, {', '.join(calls)} FROM t GROUP BY g"


def value(rng: random.Random, name: str) -> str | None:
    chance = rng.random()
    if chance < 0.05:
        return None
    if chance < 0.15:
        return rng.choice(EXTREMES[name])
    if name in "nf" and chance < 0.16:
        return rng.choice(SPECIAL if name == "n" else SPECIAL[:1])
    whole = rng.randint(-(10 ** rng.randint(0, 4)), 10 ** rng.randint(0, 4))
    if name == "n":
        power = 10 ** rng.choice((0, 0, 3, 9, 14))
        return f"{whole * power}.{rng.randint(0, 10 ** rng.randint(1, 12))}"
    return str(whole)


def rows(rng: random.Random, groups: int) -> Iterator[tuple[object, ...]]:
    for group in range(groups):
        for _ in range(rng.randint(1, MAX_ROWS)):
            yield (group, *(value(rng, name) for name in COLUMNS))


@pytest.fixture
def table(conn: Connection) -> Connection:
    """Some thousand groups of a few rows each, of values that are awkward to divide."""
    conn.execute(f"CREATE TABLE t (g int, {', '.join(f'{c} {t}' for c, t in COLUMNS.items())})")
    copied(conn, random.Random(20260102))
    return conn


def copied(conn: Connection, rng: random.Random) -> None:
    with conn.cursor().copy("COPY t FROM STDIN") as copy:
        for row in rows(rng, GROUPS):
            copy.write_row(row)


CHANGES = (
    "DELETE FROM t WHERE hashint4(g) % 3 = 0 AND i % 2 = 0",
    "UPDATE t SET n = n + 1, i = i / 2, f = NULL WHERE g % 2 = 0",
    "DELETE FROM t WHERE n IN ('NaN', 'Infinity', '-Infinity') OR abs(n) > 1e50 OR f = 'NaN'",
    "DELETE FROM t WHERE scale(n) > 3",
)


@pytest.mark.parametrize("mode", ["DIFFERENTIAL", "IMMEDIATE"])
def test_every_digit_is_the_servers(database: str, table: Connection, mode: str) -> None:
    with headwater.connect(database) as hw:
        hw.create_stream_table("st", query(), refresh_mode=mode)
        assert find_difference(table, query(), "st") is None
        for change in CHANGES:
            table.execute(change.encode())
            if mode == "DIFFERENTIAL":
                assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
            assert find_difference(table, query(), "st") is None, change


def test_nothing_is_recomputed(table: Connection) -> None:
    with table.transaction():
        view = compile_query(table, query()).incremental.view
    [grouped] = [op for op in walk(view) if isinstance(op, Aggregate)]
    assert {call.kind for call in grouped.calls} == {Kind.SUM}


def test_rounding_twice_is_seen(
    database: str, table: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "_root", lambda v: text("round(sqrt(", v, "), scale(", v, "))"))
    with headwater.connect(database) as hw:
        hw.create_stream_table("st", query(), refresh_mode="DIFFERENTIAL")
        assert find_difference(table, query(), "st") is not None
