"""Window functions and series on Spark: each that is taken gives what PostgreSQL gives."""

from __future__ import annotations

import psycopg
import pytest

from headwater.api import Headwater
from headwater.errors import QueryFailed, UnsupportedQuery
from tests.battery.oracle import find_difference

SETUP = """
CREATE TABLE t (id int PRIMARY KEY, k int, v smallint, b bigint, n numeric(10,2), d date,
                s text COLLATE "C", j jsonb, f boolean);
CREATE TABLE bag (k int, v int, s text COLLATE "C");
CREATE FUNCTION fill(a int, z int) RETURNS void LANGUAGE sql AS $$
INSERT INTO t SELECT i, nullif(i % 4, 3), nullif(i % 5, 2), nullif(i % 3, 1) * 3000000000,
                     nullif(i % 7, 4) / 4.0, date '2024-01-01' + nullif(i % 6, 5),
                     nullif(chr(97 + i % 3), 'b'), jsonb_build_object('i', i % 2), i % 4 < 2
  FROM generate_series(a, z) AS i;
INSERT INTO bag SELECT nullif(i % 3, 2), nullif(i % 4, 1), nullif(chr(97 + i % 2), 'b')
  FROM generate_series(a, z) AS i;
$$;
SELECT fill(1, 40);
"""
# Over a key: also what depends on the order of each row.
ORDERED = (
    "row_number() OVER (PARTITION BY k ORDER BY v, id)",
    "row_number() OVER (ORDER BY id DESC)",
    "ntile(3) OVER (PARTITION BY k ORDER BY id)",
    "ntile(50) OVER (ORDER BY id)",
    "lag(v) OVER (PARTITION BY k ORDER BY id)",
    "lag(s, 2) OVER (PARTITION BY k ORDER BY d DESC, id)",
    "lead(v, 0) OVER (ORDER BY id)",
    "lead(b, 3, '-1') OVER (PARTITION BY f ORDER BY n NULLS FIRST, id)",
    "lead(j) OVER (ORDER BY s, id)",
    "first_value(n) OVER (PARTITION BY k ORDER BY d NULLS FIRST, id)",
    "first_value(n) OVER (ORDER BY id ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING)",
    "last_value(j) OVER (PARTITION BY k ORDER BY id)",
    "last_value(s) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING)",
    "nth_value(v, 2) OVER (PARTITION BY k ORDER BY id)",
    "nth_value(v, 3) OVER (PARTITION BY k ORDER BY id"
    " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
    "sum(v) OVER (PARTITION BY k ORDER BY id ROWS 2 PRECEDING)",
    "sum(b) OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
    "sum(n) FILTER (WHERE f) OVER (PARTITION BY k ORDER BY id ROWS UNBOUNDED PRECEDING)",
    "count(s) OVER (ORDER BY id ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING)",
    "min(d) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "max(s) OVER (PARTITION BY k ORDER BY id ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)",
)
# Over a bag: what is the same for all rows that ORDER BY leaves equal.
EQUAL = (
    "rank() OVER (PARTITION BY k ORDER BY v)",
    "rank() OVER (ORDER BY v DESC, s)",
    "rank() OVER (PARTITION BY k)",
    "dense_rank() OVER (ORDER BY s NULLS FIRST, v DESC NULLS LAST)",
    "percent_rank() OVER (PARTITION BY k ORDER BY v)",
    "cume_dist() OVER (PARTITION BY s ORDER BY v DESC)",
    "count(*) OVER ()",
    "count(*) FILTER (WHERE v > 1) OVER (PARTITION BY k ORDER BY s)",
    "count(v) OVER (PARTITION BY k, s ORDER BY v)",
    "min(v) FILTER (WHERE s = 'a') OVER (PARTITION BY k)",
    "max(s) OVER (PARTITION BY k ORDER BY v RANGE BETWEEN CURRENT ROW AND CURRENT ROW)",
)
# Where equal rows are told apart by their text, which makes no difference to these values.
TIED = (
    "row_number() OVER (PARTITION BY k ORDER BY v)",
    "lag(v, 1, 7) OVER (PARTITION BY k ORDER BY v)",
    "sum(v * 2 + 1) OVER (PARTITION BY k ORDER BY v)",
    "sum(v) OVER (PARTITION BY k ORDER BY v RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
    "sum(v) OVER (PARTITION BY k ORDER BY v ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "first_value(v) OVER (PARTITION BY k ORDER BY v)",
    "last_value(v) OVER (PARTITION BY k ORDER BY v"
    " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
    "nth_value(v, 2) OVER (PARTITION BY k ORDER BY v"
    " RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
)
SERIES = (
    "SELECT t.id, x FROM t, generate_series(1, t.k) AS x",
    "SELECT bag.v, x, n FROM bag, generate_series(bag.v, bag.k) WITH ORDINALITY AS g (x, n)",
    "SELECT t.id, x FROM t, generate_series(3, t.v, -2) AS x",
    "SELECT t.id, x FROM t, generate_series(t.b, t.b + 1) AS x",
    "SELECT k, generate_series(1, 5, 3) AS x FROM bag",
)
CHANGES = """
SELECT fill(41, 52);
DELETE FROM t WHERE id % 6 = 1;
UPDATE t SET v = v + 1, n = NULL, s = 'c' WHERE id % 5 = 0;
DELETE FROM bag WHERE k = 1 AND v = 0;
UPDATE bag SET v = 3 WHERE s IS NULL AND k = 0;
"""


