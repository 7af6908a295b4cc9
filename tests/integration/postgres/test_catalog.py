"""The catalog installs, upgrades and leaves no trace, and its SQL surface is as documented."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel, sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

import headwater
from headwater.catalog import install
from headwater.catalog.install import current_version, latest_version, require, uninstall
from headwater.catalog.model import Dependency, NewStreamTable, StreamTable, Tracking
from headwater.catalog.rows import names_of
from headwater.catalog.streams import record_dependencies, record_stream_table
from headwater.catalog.tracking import upsert_tracking
from headwater.errors import (
    AlreadyExists,
    CatalogMissing,
    CatalogTooNew,
    MissingRights,
    UnsupportedServer,
)
from tests.battery.oracle import find_difference
from tests.servers import Server

Connection = psycopg.Connection[Any]

VIEWS = {
    "pgt_ivm_state": "pgt_id lock_mode last_update_xid is_populated",
    "pgt_status": "name status refresh_mode target_lag current_lag last_refresh errors"
    " data_timestamp engine effective_mode reason followed_statements followed_rows"
    " followed_ms",
    "stream_tables_info": " ".join(names_of(StreamTable)) + " current_lag lag_exceeded",
    "pg_stat_stream_tables": "pgt_id pgt_schema pgt_name refresh_count total_refresh_duration_ms"
    " rows_inserted_total rows_deleted_total skip_count error_count last_lag_ms max_lag_ms",
}
HISTORY = (
    "refresh_id pgt_id data_timestamp start_time end_time action rows_inserted rows_updated"
    " rows_deleted delta_rows error_message error_code error_class status epoch engine reason"
    " timings backend_pid"
)
FUNCTIONS = {
    "pgt_status()": VIEWS["pgt_status"],
    "refresh_history('s.totals')": HISTORY,
    "st_graph()": "pgt_name source_name source_type",
    "change_buffer_sizes()": "source_name pending_rows bytes",
    "refresh_groups()": "group_id group_name members epoch data_timestamp created_at",
    "health_check()": "severity check subject detail fix",
    "check_cdc_health()": "source_name trigger_name triggers_enabled selective_capture tracked_by"
    " columns",
}
TABLES = {
    "pgt_catalog_version": "version applied_at",
    "pgt_epochs": "epoch snapshot xid data_timestamp in_lake",
    "pgt_stream_tables": "pgt_id pgt_relid pgt_name pgt_schema defining_query canonical_query"
    " schedule target_lag refresh_mode effective_mode status is_populated data_timestamp frontier"
    " epoch last_refresh_at consecutive_errors last_error needs_reinit reinit_reason engine"
    " effective_engine reason cdc_mode publish owner plan key_columns pinned_settings created_at"
    " updated_at",
    "pgt_dependencies": "pgt_id source_relid source_type source_name columns_used fingerprint"
    " policy carriers",
    "pgt_refresh_history": HISTORY,
    "pgt_change_tracking": "source_relid source_name trigger_name function_name buffer_name columns"
    " all_columns tracked_by_pgt_ids leaves last_consumed_epoch generation",
    "pgt_function_uses": "pgt_id function_oid function_name fingerprint",
    "pgt_refresh_groups": "group_id group_name members created_at",
    "pgt_daemon": "is_running serves_requests host process_id backend_pid version since last_wake",
    "pgt_leader": "is_only backend_pid host process_id version since last_wake",
}
LATEST = latest_version()
ALL_STEPS = list(range(1, LATEST + 1))
NEXT_STEP = """
ALTER TABLE pgtrickle.pgt_refresh_groups ADD COLUMN note text;
CREATE VIEW pgtrickle.notes AS SELECT note FROM pgtrickle.pgt_refresh_groups;
"""
# Everything that a migration can make, by name, so that two databases can be compared.
OBJECTS = """
SELECT 'schema', nspname::text, '' FROM pg_namespace WHERE nspname !~ '^pg_(toast|temp)'
UNION ALL
SELECT 'relation', c.oid::regclass::text, concat_ws(' ', c.relkind, string_agg(
         concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                   pg_get_expr(d.adbin, d.adrelid)), ', ' ORDER BY a.attnum),
         CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END)
  FROM pg_class c
  LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
  LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
 WHERE c.relnamespace::regnamespace::text !~ '^(pg_|information_schema)' GROUP BY c.oid
