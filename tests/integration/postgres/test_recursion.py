"""Recursions by UNION follow by their parts: insertions lead on, deletions are rederived."""

from __future__ import annotations

from random import Random
from typing import Any

import psycopg
import pytest

import headwater
from headwater.bench.plans import read_plan
from tests.battery.oracle import find_difference

Connection = psycopg.Connection[Any]

SETUP = """
CREATE TABLE edge (a int NOT NULL, b int NOT NULL);
CREATE TABLE start (n int, label text);
CREATE TABLE closed (n int);
INSERT INTO start VALUES (0, 'zero'), (3, 'three'), (NULL, NULL);
"""
PAIRS = """WITH RECURSIVE r (a, b) AS (SELECT a, b FROM edge
    UNION SELECT r.a, e.b FROM r JOIN edge e ON e.a = r.b)"""
NODES = """WITH RECURSIVE r (n) AS (SELECT n FROM start
    UNION SELECT e.b FROM r JOIN edge e ON e.a = r.n AND e.b <> 4) SELECT n FROM r"""
WORDS = """WITH RECURSIVE r AS (SELECT n, label FROM start
    UNION SELECT e.b, r.label FROM r, edge e WHERE e.a = r.n) SELECT n, label FROM r"""
OPEN = """WITH RECURSIVE r (n) AS (SELECT n FROM start WHERE n IS NOT NULL
    UNION SELECT e.b FROM r JOIN edge e ON e.a = r.n
    WHERE NOT EXISTS (SELECT FROM closed c WHERE c.n = e.b)) SELECT n FROM r"""
DEEP = """WITH RECURSIVE r (n, depth) AS (SELECT n, 0 FROM start
    UNION SELECT e.b, r.depth + 1 FROM r JOIN edge e ON e.a = r.n WHERE r.depth < 5)
    SELECT n, depth FROM r"""
PATHS = """WITH RECURSIVE r (n, path) AS (SELECT n, ARRAY[n] FROM start
    UNION SELECT e.b, r.path || e.b FROM r JOIN edge e ON e.a = r.n WHERE e.b <> ALL (r.path))
    SELECT n, path FROM r"""
OUTER = """WITH RECURSIVE r (n) AS (SELECT n FROM start
    UNION SELECT e.b FROM r LEFT JOIN edge e ON e.a = r.n) SELECT n FROM r"""
DIVIDED = """WITH RECURSIVE r (n) AS (SELECT n FROM start WHERE n IS NOT NULL
    UNION SELECT e.b / (4 - r.n) FROM r JOIN edge e ON e.a < 100) SELECT n FROM r"""
# Those that are followed by their parts, and others.
FOLLOWED = {
    "pairs": f"{PAIRS} SELECT a, b FROM r",
    "renamed": f"{PAIRS} SELECT b AS x, a + b AS s, a AS y FROM r",
    "nodes": NODES,
    "words": WORDS,
    "open": OPEN,
    "deep": DEEP,
}
KEPT = {
    "filtered": f"{PAIRS} SELECT a, b FROM r WHERE a = 1",
    "projected": f"{PAIRS} SELECT b FROM r",
    "grouped": f"{PAIRS} SELECT a, count(*) AS n, max(b) AS m FROM r GROUP BY a",
    "summed": f"{PAIRS} SELECT a, count(*) AS n, sum(b) AS s FROM r GROUP BY a",
    "total": f"{PAIRS} SELECT count(*) AS n, min(a) AS m FROM r",
    "joined": f"{PAIRS} SELECT s.label, r.a, r.b, e.b AS c FROM r JOIN start s ON s.n = r.b"
    " JOIN edge e ON e.a = r.a AND e.b <= r.b",
    "missing": f"{PAIRS} SELECT s.n, s.label FROM start s"
    " WHERE NOT EXISTS (SELECT FROM r WHERE r.a = s.n AND r.b > 2)",
    "present": f"{PAIRS} SELECT e.a, e.b FROM edge e WHERE (e.b, e.a) IN (SELECT a, b FROM r)"
    " AND EXISTS (SELECT FROM closed c JOIN r ON r.a = c.n WHERE r.b = e.b)",
    "twice": f"{PAIRS} SELECT x.a, y.b FROM r x LEFT JOIN r y ON y.a = x.b AND y.b > x.a",
    "ranked": f"{PAIRS} SELECT a, b, row_number() OVER (PARTITION BY a ORDER BY b) AS n FROM r",
    "united": f"{PAIRS} SELECT a FROM r UNION SELECT n FROM ({WORDS}) q WHERE label > 'a'",
    "nested": "WITH RECURSIVE r AS (SELECT a, b FROM edge UNION SELECT q.a, q.b FROM (WITH"
    " x AS (SELECT * FROM r) SELECT x.a, e.b FROM x JOIN edge e ON e.a = x.b AND EXISTS"
    " (SELECT FROM closed)) q) SELECT a FROM r",
    "above": f"{PAIRS} SELECT a, b FROM edge"
    " WHERE b > (SELECT avg(b) FROM r) OR a = (SELECT max(b) FROM r)",
}
WHOLE = {
    "paths": PATHS,
    "padded": OUTER,
    "grouped_bag": "WITH RECURSIVE r (n, d) AS (SELECT n, 0 FROM start UNION ALL SELECT e.b, d + 1"
    " FROM r JOIN edge e ON e.a = r.n WHERE d < 2) SELECT n, count(*) AS c FROM r GROUP BY n",
    "cyclic": "WITH RECURSIVE r AS (SELECT a, b FROM edge UNION ALL SELECT e.a, e.b FROM r JOIN"
    " edge e ON e.a = r.b) CYCLE a, b SET looped USING way SELECT a, b, looped FROM r WHERE a < 2",
    "bag": DEEP.replace("UNION", "UNION ALL").replace("< 5", "< 2"),
}


