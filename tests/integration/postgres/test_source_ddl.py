"""What is done to the sources, and what becomes of the stream tables; writers always go on.

With event triggers, as a superuser has them, and without, as any other role has not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

import headwater
from headwater.catalog.alerts import CHANNEL
from headwater.errors import HeadwaterError, MissingRights
from headwater.results import Status
from headwater.schedule.watch import stop_unfollowed
from tests.battery.oracle import find_difference
from tests.daemons import SLOWLY, until, waiting

Connection = psycopg.Connection[Any]

SETUP = """
CREATE TABLE t (id int PRIMARY KEY, g int, x int, spare text);
CREATE TABLE u (id int, name text);
CREATE TABLE p (k int, v int) PARTITION BY RANGE (k);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
CREATE TABLE loose (v int, k int);
CREATE TABLE s (id int, g int, x int);
CREATE VIEW seen AS SELECT id, g, x FROM s;
CREATE FUNCTION twice(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE
    AS $$ BEGIN RETURN 2 * n; END $$;
INSERT INTO t SELECT n, n % 3, n FROM generate_series(1, 9) AS n;
INSERT INTO s SELECT n, n % 3, n FROM generate_series(1, 9) AS n;
INSERT INTO u VALUES (1, 'one'), (2, 'two');
INSERT INTO p VALUES (1, 1), (11, 11);
INSERT INTO loose VALUES (20, 20);
"""
JOINED = "SELECT t.g, count(*) AS n, sum(t.x) AS total FROM t JOIN u ON u.id = t.g GROUP BY t.g"
KEYED = "SELECT id, x FROM t"
VIEWED = "SELECT id, x FROM seen WHERE g > 0"
CALLED = "SELECT id, twice(x) AS y FROM t"
PARTED = "SELECT k, v FROM p"

T_WRITES = (
    "INSERT INTO t (id, g) VALUES (50, 1), (51, 2)",
    "UPDATE t SET g = 2 WHERE id = 1",
    "DELETE FROM t WHERE id >= 50",
)
S_WRITES = ("INSERT INTO s VALUES (10, 1, 1)", "UPDATE s SET g = 1", "DELETE FROM s WHERE x = 2")
U_WRITES = (
    "INSERT INTO u (id) VALUES (2)",
    "UPDATE u SET id = 1",
    "DELETE FROM u WHERE name = 'one'",
)
P_WRITES = (
    "INSERT INTO p VALUES (2, 2)",
    "UPDATE p SET v = v + 1",
    "INSERT INTO p2 VALUES (12, 1)",
)

FOLLOWING = {"now": "IMMEDIATE", "at_end": "COMMIT"}
NOTHING, REBUILD, ERROR = "nothing", "rebuild", "error"


@dataclass(frozen=True)
class Case:
    """A change of a source, how people write afterwards, and what follows.

    `immediate` is what becomes of an IMMEDIATE table where event triggers tell of the change, if
    that is not what becomes of a deferred one; `says` is part of the reason or of the error.
    """

    ddl: str
    outcome: str = NOTHING
    says: str = ""
    query: str = JOINED
    writes: tuple[str, ...] = (*T_WRITES, *U_WRITES)
    immediate: str | None = None
    is_marked: bool = True  # by an event trigger, at once


CASES = {
    "add a column": Case("ALTER TABLE t ADD COLUMN more int DEFAULT 5"),
    "alter an unused column": Case("ALTER TABLE t ALTER spare TYPE int USING 0"),
    "rename an unused column": Case("ALTER TABLE t RENAME spare TO other"),
    "drop an unused column": Case("ALTER TABLE t DROP COLUMN spare"),
    "grant a used column": Case("GRANT SELECT (x) ON t TO PUBLIC"),
    "give a used column a default": Case("ALTER TABLE t ALTER x SET DEFAULT 7"),
    "let a used column never be NULL": Case(
        "DELETE FROM t WHERE x IS NULL; ALTER TABLE t ALTER g SET NOT NULL"),
    "write a table into other files": Case("CLUSTER t USING t_pkey"),
    "rewrite the values of a used column": Case(
        "ALTER TABLE t ALTER x TYPE int USING x + 100", REBUILD, "column x of c.t was altered"),
    "make an index": Case("CREATE INDEX ON t (x)"),
    "make a unique index": Case("CREATE UNIQUE INDEX ON t (id, g)"),
    "alter a used column": Case(
        "ALTER TABLE t ALTER x TYPE bigint", REBUILD, "column x of c.t was altered",
        writes=(*T_WRITES, "UPDATE t SET x = x + 5000000000")),
    "alter a used column so that the query fails": Case(
        "ALTER TABLE t ALTER x TYPE date USING '2000-01-01'", ERROR, "column x of c.t was altered"),
    "rename a used column": Case(
        "ALTER TABLE t RENAME x TO y", ERROR, "column x of c.t is now called y"),
    "drop a used column": Case(
        "ALTER TABLE t DROP COLUMN x", ERROR, "column x of c.t was dropped"),
    "drop a unique index": Case(
        "ALTER TABLE t DROP CONSTRAINT t_pkey", REBUILD, "a unique index of c.t is gone", KEYED,
        T_WRITES),
    "drop a table": Case("DROP TABLE u", ERROR, "c.u, which no longer exists", writes=T_WRITES),
    "rename a table": Case(
        "ALTER TABLE u RENAME TO w", ERROR, "c.u is now called c.w",
        writes=(*T_WRITES, *(text.replace(" u ", " w ") for text in U_WRITES))),
    "move a table": Case(
        "ALTER TABLE u SET SCHEMA elsewhere", ERROR, "c.u is now called elsewhere.u",
        writes=(*T_WRITES, *(text.replace(" u ", " elsewhere.u ") for text in U_WRITES))),
    "replace a view": Case(
        "CREATE OR REPLACE VIEW seen AS SELECT id, g, x + 1 AS x FROM s WHERE g < 2", REBUILD,
        "the view c.seen was replaced", VIEWED, S_WRITES),
    "replace a function": Case(
        "CREATE OR REPLACE FUNCTION twice(n int) RETURNS int LANGUAGE sql IMMUTABLE"
        " AS 'SELECT 2 * n + 1'", REBUILD, "the function c.twice(integer) was replaced", CALLED,
        T_WRITES),
    "drop a function": Case(
        "DROP FUNCTION twice", ERROR, "the function c.twice(integer) was replaced or dropped",
        CALLED, T_WRITES),
    "attach a partition": Case(
        "ALTER TABLE p ATTACH PARTITION loose FOR VALUES FROM (20) TO (30)", REBUILD,
        "c.p has other partitions", PARTED, (*P_WRITES, "INSERT INTO loose VALUES (21, 21)"),
        NOTHING, is_marked=False),
    "detach a partition": Case(
        "ALTER TABLE p DETACH PARTITION p1", REBUILD, "c.p has other partitions", PARTED,
        ("ALTER TABLE p1 DROP COLUMN v", "INSERT INTO p1 VALUES (4)", "UPDATE p SET v = v + 1"),
        NOTHING, is_marked=False),
    "drop a partition": Case(
        "DROP TABLE p1", REBUILD, "c.p has other partitions", PARTED, P_WRITES[1:], NOTHING,
        is_marked=False),
    "row security that spares the owner": Case("ALTER TABLE t ENABLE ROW LEVEL SECURITY"),
}  # fmt: skip


@dataclass(frozen=True)
class World:
    """A database with stream tables, one session that alters, and one that only ever writes."""

    hw: headwater.Headwater
    conn: Connection
    writer: Connection
    has_events: bool


@pytest.fixture(params=["events", "no events"])
def world(request: pytest.FixtureRequest, database: str, conn: Connection) -> Iterator[World]:
    role, has_events = "ddl_plain", request.param == "events"
    conn.execute(f"CREATE ROLE {role} LOGIN {'SUPERUSER' if has_events else ''}".encode())
    try:
        conn.execute(f"GRANT CREATE ON DATABASE {conn.info.dbname} TO {role}".encode())
        with (
            headwater.connect(database.replace("postgres@", f"{role}@")) as hw,
            psycopg.connect(database, user=role, autocommit=True) as own,
            psycopg.connect(database, user=role, autocommit=True) as writer,
        ):
            events = own.execute("SELECT count(*) > 0 FROM pg_event_trigger").fetchall()
            assert events == [(has_events,)]
            for session in (hw.connection, own, writer):
                session.execute("SET search_path = c")
            own.execute("CREATE SCHEMA elsewhere")
            yield World(hw, own, writer, has_events)
            hw.uninstall()
    finally:
        conn.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


@pytest.mark.costly
def test_every_change_of_a_source(world: World) -> None:
    for name, case in CASES.items():
        world.conn.execute("CREATE SCHEMA c")
        world.conn.execute(SETUP.encode())
        try:
            _try(world, case)
        except Exception as error:
            error.add_note(f"in the case: {name}")
            raise
        world.conn.execute("DROP SCHEMA c CASCADE")
        world.conn.execute("DROP TABLE IF EXISTS elsewhere.u")
        assert world.hw.pgt_status() == ()


def _try(world: World, case: Case) -> None:
    hw, conn = world.hw, world.conn
    hw.create_stream_table("later", case.query, refresh_mode="DIFFERENTIAL")
    hw.create_stream_table("beside", "SELECT id, g FROM t", refresh_mode="DIFFERENTIAL")
    for name, mode in FOLLOWING.items():
        hw.create_stream_table(name, case.query, refresh_mode=mode)
    for text in (*T_WRITES, *S_WRITES, *U_WRITES, *P_WRITES):
        world.writer.execute(text.encode())
    conn.execute(case.ddl.encode())
    marked = "SELECT needs_reinit FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'later'"
    is_marked = world.has_events and case.is_marked and case.outcome != NOTHING
    assert conn.execute(marked).fetchall() == [(is_marked,)]
    _write(world, case)
    for name in FOLLOWING:
        _check_following(world, case, name)
    _check_deferred(world, case)
    hw.refresh_stream_table("beside")
    assert find_difference(conn, "SELECT id, g FROM t", "beside") is None
    for text in case.writes[-2:]:
        world.writer.execute(text.encode())


def _write(world: World, case: Case) -> None:
    """By a session that wrote before, by one that alters, and under a frozen snapshot."""
    for text in case.writes:
        world.writer.execute(text.encode())
    world.writer.isolation_level = IsolationLevel.REPEATABLE_READ
    with world.writer.transaction():
        world.writer.execute(case.writes[-1].encode())
    world.writer.isolation_level = None
    world.conn.execute(case.writes[-1].encode())


def _check_following(world: World, case: Case, name: str) -> None:
    outcome = case.immediate if case.immediate and world.has_events else case.outcome
    if outcome == NOTHING:
        assert _status(world, name).status == "ACTIVE"
        assert find_difference(world.conn, case.query, name) is None
        return
    assert _status(world, name).status == "ERROR"
    if outcome == ERROR:
        with pytest.raises(HeadwaterError) as error:
            world.hw.refresh_stream_table(name)
        assert case.says in str(error.value)
        return
    world.hw.refresh_stream_table(name)
    world.writer.execute(case.writes[-1].encode())
    assert find_difference(world.conn, case.query, name) is None
    assert _status(world, name).status == "ACTIVE"


def _check_deferred(world: World, case: Case) -> None:
    if case.outcome == ERROR:
        with pytest.raises(HeadwaterError) as error:
            world.hw.refresh_stream_table("later")
        assert case.says in str(error.value)
        assert _status(world, "later").status == "ERROR"
        return
    result = world.hw.refresh_stream_table("later")
    wanted = "DIFFERENTIAL" if case.outcome == NOTHING else "REINITIALIZE"
    actions = {(h.action, h.reason) for h in world.hw.refresh_history("later", 2)}
    assert wanted in {action for action, _ in actions}, actions
    assert case.says in " ".join(str(reason) for _, reason in actions)
    assert result.action == wanted
    assert find_difference(world.conn, case.query, "later") is None
    world.writer.execute(case.writes[-1].encode())
    world.hw.refresh_stream_table("later")
    assert find_difference(world.conn, case.query, "later") is None


TYPES = {
    "ALTER TYPE mood ADD VALUE 'glad' BEFORE 'sad'": False,
    "ALTER TYPE pair ADD ATTRIBUTE c int": False,
    "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'": True,
    "ALTER TYPE mood RENAME TO feeling": True,
    "ALTER TYPE pair RENAME TO couple": True,
}
TYPED = "SELECT feels, (both_of).a AS a, count(*) AS n FROM typed GROUP BY 1, 2"


@pytest.mark.parametrize("ddl", TYPES)
def test_a_type_is_altered(world: World, ddl: str) -> None:
    hw, conn = world.hw, world.conn
    conn.execute(
        "CREATE SCHEMA c; CREATE TYPE mood AS ENUM ('sad', 'ok');"
        "CREATE TYPE pair AS (a int, b int);"
        "CREATE TABLE typed (id int PRIMARY KEY, feels mood, both_of pair);"
        "INSERT INTO typed SELECT n, 'ok', (n % 2, n)::pair FROM generate_series(1, 5) AS n"
    )
    modes = {**FOLLOWING, "later": "DIFFERENTIAL", "whole": "FULL"}
    for name, mode in modes.items():
        hw.create_stream_table(name, TYPED, refresh_mode=mode)
    conn.execute(ddl.encode())
    is_told = TYPES[ddl] and world.has_events
    for name in FOLLOWING:
        assert _status(world, name).status == ("ERROR" if is_told else "ACTIVE")
    if is_told or not TYPES[ddl]:  # else nobody could tell the writers
        world.writer.execute("UPDATE typed SET both_of.a = 7 WHERE id = 1")
    for name, mode in modes.items():
        done = hw.refresh_stream_table(name)
        is_rebuilt = TYPES[ddl] and mode == "DIFFERENTIAL"
        assert done.action == ("REINITIALIZE" if is_rebuilt else "FULL" if mode != "DIFFERENTIAL"
                               else "DIFFERENTIAL")  # fmt: skip
    world.writer.execute("UPDATE typed SET both_of.a = 8 WHERE id = 2")
    for name in FOLLOWING:
        assert find_difference(conn, TYPED, name) is None
        assert _status(world, name).status == "ACTIVE"


UNFOLLOWED = {
    "ALTER TABLE t DISABLE TRIGGER ALL": "triggers that maintain it",
    "ALTER TABLE t DISABLE TRIGGER USER; UPDATE t SET x = 0; ALTER TABLE t ENABLE TRIGGER USER":
        "triggers that maintain it",
    "ALTER TABLE t RENAME TO old; CREATE TABLE t (LIKE old INCLUDING ALL)": "is now called c.old",
    "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, g int, x int)": "c.t was dropped",
}  # fmt: skip


@pytest.mark.parametrize("ddl", UNFOLLOWED)
def test_what_no_writer_comes_by_is_found_by_the_daemon(world: World, ddl: str) -> None:
    """The source is another table, or its triggers are silent: no function of ours is called."""
    hw, conn = world.hw, world.conn
    conn.execute("CREATE SCHEMA c")
    conn.execute(SETUP.encode())
    for name, mode in FOLLOWING.items():
        hw.create_stream_table(name, KEYED, refresh_mode=mode)
    assert stop_unfollowed(conn) == []
    conn.execute(ddl.encode())
    world.writer.execute("INSERT INTO t (id, g, x) VALUES (80, 1, 1)")
    check = "error" if world.has_events else "not followed"
    found = {(f.check, f.subject) for f in hw.health_check() if UNFOLLOWED[ddl] in f.detail}
    assert found == {(check, f"c.{name}") for name in FOLLOWING}
    names = [] if world.has_events else [f"c.{name}" for name in sorted(FOLLOWING, reverse=True)]
    assert stop_unfollowed(conn) == [("reinitialize_needed", name) for name in names]
    for name in FOLLOWING:
        assert _status(world, name).status == "ERROR"
    if "DROP" not in ddl:
        for name in FOLLOWING:
            hw.refresh_stream_table(name)
        world.writer.execute("INSERT INTO t (id, g, x) VALUES (81, 1, 1)")
        assert all(find_difference(conn, KEYED, name) is None for name in FOLLOWING)


def test_a_table_that_is_computed_as_a_whole_takes_the_types_of_now(world: World) -> None:
    hw, conn = world.hw, world.conn
    conn.execute("CREATE SCHEMA c")
    conn.execute(SETUP.encode())
    hw.create_stream_table("whole", KEYED, refresh_mode="FULL")
    for ddl, x in (("TYPE numeric(10, 2)", "4.55"), ("TYPE text", "'a'"),
                   ('TYPE text COLLATE "C"', "'b'")):  # fmt: skip
        conn.execute(f"ALTER TABLE t ALTER x {ddl}".encode())
        conn.execute(f"UPDATE t SET x = {x} WHERE id = 1".encode())
        hw.refresh_stream_table("whole")
        assert find_difference(conn, KEYED, "whole") is None
    conn.execute("ALTER TABLE t SET UNLOGGED; ALTER TABLE t DROP COLUMN spare")
    conn.execute("UPDATE t SET x = 'c'")
    hw.refresh_stream_table("whole")
    assert find_difference(conn, KEYED, "whole") is None


def test_what_hides_rows_hides_them_in_stream_tables_too(world: World) -> None:
    """A superuser sees all; another owner of the table does so until row security is forced."""
    hw, conn = world.hw, world.conn
    conn.execute("CREATE SCHEMA c")
    conn.execute(SETUP.encode())
    hw.create_stream_table("later", JOINED, refresh_mode="DIFFERENTIAL")
    hw.create_stream_table("whole", JOINED, refresh_mode="FULL")
    hw.create_stream_table("now", KEYED, refresh_mode="IMMEDIATE")
    for security in (
        "CREATE POLICY some_rows ON t USING (id > 3)",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
        "ALTER POLICY some_rows ON t USING (id > 2)",
        "DROP POLICY some_rows ON t",
        "ALTER TABLE t NO FORCE ROW LEVEL SECURITY",
    ):
        conn.execute(security.encode())
        world.writer.execute("UPDATE t SET x = x + 1")
        for name, query in {"later": JOINED, "whole": JOINED, "now": KEYED}.items():
            hw.refresh_stream_table(name)
            assert find_difference(conn, query, name) is None
            assert _status(world, name).status == "ACTIVE"


def test_a_right_that_the_owner_lost_stops_the_table_and_no_writer(
    database: str, conn: Connection
) -> None:
    """Whether a table, one of its columns or its schema is taken from the owner."""
    conn.execute("CREATE SCHEMA c; SET search_path = c; CREATE ROLE ddl_reader LOGIN")
    try:
        conn.execute(f"GRANT CREATE ON DATABASE {conn.info.dbname} TO ddl_reader".encode())
        conn.execute("GRANT ALL ON SCHEMA c TO ddl_reader; SET ROLE ddl_reader")
        conn.execute(SETUP.encode())
        conn.execute("RESET ROLE; REVOKE SELECT ON u FROM ddl_reader")
        conn.execute("GRANT SELECT (id) ON u TO ddl_reader")
        with headwater.connect(database.replace("postgres@", "ddl_reader@")) as hw:
            hw.connection.execute("CREATE SCHEMA own; SET search_path = own, c")
            _take_rights_away(hw, conn)
            conn.execute("DROP TABLE own.now, own.at_end")
            hw.uninstall()
    finally:
        conn.execute("DROP OWNED BY ddl_reader; DROP ROLE ddl_reader")


def _take_rights_away(hw: headwater.Headwater, conn: Connection) -> None:
    for name, mode in FOLLOWING.items():
        hw.create_stream_table(name, JOINED, refresh_mode=mode)
    for right in ("SELECT ON t", "SELECT (id) ON u", "USAGE ON SCHEMA c"):
        conn.execute(f"REVOKE {right} FROM ddl_reader".encode())
        for text in T_WRITES:
            conn.execute(text.encode())
        for line in hw.pgt_status():
            assert line.status == "ERROR", (line.name, right)
            with pytest.raises(MissingRights, match=r"may no longer read c\."):
                hw.refresh_stream_table(line.name)
        conn.execute(f"GRANT {right} TO ddl_reader".encode())
        for name in FOLLOWING:
            hw.refresh_stream_table(name)
        for text in (*T_WRITES, *U_WRITES):
            conn.execute(text.encode())
        for name in FOLLOWING:
            assert find_difference(conn, JOINED, f"own.{name}") is None


@pytest.mark.parametrize("mode", ["DIFFERENTIAL", "FULL"])
@pytest.mark.parametrize("ddl", ["ALTER TABLE u ALTER name TYPE varchar(9)", "TRUNCATE u"])
def test_a_source_that_is_emptied_between_snapshot_and_reading(
    database: str, conn: Connection, ddl: str, mode: str
) -> None:
    """What rewrites a table shows it empty to older snapshots: nothing is made of that."""
    conn.execute(SETUP.encode())
    conn.execute(SLOWLY)
    query = "SELECT s.id, s.y, u.id AS u FROM slow s JOIN u ON u.id = s.id % 3"
    with headwater.connect(database) as hw, psycopg.connect(database) as other:
        hw.create_stream_table("slow", "SELECT id, slowly(x) AS y FROM t")
        hw.create_stream_table("over", query, refresh_mode=mode)
        other.execute("SELECT pg_advisory_xact_lock(7)")
        conn.execute("INSERT INTO t VALUES (20, 1, 1), (22, 1, 1); UPDATE u SET id = 2")
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(hw.refresh_stream_table, "over")
            until(lambda: waiting(conn) == 1)  # it has its snapshot, and has not read u
            conn.execute(ddl.encode())
            other.rollback()
            running.result()
        for _ in range(2):
            assert find_difference(conn, query, "over") is None
            conn.execute("INSERT INTO u (id) VALUES (1)")
            hw.refresh_stream_table("over")


def test_a_stream_table_is_renamed_and_writers_go_on(world: World) -> None:
    hw, conn = world.hw, world.conn
    conn.execute("CREATE SCHEMA c")
    conn.execute(SETUP.encode())
    hw.create_stream_table("now", KEYED, refresh_mode="IMMEDIATE")
    world.writer.execute("UPDATE t SET x = x + 1")
    for name in ("renamed", "again"):
        old = "now" if name == "renamed" else "renamed"
        conn.execute(f"ALTER TABLE {old} RENAME TO {name}".encode())
        if name == "again":
            hw.pgt_status()  # the catalog learns of it before any writer does
        for text in T_WRITES:
            world.writer.execute(text.encode())
            conn.execute(text.replace("50", "52").replace("51", "53").encode())
        expected = "ACTIVE" if world.has_events else "ERROR"
        assert _status(world, name).status == expected
        hw.refresh_stream_table(name)
        world.writer.execute("UPDATE t SET x = x + 1")
        assert find_difference(conn, KEYED, name) is None


def test_a_change_can_be_refused_and_is_told_at_once(world: World) -> None:
    if not world.has_events:
        return  # who cannot create event triggers can refuse nothing
    hw, conn = world.hw, world.conn
    conn.execute("CREATE SCHEMA c")
    conn.execute(SETUP.encode())
    hw.create_stream_table("later", JOINED, refresh_mode="DIFFERENTIAL")
    hw.create_stream_table("called", CALLED, refresh_mode="FULL")
    heard: list[dict[str, Any]] = []
    conn.add_notify_handler(lambda note: heard.append(json.loads(note.payload)))
    conn.execute(f"LISTEN {CHANNEL}".encode())
    conn.execute("SET pg_trickle.block_source_ddl = on")
    for ddl in ("ALTER TABLE t RENAME x TO y", "ALTER TABLE u DROP COLUMN id", "DROP TABLE u",
                "ALTER SCHEMA c RENAME TO d", "DROP FUNCTION twice"):  # fmt: skip
        with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="is in the way"):
            conn.execute(ddl.encode())
    conn.execute("ALTER TABLE t ADD COLUMN more int; DROP TABLE loose")
    hw.alter_stream_table("later", query=f"{JOINED} HAVING count(*) > 1")
    conn.execute("SET pg_trickle.block_source_ddl = off")
    with conn.transaction():
        conn.execute("DROP TABLE u")
        conn.execute("INSERT INTO t (id, g) VALUES (70, 1)")
    assert _status(world, "later").status == "ERROR"
    conn.execute("SELECT")
    told = [(a["event"], a["st"], a.get("reason")) for a in heard]
    assert ("reinitialize_needed", "c.later", "c.u was dropped") in told


def test_a_column_that_was_renamed_and_renamed_back_is_captured_again(world: World) -> None:
    """While it had the other name, nobody could capture it; who reads it must not go on as if."""
    hw, conn = world.hw, world.conn
    conn.execute("CREATE SCHEMA c")
    conn.execute(SETUP.encode())
    queries = {"grouped": "SELECT g, count(*) AS n FROM t GROUP BY g",
               "most": "SELECT g, max(id) AS m FROM t GROUP BY g", "keyed": KEYED}  # fmt: skip
    for name, query in queries.items():
        hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")
    for noticing, first in (("grouped", "most"), ("most", "grouped"), ("keyed", "most")):
        conn.execute("ALTER TABLE t RENAME g TO h")
        conn.execute("UPDATE t SET x = x + 1, h = h + 1 WHERE id = 1")
        if noticing == "keyed":
            hw.refresh_stream_table(noticing)
        else:
            with pytest.raises(HeadwaterError, match="is now called h"):
                hw.refresh_stream_table(noticing)
        conn.execute("ALTER TABLE t RENAME h TO g")
        conn.execute("UPDATE t SET g = g + 1 WHERE id = 2")
        for name in (first, *queries):
            hw.refresh_stream_table(name)
            assert find_difference(conn, queries[name], name) is None
        conn.execute("UPDATE t SET g = g + 1 WHERE id = 3")
        for name in ("grouped", "most"):
            assert hw.refresh_stream_table(name).action == "DIFFERENTIAL"
            assert find_difference(conn, queries[name], name) is None


CONCERNED = {
    "CREATE TEMPORARY VIEW other AS SELECT 1 AS x": set(),
    "CREATE TABLE other (id int PRIMARY KEY); DROP TABLE other": set(),
    "CREATE FUNCTION other() RETURNS int LANGUAGE sql AS 'SELECT 1'": set(),
    "ALTER TABLE u ADD COLUMN more int": {"joined", "late"},
    "ALTER TABLE keyed ADD COLUMN more int": {"keyed"},
    "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (30)": {"parted"},
    "DROP TABLE p1": {"parted"},
    "DO $$ DECLARE n text := (SELECT min(tgname) FROM pg_trigger WHERE tgrelid = 'u'::regclass);"
    " BEGIN EXECUTE format('DROP TRIGGER %I ON u', n); END $$": {"joined", "late"},
    "DROP INDEX alone": {"joined", "late", "keyed", "parted"},  # whose it was, nobody says
}


def test_a_command_looks_at_the_tables_that_it_concerns(conn: Connection, database: str) -> None:
    """To look at one takes a millisecond, and commands on other tables come all the time."""
    conn.execute(f"CREATE SCHEMA c; SET search_path = c; {SETUP}".encode())
    conn.execute("CREATE UNIQUE INDEX alone ON t (g, id)")
    with headwater.connect(database) as hw:
        hw.connection.execute("SET search_path = c")
        for name, query in {"joined": JOINED, "keyed": KEYED, "parted": PARTED}.items():
            hw.create_stream_table(name, query, refresh_mode="IMMEDIATE")
        hw.create_stream_table("late", JOINED, refresh_mode="COMMIT")
    conn.execute("SET track_functions = 'pl'")
    found = {}
    for ddl in CONCERNED:
        with conn.transaction(force_rollback=True):
            before = _looks(conn)
            conn.execute(ddl.encode())
            found[ddl] = _looks(conn) - before
    assert {ddl: count > 0 for ddl, count in found.items()} == {
        ddl: bool(names) for ddl, names in CONCERNED.items()
    }
    # What no longer follows is looked at again.
    assert [ddl for ddl, names in CONCERNED.items() if found[ddl] > 2 * len(names)] == []


def _looks(conn: Connection) -> int:
    calls = "pg_stat_get_xact_function_calls('pgtrickle.drift_of(bigint)'::regprocedure)"
    [(count,)] = conn.execute(f"SELECT coalesce({calls}, 0)".encode()).fetchall()
    return int(count)


def _status(world: World, name: str) -> Status:
    return next(s for s in world.hw.pgt_status() if s.name == f"c.{name}")
