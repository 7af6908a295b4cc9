"""Many tables for which nothing came are moved at once, and no other ones."""

from __future__ import annotations

from functools import partial
from typing import Any

import psycopg

import headwater
from headwater.catalog.standing import move_all_unchanged
from tests.battery.oracle import find_difference
from tests.daemons import daemon, until

Connection = psycopg.Connection[Any]
SETUP = """
CREATE TABLE t (id int PRIMARY KEY, x int);
CREATE TABLE u (id int PRIMARY KEY, x int);
INSERT INTO t SELECT n, n FROM generate_series(1, 9) AS n;
INSERT INTO u SELECT n, n FROM generate_series(1, 9) AS n;
"""
# Of t nothing comes, of u something does; `tied` moves with `busy`, `whole` is computed anew.
QUERIES = {
    "quiet": "SELECT id, x FROM t",
    "over": "SELECT sum(x) AS x FROM quiet",
    "busy": "SELECT count(*) AS n FROM u",
    "mixed": "SELECT q.id, u.x FROM quiet q JOIN u ON u.id = q.id",
    "tied": "SELECT max(x) AS x FROM t",
    "whole": "SELECT min(x) AS x FROM t",
    "off": "SELECT x FROM t",
}
STANDS = "SELECT pgt_name, pgt_id, epoch FROM pgtrickle.pgt_stream_tables"


def create(hw: headwater.Headwater) -> None:
    hw.connection.execute(SETUP.encode())
    hw.connection.execute("SET pg_trickle.min_target_lag_seconds = 1")
    for name, query in QUERIES.items():
        mode = "FULL" if name == "whole" else "DIFFERENTIAL"
        hw.create_stream_table(name, query, "1s", mode)
    hw.create_refresh_group("g", ["busy", "tied"])


def is_equal(conn: Connection, name: str) -> bool:
    return find_difference(conn, QUERIES[name], name) is None


def test_only_what_has_nothing_to_do_is_moved(database: str, conn: Connection) -> None:
    with headwater.connect(database) as hw:
        create(hw)
        for name in QUERIES:
            hw.refresh_stream_table(name)
        hw.alter_stream_table("off", status="SUSPENDED")
        conn.execute("UPDATE u SET x = x + 1; DELETE FROM u WHERE id = 3")
        before = {name: (pgt_id, epoch) for name, pgt_id, epoch in conn.execute(STANDS)}
        ids = [pgt_id for name, (pgt_id, _) in before.items() if name != "quiet"]
        moved = move_all_unchanged(conn, ids)
        assert moved == [before["over"][0]]
        after = {name: epoch for name, _, epoch in conn.execute(STANDS)}
        assert {n for n, epoch in after.items() if epoch != before[n][1]} == {"quiet", "over"}
        assert after["quiet"] == after["over"]
        assert hw.refresh_history("over", 1)[0].action == "NO_DATA"
        with psycopg.connect(database) as other:
            other.execute("LOCK TABLE quiet IN SHARE ROW EXCLUSIVE MODE")
            assert move_all_unchanged(conn, ids) == []
        conn.execute("UPDATE t SET x = 100 WHERE id = 2")
        assert move_all_unchanged(conn, ids) == []
        hw.alter_stream_table("off", status="ACTIVE")
        for name, query in QUERIES.items():
            hw.refresh_stream_table(name)
            assert find_difference(conn, query, name) is None


def test_the_daemon_moves_them_at_once(database: str, conn: Connection) -> None:
    with headwater.connect(database) as hw:
        create(hw)
    with daemon(database, HEADWATER_MAX_CONCURRENT_REFRESHES="1") as process:
        process.wait_for("moved at once")
        for number in range(3):
            conn.execute("UPDATE u SET x = x + 1")
            conn.execute("INSERT INTO u VALUES (%s, 1)", [20 + number])
            for name in QUERIES:
                until(partial(is_equal, conn, name))
        assert process.end() == 0