def change(random: Random) -> str:
    """Return statements over few nodes, so that there are cycles and several ways."""
    rows = ", ".join(f"({random.randint(0, 5)}, {random.randint(0, 5)})" for _ in range(2))
    some = (
        f"(a, b) IN (SELECT a, b FROM edge ORDER BY md5((a, b, {random.random()})::text) LIMIT 2)"
    )
    return random.choice(
        (
            f"INSERT INTO edge VALUES {rows}",
            f"INSERT INTO edge VALUES {rows}",
            f"DELETE FROM edge WHERE {some}",
            f"UPDATE edge SET b = (b + 1) % 6 WHERE {some}",
            f"INSERT INTO edge VALUES {rows}; DELETE FROM edge WHERE {some}",
            f"INSERT INTO closed VALUES ({random.randint(0, 5)})",
            f"DELETE FROM closed WHERE n < {random.randint(0, 5)}",
            f"UPDATE start SET n = {random.randint(0, 5)} WHERE label = 'zero'",
        )
    )


def created(hw: headwater.Headwater, mode: str) -> dict[str, str]:
    """Create a stream table for each query, and see that it is followed as it should be."""
    for name, query in {**FOLLOWED, **KEPT, **WHOLE}.items():
        hw.create_stream_table(name, query, refresh_mode=mode, engine="postgres")
        how = "\n".join(hw.explain_st(name).operators)
        assert ("rederived" in how) is (name not in WHOLE), (name, how)
        assert ("kept_" in how) is (name in KEPT), (name, how)
    return {**FOLLOWED, **KEPT, **WHOLE}


@pytest.mark.costly
def test_recursions_follow(database: str, conn: Connection) -> None:
    conn.execute(SETUP)
    random, failures = Random(3), []
    with headwater.connect(database) as hw:
        queries = created(hw, "DIFFERENTIAL")
        for _ in range(10):
            statement = change(random)
            conn.execute(statement.encode())
            for name, query in queries.items():
                assert hw.refresh_stream_table(name).action in ("DIFFERENTIAL", "NO_DATA")
                if fault := find_difference(conn, query, name):
                    failures.append(f"{name} after {statement}: {fault}")
    assert failures == []


@pytest.mark.costly
def test_writers_move_recursions(database: str, conn: Connection) -> None:
    """The same statements inside the writing transaction, one row and several, one cause or two."""
    conn.execute(SETUP)
    random, failures = Random(5), []
    with headwater.connect(database) as hw:
        queries = created(hw, "IMMEDIATE")
        for name in ("pairs", "summed", "joined", "missing"):
            hw.create_stream_table(f"late_{name}", queries[name], refresh_mode="COMMIT")
            queries[f"late_{name}"] = queries[name]
        for number in range(12):
            statement = change(random)
            if number % 4 == 3:
                statement = (
                    "WITH w AS (DELETE FROM edge WHERE a = 1 RETURNING b), v AS (INSERT INTO start"
                    " SELECT b, 'new' FROM w) INSERT INTO edge VALUES (2, 1), (1, 0)"
                )
            conn.execute(statement.encode())
            for name, query in queries.items():
                if fault := find_difference(conn, query, name):
                    failures.append(f"{name} after {statement}: {fault}")
        conn.execute("TRUNCATE edge")
        for name, query in queries.items():
            assert find_difference(conn, query, name) is None, name
    assert failures == []


def test_a_long_chain_and_a_large_cycle(database: str, conn: Connection) -> None:
    """As deep as the data: nothing counts the steps."""
    conn.execute(SETUP)
    conn.execute("INSERT INTO edge SELECT n, n + 1 FROM generate_series(0, 2999) n")
    query = FOLLOWED["nodes"]
    with headwater.connect(database) as hw:
        hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
        for statement in (
            "INSERT INTO edge VALUES (3000, 0)",
            "DELETE FROM edge WHERE a = 2",
            "INSERT INTO edge VALUES (2, 3)",
            "UPDATE start SET n = NULL",
        ):
            conn.execute(statement.encode())
            assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
            assert find_difference(conn, query, "st") is None, statement