UNION ALL
SELECT 'constraint', conname, pg_get_constraintdef(oid) FROM pg_constraint
 WHERE connamespace::regnamespace::text !~ '^(pg_|information_schema)'
UNION ALL
SELECT 'function', oid::regprocedure::text, pg_get_functiondef(oid) FROM pg_proc
 WHERE pronamespace::regnamespace::text !~ '^(pg_|information_schema)' AND prokind = 'f'
UNION ALL
SELECT 'type', oid::regtype::text, '' FROM pg_type
 WHERE typnamespace::regnamespace::text !~ '^(pg_|information_schema)'
UNION ALL
SELECT 'trigger', tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL
SELECT 'event trigger', evtname, '' FROM pg_event_trigger
UNION ALL
SELECT 'setting', setconfig::text, '' FROM pg_db_role_setting
 WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY 1, 2, 3
"""


@pytest.fixture
def catalog(conn: Connection) -> Connection:
    """`conn` with the catalog installed."""
    install.install(conn)
    return conn


@pytest.fixture
def filled(catalog: Connection) -> Connection:
    """A catalog with one stream table, s.totals over public.orders, with capture and history."""
    catalog.execute("CREATE SCHEMA s")
    catalog.execute("CREATE TABLE orders (id int, amount int, note text)")
    catalog.execute("CREATE TABLE s.totals (total bigint)")
    create_capture(catalog, "orders")
    add_stream_table(catalog, "s", "totals")
    return catalog


@pytest.fixture
def role(conn: Connection) -> Iterator[str]:
    """A role that may log in and create in the database of `conn`, and nothing else."""
    name = f"r_{uuid.uuid4().hex[:12]}"
    conn.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
    conn.execute(
        sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(
            sql.Identifier(conn.info.dbname), sql.Identifier(name)
        )
    )
    yield name
    conn.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(name)))
    conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.fixture
def one_more(tmp_path: Path) -> Path:
    """A directory of the real migrations and a made-up next one."""
    directory = tmp_path / "migrations"
    directory.mkdir()
    for file in (files("headwater.catalog") / "migrations").iterdir():
        (directory / file.name).write_text(file.read_text())
    (directory / next_file()).write_text(NEXT_STEP)
    return directory


def next_file() -> str:
    return f"{LATEST + 1:04}_notes.sql"


def objects(conn: Connection) -> list[tuple[str, str, str]]:
    """Describe every object of the user's and of ours in the database."""
    with conn.transaction():
        conn.execute("SET LOCAL search_path = ''")
        return conn.execute(OBJECTS.encode()).fetchall()


def columns(conn: Connection, relation: str) -> str:
    """Return the column names of a relation or function of ours, in order."""
    cursor = conn.execute(f"SELECT * FROM pgtrickle.{relation} LIMIT 0".encode())
    return " ".join(column.name for column in cursor.description or ())


def rows(conn: Connection, query: str) -> list[dict[str, Any]]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query.encode()).fetchall()


def relid(conn: Connection, name: str) -> int:
    [(oid,)] = conn.execute("SELECT %s::regclass::oid", [name]).fetchall()
    return int(oid)


