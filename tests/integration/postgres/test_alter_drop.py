"""Alter and drop, and what is done to stream tables and sources behind our back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg

import headwater
from headwater.errors import (
    DependencyCycle,
    DependentsExist,
    InvalidArgument,
    NotFound,
    SourceAltered,
    SourceDropped,
    UnsupportedQuery,
)
from tests.battery.oracle import columns_of, find_difference

Connection = psycopg.Connection[Any]

SETUP = """
CREATE TABLE t (id int PRIMARY KEY, g int, x int, s text);
CREATE TABLE u (id int PRIMARY KEY, g int);
INSERT INTO t VALUES (1, 1, 1, 'a'), (2, 1, 2, 'b'), (3, 2, 3, 'c');
INSERT INTO u VALUES (1, 1), (2, 2);
"""
GROUPED = "SELECT g, sum(x) AS total FROM t GROUP BY g"
REBUILT = ("REINITIALIZE", "column x of public.t was altered")


@pytest.fixture
def hw(database: str, conn: Connection) -> Iterator[headwater.Headwater]:
    conn.execute(SETUP)
    with headwater.connect(database) as connected:
        yield connected


def _follow(hw: headwater.Headwater, conn: Connection, query: str, name: str = "st") -> None:
    """Prove that a stream table follows its query incrementally from here on."""
    assert find_difference(conn, query, name) is None
    conn.execute("INSERT INTO t (id, g, x) VALUES (50, 1, 50); DELETE FROM t WHERE id = 1")
    assert hw.refresh_stream_table(name).action == "DIFFERENTIAL"
    assert find_difference(conn, query, name) is None
    conn.execute("DELETE FROM t WHERE id = 50; INSERT INTO t (id, g, x) VALUES (1, 1, 1)")
    assert hw.refresh_stream_table(name).action == "DIFFERENTIAL"
    assert find_difference(conn, query, name) is None


def _row(conn: Connection, columns: str, name: str = "st") -> tuple[Any, ...]:
    [row] = conn.execute(
        f"SELECT {columns} FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s".encode(), [name]
    ).fetchall()
    return tuple(row)


def _traces(conn: Connection) -> list[Any]:
    """Return whatever of a stream table is left in the database."""
    return conn.execute(
        "SELECT relname FROM pg_class WHERE relnamespace IN"
        " ('pgtrickle_changes'::regnamespace, 'pgtrickle_state'::regnamespace) AND relkind = 'r'"
        " UNION ALL SELECT proname FROM pg_proc"
        " WHERE pronamespace = 'pgtrickle_changes'::regnamespace"
        " UNION ALL SELECT tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        " WHERE NOT tgisinternal AND relnamespace <> 'pgtrickle'::regnamespace"
        " UNION ALL SELECT pgt_name FROM pgtrickle.pgt_stream_tables"
        " UNION ALL SELECT source_name FROM pgtrickle.pgt_dependencies"
        " UNION ALL SELECT source_name FROM pgtrickle.pgt_change_tracking"
        " UNION ALL SELECT action FROM pgtrickle.pgt_refresh_history ORDER BY 1"
    ).fetchall()


# --- alter --------------------------------------------------------------------------------------


def test_mode_changes_back_and_forth(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", GROUPED, refresh_mode="DIFFERENTIAL")
    hw.alter_stream_table("st", refresh_mode="FULL")
    assert _row(conn, "refresh_mode, effective_mode, key_columns") == ("FULL", "FULL", ["g"])
    assert conn.execute("SELECT * FROM pgtrickle.pgt_change_tracking").fetchall() == []
    conn.execute("INSERT INTO t VALUES (4, 2, 4, 'd')")
    assert hw.refresh_stream_table("st").action == "FULL"
    assert find_difference(conn, GROUPED, "st") is None
    conn.execute("UPDATE t SET x = 9 WHERE id = 4")  # nobody captures this
    hw.alter_stream_table("st", refresh_mode="DIFFERENTIAL")
    assert _row(conn, "refresh_mode, effective_mode, key_columns") == (
        "DIFFERENTIAL", "DIFFERENTIAL", ["g"],
    )  # fmt: skip
    _follow(hw, conn, GROUPED)
    hw.alter_stream_table("st", refresh_mode="AUTO")
    assert _row(conn, "refresh_mode, effective_mode") == ("AUTO", "DIFFERENTIAL")


def test_mode_that_the_query_does_not_allow_changes_nothing(
    hw: headwater.Headwater, conn: Connection
) -> None:
    query = "SELECT id, CURRENT_USER::text AS r FROM t"
    hw.create_stream_table("st", query, refresh_mode="FULL")
    before = _row(conn, "*")
    with pytest.raises(UnsupportedQuery):
        hw.alter_stream_table("st", refresh_mode="DIFFERENTIAL", schedule="1h")
    with pytest.raises(UnsupportedQuery):
        hw.alter_stream_table("st", refresh_mode="AUTO")
    assert _row(conn, "*") == before
    assert hw.refresh_stream_table("st").action == "FULL"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT g, sum(x) AS total, count(*) AS n FROM t GROUP BY g",
        "SELECT sum(x) AS total FROM t",
        "SELECT id, s FROM t",
        "SELECT s AS g, total::text AS total FROM (SELECT s, x AS total FROM t) AS q",
        "SELECT u.id, t.g, t.x AS total FROM t LEFT JOIN u ON u.g = t.g",
        "SELECT g FROM t UNION ALL SELECT g FROM u",
        "SELECT total, g FROM (SELECT g, max(x) AS total FROM t GROUP BY g) AS q",
    ],
)
def test_query_changes_to_other_columns(
    hw: headwater.Headwater, conn: Connection, query: str
) -> None:
    hw.create_stream_table("st", GROUPED, refresh_mode="DIFFERENTIAL")
    [(relid,)] = conn.execute("SELECT 'st'::regclass::oid").fetchall()
    conn.execute("INSERT INTO t VALUES (4, 2, 4, 'd')")
    hw.alter_stream_table("st", query=query)
    assert conn.execute("SELECT 'st'::regclass::oid").fetchall() == [(relid,)]
    assert _row(conn, "defining_query, status, is_populated, needs_reinit") == (
        query, "ACTIVE", True, False,
    )  # fmt: skip
    names = [name for name, _, _ in columns_of(conn, "st")]
    wanted = [d.name for d in conn.execute(query.encode()).description or ()]
    assert sorted(names) == sorted(wanted)
    shown = ", ".join(wanted)
    _follow(hw, conn, f"SELECT {', '.join(names)} FROM ({query}) AS q")
    assert conn.execute(f"SELECT {shown} FROM st LIMIT 0".encode()).fetchall() == []


def test_query_that_is_refused_changes_nothing(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", GROUPED, refresh_mode="DIFFERENTIAL")
    before = _row(conn, "*")
    with pytest.raises(UnsupportedQuery):
        hw.alter_stream_table("st", query="SELECT id FROM t LIMIT 1")
    with pytest.raises(pg.UndefinedColumn):
        hw.alter_stream_table("st", query="SELECT nothing FROM t")
    with pytest.raises(pg.DivisionByZero):
        hw.alter_stream_table("st", query="SELECT id / 0 AS x FROM t")
    assert _row(conn, "*") == before
    _follow(hw, conn, GROUPED)


def test_schedule_and_status(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", GROUPED)
    hw.alter_stream_table("st", schedule="5m")
    assert _row(conn, "schedule, target_lag") == ("5m", timedelta(minutes=5))
    hw.alter_stream_table("st", schedule=None)
    assert _row(conn, "schedule, target_lag") == (None, None)
    hw.alter_stream_table("st", status="suspended")
    assert _row(conn, "status, schedule") == ("SUSPENDED", None)
    with pytest.raises(InvalidArgument) as refused:
        hw.refresh_stream_table("st")
    assert (refused.value.why, refused.value.fix) == (
        "it was suspended by hand",
        "resume it: alter public.st to status ACTIVE",
    )
    conn.execute("INSERT INTO t VALUES (4, 2, 4, 'd')")
    hw.alter_stream_table("st", status="ACTIVE")
    assert hw.refresh_stream_table("st").action in ("DIFFERENTIAL", "FULL")
    assert find_difference(conn, GROUPED, "st") is None


@pytest.mark.parametrize(
    "arguments",
    [{"status": "ERROR"}, {"schedule": "1s"}, {"refresh_mode": "never"}, {"engine": "duck"}],
)
def test_bad_argument_changes_nothing(
    hw: headwater.Headwater, conn: Connection, arguments: dict[str, Any]
) -> None:
    hw.create_stream_table("st", GROUPED)
    before = _row(conn, "*")
    with pytest.raises(InvalidArgument):
        hw.alter_stream_table("st", **arguments)
    assert _row(conn, "*") == before


def test_cycle_is_refused_and_printed(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("a", "SELECT id, g FROM t")
    hw.create_stream_table("b", "SELECT id, g FROM a")
    hw.create_stream_table("c", "SELECT b.id, b.g FROM b JOIN u USING (id)")
    with pytest.raises(DependencyCycle) as refused:
        hw.alter_stream_table("a", query="SELECT id, g FROM c")
    assert (refused.value.code, refused.value.why) == (
        "HW-106",
        "a stream table cannot depend on its own content",
    )
    what, _, path = refused.value.what.partition(": ")
    assert what == "public.a would read itself"
    names = path.split(" → ")
    assert names[0] == names[-1]
    assert sorted(names[1:]) == ["public.a", "public.b", "public.c"]
    with pytest.raises(DependencyCycle) as refused:
        hw.alter_stream_table("a", query="SELECT id, g FROM a")
    assert refused.value.what == "public.a would read itself: public.a → public.a"
    _follow(hw, conn, "SELECT id, g FROM t", "a")


def test_altered_table_is_followed_by_its_readers(
    hw: headwater.Headwater, conn: Connection
) -> None:
    hw.create_stream_table("lower_st", "SELECT id, g, x FROM t", refresh_mode="DIFFERENTIAL")
    query = "SELECT g, sum(x) AS s FROM lower_st GROUP BY g"
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    hw.alter_stream_table("lower_st", query="SELECT id, g, x * 10 AS x FROM t WHERE id > 1")
    hw.refresh_stream_table("st")
    assert find_difference(conn, query, "st") is None
    _follow(hw, conn, query)


def test_column_that_others_read_cannot_be_altered_away(
    hw: headwater.Headwater, conn: Connection
) -> None:
    hw.create_stream_table("lower_st", "SELECT id, g, x FROM t", refresh_mode="DIFFERENTIAL")
    query = "SELECT g, sum(x) AS s FROM lower_st GROUP BY g"
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    before = _row(conn, "*", "lower_st")
    with pytest.raises(DependentsExist) as refused:
        hw.alter_stream_table("lower_st", query="SELECT id, g FROM t")
    assert (refused.value.what, refused.value.why, refused.value.fix) == (
        "public.lower_st cannot lose the column x: public.st would lose a source",
        "another stream table reads it as it is",
        "alter or drop that one first",
    )
    with pytest.raises(DependentsExist):
        hw.alter_stream_table("lower_st", query="SELECT id, g, x::text AS x FROM t")
    assert _row(conn, "*", "lower_st") == before
    _follow(hw, conn, query)


# --- drop ---------------------------------------------------------------------------------------


def test_drop_removes_every_trace(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", GROUPED)
    assert hw.drop_stream_table("st") == ("public.st",)
    assert _traces(conn) == []
    assert conn.execute("SELECT to_regclass('st')").fetchall() == [(None,)]
    conn.execute("INSERT INTO t VALUES (9, 9, 9, 'z')")


def test_drop_is_refused_while_others_read_it(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("a", "SELECT id, g FROM t")
    hw.create_stream_table("b", "SELECT id, g FROM a")
    hw.create_stream_table("c", "SELECT id FROM b")
    hw.create_stream_table("other", "SELECT id FROM u")
    with pytest.raises(DependentsExist) as refused:
        hw.drop_stream_table("a")
    assert (refused.value.what, refused.value.why, refused.value.fix) == (
        "public.a cannot be dropped: public.c, public.b would lose a source",
        "other stream tables read it",
        "drop those first, or drop with cascade => true",
    )
    assert len(hw.pgt_status()) == 4
    assert hw.drop_stream_table("a", cascade=True) == ("public.c", "public.b", "public.a")
    assert [s.name for s in hw.pgt_status()] == ["public.other"]
    hw.drop_stream_table("other")
    assert _traces(conn) == []


def test_drop_of_what_is_none(hw: headwater.Headwater, conn: Connection) -> None:
    for name in ("t", "nowhere"):
        with pytest.raises(NotFound):
            hw.drop_stream_table(name)
    assert conn.execute("SELECT count(*) FROM t").fetchall() == [(3,)]


def test_drop_that_the_server_refuses_changes_nothing(
    hw: headwater.Headwater, conn: Connection
) -> None:
    hw.create_stream_table("st", GROUPED, refresh_mode="DIFFERENTIAL")
    conn.execute("CREATE VIEW reader AS SELECT * FROM st")
    with pytest.raises(pg.DependentObjectsStillExist):
        hw.drop_stream_table("st")
    _follow(hw, conn, GROUPED)


# --- stream tables, by hand ---------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["pgt_status", "st_graph", "create", "refresh"])
def test_table_dropped_by_hand_is_noticed(
    hw: headwater.Headwater, conn: Connection, verb: str
) -> None:
    hw.create_stream_table("st", GROUPED)
    conn.execute("DROP TABLE st; INSERT INTO t VALUES (9, 9, 9, 'z')")
    match verb:
        case "pgt_status":
            assert hw.pgt_status() == ()
        case "st_graph":
            assert hw.st_graph() == ()
        case "refresh":
            with pytest.raises(NotFound):
                hw.refresh_stream_table("st")
        case "create":
            hw.create_stream_table("st", "SELECT id FROM u")
            hw.drop_stream_table("st")
    assert _traces(conn) == []


def test_table_dropped_by_hand_below_another(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("lower_st", "SELECT id, g FROM t")
    hw.create_stream_table("st", "SELECT g FROM lower_st")
    conn.execute("DROP TABLE lower_st")
    with pytest.raises(SourceDropped) as dropped:
        hw.refresh_stream_table("st")
    assert (dropped.value.what, dropped.value.why) == (
        "public.st reads public.lower_st, which no longer exists",
        "it was dropped",
    )
    assert _row(conn, "status") == ("ERROR",)
    hw.drop_stream_table("st")
    assert _traces(conn) == []


def test_table_renamed_or_moved_is_followed(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", GROUPED, refresh_mode="DIFFERENTIAL")
    conn.execute('CREATE SCHEMA elsewhere; ALTER TABLE st RENAME TO "New Name"')
    assert [s.name for s in hw.pgt_status()] == ['public."New Name"']
    _follow(hw, conn, GROUPED, '"New Name"')
    conn.execute('ALTER TABLE "New Name" SET SCHEMA elsewhere')
    _follow(hw, conn, GROUPED, 'elsewhere."New Name"')
    conn.execute('ALTER TABLE elsewhere."New Name" RENAME TO st')
    conn.execute("INSERT INTO t VALUES (9, 9, 9, 'z')")
    assert hw.refresh_stream_table("elsewhere.st").name == "elsewhere.st"
    hw.alter_stream_table("elsewhere.st", query="SELECT id, g FROM t")
    _follow(hw, conn, "SELECT id, g FROM t", "elsewhere.st")
    hw.drop_stream_table("elsewhere.st")
    assert _traces(conn) == []


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO st VALUES (9, 9)",
        "INSERT INTO st SELECT 9, 9 WHERE false",
        "UPDATE st SET total = 0",
        "DELETE FROM st",
        "DELETE FROM st WHERE false",
        "TRUNCATE st",
        "MERGE INTO st USING (SELECT 1 AS g) AS q ON st.g = q.g WHEN MATCHED THEN DELETE",
        "WITH gone AS (DELETE FROM st RETURNING g) SELECT * FROM gone",
    ],
)
def test_guard_refuses_writes_even_by_a_superuser(
    hw: headwater.Headwater, conn: Connection, statement: str
) -> None:
    hw.create_stream_table("st", GROUPED, refresh_mode="DIFFERENTIAL")
    event = next(word for word in ("INSERT", "UPDATE", "DELETE", "TRUNCATE") if word in statement)
    with pytest.raises(pg.ObjectNotInPrerequisiteState) as refused:
        conn.execute(statement.encode())
    assert refused.value.diag.message_primary == (
        f"public.st is a stream table: it follows its query and takes no {event} from outside"
    )
    assert refused.value.diag.message_hint == "Write to its sources instead."
    _follow(hw, conn, GROUPED)


def test_guard_refuses_copy(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", GROUPED)
    with (
        pytest.raises(pg.ObjectNotInPrerequisiteState),
        conn.cursor() as cursor,
        cursor.copy("COPY st FROM STDIN") as copy,
    ):
        copy.write_row((9, 9))


# --- sources, by hand ---------------------------------------------------------------------------


def test_type_of_a_source_column_is_altered(hw: headwater.Headwater, conn: Connection) -> None:
    queries = {
        "st": GROUPED,
        "rows_st": "SELECT id, x FROM t WHERE x > 1",
        "untouched": "SELECT id, s FROM t",
    }
    for name, query in queries.items():
        hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")
    conn.execute("ALTER TABLE t ALTER x TYPE numeric(10, 2); UPDATE t SET x = x + 0.25")
    for name, query in queries.items():
        hw.refresh_stream_table(name)
        assert find_difference(conn, query, name) is None
    assert dict((n, k) for n, k, _ in columns_of(conn, "st")) == {
        "g": "integer",
        "total": "numeric",
    }
    rebuilt = hw.refresh_history("st")
    assert REBUILT in {(h.action, h.reason) for h in rebuilt}
    for name, query in queries.items():
        hw.refresh_stream_table(name)
        _follow(hw, conn, query, name)


def test_type_that_does_not_fit_the_old_one(hw: headwater.Headwater, conn: Connection) -> None:
    """Changes that wait for another reader hold the old type; both readers end exact."""
    queries = {"st": "SELECT id, x FROM t", "other": "SELECT s, count(*) AS n FROM t GROUP BY s"}
    for name, query in queries.items():
        hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")
    conn.execute("UPDATE t SET s = 'waits', x = x + 1 WHERE id = 1")
    conn.execute("ALTER TABLE t ALTER x TYPE text USING 'number ' || x")
    hw.refresh_stream_table("st")
    assert find_difference(conn, queries["st"], "st") is None
    conn.execute("INSERT INTO t VALUES (4, 4, 'no number', 'new')")
    for name, query in queries.items():
        hw.refresh_stream_table(name)
        assert find_difference(conn, query, name) is None
        _follow(hw, conn, query, name)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t ALTER x TYPE int USING x * 10",
        "ALTER TABLE t ALTER x TYPE bigint",
        "ALTER TABLE t DROP COLUMN s",
        "ALTER TABLE t ADD COLUMN more int DEFAULT 5",
        "ALTER TABLE t DROP CONSTRAINT t_pkey",
        "ALTER TABLE t ALTER x SET NOT NULL",
        "ALTER TABLE t RENAME COLUMN s TO other; ALTER TABLE t ADD s text",
        "CREATE UNIQUE INDEX ON t (id, x)",
        "CLUSTER t USING t_pkey",
        "VACUUM FULL t",
    ],
)
def test_source_is_altered_and_the_result_stays_exact(
    hw: headwater.Headwater, conn: Connection, change: str
) -> None:
    queries = {"st": GROUPED, "rows_st": "SELECT id, x FROM t"}
    for name, query in queries.items():
        hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")
    conn.execute("UPDATE t SET x = x + 1")
    for statement in change.split(";"):
        conn.execute(statement.encode())
    for name, query in queries.items():
        hw.refresh_stream_table(name)
        assert find_difference(conn, query, name) is None
        conn.execute("INSERT INTO t (id, g, x) VALUES (60, 1, 60); DELETE FROM t WHERE id = 2")
        assert hw.refresh_stream_table(name).action == "DIFFERENTIAL"
        assert find_difference(conn, query, name) is None
        conn.execute("DELETE FROM t WHERE id = 60; INSERT INTO t (id, g, x) VALUES (2, 1, 2)")


def test_column_that_is_read_is_dropped_and_comes_back(
    hw: headwater.Headwater, conn: Connection
) -> None:
    hw.create_stream_table("st", GROUPED, refresh_mode="DIFFERENTIAL")
    conn.execute("ALTER TABLE t DROP COLUMN x")
    with pytest.raises(SourceAltered) as altered:
        hw.refresh_stream_table("st")
    assert altered.value.why == "column x of public.t was dropped"
    status, last_error = _row(conn, "status, last_error")
    assert (status, last_error) == ("ERROR", str(altered.value))
    conn.execute("INSERT INTO t (id, g) VALUES (10, 10)")  # the writers can go on
    conn.execute("ALTER TABLE t ADD COLUMN x int DEFAULT 3")
    hw.refresh_stream_table("st")
    assert _row(conn, "status, last_error") == ("ACTIVE", None)
    _follow(hw, conn, GROUPED)


def test_source_is_dropped_and_comes_back(hw: headwater.Headwater, conn: Connection) -> None:
    query = "SELECT t.id, u.g FROM t JOIN u ON u.id = t.g"
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    conn.execute("DROP TABLE u")
    with pytest.raises(SourceDropped) as dropped:
        hw.refresh_stream_table("st")
    assert (dropped.value.what, dropped.value.why, dropped.value.fix) == (
        "public.st reads public.u, which no longer exists",
        "it was dropped",
        "restore it and alter the stream table to its query, or drop the stream table",
    )
    assert _row(conn, "status, last_error") == ("ERROR", str(dropped.value))
    assert conn.execute("SELECT count(*) FROM st").fetchall() == [(3,)]  # what was true last
    conn.execute("CREATE TABLE u (id int, g int); INSERT INTO u VALUES (1, 5)")
    hw.alter_stream_table("st", query=query)
    assert find_difference(conn, query, "st") is None
    _follow(hw, conn, query)
    hw.drop_stream_table("st")
    assert _traces(conn) == []


def test_source_is_renamed(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", GROUPED, refresh_mode="DIFFERENTIAL")
    conn.execute("ALTER TABLE t RENAME TO renamed")
    with pytest.raises(SourceDropped) as gone:
        hw.refresh_stream_table("st")
    assert gone.value.what == 'refresh of public.st failed: relation "public.t" does not exist'
    assert gone.value.why == "public.t is now called public.renamed"
    conn.execute("INSERT INTO renamed VALUES (9, 9, 9, 'z'); ALTER TABLE renamed RENAME TO t")
    hw.refresh_stream_table("st")
    _follow(hw, conn, GROUPED)


def test_source_is_swapped_by_renaming(hw: headwater.Headwater, conn: Connection) -> None:
    """The query names a table, so it means whichever has that name."""
    hw.create_stream_table("st", GROUPED, refresh_mode="DIFFERENTIAL")
    conn.execute(
        "CREATE TABLE new_t (LIKE t INCLUDING ALL); INSERT INTO new_t VALUES (1, 7, 7, 'new');"
        "ALTER TABLE t RENAME TO old_t; ALTER TABLE new_t RENAME TO t"
    )
    hw.refresh_stream_table("st")
    assert conn.execute("SELECT g, total FROM st").fetchall() == [(7, 7)]
    conn.execute("INSERT INTO old_t VALUES (70, 1, 70, 'o')")
    assert hw.refresh_stream_table("st").action == "NO_DATA"
    _follow(hw, conn, GROUPED)
    triggers = conn.execute("SELECT FROM pg_trigger WHERE tgrelid = 'old_t'::regclass").fetchall()
    assert triggers == []


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("ALTER TABLE t SET UNLOGGED", "public.t is an unlogged table"),
        (
            "CREATE TABLE above (LIKE t) PARTITION BY LIST (id);"
            " ALTER TABLE above ATTACH PARTITION t DEFAULT;"
            " INSERT INTO above VALUES (77, 7, 7, 's')",
            "public.t is a partition or a child of another table",
        ),
        (
            "CREATE TABLE above (LIKE t); ALTER TABLE t INHERIT above; UPDATE above SET x = 0",
            "public.t is a partition or a child of another table",
        ),
    ],
)
def test_source_that_can_no_longer_be_captured_is_an_error(
    hw: headwater.Headwater, conn: Connection, change: str, what: str
) -> None:
    hw.create_stream_table("st", GROUPED, refresh_mode="DIFFERENTIAL")
    conn.execute(change.encode())
    with pytest.raises(UnsupportedQuery) as refused:
        hw.refresh_stream_table("st")
    assert refused.value.what == f"{what}: its changes cannot be captured"
    assert _row(conn, "status, last_error") == ("ERROR", str(refused.value))


def test_view_on_the_way_is_replaced(hw: headwater.Headwater, conn: Connection) -> None:
    conn.execute("CREATE VIEW seen AS SELECT g, x FROM t WHERE x > 1")
    query = "SELECT g, sum(x) AS s FROM seen GROUP BY g"
    hw.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    conn.execute("CREATE OR REPLACE VIEW seen AS SELECT g, x * 2 AS x FROM t WHERE x > 0")
    hw.refresh_stream_table("st")
    assert find_difference(conn, query, "st") is None
    _follow(hw, conn, query)
    conn.execute("DROP VIEW seen")
    with pytest.raises(SourceDropped):
        hw.refresh_stream_table("st")