COSTLY = {
    "pairs": FOLLOWED["pairs"],
    "filtered": KEPT["filtered"],
    "summed": KEPT["summed"],
    "grouped": KEPT["grouped"],
    "labelled": f"{PAIRS} SELECT r.a, s.label FROM r JOIN start s ON s.n = r.b",
    "missing": KEPT["missing"],
}
CHAINS = """
CREATE INDEX ON edge (a); CREATE INDEX ON edge (b); CREATE INDEX ON start (n);
INSERT INTO edge SELECT c * 100 + n, c * 100 + n + 1
  FROM generate_series(1, 1500) c, generate_series(1, 8) n;
INSERT INTO start SELECT a, 'x' FROM edge;
ANALYZE edge, start;
"""
SMALL = (
    "INSERT INTO edge VALUES (309, 310)",
    "DELETE FROM edge WHERE a = 309",
    "UPDATE edge SET b = 411 WHERE a = 408",
    "INSERT INTO start VALUES (411, 'y')",
)
FEW = 700  # rows, of 54,000 pairs and 12,000 edges


def read_so_far(conn: Connection) -> int:
    """Return how many rows of tables this session read since it last reported them."""
    row = conn.execute(
        "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint"
        " FROM pg_stat_xact_user_tables WHERE schemaname IN ('public', 'pgtrickle_state')"
    ).fetchone()
    assert row is not None
    return int(row[0])


def read_by_writer(conn: Connection, statement: str) -> int:
    """Return how many rows of tables a statement read, with all that its triggers did."""
    with conn.transaction():
        before = read_so_far(conn)
        conn.execute(statement.encode())
        return read_so_far(conn) - before


@pytest.mark.costly
def test_a_change_reads_few_of_the_rows_that_were_found(database: str, conn: Connection) -> None:
    """An edge at the end of a chain reads what leads to it, and what is looked up by that."""
    conn.execute(SETUP)
    conn.execute(CHAINS.encode())
    with headwater.connect(database) as hw:
        for name, query in COSTLY.items():
            hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL", engine="postgres")
        for statement in SMALL:
            conn.execute(statement.encode())
            table = "start" if "start" in statement else "edge"
            for name, query in COSTLY.items():
                if f" {table} " not in query:
                    continue
                read = read_plan(conn, name).rows_by_relation
                assert sum(read.values()) < FEW, (name, statement, read)
                hw.refresh_stream_table(name)
                assert find_difference(conn, query, name) is None, (name, statement)
        for name, query in COSTLY.items():
            hw.drop_stream_table(name)
            hw.create_stream_table(name, query, refresh_mode="IMMEDIATE")
            for statement in (*SMALL, "DELETE FROM start WHERE n = 411"):
                assert read_by_writer(conn, statement) < FEW, (name, statement)
                assert find_difference(conn, query, name) is None, (name, statement)
            hw.drop_stream_table(name)


def test_a_row_that_no_query_derives_raises_nothing(database: str, conn: Connection) -> None:
    """What is lost meets what came; the query itself never divides those."""
    conn.execute(SETUP)
    conn.execute("DELETE FROM start WHERE n = 3")
    conn.execute("INSERT INTO start VALUES (4, 'four')")
    total = DIVIDED.replace("SELECT n FROM r", "SELECT count(*) AS c, sum(n) AS s FROM r")
    with headwater.connect(database) as hw:
        hw.create_stream_table("st", DIVIDED, refresh_mode="DIFFERENTIAL")
        hw.create_stream_table("total", total, refresh_mode="DIFFERENTIAL")
        conn.execute("DELETE FROM start WHERE n = 4")
        conn.execute("INSERT INTO edge VALUES (1, 1)")
        for name, query in (("st", DIVIDED), ("total", total)):
            assert hw.refresh_stream_table(name).action == "DIFFERENTIAL"
            assert find_difference(conn, query, name) is None
            hw.alter_stream_table(name, refresh_mode="IMMEDIATE")
        for statement in (
            "INSERT INTO start VALUES (7, 'seven')",
            "WITH w AS (DELETE FROM start WHERE n = 7) INSERT INTO start VALUES (6, 'six')",
            "DELETE FROM edge",
            "INSERT INTO start VALUES (4, 'four')",
            "WITH w AS (DELETE FROM start WHERE n = 4) INSERT INTO edge VALUES (1, 1), (1, 2)",
        ):
            conn.execute(statement.encode())
            for name, query in (("st", DIVIDED), ("total", total)):
                assert find_difference(conn, query, name) is None, (name, statement)