def add_stream_table(conn: Connection, schema: str, name: str, **values: Any) -> int:
    """Record a stream table stored in the relation of that name, which reads public.orders."""
    st = NewStreamTable(
        pgt_relid=relid(conn, f'"{schema}"."{name}"'),
        pgt_name=name,
        pgt_schema=schema,
        defining_query="SELECT sum(amount) AS total FROM orders",
        owner=10,
        **{"refresh_mode": "AUTO", "schedule": "1m", **values},
    )
    pgt_id = record_stream_table(conn, st)
    source = Dependency(pgt_id, relid(conn, "orders"), "TABLE", "public.orders", ("amount",))
    record_dependencies(conn, pgt_id, [source])
    return pgt_id


def create_capture(conn: Connection, table: str) -> None:
    """Put a buffer, a function and triggers on `table`, named as capture names them."""
    oid = relid(conn, table)
    conn.execute(f"CREATE TABLE pgtrickle_changes.changes_{oid} (xid xid8, weight int)".encode())
    conn.execute(
        f"CREATE FUNCTION pgtrickle_changes.capture_{oid}() RETURNS trigger"
        " LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'".encode()
    )
    create_triggers(conn, oid, table, "INSERT", "UPDATE", "DELETE", "TRUNCATE")
    upsert_tracking(
        conn,
        Tracking(
            source_relid=oid,
            source_name=f"public.{table}",
            trigger_name=f"pg_trickle_cdc_{oid}",
            function_name=f"pgtrickle_changes.capture_{oid}",
            buffer_name=f"pgtrickle_changes.changes_{oid}",
            columns=("amount",),
            all_columns=False,
            tracked_by_pgt_ids=(1,),
        ),
    )


def create_triggers(conn: Connection, source: int, table: str, *events: str) -> None:
    for event in events:
        conn.execute(
            f"CREATE TRIGGER pg_trickle_cdc_{source}_{event.lower()} AFTER {event} ON {table}"
            f" EXECUTE FUNCTION pgtrickle_changes.capture_{source}()".encode()
        )


def test_install_twice(conn: Connection) -> None:
    assert current_version(conn) == 0
    assert install.install(conn) == ALL_STEPS
    before = objects(conn)
    assert install.install(conn) == []
    assert (objects(conn), current_version(conn)) == (before, LATEST)


def test_install_sends_no_notice(conn: Connection) -> None:
    seen: list[str | None] = []
    conn.add_notice_handler(lambda diagnostic: seen.append(diagnostic.message_primary))
    install.install(conn)
    uninstall(conn)
    assert seen == []


@pytest.mark.parametrize("level", [None, IsolationLevel.SERIALIZABLE])
def test_many_install_at_once(database: str, level: IsolationLevel | None) -> None:
    start = threading.Barrier(4)

    def run(_: int) -> list[int]:
        with psycopg.connect(database, autocommit=True) as conn:
            conn.isolation_level = level
            start.wait()
            return install.install(conn)

    with ThreadPoolExecutor(4) as pool:
        assert sorted(chain.from_iterable(pool.map(run, range(4)))) == ALL_STEPS


def test_an_installer_waits_for_the_one_before(database: str) -> None:
    with psycopg.connect(database) as first, psycopg.connect(database, autocommit=True) as second:
        assert install.install(first) == ALL_STEPS  # not committed until this block ends
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(install.install, second)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)
            first.commit()
            assert waiting.result(timeout=30) == []


def test_install_inside_a_transaction_of_the_caller(database: str) -> None:
    with psycopg.connect(database) as conn:
        conn.execute("SET LOCAL search_path = nowhere")
        conn.execute("SET LOCAL client_min_messages = debug1")
        assert install.install(conn) == ALL_STEPS
        settings = "SELECT current_setting('search_path'), current_setting('client_min_messages')"
        assert conn.execute(settings).fetchone() == ("nowhere", "debug1")
        conn.rollback()
        assert current_version(conn) == 0


def test_upgrade_equals_a_fresh_install(
    catalog: Connection, server: Server, one_more: Path
) -> None:
    assert install.install(catalog, one_more) == [LATEST + 1]
    assert current_version(catalog) == latest_version(one_more) == LATEST + 1
    dsn = server.create_database()
    with psycopg.connect(dsn, autocommit=True) as fresh:
        assert install.install(fresh, one_more) == [*ALL_STEPS, LATEST + 1]
        assert objects(fresh) == objects(catalog)
    server.drop_database(dsn)


