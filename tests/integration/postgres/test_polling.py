"""Sources that tell of no changes, followed by comparing snapshots when the caller asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import headwater
from tests.servers import Server

Connection = psycopg.Connection[Any]

SETUP = """
CREATE TABLE t (id int PRIMARY KEY, g int, x numeric);
INSERT INTO t SELECT n, n % 3, n * 1.10 FROM generate_series(1, 12) AS n;
CREATE MATERIALIZED VIEW m AS SELECT g, x FROM t UNION ALL SELECT g, x FROM t WHERE g = 1;
CREATE TABLE names (g int PRIMARY KEY, name text);
INSERT INTO names VALUES (0, 'zero'), (1, 'one'), (2, NULL);
"""
TOTALS = "SELECT n.name, sum(m.x) AS s, count(*) AS c FROM m JOIN names n USING (g) GROUP BY n.name"
SINGLE = "SELECT g, x FROM m WHERE x > 3"


@pytest.fixture
def hw(database: str, conn: Connection) -> Iterator[headwater.Headwater]:
    conn.execute(SETUP)
    with headwater.connect(database) as connected:
        yield connected


def create(hw: headwater.Headwater, name: str, query: str) -> headwater.Created:
    return hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL", cdc_mode="poll")


def mirrors(conn: Connection) -> int:
    [(count,)] = conn.execute(
        "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE pgt_name LIKE 'mirror%'"
    ).fetchall()
    return int(count)


def test_a_materialized_view_is_followed(hw: headwater.Headwater, conn: Connection) -> None:
    assert create(hw, "totals", TOTALS).effective_mode == "DIFFERENTIAL"
    create(hw, "single", SINGLE)
    assert mirrors(conn) == 1
    conn.execute("UPDATE t SET x = x + 1 WHERE id < 4; DELETE FROM t WHERE id = 5")
    conn.execute("UPDATE names SET name = 'two' WHERE g = 2")
    for fill in (
        "",
        "REFRESH MATERIALIZED VIEW m",
        "INSERT INTO t VALUES (99, 1, NULL), (98, 9, 1)",
    ):
        if fill:
            conn.execute(fill.encode())
        conn.execute("REFRESH MATERIALIZED VIEW m")
        for name, query in (("totals", TOTALS), ("single", SINGLE)):
            hw.refresh_stream_table(name)
            different = (
                f"({query} EXCEPT ALL TABLE {name}) UNION ALL (TABLE {name} EXCEPT ALL {query})"
            )
            assert conn.execute(different.encode()).fetchall() == []
            assert hw.verify(name).equal


def test_the_last_reader_takes_the_mirror_along(hw: headwater.Headwater, conn: Connection) -> None:
    create(hw, "totals", TOTALS)
    create(hw, "single", SINGLE)
    hw.drop_stream_table("totals")
    assert mirrors(conn) == 1
    hw.drop_stream_table("single")
    assert mirrors(conn) == 0


def test_a_failed_create_leaves_no_mirror(hw: headwater.Headwater, conn: Connection) -> None:
    with pytest.raises(headwater.HeadwaterError, match="VOLATILE"):
        create(hw, "st", "SELECT g, random() AS r FROM m")
    assert mirrors(conn) == 0


def test_without_polling_it_is_refused(hw: headwater.Headwater) -> None:
    with pytest.raises(headwater.HeadwaterError, match="materialized view"):
        hw.create_stream_table("st", SINGLE, refresh_mode="DIFFERENTIAL")


def test_immediate_cannot_poll(hw: headwater.Headwater) -> None:
    with pytest.raises(headwater.HeadwaterError, match="no write would do that"):
        hw.create_stream_table("st", SINGLE, refresh_mode="IMMEDIATE", cdc_mode="poll")


def test_a_foreign_table_is_followed(pg15: Server) -> None:
    dsn = pg15.create_database()  # the embedded server has no postgres_fdw
    with psycopg.connect(dsn, autocommit=True) as conn, headwater.connect(dsn) as hw:
        conn.execute(SETUP)
        conn.execute("CREATE EXTENSION postgres_fdw")
        info = conn.info
        conn.execute(
            "CREATE SERVER here FOREIGN DATA WRAPPER postgres_fdw OPTIONS"
            f" (host '{info.host}', port '{info.port}', dbname '{info.dbname}');"
            f" CREATE USER MAPPING FOR CURRENT_USER SERVER here OPTIONS (user '{info.user}');"
            " CREATE FOREIGN TABLE far (id int, g int, x numeric) SERVER here OPTIONS"
            " (schema_name 'public', table_name 't')".encode()
        )
        create(hw, "st", "SELECT g, max(x) AS m FROM far GROUP BY g")
        conn.execute("DELETE FROM t WHERE id > 9")
        hw.refresh_stream_table("st")
        wanted = conn.execute("SELECT g, max(x) FROM t GROUP BY g ORDER BY g").fetchall()
        assert conn.execute("SELECT g, m FROM st ORDER BY g").fetchall() == wanted
    pg15.drop_database(dsn)
