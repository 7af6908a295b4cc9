"""Capture: which triggers and buffers stand where, what a statement writes, when it all goes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

import headwater
from tests.battery.oracle import find_difference

Connection = psycopg.Connection[Any]
EVENTS = ("insert", "update", "delete", "truncate")


@pytest.fixture
def hw(database: str, conn: Connection) -> Iterator[headwater.Headwater]:
    conn.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a int, b text, c numeric);"
        "INSERT INTO t VALUES (1, 1, 'x', 1.0), (2, 2, 'y', 2.0)"
    )
    with headwater.connect(database) as connected:
        yield connected


def _oid(conn: Connection, relation: str) -> int:
    [(oid,)] = conn.execute("SELECT %s::regclass::oid", [relation]).fetchall()
    return int(oid)


def _buffer(conn: Connection, relation: str) -> str:
    return f"pgtrickle_changes.changes_{_oid(conn, relation)}"


def _buffer_columns(conn: Connection, relation: str) -> list[tuple[str, str]]:
    return conn.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [_buffer(conn, relation)],
    ).fetchall()


def _captured(conn: Connection, relation: str) -> list[Any]:
    """Return the rows of a buffer without the transaction, in a fixed order."""
    buffer = _buffer(conn, relation)
    rows = conn.execute(f"SELECT to_jsonb(c) - '__xid' FROM {buffer} AS c".encode()).fetchall()
    return _ordered(row for (row,) in rows)


def _ordered(rows: Iterable[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def _triggers(conn: Connection, relation: str) -> list[tuple[str, str]]:
    return conn.execute(
        "SELECT tgname, tgenabled::text FROM pg_trigger WHERE tgrelid = %s::regclass"
        " AND NOT tgisinternal ORDER BY 1",
        [relation],
    ).fetchall()


def _traces(conn: Connection) -> list[Any]:
    """Return everything in our schemas that stands for a source."""
    return conn.execute(
        "SELECT 'table', relname FROM pg_class"
        " WHERE relnamespace = 'pgtrickle_changes'::regnamespace"
        " UNION ALL SELECT 'function', proname FROM pg_proc"
        " WHERE pronamespace = 'pgtrickle_changes'::regnamespace"
        " UNION ALL SELECT 'trigger', tgname FROM pg_trigger WHERE tgname LIKE 'pg_trickle%'"
        " UNION ALL SELECT 'tracking', source_name FROM pgtrickle.pgt_change_tracking ORDER BY 1, 2"
    ).fetchall()


# --- what stands where --------------------------------------------------------------------------


def test_names_carry_the_oid_of_the_source(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", "SELECT id FROM t")
    oid = _oid(conn, "t")
    assert _triggers(conn, "t") == sorted((f"pg_trickle_cdc_{oid}_{e}", "A") for e in EVENTS)
    assert _traces(conn) == [
        *(("function", f"capture_{oid}_{event}") for event in sorted(EVENTS)),
        ("table", f"changes_{oid}"),
        ("tracking", "public.t"),
        *(("trigger", f"pg_trickle_cdc_{oid}_{event}") for event in sorted(EVENTS)),
    ]
    [tracking] = conn.execute(
        "SELECT source_relid, trigger_name, function_name, buffer_name, columns, all_columns"
        " FROM pgtrickle.pgt_change_tracking"
    ).fetchall()
    assert tracking == (
        oid,
        f"pg_trickle_cdc_{oid}",
        f"pgtrickle_changes.capture_{oid}",
        f"pgtrickle_changes.changes_{oid}",
        ["id"],
        False,
    )


def test_buffer_is_logged_and_holds_only_the_columns_used(
    hw: headwater.Headwater, conn: Connection
) -> None:
    hw.create_stream_table("st", "SELECT b FROM t WHERE c > 1")
    fixed = [("__xid", "xid8"), ("__weight", "integer")]
    assert _buffer_columns(conn, "t") == [*fixed, ("b", "text"), ("c", "numeric")]
    [(persistence,)] = conn.execute(
        "SELECT relpersistence::text FROM pg_class WHERE oid = %s::regclass", [_buffer(conn, "t")]
    ).fetchall()
    assert persistence == "p"


def test_columns_grow_and_shrink_with_the_stream_tables(
    hw: headwater.Headwater, conn: Connection
) -> None:
    fixed = [("__xid", "xid8"), ("__weight", "integer")]
    queries = {
        "first": "SELECT a FROM t",
        "second": "SELECT a, b FROM t",
        "third": "SELECT * FROM t",
    }
    hw.create_stream_table("first", queries["first"], refresh_mode="DIFFERENTIAL")
    assert _buffer_columns(conn, "t") == [*fixed, ("a", "integer")]
    conn.execute("UPDATE t SET a = 5 WHERE id = 1")  # stands in the buffer while it grows
    hw.create_stream_table("second", queries["second"], refresh_mode="DIFFERENTIAL")
    assert _buffer_columns(conn, "t") == [*fixed, ("a", "integer"), ("b", "text")]
    conn.execute("UPDATE t SET b = 'z'")
    hw.create_stream_table("third", queries["third"], refresh_mode="DIFFERENTIAL")
    assert {name for name, _ in _buffer_columns(conn, "t")} == {
        "__xid", "__weight", "id", "a", "b", "c",
    }  # fmt: skip
    conn.execute("INSERT INTO t VALUES (3, 3, 'w', 3); DELETE FROM t WHERE id = 2")
    hw.drop_stream_table("third")
    assert _buffer_columns(conn, "t") == [*fixed, ("a", "integer"), ("b", "text")]
    conn.execute("INSERT INTO t VALUES (4, 4, 'v', 4)")
    for name in ("first", "second"):
        assert hw.refresh_stream_table(name).action == "DIFFERENTIAL"
        assert find_difference(conn, queries[name], name) is None
    hw.drop_stream_table("second")
    assert _buffer_columns(conn, "t") == [*fixed, ("a", "integer")]
    hw.drop_stream_table("first")
    assert _traces(conn) == []
    assert _triggers(conn, "t") == []


def test_count_of_rows_captures_no_column(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", "SELECT count(*) AS n FROM t", refresh_mode="DIFFERENTIAL")
    assert _buffer_columns(conn, "t") == [("__xid", "xid8"), ("__weight", "integer")]
    conn.execute("UPDATE t SET a = a + 1, b = 'new'")
    assert _captured(conn, "t") == []
    conn.execute("INSERT INTO t VALUES (3), (4); DELETE FROM t WHERE id = 1; TRUNCATE t")
    assert _captured(conn, "t") == [{"__weight": -1}] * 4 + [{"__weight": 1}] * 2
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert conn.execute("SELECT n FROM st").fetchall() == [(0,)]


def test_one_capture_serves_all_stream_tables(hw: headwater.Headwater, conn: Connection) -> None:
    for number in range(3):
        hw.create_stream_table(f"st{number}", "SELECT id, a FROM t")
    assert len(_triggers(conn, "t")) == len(EVENTS)
    [(readers,)] = conn.execute(
        "SELECT cardinality(tracked_by_pgt_ids) FROM pgtrickle.pgt_change_tracking"
    ).fetchall()
    assert readers == 3


# --- what a statement writes --------------------------------------------------------------------


def _row(weight: int, a: int | None, b: str | None) -> dict[str, Any]:
    return {"__weight": weight, "a": a, "b": b}


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("INSERT INTO t VALUES (3, 3, 'z', 0), (4, NULL, NULL, 0)", [(1, 3, "z"), (1, None, None)]),
        ("DELETE FROM t WHERE id = 1", [(-1, 1, "x")]),
        ("UPDATE t SET a = 9 WHERE id = 1", [(-1, 1, "x"), (1, 9, "x")]),
        ("UPDATE t SET b = NULL WHERE id = 1", [(-1, 1, "x"), (1, 1, None)]),
        ("UPDATE t SET c = c + 1", []),
        ("UPDATE t SET id = id + 10", []),
        ("UPDATE t SET a = a, b = b || ''", []),
        ("UPDATE t SET a = 3 - a, b = CASE b WHEN 'x' THEN 'y' ELSE 'x' END", []),
        ("UPDATE t SET a = 1, b = 'x'", [(-1, 2, "y"), (1, 1, "x")]),
        ("TRUNCATE t", [(-1, 1, "x"), (-1, 2, "y")]),
        ("INSERT INTO t VALUES (1, 5, 'q', 0) ON CONFLICT DO NOTHING", []),
        (
            "INSERT INTO t VALUES (1, 5, 'q', 0), (3, 3, 'z', 0)"
            " ON CONFLICT (id) DO UPDATE SET a = excluded.a",
            [(-1, 1, "x"), (1, 5, "x"), (1, 3, "z")],
        ),
        ("DELETE FROM t WHERE false", []),
        ("UPDATE t SET a = 7 WHERE false", []),
    ],
)
def test_buffer_rows_of_a_statement(
    hw: headwater.Headwater, conn: Connection, statement: str, rows: list[tuple[Any, ...]]
) -> None:
    query = "SELECT a, b FROM t"
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    conn.execute(statement.encode())
    assert _captured(conn, "t") == _ordered(_row(*row) for row in rows)
    action = hw.refresh_stream_table("st").action
    assert action == ("DIFFERENTIAL" if rows else "NO_DATA")
    assert find_difference(conn, query, "st") is None
    assert _captured(conn, "t") == []


def test_buffer_row_carries_the_transaction(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", "SELECT a FROM t")
    with conn.transaction():
        [(writer,)] = conn.execute("SELECT pg_current_xact_id()::text").fetchall()
        conn.execute("INSERT INTO t VALUES (3, 3)")
        with conn.transaction():  # a subtransaction has an id of its own
            conn.execute("INSERT INTO t VALUES (4, 4)")
    rows = conn.execute(
        f"SELECT DISTINCT __xid::text FROM {_buffer(conn, 't')}".encode()
    ).fetchall()
    assert rows == [(writer,)]


def test_rollback_leaves_no_buffer_row(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", "SELECT a FROM t")
    with conn.transaction(force_rollback=True):
        conn.execute("INSERT INTO t VALUES (3, 3); TRUNCATE t")
    with conn.transaction():
        conn.execute("INSERT INTO t VALUES (4, 4)")
        with conn.transaction(force_rollback=True):
            conn.execute("DELETE FROM t")
    assert _captured(conn, "t") == [{"__weight": 1, "a": 4}]


def test_truncate_under_an_older_snapshot_asks_for_a_rebuild(
    hw: headwater.Headwater, conn: Connection, database: str
) -> None:
    """Rows committed after the snapshot are removed too, and the transaction cannot see them."""
    query = "SELECT a FROM t"
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    with psycopg.connect(database) as other:
        other.isolation_level = IsolationLevel.REPEATABLE_READ
        other.execute("SELECT count(*) FROM pg_class")
        conn.execute("INSERT INTO t VALUES (3, 3)")
        other.execute("TRUNCATE t")
        other.execute("INSERT INTO t VALUES (4, 4)")
    result = hw.refresh_stream_table("st")
    assert (result.action, result.reason) == (
        "REINITIALIZE",
        "a source was truncated under an older snapshot",
    )
    assert find_difference(conn, query, "st") is None
    conn.execute("INSERT INTO t VALUES (5, 5)")
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert find_difference(conn, query, "st") is None


def test_truncate_of_several_tables_and_cascades(hw: headwater.Headwater, conn: Connection) -> None:
    conn.execute(
        "CREATE TABLE child (id int PRIMARY KEY, t_id int REFERENCES t);"
        "INSERT INTO child VALUES (1, 1), (2, 2)"
    )
    query = "SELECT t.id, child.id AS other FROM t FULL JOIN child ON child.t_id = t.id"
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    conn.execute("TRUNCATE t RESTART IDENTITY CASCADE")
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert conn.execute("SELECT * FROM st").fetchall() == []


@pytest.mark.parametrize(
    "settings",
    [
        "extra_float_digits = -15",
        "DateStyle = 'German'",
        "DateStyle = 'SQL, DMY'; SET TimeZone = 'Asia/Kolkata'",
        "DateStyle = 'Postgres'; SET TimeZone = 'Asia/Kolkata'",
        "IntervalStyle = 'sql_standard'",
        "IntervalStyle = 'iso_8601'",
        "bytea_output = 'escape'",
        "standard_conforming_strings = off",
        "search_path = nowhere",
        "session_replication_role = replica",
        "lc_numeric = 'C'; SET work_mem = '64kB'",
    ],
)
def test_settings_of_the_writer_change_nothing(
    hw: headwater.Headwater, conn: Connection, database: str, settings: str
) -> None:
    conn.execute(
        "CREATE TABLE typed (id int, f float8, r real, p point, d date[], z timestamptz[],"
        " w tstzrange, i interval, n numeric, y bytea, j jsonb);"
        "INSERT INTO typed (id) VALUES (1), (2)"
    )
    query = "SELECT * FROM typed"
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    with psycopg.connect(database) as writer:
        writer.execute(f"SET {settings}".encode())
        writer.execute(
            "UPDATE public.typed SET f = 0.1 + 0.2::float8, r = 1.1234567::real,"
            " p = point(0.1::float8 + 0.2::float8, 1e-300), d = ARRAY[make_date(2024, 2, 1)],"
            " z = ARRAY[make_timestamptz(2024, 2, 1, 10, 30, 0.000001, 'UTC')],"
            " w = tstzrange(make_timestamptz(2024, 11, 3, 6, 30, 0, 'UTC'), NULL),"
            " i = make_interval(months => -1, days => 3, secs => -4.5), n = 1.50,"
            " y = decode('00ff5c', 'hex'), j = jsonb_build_object('a', 1.0) WHERE id = 1"
        )
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert find_difference(conn, query, "st") is None
    same = conn.execute("SELECT count(*) FROM st JOIN typed ON st::text = typed::text").fetchall()
    assert same == [(2,)]


@pytest.mark.parametrize(
    "name",
    [
        "100%",
        "it's",
        'say "so"',
        "$code$",
        "%s {} %%",
        "select",
        "Größe",
        "a\\b",
        "new_rows",
        "x" * 63,
    ],
)
def test_names_of_any_kind_are_captured(
    hw: headwater.Headwater, conn: Connection, name: str
) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    conn.execute(f"CREATE SCHEMA {quoted}; CREATE TABLE {quoted}.{quoted} ({quoted} int)".encode())
    query = f"SELECT {quoted} FROM {quoted}.{quoted}"
    hw.create_stream_table(f"{quoted}.st", query, refresh_mode="DIFFERENTIAL")
    for statement in (
        f"INSERT INTO {quoted}.{quoted} VALUES (1), (2), (2)",
        f"UPDATE {quoted}.{quoted} SET {quoted} = 3 WHERE {quoted} = 1",
        f"TRUNCATE {quoted}.{quoted}",
    ):
        conn.execute(statement.encode())
        assert hw.refresh_stream_table(f"{quoted}.st").action == "DIFFERENTIAL"
        assert find_difference(conn, query, f"{quoted}.st") is None


# --- who may write ------------------------------------------------------------------------------


def test_writer_needs_no_rights_on_our_schemas(hw: headwater.Headwater, conn: Connection) -> None:
    query = "SELECT id, a, c FROM t"
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    role = f"writer_{uuid.uuid4().hex[:8]}"
    conn.execute(
        f"CREATE ROLE {role}; GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON t TO {role}"
    )
    try:
        conn.execute(
            f"SET ROLE {role}; INSERT INTO t VALUES (3, 3, 'z', 1); UPDATE t SET a = 7, c = 0.5;"
            "DELETE FROM t WHERE id = 1; TRUNCATE t; INSERT INTO t VALUES (9, 9); RESET ROLE"
        )
        for schema in ("pgtrickle", "pgtrickle_changes", "pgtrickle_state"):
            rights = conn.execute("SELECT has_schema_privilege(%s, %s, 'USAGE')", [role, schema])
            assert rights.fetchall() == [(False,)]
        assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
        assert find_difference(conn, query, "st") is None
    finally:
        conn.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_writer_cannot_mislead_the_capture_by_objects_of_its_own(
    hw: headwater.Headwater, conn: Connection
) -> None:
    query = "SELECT id, c FROM t"
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    conn.execute(
        "CREATE TEMPORARY TABLE new_rows (id int, c numeric);"
        "CREATE SCHEMA trap; CREATE FUNCTION trap.pg_current_xact_id() RETURNS xid8"
        " LANGUAGE sql AS $$SELECT '3'::xid8$$;"
        "SET search_path = trap, pg_catalog, public;"
        "INSERT INTO t VALUES (3, 3, 'z', 1); UPDATE t SET c = 5; RESET search_path"
    )
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert find_difference(conn, query, "st") is None


# --- readers of one source ----------------------------------------------------------------------


def test_slow_and_fast_consumer_of_one_source(hw: headwater.Headwater, conn: Connection) -> None:
    fast, slow = "SELECT id, a FROM t", "SELECT b, count(*) AS n FROM t GROUP BY b"
    hw.create_stream_table("fast", fast, refresh_mode="DIFFERENTIAL")
    hw.create_stream_table("slow", slow, refresh_mode="DIFFERENTIAL")
    for number in range(3, 8):
        conn.execute("INSERT INTO t VALUES (%s, %s, 'x')", [number, number])
        assert hw.refresh_stream_table("fast").delta_rows == 1
        assert find_difference(conn, fast, "fast") is None
        assert len(_captured(conn, "t")) == number - 2  # the slow one still needs them
    caught_up = hw.refresh_stream_table("slow")
    assert (caught_up.action, caught_up.delta_rows) == ("DIFFERENTIAL", 5)
    assert find_difference(conn, slow, "slow") is None
    assert _captured(conn, "t") == []
    assert hw.refresh_stream_table("fast").action == "NO_DATA"


def test_reader_that_was_never_filled_keeps_the_buffer(
    hw: headwater.Headwater, conn: Connection
) -> None:
    hw.create_stream_table("ready", "SELECT id, a FROM t")
    hw.create_stream_table("later", "SELECT id, a FROM t", initialize=False)
    conn.execute("INSERT INTO t VALUES (3, 3)")
    hw.refresh_stream_table("ready")
    assert hw.refresh_stream_table("later").action == "REINITIALIZE"
    assert find_difference(conn, "SELECT id, a FROM t", "later") is None
    conn.execute("INSERT INTO t VALUES (4, 4)")
    for name in ("ready", "later"):
        hw.refresh_stream_table(name)
        assert find_difference(conn, "SELECT id, a FROM t", name) is None
    assert _captured(conn, "t") == []


def test_writer_that_commits_late_is_not_lost(
    hw: headwater.Headwater, conn: Connection, database: str
) -> None:
    query = "SELECT id, a FROM t"
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    with psycopg.connect(database) as late:
        late.execute("INSERT INTO t VALUES (3, 3)")
        conn.execute("INSERT INTO t VALUES (4, 4)")
        assert hw.refresh_stream_table("st").rows_inserted == 1
        assert find_difference(conn, query, "st") is None
        assert hw.refresh_stream_table("st").action == "NO_DATA"
    assert hw.refresh_stream_table("st").rows_inserted == 1
    assert find_difference(conn, query, "st") is None


# --- partitions and children --------------------------------------------------------------------

PARTITIONED = """
CREATE TABLE p (k int, v int) PARTITION BY RANGE (k);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20) PARTITION BY LIST (k);
CREATE TABLE p2a PARTITION OF p2 FOR VALUES IN (10, 11);
CREATE TABLE p2b PARTITION OF p2 DEFAULT;
INSERT INTO p VALUES (1, 1), (10, 10), (12, 12);
"""


def test_triggers_stand_on_every_partition(hw: headwater.Headwater, conn: Connection) -> None:
    conn.execute(PARTITIONED)
    hw.create_stream_table("st", "SELECT k, v FROM p")
    oid = _oid(conn, "p")
    expected = sorted((f"pg_trickle_cdc_{oid}_{event}", "A") for event in EVENTS)
    for relation in ("p", "p1", "p2", "p2a", "p2b"):
        assert _triggers(conn, relation) == expected
    hw.drop_stream_table("st")
    assert _traces(conn) == []


@pytest.mark.parametrize("name", ["p", "p2", "p2a"])
def test_each_row_is_captured_once_whatever_the_statement_names(
    hw: headwater.Headwater, conn: Connection, name: str
) -> None:
    conn.execute(PARTITIONED)
    hw.create_stream_table("st", "SELECT k, v FROM p", refresh_mode="DIFFERENTIAL")
    for statement, count in (
        (f"INSERT INTO {name} VALUES (10, 1)", 1),
        (f"UPDATE {name} SET v = v + 1 WHERE k = 10", 4),
        (f"DELETE FROM {name} WHERE k = 10", 2),
        (f"INSERT INTO {name} VALUES (11, 5)", 1),
        (f"TRUNCATE {name}", {"p": 3, "p2": 2, "p2a": 1}[name]),
    ):
        conn.execute(statement.encode())
        assert len(_captured(conn, "p")) == count, statement
        assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
        assert find_difference(conn, "SELECT k, v FROM p", "st") is None


def test_row_that_moves_between_partitions(hw: headwater.Headwater, conn: Connection) -> None:
    conn.execute(PARTITIONED)
    hw.create_stream_table("st", "SELECT k, v FROM p", refresh_mode="DIFFERENTIAL")
    conn.execute("UPDATE p SET k = k + 10 WHERE k < 10; UPDATE p2 SET k = 12 WHERE k = 11")
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert find_difference(conn, "SELECT k, v FROM p", "st") is None


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE p DETACH PARTITION p1",
        "DROP TABLE p1",
        "ALTER TABLE p2 DETACH PARTITION p2a",
        "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (30);"
        " INSERT INTO p3 VALUES (20, 1)",
        "CREATE TABLE p3 (v int, k int); INSERT INTO p3 VALUES (1, 20);"
        " ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30)",
    ],
)
def test_partitions_that_come_and_go_are_noticed(
    hw: headwater.Headwater, conn: Connection, change: str
) -> None:
    conn.execute(PARTITIONED)
    hw.create_stream_table("st", "SELECT k, v FROM p", refresh_mode="DIFFERENTIAL")
    conn.execute(change.encode())
    result = hw.refresh_stream_table("st")
    assert (result.action, result.reason) == (
        "REINITIALIZE",
        "public.p has other partitions or children than before",
    )
    assert find_difference(conn, "SELECT k, v FROM p", "st") is None
    conn.execute("INSERT INTO p2b VALUES (15, 1); UPDATE p SET v = v + 1")
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert find_difference(conn, "SELECT k, v FROM p", "st") is None


def test_detached_partition_is_left_in_peace(hw: headwater.Headwater, conn: Connection) -> None:
    conn.execute(PARTITIONED)
    hw.create_stream_table("st", "SELECT k, v FROM p", refresh_mode="DIFFERENTIAL")
    conn.execute("ALTER TABLE p DETACH PARTITION p1")
    hw.refresh_stream_table("st")
    assert _triggers(conn, "p1") == []
    conn.execute("INSERT INTO p1 VALUES (5, 5)")
    assert hw.refresh_stream_table("st").action == "NO_DATA"
    assert find_difference(conn, "SELECT k, v FROM p", "st") is None


def test_inherited_tables(hw: headwater.Headwater, conn: Connection) -> None:
    conn.execute(
        "CREATE TABLE top (k int); CREATE TABLE mid (m int) INHERITS (top);"
        "CREATE TABLE low (n int) INHERITS (mid);"
        "INSERT INTO top VALUES (1); INSERT INTO mid VALUES (2, 2);"
        "INSERT INTO low VALUES (3, 3, 3)"
    )
    query = "SELECT k FROM top"
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    for statement in (
        "INSERT INTO low VALUES (4, 4, 4)",
        "UPDATE top SET k = k + 1",
        "UPDATE mid SET m = 0",
        "UPDATE ONLY top SET k = 100",
        "DELETE FROM mid WHERE k > 3",
        "TRUNCATE ONLY top",
        "TRUNCATE top",
    ):
        conn.execute(statement.encode())
        assert hw.refresh_stream_table("st").action in ("DIFFERENTIAL", "NO_DATA")
        assert find_difference(conn, query, "st") is None


# --- what others do to our triggers -------------------------------------------------------------


@pytest.mark.parametrize(
    "harm",
    [
        "ALTER TABLE t DISABLE TRIGGER ALL",
        "ALTER TABLE t DISABLE TRIGGER USER",
        "ALTER TABLE t DISABLE TRIGGER USER; INSERT INTO t VALUES (8, 8);"
        " ALTER TABLE t ENABLE TRIGGER USER",
        "ALTER TABLE t DISABLE TRIGGER ALL; INSERT INTO t VALUES (8, 8);"
        " ALTER TABLE t ENABLE TRIGGER ALL",
        "DO $$BEGIN EXECUTE format("
        "'DROP TRIGGER pg_trickle_cdc_%s_insert ON t', 't'::regclass::oid); END$$",
    ],
)
def test_capture_that_was_harmed_is_repaired_and_the_table_rebuilt(
    hw: headwater.Headwater, conn: Connection, harm: str
) -> None:
    query = "SELECT id, a FROM t"
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    conn.execute(harm.encode())
    conn.execute("INSERT INTO t VALUES (9, 9)")
    result = hw.refresh_stream_table("st")
    assert (result.action, result.reason) == (
        "REINITIALIZE",
        "triggers on public.t or its partitions were missing or disabled",
    )
    assert find_difference(conn, query, "st") is None
    conn.execute("INSERT INTO t VALUES (10, 10)")
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert find_difference(conn, query, "st") is None


def test_uninstall_removes_all_and_leaves_the_tables(
    hw: headwater.Headwater, conn: Connection
) -> None:
    hw.create_stream_table("st", "SELECT a, count(*) AS n FROM t GROUP BY a")
    hw.uninstall()
    ours = conn.execute(
        "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'pgtrickle%'"
        " UNION ALL SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
        " UNION ALL SELECT proname FROM pg_proc WHERE proname LIKE 'capture%'"
    ).fetchall()
    assert ours == []
    conn.execute("INSERT INTO t VALUES (3, 3); INSERT INTO st VALUES (7, 7)")
    assert conn.execute("SELECT count(*) FROM st").fetchall() == [(3,)]


GAPS = [
    "ALTER TABLE gappy DISABLE TRIGGER USER",
    "DO $$ DECLARE name text; BEGIN FOR name IN SELECT tgname FROM pg_trigger"
    " WHERE tgrelid = 'gappy'::regclass LOOP EXECUTE format('DROP TRIGGER %I ON gappy', name);"
    " END LOOP; END $$",
]


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("by", ["create", "alter", "drop"])
def test_who_puts_triggers_back_has_all_readers_rebuilt(
    hw: headwater.Headwater, conn: Connection, gap: str, by: str
) -> None:
    """Else a reader would find the triggers in place, and never know what it missed."""
    query, other = "SELECT k, sum(v) AS v FROM gappy GROUP BY k", "SELECT k FROM gappy"
    conn.execute("CREATE TABLE gappy (k int, v int); INSERT INTO gappy VALUES (1, 1), (2, 2)")
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    if by != "create":
        hw.create_stream_table("other", other, refresh_mode="DIFFERENTIAL")
    conn.execute(gap.encode())
    conn.execute("INSERT INTO gappy VALUES (1, 10), (3, 30)")
    match by:
        case "create":
            hw.create_stream_table("other", other, refresh_mode="DIFFERENTIAL")
        case "alter":
            hw.alter_stream_table("other", query="SELECT k, v FROM gappy")
        case "drop":
            hw.drop_stream_table("other")
    result = hw.refresh_stream_table("st")
    assert (result.action, result.reason) == (
        "REINITIALIZE",
        "triggers on public.gappy or its partitions were missing or disabled",
    )
    assert find_difference(conn, query, "st") is None
    conn.execute("INSERT INTO gappy VALUES (1, 10)")
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert find_difference(conn, query, "st") is None


def test_partition_that_a_new_table_notices_is_noticed_by_all(
    hw: headwater.Headwater, conn: Connection
) -> None:
    conn.execute(PARTITIONED)
    hw.create_stream_table("st", "SELECT k, v FROM p", refresh_mode="DIFFERENTIAL")
    conn.execute("CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (30)")
    conn.execute("INSERT INTO p3 VALUES (20, 1)")
    hw.create_stream_table("other", "SELECT k FROM p", refresh_mode="DIFFERENTIAL")
    result = hw.refresh_stream_table("st")
    assert (result.action, result.reason) == (
        "REINITIALIZE",
        "public.p has other partitions or children than before",
    )
    assert find_difference(conn, "SELECT k, v FROM p", "st") is None