def test_every_older_catalog_is_upgraded_to_a_fresh_one(conn: Connection, tmp_path: Path) -> None:
    install.install(conn)
    fresh = objects(conn)
    for file in sorted((files("headwater.catalog") / "migrations").iterdir(), key=str)[:-1]:
        (tmp_path / file.name).write_text(file.read_text())
        install.uninstall(conn)
        older = install.install(conn, tmp_path)
        assert objects(conn) != fresh
        assert [*older, *install.install(conn)] == ALL_STEPS
        assert objects(conn) == fresh


def test_pending_changes_survive_an_upgrade(
    conn: Connection, database: str, one_more: Path
) -> None:
    query = "SELECT n % 3 AS g, sum(n) AS s FROM numbers GROUP BY 1"
    conn.execute("CREATE TABLE numbers AS SELECT n FROM generate_series(1, 9) AS n")
    with headwater.connect(database) as hw:
        hw.create_stream_table("sums", query)
        conn.execute("INSERT INTO numbers VALUES (10), (11); DELETE FROM numbers WHERE n = 1")
        assert install.install(conn, one_more) == [LATEST + 1]
        conn.execute("INSERT INTO numbers VALUES (12)")
        [sizes] = rows(conn, "SELECT * FROM pgtrickle.change_buffer_sizes()")
        assert sizes["pending_rows"] == 4
        refreshed = hw.refresh_stream_table("sums")
        assert (refreshed.action, refreshed.delta_rows) == ("DIFFERENTIAL", 4)
    assert find_difference(conn, query, "sums") is None


def test_a_failing_step_leaves_the_steps_before_it(conn: Connection, one_more: Path) -> None:
    (one_more / next_file()).write_text(NEXT_STEP + "SELECT 1 / 0;")
    with pytest.raises(psycopg.errors.DivisionByZero):
        install.install(conn, one_more)
    assert current_version(conn) == LATEST
    assert rows(conn, "SELECT to_regclass('pgtrickle.notes') AS notes") == [{"notes": None}]


def test_a_newer_catalog_is_refused(catalog: Connection) -> None:
    catalog.execute("INSERT INTO pgtrickle.pgt_catalog_version VALUES (99)")
    with pytest.raises(CatalogTooNew, match=f"version 99, and this headwater knows {LATEST}"):
        install.install(catalog)
    with pytest.raises(CatalogTooNew):
        require(catalog)


def test_require(conn: Connection) -> None:
    with pytest.raises(CatalogMissing, match="holds no headwater catalog"):
        require(conn)
    install.install(conn)
    require(conn)


def test_require_names_an_older_catalog(
    catalog: Connection, one_more: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "files", lambda _: one_more.parent)
    with pytest.raises(
        CatalogMissing, match=f"is at version {LATEST}, .* needs version {LATEST + 1}"
    ):
        require(catalog)


def test_a_foreign_schema_of_our_name_is_refused(conn: Connection) -> None:
    conn.execute("CREATE SCHEMA pgtrickle")
    with pytest.raises(AlreadyExists, match='schema "pgtrickle" already exists'):
        install.install(conn)
    uninstall(conn)
    assert ("schema", "pgtrickle", "") in objects(conn)


def test_a_standby_is_refused(conn: Connection) -> None:
    conn.execute("CREATE SCHEMA fake")
    conn.execute("CREATE FUNCTION fake.pg_is_in_recovery() RETURNS boolean RETURN true")
    conn.execute("SET search_path = fake, pg_catalog")
    with pytest.raises(UnsupportedServer, match="recovery"):
        install.install(conn)


