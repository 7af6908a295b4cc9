"""What create takes and refuses, that a refusal leaves nothing behind, and what create makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg

import headwater
from headwater import Created
from headwater.errors import (
    AlreadyExists,
    InvalidArgument,
    MissingComponent,
    NotFound,
    UnsupportedQuery,
)
from tests.battery.oracle import columns_of, find_difference
from tests.servers import Server

Connection = psycopg.Connection[Any]

SETUP = """
CREATE TABLE t (id int PRIMARY KEY, g int, x int, s text, j json);
CREATE TABLE u (id int PRIMARY KEY, g int);
CREATE UNLOGGED TABLE unlogged (id int);
CREATE MATERIALIZED VIEW materialized AS SELECT id FROM t;
CREATE VIEW over_materialized AS SELECT id FROM materialized;
CREATE TABLE partitioned (id int, g int) PARTITION BY LIST (g);
CREATE TABLE leaf PARTITION OF partitioned FOR VALUES IN (1);
CREATE TABLE parent (id int);
CREATE TABLE child () INHERITS (parent);
CREATE FUNCTION volatile_one(x int) RETURNS int LANGUAGE sql VOLATILE AS 'SELECT x';
CREATE FUNCTION stable_one(x int) RETURNS int LANGUAGE sql STABLE AS 'SELECT x';
CREATE FUNCTION many(x int) RETURNS SETOF int LANGUAGE sql IMMUTABLE AS 'SELECT x';
CREATE FUNCTION pairs(x int) RETURNS TABLE (a int, b int) LANGUAGE sql IMMUTABLE AS 'SELECT x, x';
CREATE SEQUENCE numbers;
CREATE FOREIGN DATA WRAPPER nowhere;
CREATE SERVER elsewhere FOREIGN DATA WRAPPER nowhere;
CREATE FOREIGN TABLE far_away (id int) SERVER elsewhere;
CREATE TABLE own_names (id int, __weight int);
INSERT INTO t VALUES (1, 1, 1, 'a', '{}'), (2, 1, 2, 'b', NULL);
"""


@pytest.fixture
def hw(database: str, conn: Connection) -> Iterator[headwater.Headwater]:
    conn.execute(SETUP)
    with headwater.connect(database) as connected:
        yield connected


@pytest.fixture(scope="module")
def refusing_database(server: Server) -> Iterator[str]:
    """One database for all calls that must leave nothing behind."""
    dsn = server.create_database()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(SETUP)
    yield dsn
    server.drop_database(dsn)


@pytest.fixture
def refusing(refusing_database: str) -> Iterator[headwater.Headwater]:
    """A call through this must leave nothing behind."""
    with (
        headwater.connect(refusing_database) as connected,
        psycopg.connect(refusing_database, autocommit=True) as conn,
    ):
        before = _everything(conn)
        yield connected
        assert _everything(conn) == before


def _everything(conn: Connection) -> dict[str, list[Any]]:
    """Return every object of the database, and every row of the catalog."""
    catalogs = ("pg_class", "pg_proc", "pg_trigger", "pg_namespace", "pg_type", "pg_rewrite")
    found = {name: conn.execute(f"SELECT oid FROM {name} ORDER BY 1") for name in catalogs}
    tables = ("pgt_stream_tables", "pgt_dependencies", "pgt_change_tracking", "pgt_epochs")
    found |= {name: conn.execute(f"SELECT * FROM pgtrickle.{name}") for name in tables}
    return {name: cursor.fetchall() for name, cursor in found.items()}


# --- refusals -----------------------------------------------------------------------------------

FULL_OR_REWRITE = (
    "create the stream table with refresh_mode => 'FULL', or rewrite the query without it"
)
FULL = "use refresh_mode => 'FULL'"


@dataclass(frozen=True)
class Refusal:
    """Queries that are refused with the same words."""

    what: str
    why: str
    fix: str
    queries: tuple[str, ...]


def _no_rule(what: str, why: str, *queries: str) -> Refusal:
    return Refusal(f"{what} cannot be maintained incrementally yet", why, FULL_OR_REWRITE, queries)


def _unseen(what: str, why: str, fix: str, *queries: str) -> Refusal:
    return Refusal(f"{what}: its changes cannot be captured", why, fix, queries)


def _volatile(name: str, query: str) -> Refusal:
    return Refusal(
        f"{name}() is VOLATILE and cannot be maintained incrementally",
        "it may give another result each time, so an old row cannot be found again",
        f"leave it out, {FULL}, or declare the function IMMUTABLE if it is",
        (query,),
    )


def _stable(name: str, *queries: str) -> Refusal:
    return Refusal(
        f"{name} is STABLE and cannot be maintained incrementally",
        "its result may change between refreshes without any change of the rows",
        f"leave it out, {FULL}, or declare the function IMMUTABLE if it is",
        queries,
    )


def _system_column(name: str, query: str) -> Refusal:
    return Refusal(
        f"the system column {name} cannot be used in a stream table",
        "its value tells where a row is stored and changes without any write to the row",
        "leave it out, or use the table's own key",
        (query,),
    )


REFUSALS = (
    _no_rule(
        "LIMIT or OFFSET without ORDER BY",
        "which rows they keep is left open",
        "SELECT id FROM t LIMIT 5",
        "SELECT id FROM t OFFSET 2",
        "SELECT id FROM t UNION ALL (SELECT id FROM u LIMIT 1)",
        "WITH q AS (SELECT id FROM t LIMIT 1) SELECT id FROM q",
        "SELECT id FROM t WHERE x = (SELECT g FROM u LIMIT 1)",
        "SELECT t.id, q.g FROM t, LATERAL (SELECT g FROM u WHERE u.id > t.id LIMIT 1) AS q",
    ),
    _no_rule(
        "recursion with the name w of a common table of another WITH",
        "what it means at this place cannot be told",
        "WITH w AS (SELECT id FROM t) SELECT q.w FROM (WITH RECURSIVE r(id, w) AS (SELECT id, id"
        " FROM w UNION SELECT u.g, u.g FROM u JOIN r ON r.id = u.id) SELECT w FROM r) AS q",
    ),
    _no_rule(
        "DISTINCT or a set operation without columns",
        "there is nothing to compare",
        "SELECT count(*) AS n FROM (SELECT FROM t UNION SELECT FROM u) AS q",
    ),
    Refusal(
        "a subquery reads the value json_agg from outside, which has no equality",
        "it is computed there, and cannot be found again by its value",
        "compute it inside of the subquery, or cast it to text outside",
        (
            "SELECT g, (SELECT max(u.id) FROM u WHERE u.g::text = json_agg(t.id)->>0) AS m"
            " FROM t GROUP BY g",
        ),
    ),
    _no_rule(
        "FOR UPDATE and FOR SHARE",
        "a stream table locks no rows of its sources",
        "SELECT id FROM t FOR UPDATE",
        "SELECT id FROM t FOR SHARE",
    ),
    _no_rule("TABLESAMPLE", "it picks rows at random", "SELECT id FROM t TABLESAMPLE SYSTEM (50)"),
    _no_rule(
        "ONLY public.parent",
        "capture follows a table with its children",
        "SELECT id FROM ONLY parent",
    ),
    _volatile("random", "SELECT id, random() AS r FROM t"),
    _volatile("volatile_one", "SELECT id FROM t WHERE volatile_one(x) = 1"),
    _volatile("nextval", "SELECT nextval('numbers') AS n FROM t"),
    _volatile(
        "clock_timestamp", "SELECT count(*) FILTER (WHERE clock_timestamp() > '2000-1-1') FROM t"
    ),
    _no_rule(
        "now() or one of its kin outside the conditions of WHERE, HAVING and inner joins",
        "the value of every row would change with each refresh",
        "SELECT id, CURRENT_DATE AS d FROM t",
        "SELECT t.id FROM t LEFT JOIN u ON t.id = u.id AND now() > '2020-01-01'",
    ),
    _no_rule(
        "now() or one of its kin inside recursion",
        "it is computed as a whole",
        "WITH RECURSIVE r AS (SELECT id FROM t WHERE now() > '2020-01-01' UNION"
        " SELECT t.g FROM t JOIN r ON r.id = t.id) SELECT id FROM r",
    ),
    _stable("stable_one", "SELECT stable_one(id) FROM t"),
    _stable(
        "CURRENT_USER or one of its kin",
        "SELECT id FROM t WHERE s = CURRENT_USER",
    ),
    _unseen(
        "public.materialized is a materialized view",
        "the server fires no triggers when it is refreshed",
        f"make it a stream table with the same query, or {FULL}",
        "SELECT id FROM materialized",
        "SELECT t.id FROM t JOIN over_materialized USING (id)",
    ),
    _unseen(
        "public.unlogged is an unlogged table",
        "a crash empties it without any write that could be captured",
        f"ALTER TABLE public.unlogged SET LOGGED, or {FULL}",
        "SELECT id FROM unlogged",
    ),
    _unseen(
        "public.far_away is a foreign table, or has one as a partition",
        "the server cannot see changes made elsewhere",
        FULL,
        "SELECT id FROM far_away",
    ),
    _unseen(
        "public.leaf is a partition or a child of another table",
        "a statement that names the parent fires no trigger of the child",
        f"read the parent, with a condition that picks these rows, or {FULL}",
        "SELECT id FROM leaf",
    ),
    _unseen(
        "public.child is a partition or a child of another table",
        "a statement that names the parent fires no trigger of the child",
        f"read the parent, with a condition that picks these rows, or {FULL}",
        "SELECT id FROM child",
    ),
    _unseen(
        "pg_catalog.pg_class is a system catalog",
        "the server fires no triggers on it",
        FULL,
        "SELECT relname FROM pg_class",
        "SELECT t.id FROM t JOIN pg_catalog.pg_class c ON c.relname = t.s",
    ),
    _system_column("t.ctid", "SELECT ctid AS place FROM t"),
    _system_column("t.xmin", "SELECT id FROM t WHERE xmin IS NOT NULL"),
    _system_column("partitioned.tableoid", "SELECT tableoid::regclass::text AS r FROM partitioned"),
    Refusal(
        "column j is selected beside GROUP BY but is not grouped",
        "values of type json cannot be compared or grouped",
        "select it through an aggregate, such as (array_agg(j))[1]",
        ("SELECT id, j, count(*) FROM t GROUP BY id",),
    ),
    Refusal(
        "the query has a column __weight",
        "a refresh uses this name for a column of its own",
        "give the column another name with AS",
        ("SELECT id AS __weight FROM t", "SELECT * FROM own_names"),
    ),
    Refusal(
        "public.own_names has a column __weight",
        "a refresh uses this name for a column of its own",
        "rename the column",
        ("SELECT id FROM own_names WHERE __weight = 1",),
    ),
)


@pytest.mark.parametrize(
    ("refusal", "query"),
    [pytest.param(refusal, query, id=query) for refusal in REFUSALS for query in refusal.queries],
)
def test_unsupported_query_is_refused_and_leaves_nothing(
    refusing: headwater.Headwater, refusal: Refusal, query: str
) -> None:
    with pytest.raises(UnsupportedQuery) as refused:
        refusing.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    error = refused.value
    assert (error.code, error.what, error.why, error.fix) == (
        "HW-101",
        refusal.what,
        refusal.why,
        refusal.fix,
    )


# What may look as if it could not be followed; the battery has the rest.
FOLLOWED = (
    "SELECT id, 1 + sum(x) FILTER (WHERE x > 1) OVER (PARTITION BY g ORDER BY id) AS n FROM t",
    "SELECT g, rank() OVER (ORDER BY count(*)) AS n FROM t GROUP BY g",
    "SELECT q.n FROM (SELECT lag(x) OVER w AS n FROM t WINDOW w AS (ORDER BY id)) AS q",
    "SELECT id FROM t ORDER BY x FETCH FIRST 2 ROWS WITH TIES",
    "SELECT id FROM t UNION ALL (SELECT id FROM u ORDER BY id OFFSET 1)",
    "SELECT DISTINCT ON (g) g, id FROM t ORDER BY g, id DESC",
    "SELECT g, s, GROUPING(g, s) AS n, count(*) FROM t GROUP BY GROUPING SETS ((g), (s), ())",
    "SELECT t.id, q.n FROM t, LATERAL (SELECT count(*) AS n FROM u WHERE u.g = t.g) AS q",
    "SELECT id, unnest(ARRAY[g, x]) AS n FROM t",
    "SELECT t.id, n FROM t, many(t.id) AS n",
    "SELECT t.id, (pairs(t.id)).b AS b FROM t",
    "SELECT x FROM abs(-1) AS x",
    "SELECT id, (SELECT max(g) FROM u) AS m FROM t",
    "SELECT id FROM t WHERE g NOT IN (SELECT g FROM u)",
    "SELECT id FROM t WHERE EXISTS (SELECT FROM u WHERE u.g = t.g)",
    "SELECT id FROM t WHERE g = ALL (SELECT g FROM u) OR x = 1",
    "SELECT ARRAY(SELECT g FROM u ORDER BY g) AS a FROM t",
    "SELECT CASE WHEN x = (SELECT 1) THEN 1 END AS c FROM t",
    "SELECT sum((SELECT count(*) FROM u WHERE u.g = t.g)) AS s FROM t",
    "SELECT count(*) AS n FROM t GROUP BY (SELECT 1)",
    "SELECT g FROM t GROUP BY g HAVING count(*) > (SELECT count(*) FROM u)",
    "SELECT t.id FROM t JOIN u ON u.g = (SELECT 1)",
    "SELECT t.id, u.id AS v FROM t LEFT JOIN u ON t.id = u.id AND t.g IN (SELECT g FROM u)",
    "SELECT t.id FROM t LEFT JOIN u ON EXISTS (SELECT FROM u v WHERE v.g = t.g AND v.id = u.id)",
    "SELECT t.id FROM t FULL JOIN u"
    " ON t.id = u.id AND t.x + u.g IN (SELECT v.g FROM u v WHERE v.id = t.id + u.id)",
    "WITH RECURSIVE r AS (SELECT id FROM t UNION SELECT t.g FROM t JOIN r ON r.id = t.id)"
    " SELECT id FROM r",
    "VALUES (1), (2)",
    "SELECT id FROM t UNION ALL SELECT v.x FROM (VALUES (1), (2)) AS v (x)",
    "SELECT id FROM t WHERE now() > '2020-01-01'",
)
WRITES = (
    "INSERT INTO t VALUES (3, 2, 7, 'a', NULL), (4, NULL, 2, NULL, NULL)",
    "INSERT INTO u VALUES (1, 1), (2, 2), (3, NULL)",
    "UPDATE t SET g = 2 WHERE id = 1",
    "DELETE FROM u WHERE g IS NULL",
    "DELETE FROM t WHERE id IN (2, 3)",
)


def test_what_takes_more_than_one_row_to_tell_is_followed(
    hw: headwater.Headwater, conn: Connection
) -> None:
    views = {f"st{number}": query for number, query in enumerate(FOLLOWED)}
    for name, query in views.items():
        hw.create_stream_table(name, query, refresh_mode="DIFFERENTIAL")
    for write in WRITES:
        conn.execute(write.encode())
        for name, query in views.items():
            assert hw.refresh_stream_table(name).action in ("DIFFERENTIAL", "NO_DATA")
            assert find_difference(conn, query, name) is None, (query, write)


def test_temporary_table_is_refused(hw: headwater.Headwater) -> None:
    hw._conn.execute("CREATE TEMPORARY TABLE passing (id int)")
    with pytest.raises(UnsupportedQuery) as refused:
        hw.create_stream_table("st", "SELECT id FROM passing", refresh_mode="DIFFERENTIAL")
    [(schema,)] = hw._conn.execute("SELECT pg_my_temp_schema()::regnamespace::text").fetchall()
    assert (refused.value.what, refused.value.why, refused.value.fix) == (
        f"{schema}.passing is a temporary table: its changes cannot be captured",
        "other sessions cannot read it",
        "use a permanent table",
    )


# --- errors of the server -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "kind", "message"),
    [
        ("SELECT idd FROM t", pg.UndefinedColumn, 'column "idd" does not exist'),
        ("SELECT id FROM nowhere", pg.UndefinedTable, 'relation "nowhere" does not exist'),
        ("SELECT id, id FROM t", pg.DuplicateColumn, 'column "id" specified more than once'),
        ("SELEC id FROM t", pg.SyntaxError, 'syntax error at or near "SELEC"'),
        ("SELECT id FROM t WHERE id = $1", pg.UndefinedParameter, "there is no parameter $1"),
        (
            "SELECT ROW(id, g) AS r FROM t",
            pg.InvalidTableDefinition,
            'column "r" has pseudo-type record',
        ),
        (
            "SELECT g FROM t GROUP BY g, nosuch(g)",
            pg.UndefinedFunction,
            "function nosuch(integer) does not exist",
        ),
        (
            "SELECT x FROM t GROUP BY g",
            pg.GroupingError,
            'column "t.x" must appear in the GROUP BY clause or be used in an aggregate function',
        ),
        ("SELECT id / 0 AS x FROM t", pg.DivisionByZero, "division by zero"),
        (
            "WITH d AS (DELETE FROM t RETURNING id) SELECT id FROM d",
            pg.FeatureNotSupported,
            "views must not contain data-modifying statements in WITH",
        ),
        (
            "SELECT id FROM t; DROP TABLE t",
            pg.SyntaxError,
            "cannot insert multiple commands into a prepared statement",
        ),
    ],
)
def test_error_of_the_server_passes_unchanged(
    refusing: headwater.Headwater, query: str, kind: type[psycopg.Error], message: str
) -> None:
    with pytest.raises(psycopg.Error) as raised:
        refusing.create_stream_table("st", query, refresh_mode="DIFFERENTIAL")
    assert (type(raised.value), raised.value.diag.message_primary) == (kind, message)
    assert raised.value.sqlstate == kind.sqlstate


# --- arguments ----------------------------------------------------------------------------------

ALLOWED = {
    "refresh_mode": "AUTO, DIFFERENTIAL, FULL, IMMEDIATE, COMMIT, INCREMENTAL",
    "engine": "auto, postgres, spark",
    "cdc_mode": "trigger, auto, wal, poll",
}


@pytest.mark.parametrize("argument", ALLOWED)
def test_unknown_word_is_refused_with_the_list(
    refusing: headwater.Headwater, argument: str
) -> None:
    arguments: dict[str, Any] = {argument: "sometimes"}
    with pytest.raises(InvalidArgument) as refused:
        refusing.create_stream_table("st", "SELECT id FROM t", **arguments)
    allowed = ALLOWED[argument]
    assert (refused.value.what, refused.value.why, refused.value.fix) == (
        f"{argument} 'sometimes' is not known",
        f"it must be one of {allowed}",
        f"use one of {allowed}",
    )


@pytest.mark.parametrize("arguments", [{"cdc_mode": "wal"}])
def test_what_is_not_built_in_is_refused(
    refusing: headwater.Headwater, arguments: dict[str, Any]
) -> None:
    with pytest.raises(MissingComponent) as refused:
        refusing.create_stream_table("st", "SELECT id FROM t", **arguments)
    [(argument, value)] = arguments.items()
    assert refused.value.what == f"{argument} '{value}' is not available in this version"


@pytest.mark.parametrize(
    ("schedule", "what"),
    [
        ("soon", "schedule 'soon' is no schedule"),
        ("", "schedule '' is no schedule"),
        ("0s", "schedule '0s' is no schedule"),
        ("99999999999h", "schedule '99999999999h' is longer than ten years"),
        ("3651d", "schedule '3651d' is longer than ten years"),
        ("* * * *", "schedule '* * * *' is no schedule"),
        ("30s", "schedule '30s' is shorter than the minimum of 60 s"),
    ],
)
def test_bad_schedule_is_refused(refusing: headwater.Headwater, schedule: str, what: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        refusing.create_stream_table("st", "SELECT id FROM t", schedule=schedule)
    assert refused.value.what == what


@pytest.mark.parametrize(
    ("schedule", "words", "lag"),
    [
        ("5m", "5m", timedelta(minutes=5)),
        ("1h30m", "1h30m", timedelta(hours=1, minutes=30)),
        ("2d", "2d", timedelta(days=2)),
        ("*/10 * * * *", "*/10 * * * *", None),
        ("calculated", None, None),
        (None, None, None),
    ],
)
def test_schedule_is_recorded(
    hw: headwater.Headwater,
    conn: Connection,
    schedule: str | None,
    words: str | None,
    lag: timedelta | None,
) -> None:
    hw.create_stream_table("st", "SELECT id FROM t", schedule=schedule)
    rows = conn.execute("SELECT schedule, target_lag FROM pgtrickle.pgt_stream_tables").fetchall()
    assert rows == [(words, lag)]


@pytest.mark.parametrize("query", ["", "  ", " ; ", "\n"])
def test_empty_query_is_refused(refusing: headwater.Headwater, query: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        refusing.create_stream_table("st", query)
    assert str(refused.value) == (
        "HW-102: the query is empty\n  why: there is nothing to maintain\n  fix: give a SELECT"
    )


def test_query_without_columns_is_refused(refusing: headwater.Headwater) -> None:
    with pytest.raises(InvalidArgument) as refused:
        refusing.create_stream_table("st", "SELECT FROM t", refresh_mode="FULL")
    assert refused.value.what == "the query has no columns"


@pytest.mark.parametrize("name", ["", "a.b.c", "1st", 'x"y', "a b", "a;b"])
def test_name_that_is_none_is_refused(refusing: headwater.Headwater, name: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        refusing.create_stream_table(name, "SELECT id FROM t")
    assert refused.value.what == f"{name!r} is not the name of a table"


@pytest.mark.parametrize("name", ["t", "public.t", "materialized", "T", "numbers"])
def test_existing_name_is_refused(refusing: headwater.Headwater, name: str) -> None:
    with pytest.raises(AlreadyExists) as refused:
        refusing.create_stream_table(name, "SELECT id FROM u")
    shown = f"public.{name.removeprefix('public.').lower()}"
    assert (refused.value.what, refused.value.why, refused.value.fix) == (
        f"{shown} exists already",
        "a stream table needs a name of its own",
        "choose another name, drop it first, or use create_or_replace",
    )


def test_name_of_another_stream_table_is_refused(hw: headwater.Headwater) -> None:
    hw.create_stream_table("st", "SELECT id FROM t")
    with pytest.raises(AlreadyExists):
        hw.create_stream_table("st", "SELECT id FROM u")


def test_missing_schema_is_an_error_of_the_server(refusing: headwater.Headwater) -> None:
    with pytest.raises(pg.InvalidSchemaName):
        refusing.create_stream_table("nowhere.st", "SELECT id FROM t")


# --- what create makes --------------------------------------------------------------------------


def test_created_says_what_the_user_should_know(hw: headwater.Headwater) -> None:
    made = hw.create_stream_table("st", "SELECT g, count(*) AS n FROM t GROUP BY g")
    assert made == Created(
        "public.st",
        ("g",),
        "DIFFERENTIAL",
        "postgres",
        "engine: PostgreSQL was asked for; mode: DIFFERENTIAL, every operator has a delta rule",
    )


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("SELECT id, x FROM t", ("id",)),
        ("SELECT x FROM t", None),
        ("SELECT s, g, count(*) AS n FROM t GROUP BY g, s", ("s", "g")),
        ("SELECT DISTINCT x, g FROM t", ("x", "g")),
        ("SELECT count(*) AS n FROM t", ()),
        ("SELECT count(*) AS n FROM t GROUP BY g", None),
        ("SELECT t.id, u.g FROM t JOIN u ON u.id = t.g", ("id",)),
        ("SELECT t.id, u.id AS other FROM t JOIN u ON u.g = t.g", ("id", "other")),
        ("SELECT t.id, u.id AS other FROM t LEFT JOIN u ON u.g = t.g", ("id", "other")),
        ("SELECT t.id, u.id AS other FROM t FULL JOIN u ON u.g = t.g", ("id", "other")),
        ("SELECT id FROM t UNION ALL SELECT id FROM u", None),
        ("SELECT id FROM t UNION SELECT id FROM u", ("id",)),
    ],
)
def test_key_is_that_of_the_result(
    hw: headwater.Headwater, query: str, key: tuple[str, ...] | None
) -> None:
    assert hw.create_stream_table("st", query).key_columns == key


def test_name_without_schema_goes_to_the_first_of_the_search_path(
    hw: headwater.Headwater, conn: Connection
) -> None:
    conn.execute("CREATE SCHEMA first; CREATE SCHEMA second; CREATE TABLE second.only_here (a int)")
    hw._conn.execute("SET search_path = nowhere, first, second, public")
    assert hw.create_stream_table("st", "SELECT a FROM only_here").name == "first.st"
    assert hw.create_stream_table('second."ST"', "SELECT id FROM t").name == 'second."ST"'
    assert hw.refresh_stream_table("st").name == "first.st"
    hw._conn.execute("RESET search_path")
    conn.execute("INSERT INTO second.only_here VALUES (1)")
    assert hw.refresh_stream_table("st").name == "first.st"  # the only one of that name
    assert find_difference(conn, "SELECT a FROM second.only_here", "first.st") is None


def test_search_path_without_any_schema_is_refused(hw: headwater.Headwater) -> None:
    hw._conn.execute("SET search_path = nowhere")
    with pytest.raises(InvalidArgument) as refused:
        hw.create_stream_table("st", "SELECT 1 AS one")
    assert (refused.value.what, refused.value.why, refused.value.fix) == (
        "there is no schema to create st in",
        "search_path names no existing schema",
        "write the name as schema.table",
    )


@pytest.mark.parametrize(
    ("mode", "recorded"),
    [("AUTO", "AUTO"), ("auto", "AUTO"), ("INCREMENTAL", "DIFFERENTIAL"), ("full", "FULL")],
)
def test_mode_is_recorded_by_its_own_name(
    hw: headwater.Headwater, mode: str, recorded: str
) -> None:
    hw.create_stream_table("st", "SELECT id FROM t", refresh_mode=mode)
    [status] = hw.pgt_status()
    assert status.refresh_mode == recorded
    assert status.effective_mode == ("FULL" if recorded == "FULL" else "DIFFERENTIAL")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, rank() OVER (ORDER BY x) AS r FROM t",
        "SELECT id FROM t ORDER BY id LIMIT 1",
        "SELECT id FROM t WHERE g IN (SELECT g FROM t)",
        "SELECT id FROM materialized",
        "SELECT id FROM leaf",
        "VALUES (1, 'a'), (2, NULL)",
        "SELECT n FROM generate_series(1, 3) AS n",
        "SELECT relname FROM pg_class WHERE relname = 'pg_class'",
        "WITH RECURSIVE r (n) AS (SELECT 1 UNION SELECT n + 1 FROM r WHERE n < 4) SELECT n FROM r",
        "SELECT g, s, count(*) AS n FROM t GROUP BY ROLLUP (g, s)",
        "SELECT j, id FROM t",
    ],
)
def test_full_takes_any_query(hw: headwater.Headwater, conn: Connection, query: str) -> None:
    made = hw.create_stream_table("st", query, refresh_mode="FULL")
    assert made.effective_mode == "FULL"
    assert find_difference(conn, query, "st") is None
    conn.execute(
        "INSERT INTO t VALUES (3, 2, 0, 'c', '[1]'); DELETE FROM t WHERE id = 1;"
        "REFRESH MATERIALIZED VIEW materialized; INSERT INTO partitioned VALUES (1, 1)"
    )
    assert hw.refresh_stream_table("st").action == "FULL"
    assert find_difference(conn, query, "st") is None


def test_full_takes_volatile_functions(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", "SELECT id, clock_timestamp() AS at FROM t", refresh_mode="FULL")
    before = conn.execute("SELECT id, at FROM st ORDER BY id").fetchall()
    assert hw.refresh_stream_table("st").action == "FULL"
    after = conn.execute("SELECT id, at FROM st ORDER BY id").fetchall()
    assert [row[0] for row in after] == [row[0] for row in before] == [1, 2]
    assert all(new[1] > old[1] for new, old in zip(after, before, strict=True))


def test_full_captures_nothing(hw: headwater.Headwater, conn: Connection) -> None:
    hw.create_stream_table("st", "SELECT id FROM t", refresh_mode="FULL")
    assert (
        conn.execute("SELECT tgname FROM pg_trigger WHERE tgrelid = 't'::regclass").fetchall() == []
    )
    assert conn.execute("SELECT * FROM pgtrickle.pgt_change_tracking").fetchall() == []


def test_table_that_is_not_initialized_is_filled_by_its_first_refresh(
    hw: headwater.Headwater, conn: Connection
) -> None:
    query = "SELECT g, sum(x) AS s FROM t GROUP BY g"
    hw.create_stream_table("st", query, initialize=False)
    assert conn.execute("SELECT count(*) FROM st").fetchall() == [(0,)]
    [row] = conn.execute(
        "SELECT is_populated, status, epoch, data_timestamp FROM pgtrickle.pgt_stream_tables"
    ).fetchall()
    assert row == (False, "INITIALIZING", None, None)
    conn.execute("INSERT INTO t (id, g, x) VALUES (10, 1, 100)")
    filled = hw.refresh_stream_table("st")
    assert (filled.action, filled.reason, filled.rows_inserted) == ("REINITIALIZE", "first fill", 1)
    assert find_difference(conn, query, "st") is None
    conn.execute("INSERT INTO t (id, g, x) VALUES (11, 1, 100)")
    assert hw.refresh_stream_table("st").action == "DIFFERENTIAL"
    assert find_difference(conn, query, "st") is None


def test_stream_table_shows_the_users_columns_and_no_others(
    hw: headwater.Headwater, conn: Connection
) -> None:
    hw.create_stream_table(
        "st", 'SELECT g AS "Group", avg(x) AS mean, count(DISTINCT s), max(s) FROM t GROUP BY g'
    )
    assert columns_of(conn, "st") == [
        ("Group", "integer", "-"),
        ("mean", "numeric", "-"),
        ("count", "bigint", "-"),
        ("max", "text", '"default"'),
    ]


def test_unordered_aggregate_is_warned_about(hw: headwater.Headwater) -> None:
    made = hw.create_stream_table("st", "SELECT g, array_agg(x) AS a FROM t GROUP BY g")
    assert len(made.warnings) == 1
    assert made.warnings[0].startswith("array_agg without ORDER BY")


def test_create_or_replace_creates_then_alters(hw: headwater.Headwater, conn: Connection) -> None:
    first = hw.create_or_replace_stream_table("st", "SELECT id FROM t")
    [(relid,)] = conn.execute("SELECT 'st'::regclass::oid").fetchall()
    second = hw.create_or_replace_stream_table("st", "SELECT id, g FROM t WHERE g = 1")
    assert (first.name, second.name) == ("public.st", "public.st")
    assert conn.execute("SELECT 'st'::regclass::oid").fetchall() == [(relid,)]
    assert find_difference(conn, "SELECT id, g FROM t WHERE g = 1", "st") is None


def test_create_or_replace_refuses_a_relation_that_is_no_stream_table(
    hw: headwater.Headwater,
) -> None:
    with pytest.raises(AlreadyExists):
        hw.create_or_replace_stream_table("u", "SELECT id FROM t")


def test_unknown_stream_table_is_named_with_those_that_exist(hw: headwater.Headwater) -> None:
    hw.create_stream_table("orders_by_day", "SELECT id FROM t")
    with pytest.raises(NotFound) as missing:
        hw.refresh_stream_table("orders_by_dai")
    assert (missing.value.what, missing.value.why, missing.value.fix) == (
        "there is no stream table orders_by_dai",
        "this database has 1 stream tables: public.orders_by_day",
        "did you mean public.orders_by_day?",
    )


def test_every_relation_on_the_way_is_recorded(hw: headwater.Headwater, conn: Connection) -> None:
    conn.execute("CREATE VIEW seen AS SELECT id, g FROM t WHERE x > 0")
    hw.create_stream_table("lower_st", "SELECT id, g FROM u")
    hw.create_stream_table("st", "SELECT s.id FROM seen s JOIN lower_st l USING (g)")
    edges = {(e.pgt_name, e.source_name, e.source_type) for e in hw.st_graph()}
    assert edges == {
        ("public.lower_st", "public.u", "TABLE"),
        ("public.st", "public.lower_st", "STREAM_TABLE"),
        ("public.st", "public.seen", "VIEW"),
        ("public.st", "public.t", "TABLE"),
    }
    used = conn.execute(
        "SELECT source_name, columns_used FROM pgtrickle.pgt_dependencies"
        " JOIN pgtrickle.pgt_stream_tables USING (pgt_id) WHERE pgt_name = 'st' ORDER BY 1"
    ).fetchall()
    assert used == [
        ("public.lower_st", ["g"]),
        ("public.seen", []),
        ("public.t", ["g", "id", "x"]),
    ]