def over(table: str, shown: str, calls: tuple[str, ...]) -> str:
    """Return the query of all calls."""
    values = ", ".join(f"{call} AS c{n}" for n, call in enumerate(calls))
    return f"SELECT {shown}, {values} FROM {table}"


QUERIES = (
    *(over("t", "id", ORDERED[at : at + 4]) for at in range(0, len(ORDERED), 4)),
    *(over("bag", "k, v, s", EQUAL[at : at + 4]) for at in range(0, len(EQUAL), 4)),
    over("bag", "k, v", TIED),
    *SERIES,
)


def test_every_function_equals_that_of_postgres(hw: Headwater, dsn: str) -> None:
    for n, query in enumerate(QUERIES):
        made = hw.create_stream_table(f"st{n}", query, engine="spark", refresh_mode="DIFFERENTIAL")
        assert made.effective_mode == "DIFFERENTIAL"
    with psycopg.connect(dsn, autocommit=True) as conn:
        assert [find_difference(conn, q, f"st{n}") for n, q in enumerate(QUERIES)] == [
            None for _ in QUERIES
        ]
        conn.execute(CHANGES)
        for n, _ in enumerate(QUERIES):
            assert hw.refresh_stream_table(f"st{n}").action == "DIFFERENTIAL"
        assert [find_difference(conn, q, f"st{n}") for n, q in enumerate(QUERIES)] == [
            None for _ in QUERIES
        ]
    assert all(hw.verify(f"st{n}").equal for n in range(0, len(QUERIES), 4))


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT avg(v) OVER () FROM t", "avg over a window is not known to be the same"),
        ("SELECT sum(v) OVER (ORDER BY v RANGE 1 PRECEDING) FROM t", "a frame that counts by"),
        ("SELECT sum(v) OVER (ORDER BY v GROUPS 1 PRECEDING) FROM t", "a frame that counts groups"),
        ("SELECT rank() OVER (ORDER BY j) FROM t", "an order that Spark does not share"),
        ("SELECT ntile(id) OVER (ORDER BY id) FROM t", "ntile with a number that is no constant"),
        ("SELECT lag(v, k) OVER (ORDER BY id) FROM t", "lag with a number that is no constant"),
        ("SELECT lag(v, 1, k::smallint) OVER (ORDER BY id) FROM t", "a default that is no"),
        ("SELECT last_value(id) OVER (ORDER BY k) FROM t", "picks one of rows that ORDER BY"),
        (
            "SELECT sum(v) OVER (ORDER BY id ROWS BETWEEN 2 FOLLOWING AND 1 FOLLOWING) FROM t",
            "a frame that ends before it starts",
        ),
        (
            "SELECT row_number() OVER () FROM bag a JOIN bag b USING (k)",
            "rows that a window leaves equal, and that are not of one source",
        ),
        (over("t", "id", ORDERED), "windows, one above the other"),
        ("SELECT generate_series(1, k, v) FROM t", "generate_series with a step that is no"),
        ("SELECT jsonb_object_keys(j) FROM t", "the rows of jsonb_object_keys"),
    ],
)
def test_what_may_differ_is_refused(hw: Headwater, query: str, reason: str) -> None:
    with pytest.raises(UnsupportedQuery, match=reason):
        hw.create_stream_table("st", query, engine="spark")


def test_a_subquery_that_gives_two_rows_fails_as_in_postgres(hw: Headwater, dsn: str) -> None:
    query = "SELECT id, (SELECT bag.s FROM bag WHERE bag.v = 100 + t.id) AS s FROM t"
    hw.create_stream_table("st", query, engine="spark")
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("INSERT INTO bag VALUES (1, 103, 'found')")
        assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
        assert find_difference(conn, query, "st") is None
        conn.execute("INSERT INTO bag VALUES (1, 103, 'found')")
        with pytest.raises(QueryFailed, match="more than one row"):
            hw.refresh_stream_table("st")
        conn.execute("DELETE FROM bag WHERE v = 103")
        assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
        assert find_difference(conn, query, "st") is None