def test_uninstall_leaves_the_user_s_objects_only(conn: Connection) -> None:
    conn.execute("CREATE SCHEMA s")
    conn.execute("CREATE TABLE orders (id int, amount int)")
    conn.execute("CREATE TABLE s.totals (total bigint)")
    before = objects(conn)
    install.install(conn)
    create_capture(conn, "orders")
    add_stream_table(conn, "s", "totals")
    conn.execute(
        "CREATE FUNCTION pgtrickle_state.guard() RETURNS trigger"
        " LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
    )
    conn.execute(
        "CREATE TRIGGER guard BEFORE INSERT ON s.totals EXECUTE FUNCTION pgtrickle_state.guard()"
    )
    conn.execute(
        "CREATE FUNCTION pgtrickle_state.watch() RETURNS event_trigger"
        " LANGUAGE plpgsql AS 'BEGIN END'"
    )
    conn.execute(
        "CREATE EVENT TRIGGER watch ON ddl_command_end EXECUTE FUNCTION pgtrickle_state.watch()"
    )
    uninstall(conn)
    assert objects(conn) == before
    uninstall(conn)
    assert install.install(conn) == ALL_STEPS


def test_every_object_is_in_our_schemas(conn: Connection) -> None:
    before = objects(conn)
    install.install(conn)
    added = [(kind, name) for kind, name, _ in objects(conn) if kind != "constraint"]
    added = [one for one in added if one not in [(kind, name) for kind, name, _ in before]]
    schemas = {"pgtrickle", "pgtrickle_changes", "pgtrickle_state"}
    triggers = {  # these are in none
        *("pgt_follow_ddl", "pgt_follow_drop", "pgt_forget_drop", "pgt_make_tviews"),
        *("pgt_at_commit", "pgt_forget_patches"),
    }
    assert {name.split(".")[0] for _, name in added} == schemas | triggers


def test_a_role_that_may_create_can_install(database: str, role: str) -> None:
    with psycopg.connect(make_conninfo(database, user=role), autocommit=True) as own:
        assert install.install(own) == ALL_STEPS
        for relation in [*VIEWS, *FUNCTIONS]:
            assert own.execute(f"SELECT * FROM pgtrickle.{relation}".encode()).fetchall() == []
        uninstall(own)
        assert current_version(own) == 0


def test_a_role_without_rights_is_told_so(conn: Connection, database: str, role: str) -> None:
    revoke = sql.SQL("REVOKE CREATE ON DATABASE {} FROM {}")
    conn.execute(revoke.format(sql.Identifier(conn.info.dbname), sql.Identifier(role)))
    with psycopg.connect(make_conninfo(database, user=role), autocommit=True) as own:
        with pytest.raises(MissingRights, match="permission denied for database"):
            install.install(own)
        install.install(conn)
        with pytest.raises(MissingRights, match="permission denied"):
            require(own)


@pytest.mark.parametrize("relation", [*TABLES, *VIEWS, *FUNCTIONS])
def test_columns_to_the_letter(catalog: Connection, relation: str) -> None:
    expected = {**TABLES, **VIEWS, **FUNCTIONS}[relation]
    assert columns(catalog, relation) == expected


def test_every_function_is_bound_or_pinned(catalog: Connection) -> None:
    """A body of the form BEGIN ATOMIC was bound when made; every other function pins the path.

    But for two that every write passes, the guard of stream tables and the clock of documents, and
    one that must know the caller's path: they name all things in full, and run with the rights of
    the caller.
    """
    loose = rows(
        catalog,
        """SELECT proname FROM pg_proc WHERE pronamespace = 'pgtrickle'::regnamespace
             AND prosqlbody IS NULL
             AND 'search_path=pg_catalog, pg_temp' = ANY (proconfig) IS NOT TRUE
           ORDER BY proname""",
    )
    expected = ("guard_stream_table", "make_tviews", "touch_document")
    assert loose == [{"proname": name} for name in expected]


