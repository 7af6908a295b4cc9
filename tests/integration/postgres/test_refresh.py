"""What a refresh does, says and records, in each of its actions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import headwater
from headwater.bench.plans import explain
from headwater.errors import (
    InvalidArgument,
    LockTimeout,
    QueryFailed,
    ServerUnreachable,
    SourceDropped,
    StreamTableDamaged,
    UnsupportedQuery,
)
from tests.battery.oracle import find_difference, find_moved, places_of

Connection = psycopg.Connection[Any]

SETUP = """
CREATE TABLE t (id int PRIMARY KEY, g int, x int, s text);
CREATE TABLE u (id int PRIMARY KEY, g int);
INSERT INTO t SELECT n, n % 3, n, 's' || n FROM generate_series(1, 30) AS n;
INSERT INTO u VALUES (1, 1), (2, 2);
ANALYZE t; ANALYZE u;
"""
GROUPED = "SELECT g, sum(x) AS total, count(*) AS n FROM t GROUP BY g"
ROWS = "SELECT id, g, x FROM t"


@pytest.fixture
def hw(database: str, conn: Connection) -> Iterator[headwater.Headwater]:
    conn.execute(SETUP)
    with headwater.connect(database) as connected:
        yield connected


def _catalog(conn: Connection, columns: str, name: str = "st") -> tuple[Any, ...]:
    [row] = conn.execute(
        f"SELECT {columns} FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s".encode(), [name]
    ).fetchall()
    return tuple(row)


# --- actions ------------------------------------------------------------------------------------


def test_nothing_to_do_moves_the_timestamp_alone(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", GROUPED, refresh_mode="DIFFERENTIAL")
    places = places_of(conn, "st")
    before = _catalog(conn, "data_timestamp, epoch, last_refresh_at")
    conn.execute("UPDATE t SET s = 'unused'; INSERT INTO u VALUES (9, 9)")
    result = hw.refresh_stream_table("st")
    after = _catalog(conn, "data_timestamp, epoch, last_refresh_at")
    assert (result.action, result.rows, result.delta_rows) == ("NO_DATA", 0, 0)
    assert (result.data_timestamp, result.epoch) == after[:2]
    assert all(new > old for new, old in zip(after, before, strict=True))
    assert places_of(conn, "st") == places
    latest = hw.refresh_history("st")[0]
    assert (latest.action, latest.status, latest.rows_inserted, latest.delta_rows) == (
        "NO_DATA", "COMPLETED", 0, 0,
    )  # fmt: skip


def test_result_and_history_tell_the_same(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", ROWS, refresh_mode="DIFFERENTIAL")
    conn.execute(
        "INSERT INTO t VALUES (101, 1, 1, 'n'), (102, 1, 1, 'n');"
        "UPDATE t SET x = -1 WHERE id IN (1, 2, 3); DELETE FROM t WHERE id = 4"
    )
    result = hw.refresh_stream_table("st")
    assert (result.name, result.action, result.reason) == ("public.st", "DIFFERENTIAL", None)
    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (2, 3, 1)
    assert (result.rows, result.delta_rows) == (6, 2 + 2 * 3 + 1)
    assert set(result.timings) >= {"choose", "plan", "apply", "total"}
    [latest, created] = hw.refresh_history("st")
    assert (created.action, created.status, created.reason) == (
        "REINITIALIZE", "COMPLETED", "first fill",
    )  # fmt: skip
    assert created.rows_inserted == 30
    assert (latest.action, latest.status, latest.engine, latest.error_message) == (
        "DIFFERENTIAL", "COMPLETED", "postgres", None,
    )  # fmt: skip
    assert (latest.rows_inserted, latest.rows_updated, latest.rows_deleted) == (2, 3, 1)
    assert (latest.delta_rows, latest.epoch, latest.data_timestamp) == (
        9, result.epoch, result.data_timestamp,
    )  # fmt: skip
    assert latest.end_time is not None
    assert latest.start_time <= latest.end_time
    assert _catalog(conn, "epoch, data_timestamp, status, consecutive_errors") == (
        result.epoch, result.data_timestamp, "ACTIVE", 0,
    )  # fmt: skip
    assert _catalog(conn, "frontier ->> 'epoch', (frontier ->> 'data_timestamp')::timestamptz") == (
        str(result.epoch), result.data_timestamp,
    )  # fmt: skip


def test_history_is_limited_and_newest_first(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", ROWS)
    for number in range(4):
        conn.execute("UPDATE t SET x = %s WHERE id = 1", [-number - 1])
        hw.refresh_stream_table("st")
    assert len(hw.refresh_history("st")) == 5
    ids = [row.refresh_id for row in hw.refresh_history("st", max_rows=2)]
    assert ids == sorted((row.refresh_id for row in hw.refresh_history("st")), reverse=True)[:2]


def test_differential_never_turns_into_full(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", ROWS, refresh_mode="DIFFERENTIAL")
    conn.execute("UPDATE t SET x = x + 1000; INSERT INTO t SELECT id + 1000, g, x FROM t")
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert find_difference(conn, ROWS, "st") is None


def test_auto_chooses_by_the_share_of_changes_and_says_why(
    hw: headwater.Headwater, conn: Connection
) -> None:
    hw.create_stream_table("st", ROWS, refresh_mode="AUTO")
    conn.execute("UPDATE t SET x = 0 WHERE id = 1")
    small = hw.refresh_stream_table("st")
    assert (small.action, small.reason) == (
        "DIFFERENTIAL",
        "2 change rows against 30 source rows",
    )
    conn.execute("UPDATE t SET x = x + 1")
    large = hw.refresh_stream_table("st")
    assert (large.action, large.reason) == (
        "FULL",
        "60 change rows are more than 30% of 30 source rows",
    )
    assert find_difference(conn, ROWS, "st") is None
    assert [(h.action, h.reason) for h in hw.refresh_history("st", 2)] == [
        (large.action, large.reason),
        (small.action, small.reason),
    ]
    conn.execute("UPDATE t SET x = 5 WHERE id = 1")
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert find_difference(conn, ROWS, "st") is None


@pytest.mark.parametrize("query", [GROUPED, ROWS, "SELECT g, x % 4 AS y FROM t", "SELECT g FROM t"])
def test_full_writes_only_what_differs(
    hw: headwater.Headwater, conn: Connection, query: str
) -> None:
    hw.create_stream_table("st", query, refresh_mode="FULL")
    before = places_of(conn, "st")
    conn.execute("UPDATE t SET x = x + 1 WHERE g = 1; DELETE FROM t WHERE id = 2")
    assert hw.refresh_stream_table("st").action == "FULL"
    assert find_difference(conn, query, "st") is None
    assert find_moved(before, places_of(conn, "st")) == []


def test_untouched_groups_keep_their_place(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", GROUPED, refresh_mode="DIFFERENTIAL")
    places = dict(conn.execute("SELECT g, ctid::text FROM st").fetchall())
    conn.execute("UPDATE t SET x = x + 1 WHERE g = 1")
    result = hw.refresh_stream_table("st")
    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (0, 1, 0)
    after = dict(conn.execute("SELECT g, ctid::text FROM st").fetchall())
    assert {g for g in after if after[g] != places[g]} == {1}


# --- one epoch ----------------------------------------------------------------------------------


def test_diamond_arrives_at_one_epoch(hw: headwater.Headwater, conn: Connection) -> None:
    queries = {
        "base": "SELECT id, g, x FROM t WHERE x > 3",
        "left_arm": "SELECT g, count(*) AS n FROM base GROUP BY g",
        "right_arm": "SELECT g, max(x) AS m FROM base GROUP BY g",
        "top": "SELECT g, n, m FROM left_arm JOIN right_arm USING (g)",
    }
    for name, query in queries.items():
        hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")
    for number in range(3):
        conn.execute("UPDATE t SET x = x + 1, g = (g + 1) %% 4 WHERE id %% 3 = %s", [number])
        if number == 1:
            hw.refresh_stream_table("left_arm")  # one arm is ahead of the other
        assert hw.refresh_stream_table("top").action == "DIFFERENTIAL"
        rows = conn.execute("SELECT DISTINCT epoch FROM pgtrickle.pgt_stream_tables").fetchall()
        assert len(rows) == 1
        for name, query in queries.items():
            assert find_difference(conn, query, name) is None


def test_create_over_a_stale_stream_table(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("base", ROWS, refresh_mode="DIFFERENTIAL")
    conn.execute("UPDATE t SET x = -x")
    query = "SELECT g, sum(x) AS s FROM base GROUP BY g"
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    assert find_difference(conn, query, "st") is None
    assert find_difference(conn, ROWS, "base") is None
    assert hw.refresh_stream_table("st").action == "NO_DATA"


def test_chain_of_full_and_differential(hw: headwater.Headwater, conn: Connection) -> None:
    queries = {
        "a": "SELECT id, g, rank() OVER (ORDER BY x DESC) AS r FROM t",
        "b": "SELECT g, min(r) AS r FROM a GROUP BY g",
        "c": "SELECT count(*) AS n FROM b WHERE r < 5",
    }
    modes = {"a": "FULL", "b": "DIFFERENTIAL", "c": "FULL"}
    for name, query in queries.items():
        hw.create_stream_table(name, query, refresh_mode=modes[name])
    conn.execute("UPDATE t SET x = 31 - x WHERE g = 1")
    assert hw.refresh_stream_table("c").action == "FULL"
    for name, query in queries.items():
        assert find_difference(conn, query, name) is None
    assert hw.refresh_history("b")[0].action == "DIFFERENTIAL"
    assert (
        len(conn.execute("SELECT DISTINCT epoch FROM pgtrickle.pgt_stream_tables").fetchall()) == 1
    )


# --- user triggers and indexes on stream tables -------------------------------------------------

LOG = """
CREATE TABLE log (event text, old jsonb, new jsonb);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO public.log VALUES (TG_OP, to_jsonb(OLD), to_jsonb(NEW)); RETURN NULL; END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON st
    FOR EACH ROW EXECUTE FUNCTION note();
