"""What not every server has: virtual columns (18); citext, collations of ICU and XML (15)."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import headwater
from tests.battery.oracle import find_difference
from tests.servers import Server

Connection = psycopg.Connection[Any]

VIRTUAL = """
CREATE TABLE v (
    "Id" int PRIMARY KEY, up int, date date, label text,
    twice int GENERATED ALWAYS AS ("Id" * 2) VIRTUAL,
    year numeric GENERATED ALWAYS AS (EXTRACT(year FROM date)) VIRTUAL,
    loud text COLLATE "C" GENERATED ALWAYS AS (upper(label) || '!') VIRTUAL,
    kept int GENERATED ALWAYS AS (up + 1) STORED
);
INSERT INTO v VALUES (1, NULL, '2024-01-01', 'a'), (2, 1, '2023-01-01', 'b'), (3, 1, NULL, 'a');
"""
OF_VIRTUAL = {
    "plain": 'SELECT "Id", twice, loud FROM v',
    "star": "SELECT * FROM v",
    "filtered": "SELECT label FROM v WHERE twice > 2 AND year IS NOT NULL",
    "grouped": "SELECT loud, year, sum(twice) AS s, max(kept) AS k FROM v GROUP BY loud, year",
    "joined": 'SELECT a."Id", b.loud, b.twice FROM v a LEFT JOIN v b ON b.twice = a."Id" + 1',
    "whole_row": "SELECT x.twice, to_jsonb(x) AS j, x AS row FROM v AS x",
    "renamed": "SELECT q.e, q.a FROM v AS q (a, b, c, d, e) WHERE e <> 4",
    "windowed": "SELECT loud, row_number() OVER (PARTITION BY loud ORDER BY twice) AS k FROM v",
    "recursive": 'WITH RECURSIVE r AS (SELECT v."Id", v.loud FROM v WHERE v.up IS NULL UNION SELECT'
    ' v."Id", v.loud || r.loud FROM v JOIN r ON v.up = r."Id") SELECT * FROM r',
}
OF_VIRTUAL_CHANGES = (
    "INSERT INTO v VALUES (4, 2, '2024-05-05', 'c'), (5, NULL, NULL, NULL)",
    "UPDATE v SET label = label || 'x', date = date + 400 WHERE up = 1",
    'UPDATE v SET "Id" = "Id" + 10 WHERE up IS NULL',
    "DELETE FROM v WHERE label LIKE 'b%'",
    'ALTER TABLE v ALTER COLUMN twice SET EXPRESSION AS ("Id" * 3)',
    "UPDATE v SET label = 'z'",
    "TRUNCATE v",
)
OTHERS = """
CREATE EXTENSION citext;
CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE w (
    id int PRIMARY KEY, c citext, b text COLLATE blind, d citext[], x xml, xs xml[]
);
INSERT INTO w VALUES (1, 'Ada', 'Bob', '{A,b}', '<a>1</a>', NULL),
    (2, 'ADA', 'bob', '{a,B}', '<a >1</a>', '{<b/>}'), (3, 'ada', 'BOB', NULL, NULL, NULL),
    (4, 'Eve', 'Eve', '{}', '<a/>', '{}'), (5, NULL, NULL, NULL, '<a/>', NULL);
"""
OF_OTHERS = {
    "carried": "SELECT * FROM w",
    "bag": "SELECT c, b, d, x, xs FROM w",
    "citext_groups": "SELECT c, count(*) AS n, sum(id) AS s FROM w GROUP BY c",
    "citext_arrays": "SELECT d, count(*) AS n FROM w GROUP BY d",
    "blind_groups": "SELECT b, count(*) AS n, max(id) AS m FROM w GROUP BY b",
    "citext_distinct": "SELECT DISTINCT c FROM w",
    "blind_distinct": "SELECT DISTINCT b FROM w",
    "both_distinct": "SELECT count(DISTINCT c) AS c, count(DISTINCT b) AS b FROM w",
    "citext_join": "SELECT l.id, r.id AS other FROM w l JOIN w r ON l.c = r.c",
    "blind_join": "SELECT l.id, r.id AS other FROM w l LEFT JOIN w r ON l.b = r.b AND l.id < r.id",
    "citext_extrema": "SELECT b, min(c) AS lo, max(c) AS hi FROM w GROUP BY b",
    "blind_extrema": "SELECT c, min(b) AS lo, max(b) AS hi FROM w GROUP BY c",
    "filters": "SELECT id, c = 'ADA' AS c, b = 'bob' AS b FROM w WHERE c LIKE 'a%' OR b = 'EVE'",
    "sets": "SELECT c FROM w WHERE id < 3 EXCEPT ALL SELECT c FROM w WHERE id > 2",
    "windows": "SELECT id, count(*) OVER (PARTITION BY c) AS n, rank() OVER (ORDER BY b) AS r"
    " FROM w",
    "semi": "SELECT id FROM w WHERE c IN (SELECT o.c FROM w o WHERE o.id > 2)",
    "xml": "SELECT id, xpath('/a/text()', x) AS t, x::text AS s FROM w WHERE x IS NOT NULL",
    "xml_groups": "SELECT b, xmlagg(x ORDER BY id) AS x FROM w GROUP BY b",
}
OF_OTHERS_CHANGES = (
    "INSERT INTO w VALUES (6, 'EVE', 'eVe', '{}', '<b/>', NULL), (7, 'a', 'A', NULL, NULL, NULL)",
    "DELETE FROM w WHERE id = 1",
    "UPDATE w SET c = upper(c::text), b = lower(b), x = '<a>2</a>' WHERE id IN (3, 4)",
    "UPDATE w SET c = lower(c::text)::citext",
    "UPDATE w SET c = b::citext, b = c::text WHERE id > 2",
    "DELETE FROM w WHERE c = 'eVE'",
    "DELETE FROM w",
)
MODES = {"d": "DIFFERENTIAL", "i": "IMMEDIATE"}


def follow(dsn: str, queries: dict[str, str], changes: tuple[str, ...]) -> list[str]:
    """Return what differs after a change, in either mode."""
    failures: list[str] = []
    with psycopg.connect(dsn, autocommit=True) as conn, headwater.connect(dsn) as hw:
        for short, mode in MODES.items():
            for name, query in queries.items():
                hw.create_stream_table(f"{short}_{name}", query, refresh_mode=mode)
        for change in ("SELECT", *changes):
            conn.execute(change.encode())
            for name, query in queries.items():
                hw.refresh_stream_table(f"d_{name}")
                if change.startswith("ALTER"):  # which stops what follows it at once
                    hw.refresh_stream_table(f"i_{name}")
                failures += [
                    f"{short}_{name} after {change[:40]}: {fault}"
                    for short in MODES
                    if (fault := find_difference(conn, query, f"{short}_{name}"))
                ]
    return failures


@pytest.mark.timeout(300)
def test_virtual_columns_are_read_by_their_expressions(pg18: Server) -> None:
    dsn = pg18.create_database()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(VIRTUAL)
    assert follow(dsn, OF_VIRTUAL, OF_VIRTUAL_CHANGES) == []
    pg18.drop_database(dsn)


@pytest.mark.timeout(300)
def test_types_without_a_plain_equality_group_as_the_server_does(pg15: Server) -> None:
    dsn = pg15.create_database()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(OTHERS)
    assert follow(dsn, OF_OTHERS, OF_OTHERS_CHANGES) == []
    pg15.drop_database(dsn)