def test_status(filled: Connection) -> None:
    filled.execute(
        """UPDATE pgtrickle.pgt_stream_tables
              SET status = 'ACTIVE', target_lag = '1 min', effective_mode = 'DIFFERENTIAL',
                  data_timestamp = now() - interval '90 s', effective_engine = 'postgres',
                  last_refresh_at = '2020-01-01 00:00+00', reason = 'because'"""
    )
    [status] = rows(filled, "SELECT * FROM pgtrickle.pgt_status()")
    assert rows(filled, "SELECT name, errors FROM pgtrickle.pgt_status") == [
        {"name": "s.totals", "errors": 0}
    ]
    assert 90 <= status.pop("current_lag").total_seconds() < 120
    assert status.pop("data_timestamp") is not None
    assert status.pop("last_refresh").year == 2020
    assert status.pop("target_lag").total_seconds() == 60
    assert status == {
        "name": "s.totals",
        "status": "ACTIVE",
        "refresh_mode": "AUTO",
        "errors": 0,
        "engine": "postgres",
        "effective_mode": "DIFFERENTIAL",
        "reason": "because",
        "followed_statements": None,
        "followed_rows": None,
        "followed_ms": None,
    }


@pytest.mark.parametrize(
    ("values", "is_exceeded"),
    [
        ("schedule = '1m', target_lag = '1 min'", True),
        ("schedule = '1h', target_lag = '1 h'", False),
        ("schedule = NULL, target_lag = NULL", False),
        ("schedule = NULL, target_lag = '1 min'", False),
        ("data_timestamp = NULL, target_lag = '1 min'", False),
        ("refresh_mode = 'IMMEDIATE', target_lag = '1 min'", False),
        ("refresh_mode = 'IMMEDIATE', target_lag = '1 min', status = 'SUSPENDED'", True),
    ],
)
def test_lag_exceeded(filled: Connection, values: str, is_exceeded: bool) -> None:
    filled.execute(
        """UPDATE pgtrickle.pgt_stream_tables
              SET status = 'ACTIVE', is_populated = true, data_timestamp = now() - interval '5 min'
        """
    )
    filled.execute(f"UPDATE pgtrickle.pgt_stream_tables SET {values}".encode())
    assert rows(filled, "SELECT lag_exceeded FROM pgtrickle.stream_tables_info") == [
        {"lag_exceeded": is_exceeded}
    ]


def test_ivm_state(filled: Connection) -> None:
    assert rows(filled, "SELECT * FROM pgtrickle.pgt_ivm_state") == []
    filled.execute(
        """UPDATE pgtrickle.pgt_stream_tables
              SET refresh_mode = 'IMMEDIATE', is_populated = true, frontier = '{"xid": "15"}'"""
    )
    assert rows(filled, "SELECT * FROM pgtrickle.pgt_ivm_state") == [
        {"pgt_id": 1, "lock_mode": "ROW_EXCLUSIVE", "last_update_xid": "15", "is_populated": True}
    ]


def test_statistics_match_the_history(filled: Connection) -> None:
    filled.execute(
        """INSERT INTO pgtrickle.pgt_refresh_history
             (pgt_id, action, status, start_time, end_time, data_timestamp,
              rows_inserted, rows_updated, rows_deleted)
           VALUES (1, 'FULL', 'COMPLETED', '2020-01-01 00:00:01', '2020-01-01 00:00:03',
                   '2020-01-01 00:00:00', 5, 0, 0),
                  (1, 'DIFFERENTIAL', 'COMPLETED', '2020-01-01 00:01:00', '2020-01-01 00:01:00.5',
                   '2020-01-01 00:00:59.5', 1, 2, 4),
                  (1, 'DIFFERENTIAL', 'FAILED', '2020-01-01 00:02:00', '2020-01-01 00:02:09',
                   NULL, 7, 7, 7),
                  (1, 'SKIP', 'SKIPPED', now(), now(), NULL, 0, 0, 0),
                  (1, 'DIFFERENTIAL', 'RUNNING', now(), NULL, NULL, 0, 0, 0)"""
    )
    assert rows(filled, "SELECT * FROM pgtrickle.pg_stat_stream_tables") == [
        {
            "pgt_id": 1,
            "pgt_schema": "s",
            "pgt_name": "totals",
            "refresh_count": 2,
            "total_refresh_duration_ms": 2500.0,
            "rows_inserted_total": 8,
            "rows_deleted_total": 6,
            "skip_count": 1,
            "error_count": 1,
            "last_lag_ms": 1000.0,
            "max_lag_ms": 3000.0,
        }
    ]