"""


@pytest.mark.parametrize("mode", ["DIFFERENTIAL", "FULL"])
def test_user_triggers_see_true_old_and_new_rows(
    hw: headwater.Headwater, conn: Connection, mode: str
) -> None:
    hw.create_stream_table("st", GROUPED, refresh_mode=mode)
    conn.execute(LOG)
    conn.execute(
        "UPDATE t SET x = x + 1 WHERE id = 1; DELETE FROM t WHERE g = 2;"
        "INSERT INTO t VALUES (100, 7, 7, 's')"
    )
    hw.refresh_stream_table("st")
    rows = conn.execute("SELECT event, old, new FROM log ORDER BY event").fetchall()
    assert rows == [
        ("DELETE", {"g": 2, "total": 155, "n": 10}, None),
        ("INSERT", None, {"g": 7, "total": 7, "n": 1}),
        (
            "UPDATE",
            {"g": 1, "total": 145, "n": 10},
            {"g": 1, "total": 146, "n": 10},
        ),
    ]


def test_unique_index_of_the_user_holds_during_a_refresh(
    hw: headwater.Headwater, conn: Connection
) -> None:
    hw.create_stream_table("st", "SELECT id, s FROM t", refresh_mode="DIFFERENTIAL")
    conn.execute("CREATE UNIQUE INDEX ON st (s); CREATE INDEX ON st (id, s)")
    conn.execute("DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (200, 0, 0, 's1')")
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert find_difference(conn, "SELECT id, s FROM t", "st") is None


# --- failures -----------------------------------------------------------------------------------

FRAGILE = "SELECT id, 100 / x AS share FROM t"


def test_failure_is_recorded_and_changes_nothing(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", FRAGILE, refresh_mode="DIFFERENTIAL")
    before = (conn.execute("SELECT * FROM st ORDER BY id").fetchall(), _catalog(conn, "epoch"))
    conn.execute("UPDATE t SET x = 0 WHERE id = 1; UPDATE t SET x = 7 WHERE id = 2")
    with pytest.raises(QueryFailed) as failed:
        hw.refresh_stream_table("st")
    assert (failed.value.what, failed.value.why, failed.value.fix) == (
        "refresh of public.st failed: division by zero",
        "PostgreSQL raised it while it evaluated the query (SQLSTATE 22012)",
        "correct the rows, or alter the query so that it does not fail on them",
    )
    now = (conn.execute("SELECT * FROM st ORDER BY id").fetchall(), _catalog(conn, "epoch"))
    assert now == before
    latest = hw.refresh_history("st")[0]
    assert (latest.status, latest.error_code, latest.error_class, latest.error_message) == (
        "FAILED", "HW-111", "user", str(failed.value),
    )  # fmt: skip
    assert _catalog(conn, "status, consecutive_errors, last_error") == (
        "ERROR", 1, str(failed.value),
    )  # fmt: skip
    conn.execute("UPDATE t SET x = 1 WHERE id = 1")
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert find_difference(conn, FRAGILE, "st") is None
    assert _catalog(conn, "status, consecutive_errors, last_error") == ("ACTIVE", 0, None)


@pytest.mark.parametrize(
    "query",
    [
        FRAGILE,
        "SELECT g, sum(100 / x) AS s FROM t GROUP BY g",
        "SELECT DISTINCT 100 / x AS share FROM t",
        "SELECT t.id, 100 / t.x AS share, u.g FROM t LEFT JOIN u ON u.id = 100 / t.x",
        "SELECT id FROM t WHERE 100 / x > 3",
        "SELECT s::int AS number FROM (SELECT substr(s, 2) AS s FROM t) AS q",
    ],
)
def test_row_that_no_epoch_shows_does_no_harm(
    hw: headwater.Headwater, conn: Connection, query: str
) -> None:
    """The query never fails on what is there when a refresh looks, so the refresh does not."""
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    conn.execute("INSERT INTO t VALUES (500, 1, 0, 'none')")
    conn.execute("UPDATE t SET x = 0, s = 'none' WHERE id = 3")
    conn.execute("DELETE FROM t WHERE id = 500; UPDATE t SET x = 9, s = 's9' WHERE id = 3")
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert find_difference(conn, query, "st") is None


def test_three_failures_suspend_and_resuming_goes_on(
    hw: headwater.Headwater, conn: Connection
) -> None:
    hw.create_stream_table("st", FRAGILE, refresh_mode="DIFFERENTIAL")
    conn.execute("UPDATE t SET x = 0 WHERE id = 1")
    for number in range(1, 4):
        with pytest.raises(QueryFailed):
            hw.refresh_stream_table("st")
        status = "SUSPENDED" if number == 3 else "ERROR"
        assert _catalog(conn, "status, consecutive_errors") == (status, number)
    with pytest.raises(InvalidArgument) as suspended:
        hw.refresh_stream_table("st")
    assert suspended.value.what == "st cannot be refreshed: public.st is suspended"
    assert len(hw.refresh_history("st")) == 4  # being suspended is no refresh
    conn.execute("UPDATE t SET x = 1 WHERE id = 1; INSERT INTO t VALUES (50, 0, 5, 's')")
    hw.alter_stream_table("st", status="ACTIVE")
    assert _catalog(conn, "status, consecutive_errors, last_error") == ("ACTIVE", 0, None)
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert find_difference(conn, FRAGILE, "st") is None


def test_failures_that_waiting_may_cure_suspend_nothing(
    hw: headwater.Headwater, conn: Connection
) -> None:
    hw.create_stream_table("st", FRAGILE, refresh_mode="DIFFERENTIAL")
    conn.execute("INSERT INTO t VALUES (500, 1, 1, 's')")
    hw.connection.execute("SET lock_timeout = '10ms'")
    with psycopg.connect(conn.info.dsn) as other:
        other.execute("LOCK TABLE st IN SHARE MODE")
        for number in range(1, 5):
            with pytest.raises(LockTimeout):
                hw.refresh_stream_table("st")
            assert _catalog(conn, "status, consecutive_errors") == ("ERROR", number)
    conn.execute("UPDATE t SET x = 0 WHERE id = 1")
    for status in ("ERROR", "ERROR", "SUSPENDED"):  # only these three count
        with pytest.raises(QueryFailed):
            hw.refresh_stream_table("st")
        assert _catalog(conn, "status") == (status,)


def test_a_session_that_is_cut_short_says_so(hw: headwater.Headwater, conn: Connection) -> None:
    """Also where the refresh itself had not begun."""
    hw.create_stream_table("cut", "SELECT count(*) AS n FROM t")
    with psycopg.connect(hw.dsn) as other:
        other.execute("LOCK TABLE pgtrickle.pgt_stream_tables")
        hw.connection.execute("SET statement_timeout = '100ms'")
        with pytest.raises(LockTimeout, match="canceled, by statement_timeout"):
            hw.refresh_stream_table("cut")
        hw.connection.execute("RESET statement_timeout")
    conn.execute("SELECT pg_terminate_backend(%s)", [hw.connection.info.backend_pid])
    with pytest.raises(ServerUnreachable, match="refresh of cut failed"):
        hw.refresh_stream_table("cut")


def test_a_dropped_source_is_in_the_history(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", FRAGILE, refresh_mode="DIFFERENTIAL")
    conn.execute("DROP TABLE t CASCADE")
    for status in ("ERROR", "ERROR", "SUSPENDED"):
        with pytest.raises(SourceDropped):
            hw.refresh_stream_table("st")
        assert _catalog(conn, "status") == (status,)
        latest = hw.refresh_history("st")[0]
        assert (latest.status, latest.error_class, latest.error_code) == (
            "FAILED", "schema", "HW-201",
        )  # fmt: skip


def test_number_of_failures_is_a_setting(hw: headwater.Headwater, conn: Connection) -> None:
    hw._conn.execute("SET pg_trickle.max_consecutive_errors = 1")
    hw.create_stream_table("st", FRAGILE, refresh_mode="DIFFERENTIAL")
    conn.execute("UPDATE t SET x = 0 WHERE id = 1")
    with pytest.raises(QueryFailed):
        hw.refresh_stream_table("st")
    assert _catalog(conn, "status") == ("SUSPENDED",)


def test_failure_below_leaves_all_where_they_were(
    hw: headwater.Headwater, conn: Connection
) -> None:
    hw.create_stream_table("good", ROWS, refresh_mode="DIFFERENTIAL")
    hw.create_stream_table("bad", FRAGILE, refresh_mode="DIFFERENTIAL")
    top = "SELECT g.id, b.share FROM good g JOIN bad b USING (id)"
    hw.create_stream_table("st", top, refresh_mode="DIFFERENTIAL")
    conn.execute("UPDATE t SET x = 0 WHERE id = 1")
    with pytest.raises(QueryFailed) as failed:
        hw.refresh_stream_table("st")
    assert failed.value.what == "refresh of public.bad failed: division by zero"
    rows = conn.execute(
        "SELECT pgt_name, status, consecutive_errors FROM pgtrickle.pgt_stream_tables ORDER BY 1"
    ).fetchall()
    assert rows == [("bad", "ERROR", 1), ("good", "ACTIVE", 0), ("st", "ACTIVE", 0)]
    for name in ("bad", "st"):  # the one at fault, and the one that was asked for
        latest = hw.refresh_history(name)[0]
        assert (latest.status, latest.error_code) == ("FAILED", "HW-111")
    assert hw.refresh_stream_table("good").action == "DIFFERENTIAL"
    conn.execute("UPDATE t SET x = 2 WHERE id = 1")
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert find_difference(conn, top, "st") is None


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [GROUPED, "SELECT g, x FROM t"])
def test_damage_is_found_by_verify_and_by_refresh(
    hw: headwater.Headwater, conn: Connection, query: str
) -> None:
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    conn.execute("SET pg_trickle.refreshing = 'on'; DELETE FROM st WHERE g = 1; RESET ALL")
    found = hw.verify("st")
    gone = 1 if query == GROUPED else 10
    assert (found.equal, found.missing, found.extra) == (False, gone, 0)
    conn.execute("UPDATE t SET x = -1 WHERE g = 1")
    with pytest.raises(StreamTableDamaged):
        hw.refresh_stream_table("st")
    assert hw.refresh_history("st")[0].error_class == "schema"
    hw.alter_stream_table("st", query=query)
    assert find_difference(conn, query, "st") is None
    verified = hw.verify("st")
    assert (verified.equal, verified.missing, verified.extra) == (True, 0, 0)


def test_verify_covers_what_waits_and_moves_nothing(
    hw: headwater.Headwater, conn: Connection
) -> None:
    hw.create_stream_table("st", GROUPED, refresh_mode="DIFFERENTIAL")
    conn.execute("UPDATE t SET x = x + 1; DELETE FROM t WHERE g = 2")
    before, places = _catalog(conn, "*"), places_of(conn, "st")
    pending = conn.execute("SELECT pending_rows FROM pgtrickle.change_buffer_sizes()").fetchall()
    verified = hw.verify("st")
    assert (verified.name, verified.equal, verified.rows) == ("public.st", True, 2)
    assert (_catalog(conn, "*"), places_of(conn, "st")) == (before, places)
    assert (
        pending
        == conn.execute("SELECT pending_rows FROM pgtrickle.change_buffer_sizes()").fetchall()
    )
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"


# --- settings -----------------------------------------------------------------------------------


def test_refresh_runs_under_the_settings_of_create(
    hw: headwater.Headwater, conn: Connection, database: str
) -> None:
    conn.execute(
        "CREATE TABLE z (id int PRIMARY KEY, at timestamptz, i interval, f float8);"
        "INSERT INTO z VALUES (1, '2024-07-01 22:30+00', '1 mon 2 days', 0.1::float8 + 0.2::float8)"
    )
    query = "SELECT id, at::date::text AS d, at::text AS a, i::text AS i, f::text AS f FROM z"
    hw._conn.execute(
        "SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'; SET IntervalStyle = 'sql_standard'"
    )
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    with headwater.connect(database) as other:
        other._conn.execute("SET TimeZone = 'America/New_York'; SET DateStyle = 'SQL, MDY'")
        conn.execute("INSERT INTO z SELECT 2, at, i, f FROM z; UPDATE z SET f = f WHERE id = 1")
        assert other.refresh_stream_table("st").action == "DIFFERENTIAL"
        assert other.verify("st").equal
    rows = conn.execute("SELECT DISTINCT d, a, i, f FROM st").fetchall()
    assert rows == [
        ("02.07.2024", "02.07.2024 07:30:00 JST", "+0-1 +2 +0:00:00", "0.30000000000000004")
    ]


@pytest.mark.parametrize(
    "setting",
    [
        "default_transaction_isolation = 'serializable'",
        "default_transaction_isolation = 'repeatable read'",
        "IntervalStyle = 'iso_8601'",
        "DateStyle = 'German'",
        "bytea_output = 'escape'",
        "search_path = ''",
        "enable_hashjoin = off",
        "jit = on",
        "session_replication_role = 'replica'",
        "check_function_bodies = off",
        "extra_float_digits = 0",
        "work_mem = '64kB'",
    ],
)
def test_settings_of_the_database_change_nothing(
    conn: Connection, database: str, setting: str
) -> None:
    conn.execute(SETUP)
    name = conninfo_to_dict(database)["dbname"]
    conn.execute(f"ALTER DATABASE {name} SET {setting}".encode())
    query = "SELECT g, sum(x) AS total, max(s) AS s, avg(x::float8) AS f FROM public.t GROUP BY g"
    with headwater.connect(database) as hw, psycopg.connect(database, autocommit=True) as writer:
        hw.create_stream_table("public.st", query, schedule="5m", refresh_mode="DIFFERENTIAL")
        writer.execute("UPDATE public.t SET x = x + 1, g = NULL WHERE id % 2 = 0")
        assert hw.refresh_stream_table("public.st").action == "DIFFERENTIAL"
        writer.execute("DELETE FROM public.t WHERE id < 10; INSERT INTO public.t VALUES (99, 9, 9)")
        assert hw.refresh_stream_table("public.st").action == "DIFFERENTIAL"
        assert hw.refresh_stream_table("public.st").action == "NO_DATA"
        assert hw.verify("public.st").equal
        assert [s.name for s in hw.pgt_status()] == ["public.st"]
        assert len(hw.refresh_history("public.st")) == 4
        assert hw.explain_st("public.st").mode == "DIFFERENTIAL"
    assert find_difference(conn, query, "st") is None


# --- size ---------------------------------------------------------------------------------------


def test_change_of_many_rows(hw: headwater.Headwater, conn: Connection) -> None:
    queries = {
        "groups": "SELECT g, count(*) AS n, sum(x) AS s, min(s) AS m FROM t GROUP BY g",
        "rows_st": "SELECT t.id, t.x, u.g AS other FROM t LEFT JOIN u ON u.id = t.g",
        "bag": "SELECT x % 10 AS d, s FROM t",
    }
    conn.execute(
        "INSERT INTO t SELECT n, n % 500, n, 's' || n % 7 FROM generate_series(31, 8000) n"
    )
    for name, query in queries.items():
        hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")
    conn.execute(
        "UPDATE t SET x = x + 1, g = g + 1 WHERE id % 2 = 0; DELETE FROM t WHERE id % 5 = 0;"
        "INSERT INTO t SELECT -n, n % 300, n, NULL FROM generate_series(1, 3000) n; DELETE FROM u"
    )
    for name, query in queries.items():
        assert hw.refresh_stream_table(name).action == "DIFFERENTIAL"
        assert find_difference(conn, query, name) is None


def test_what_came_and_went_multiplies_no_join(hw: headwater.Headwater, conn: Connection) -> None:
    """Few rows that change all the time: of three tables each change would meet all the others."""
    conn.execute(
        "CREATE TABLE a (id int PRIMARY KEY, n int); CREATE TABLE b (LIKE a INCLUDING ALL);"
        "INSERT INTO a SELECT n, n FROM generate_series(1, 9) n; INSERT INTO b TABLE a; ANALYZE"
    )
    query = "SELECT a.id, a.n AS a, b.n AS b FROM a JOIN b ON b.id % 3 = a.id % 3"
    hw.create_stream_table("pairs", query, refresh_mode="DIFFERENTIAL", engine="postgres")
    for _ in range(300):
        conn.execute("UPDATE a SET n = n + 1; UPDATE b SET n = b.n + a.n FROM a WHERE a.id = b.id")
    conn.execute("DELETE FROM a WHERE id = 4; INSERT INTO b VALUES (10, 10)")
    found = hw.refresh_stream_table("pairs")
    assert (found.action, found.delta_rows) == ("DIFFERENTIAL", 17 + 19)
    assert find_difference(conn, query, "pairs") is None


LONG = "(SELECT string_agg(md5(n || '/' || i), '') FROM generate_series(1, 400) i)"


def test_table_that_is_small_beside_the_change_is_read_as_a_whole(
    hw: headwater.Headwater, conn: Connection
) -> None:
    queries = {
        "groups": "SELECT g, s, sum(x) AS total, max(x) AS most FROM t GROUP BY g, s",
        "hidden": "SELECT id % 7 AS k, count(*) AS n FROM t GROUP BY id % 7 HAVING count(*) > 20",
        "keyed": ROWS,
        "bag": "SELECT g, x FROM t",
    }
    for name, query in queries.items():
        hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL", engine="postgres")
    for change in (
        "INSERT INTO t SELECT n, n % 5, n, CASE WHEN n % 4 > 0 THEN 's' || n % 9 END"
        " FROM generate_series(100, 400) AS n",
        "UPDATE t SET g = nullif(g, 2), s = nullif(s, 's3'), x = x + 1; DELETE FROM t WHERE g = 4",
        "DELETE FROM t WHERE id % 3 = 0; UPDATE t SET g = coalesce(g, 1) WHERE id % 2 = 0",
    ):
        conn.execute(change.encode())
        assert "Seq Scan on keyed" in explain(conn, "keyed", "COSTS OFF")
        for name, query in queries.items():
            assert hw.refresh_stream_table(name).action == "DIFFERENTIAL"
            assert find_difference(conn, query, name) is None, (name, change)
    conn.execute("UPDATE t SET x = 0 WHERE id = 101")
    assert "Seq Scan on keyed" not in explain(conn, "keyed", "COSTS OFF")


@pytest.mark.parametrize("is_long_at_first", [True, False])
def test_key_too_long_for_an_index(
    hw: headwater.Headwater, conn: Connection, is_long_at_first: bool
) -> None:
    """A unique index takes no value that is longer than a third of a page: a hash does."""
    body = LONG if is_long_at_first else "'short ' || n"
    conn.execute("CREATE TABLE long (id int, body text)")
    conn.execute(f"INSERT INTO long SELECT n, {body} FROM generate_series(1, 3) n")
    queries = {
        "unique_bodies": "SELECT DISTINCT body FROM long",
        "counted": "SELECT id % 2 AS odd, body, count(*) AS n FROM long GROUP BY 1, 2",
        "plain": "SELECT body FROM long",
        "inside": "SELECT max(n) AS most FROM (SELECT count(*) AS n FROM long GROUP BY body) AS q",
    }
    for name, query in queries.items():
        hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")
    for change in (
        f"INSERT INTO long SELECT n, {LONG} FROM generate_series(1, 5) n",
        "INSERT INTO long SELECT id, body || 'x' FROM long; DELETE FROM long WHERE id = 1",
        "INSERT INTO long SELECT * FROM long; UPDATE long SET body = NULL WHERE id = 2",
    ):
        conn.execute(change)
        for name, query in queries.items():
            assert hw.refresh_stream_table(name).action == "DIFFERENTIAL"
            assert find_difference(conn, query, name) is None
    counted = "SELECT body, count(*) AS n FROM long GROUP BY body"
    hw.alter_stream_table("counted", query=counted)
    assert find_difference(conn, counted, "counted") is None
    with pytest.raises(UnsupportedQuery, match="IMMEDIATE"):
        hw.alter_stream_table("counted", refresh_mode="IMMEDIATE")
    with pytest.raises(UnsupportedQuery, match="unique index"):
        hw.create_stream_table("now", queries["unique_bodies"], refresh_mode="IMMEDIATE")
    assert find_difference(conn, counted, "counted") is None