def test_statistics_without_history(filled: Connection) -> None:
    [found] = rows(filled, "SELECT * FROM pgtrickle.pg_stat_stream_tables")
    assert list(found.values()) == [1, "s", "totals", 0, 0.0, 0, 0, 0, 0, None, None]


def test_refresh_history_function(filled: Connection) -> None:
    filled.execute(
        """INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, action, status)
           SELECT 1, 'NO_DATA', 'COMPLETED' FROM generate_series(1, 25)"""
    )

    def ids(call: str) -> list[int]:
        found = rows(filled, f"SELECT refresh_id FROM pgtrickle.refresh_history({call})")
        return [row["refresh_id"] for row in found]

    assert ids("'s.totals'") == list(range(25, 5, -1))
    assert ids("'totals', max_rows => 2") == [25, 24]
    assert ids("pgt_name => 'S.\"totals\"', max_rows => 1") == [25]
    assert ids("'s.nothing'") == []


@pytest.mark.parametrize(
    ("search_path", "name", "schema"),
    [
        ("a, b", "totals", "a"),
        ("b, a", "totals", "b"),
        ("c, b", "totals", None),  # c.totals is another table
        ("public", "totals", None),  # not to be found, and a or b would be a guess
        ("public", "b.totals", "b"),
        ("public", "solo", "b"),  # off the path, but the only one
        ("a, b", "Totals", "a"),
        ("a, b", '"Totals"', "A b"),
        ("a, b", '"A b"."Totals"', "A b"),
        ("a, b", "gone", "b"),
        ("a, b", "b.gone", "b"),
        ("a, b", "a.gone", None),
    ],
)
def test_names_mean_what_they_mean_to_the_caller(
    catalog: Connection, search_path: str, name: str, schema: str | None
) -> None:
    catalog.execute("CREATE TABLE orders (amount int)")
    for where, what in [("a", "totals"), ("b", "totals"), ("b", "solo"), ("b", "gone")]:
        catalog.execute(f"CREATE SCHEMA IF NOT EXISTS {where}".encode())
        catalog.execute(f"CREATE TABLE {where}.{what} ()".encode())
        add_stream_table(catalog, where, what)
    catalog.execute('CREATE SCHEMA "A b" CREATE TABLE "Totals" ()')
    add_stream_table(catalog, "A b", "Totals")
    catalog.execute("CREATE SCHEMA c CREATE TABLE totals ()")
    catalog.execute("DROP TABLE b.gone")
    catalog.execute(f"SET search_path = {search_path}".encode())
    found = catalog.execute(
        "SELECT pgt_schema FROM pgtrickle.pgt_stream_tables"
        " WHERE pgt_id = pgtrickle.stream_table_id(%s)",
        [name],
    ).fetchone()
    assert (found and found[0]) == schema


def test_graph(filled: Connection) -> None:
    filled.execute('CREATE TABLE s."Left" ()')
    left = add_stream_table(filled, "s", "Left")
    upstream = Dependency(left, relid(filled, "s.totals"), "STREAM_TABLE", "s.totals")
    record_dependencies(filled, left, [upstream])
    assert rows(filled, "SELECT * FROM pgtrickle.st_graph()") == [
        {"pgt_name": 's."Left"', "source_name": "s.totals", "source_type": "STREAM_TABLE"},
        {"pgt_name": "s.totals", "source_name": "public.orders", "source_type": "TABLE"},
    ]


def test_buffer_sizes(filled: Connection) -> None:
    oid = relid(filled, "orders")
    insert = f"INSERT INTO pgtrickle_changes.changes_{oid} SELECT '1', 1 FROM generate_series(1, 3)"
    filled.execute(insert.encode())
    [size] = rows(filled, "SELECT * FROM pgtrickle.change_buffer_sizes()")
    assert (size["source_name"], size["pending_rows"], size["bytes"]) == ("public.orders", 3, 8192)
    filled.execute(f"DROP TABLE pgtrickle_changes.changes_{oid}".encode())
    assert rows(filled, "SELECT * FROM pgtrickle.change_buffer_sizes()") == [
        {"source_name": "public.orders", "pending_rows": None, "bytes": None}
    ]


def test_buffer_sizes_of_a_partitioned_buffer(filled: Connection) -> None:
    oid = relid(filled, "orders")
    for statement in (
        f"DROP TABLE pgtrickle_changes.changes_{oid}",
        f"CREATE TABLE pgtrickle_changes.changes_{oid} (weight int) PARTITION BY LIST (weight)",
        f"CREATE TABLE pgtrickle_changes.p PARTITION OF pgtrickle_changes.changes_{oid} DEFAULT",
        f"INSERT INTO pgtrickle_changes.changes_{oid} VALUES (1), (-1)",
    ):
        filled.execute(statement.encode())
    assert rows(filled, "SELECT pending_rows, bytes FROM pgtrickle.change_buffer_sizes()") == [
        {"pending_rows": 2, "bytes": 8192}
    ]


def test_health(filled: Connection) -> None:
    oid = relid(filled, "orders")
    assert rows(filled, "SELECT * FROM pgtrickle.check_cdc_health()") == [
        {
            "source_name": "public.orders",
            "trigger_name": f"pg_trickle_cdc_{oid}",
            "triggers_enabled": True,
            "selective_capture": True,
            "tracked_by": [1],
            "columns": ["amount"],
        }
    ]
    filled.execute("UPDATE pgtrickle.pgt_change_tracking SET all_columns = true")
    assert rows(filled, "SELECT selective_capture FROM pgtrickle.check_cdc_health()") == [
        {"selective_capture": False}
    ]


@pytest.mark.parametrize(
    "damage",
    [
        "ALTER TABLE orders DISABLE TRIGGER pg_trickle_cdc_{oid}_insert",
        "ALTER TABLE orders ENABLE REPLICA TRIGGER pg_trickle_cdc_{oid}_update",
        "DROP TRIGGER pg_trickle_cdc_{oid}_delete ON orders",
        "DROP TRIGGER pg_trickle_cdc_{oid}_truncate ON orders",
        "ALTER TRIGGER pg_trickle_cdc_{oid}_insert ON orders RENAME TO other",
        "DROP TABLE orders",
    ],
)
def test_health_sees_damage(filled: Connection, damage: str) -> None:
    filled.execute(damage.format(oid=relid(filled, "orders")).encode())
    assert rows(filled, "SELECT triggers_enabled FROM pgtrickle.check_cdc_health()") == [
        {"triggers_enabled": False}
    ]


def test_health_looks_at_leaves(filled: Connection) -> None:
    filled.execute("CREATE TABLE leaf () INHERITS (orders)")
    filled.execute("UPDATE pgtrickle.pgt_change_tracking SET leaves = ARRAY['leaf'::regclass::oid]")
    health = "SELECT triggers_enabled FROM pgtrickle.check_cdc_health()"
    assert rows(filled, health) == [{"triggers_enabled": False}]
    create_triggers(filled, relid(filled, "orders"), "leaf", "INSERT", "UPDATE", "DELETE")
    assert rows(filled, health) == [{"triggers_enabled": True}]
