"""What is written to the catalog is read back as the same values, under any session settings."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from headwater.catalog import epochs, history, streams, tracking
from headwater.catalog.history import RefreshOutcome
from headwater.catalog.install import install
from headwater.catalog.model import (
    Dependency,
    Epoch,
    NewStreamTable,
    Refresh,
    StreamTable,
    Tracking,
)
from headwater.catalog.names import quote_identifier, split_name
from headwater.catalog.rows import names_of
from headwater.catalog.settings import SETTINGS, Settings, read_settings
from headwater.errors import (
    InvalidArgument,
    LockTimeout,
    NotFound,
    QueryFailed,
    SourceAltered,
    bug,
)

Connection = psycopg.Connection[Any]

NEW = NewStreamTable(
    pgt_relid=4_000_000_000,
    pgt_name="totals",
    pgt_schema="s",
    defining_query="SELECT 1 -- 100 %",
    refresh_mode="AUTO",
    owner=10,
    canonical_query=" SELECT 1;",
    schedule="1h30m",
    target_lag=timedelta(hours=1, minutes=30),
    effective_mode="DIFFERENTIAL",
    status="ACTIVE",
    is_populated=True,
    data_timestamp=datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
    frontier={"sources": {"1": [1, 2]}},
    last_refresh_at=datetime(2024, 2, 29, 12, 31, tzinfo=UTC),
    consecutive_errors=2,
    last_error="no",
    needs_reinit=True,
    reinit_reason="altered",
    engine="spark",
    effective_engine="postgres",
    reason="to_char",
    cdc_mode="wal",
    publish=False,
    plan=["Scan", {"relid": 1}],
    key_columns=("a", 'B "x"', "c,d"),
    pinned_settings={"TimeZone": "UTC"},
)


@pytest.fixture
def catalog(conn: Connection) -> Connection:
    """A connection with an installed catalog, under settings that psycopg cannot read as text."""
    install(conn)
    conn.execute(
        "SET IntervalStyle = 'iso_8601'; SET DateStyle = 'German'; SET TimeZone = 'Asia/Kolkata'"
    )
    conn.row_factory = dict_row
    return conn


@pytest.fixture
def pgt_id(catalog: Connection) -> int:
    """The id of the stream table s.totals."""
    return streams.record_stream_table(catalog, NEW)


def add(conn: Connection, relid: int, schema: str, name: str) -> int:
    new = replace(NEW, pgt_relid=relid, pgt_schema=schema, pgt_name=name)
    return streams.record_stream_table(conn, new)


def test_models_have_exactly_the_columns(catalog: Connection) -> None:
    models = {
        "pgt_stream_tables": StreamTable,
        "pgt_dependencies": Dependency,
        "pgt_refresh_history": Refresh,
        "pgt_change_tracking": Tracking,
        "pgt_epochs": Epoch,
    }
    theirs = {"carriers"}  # which only the functions in the server read
    for table, model in models.items():
        cursor = catalog.execute(f"SELECT * FROM pgtrickle.{table}".encode())
        found = (column.name for column in cursor.description or ())
        assert names_of(model) == tuple(name for name in found if name not in theirs)


def test_stream_table_round_trip(catalog: Connection, pgt_id: int) -> None:
    st = streams.get_by_id(catalog, pgt_id)
    assert {f.name: getattr(st, f.name) for f in fields(NEW)} == {
        f.name: getattr(NEW, f.name) for f in fields(NEW)
    }
    assert st.qualified_name == "s.totals"
    assert st.created_at == st.updated_at
    assert streams.list_stream_tables(catalog) == (st,)
    assert streams.find_by_relid(catalog, NEW.pgt_relid) == st
    assert streams.find_by_relid(catalog, 1) is None


def test_defaults_round_trip(catalog: Connection) -> None:
    new = NewStreamTable(
        pgt_relid=1,
        pgt_name="t",
        pgt_schema="s",
        defining_query="SELECT 1",
        refresh_mode="FULL",
        owner=10,
    )
    st = streams.get_by_id(catalog, streams.record_stream_table(catalog, new))
    assert (st.status, st.is_populated, st.engine, st.publish) == (
        "INITIALIZING",
        False,
        "auto",
        True,
    )
    assert (st.schedule, st.plan, st.key_columns, st.pinned_settings) == (None, None, None, {})


@pytest.mark.parametrize("name", ["totals", "s.totals", "S.TOTALS", '"s"."totals"', " s . totals "])
def test_find_by_name(catalog: Connection, pgt_id: int, name: str) -> None:
    assert streams.get_stream_table(catalog, name).pgt_id == pgt_id


def test_find_by_relation(catalog: Connection) -> None:
    """A renamed table is found by its new name, whatever the catalog says."""
    catalog.execute("CREATE TABLE public.renamed ()")
    [row] = catalog.execute("SELECT 'renamed'::regclass::oid AS relid").fetchall()
    pgt_id = add(catalog, row["relid"], "public", "before")
    assert streams.get_stream_table(catalog, "renamed").pgt_id == pgt_id


@pytest.mark.parametrize("name", ["", "a b", "a.b.c", '"a', "1259", "-", "a;", "a."])
def test_what_is_no_name_is_refused(catalog: Connection, name: str) -> None:
    with pytest.raises(InvalidArgument):
        streams.find_stream_table(catalog, name)


def test_not_found_names_what_is_similar(catalog: Connection, pgt_id: int) -> None:
    add(catalog, 2, "s", "Orders by day")
    assert streams.find_stream_table(catalog, "s.totls") is None
    with pytest.raises(NotFound) as caught:
        streams.get_stream_table(catalog, "totls")
    assert caught.value.what == "there is no stream table totls"
    assert caught.value.why == 'this database has 2 stream tables: s.totals, s."Orders by day"'
    assert caught.value.fix == "did you mean s.totals?"
    with pytest.raises(NotFound, match=r'did you mean s\."Orders by day"'):
        streams.get_stream_table(catalog, 's."orders by day"')
    with pytest.raises(NotFound, match=r"did you mean s\.totals\?"):
        streams.get_stream_table(catalog, "elsewhere.totals")
    with pytest.raises(NotFound, match="create it first"):
        streams.get_stream_table(catalog, "xyz")


def test_not_found_lists_no_more_than_ten(catalog: Connection) -> None:
    for number in range(1, 12):
        add(catalog, number, "s", f"t{number}")
    with pytest.raises(NotFound, match=r"has 11 stream tables: s\.t1, .*, s\.t10, …\n"):
        streams.get_stream_table(catalog, "nothing_like_it")


def test_not_found_in_an_empty_catalog(catalog: Connection) -> None:
    with pytest.raises(NotFound, match="this database has 0 stream tables: none"):
        streams.get_stream_table(catalog, "totals")
    with pytest.raises(NotFound):
        streams.get_by_id(catalog, 1)


def test_update(catalog: Connection, pgt_id: int) -> None:
    before = streams.get_by_id(catalog, pgt_id)
    streams.update_stream_table(
        catalog, pgt_id, status="SUSPENDED", frontier={"a": None}, key_columns=("x",), plan=None
    )
    after = streams.get_by_id(catalog, pgt_id)
    assert after.updated_at > before.updated_at
    expected = replace(
        before, status="SUSPENDED", frontier={"a": None}, key_columns=("x",), plan=None
    )
    assert replace(after, updated_at=before.updated_at) == expected
    streams.update_stream_table(catalog, pgt_id)
    assert streams.get_by_id(catalog, pgt_id).updated_at > after.updated_at


def test_update_refuses(catalog: Connection, pgt_id: int) -> None:
    with pytest.raises(InvalidArgument, match="no column created_at, statuss"):
        streams.update_stream_table(catalog, pgt_id, statuss="ACTIVE", created_at=None)
    with pytest.raises(NotFound):
        streams.update_stream_table(catalog, pgt_id + 1, status="ACTIVE")
    assert streams.get_by_id(catalog, pgt_id).status == "ACTIVE"


def test_dependencies(catalog: Connection, pgt_id: int) -> None:
    other = add(catalog, 2, "s", "other")
    orders = Dependency(pgt_id, 7, "TABLE", "public.orders", ("a", "B"), {"a": "int"})
    totals = Dependency(other, NEW.pgt_relid, "STREAM_TABLE", "s.totals")
    streams.record_dependencies(catalog, pgt_id, [replace(orders, source_relid=6), orders])
    streams.record_dependencies(catalog, pgt_id, [replace(orders, pgt_id=0)])
    streams.record_dependencies(catalog, other, [totals, replace(orders, pgt_id=other)])
    assert streams.list_dependencies(catalog, pgt_id) == (orders,)
    assert streams.list_all_dependencies(catalog) == (orders, replace(orders, pgt_id=other), totals)
    readers = {relid: streams.list_dependents(catalog, relid) for relid in (7, NEW.pgt_relid, 8)}
    assert {relid: [st.pgt_id for st in sts] for relid, sts in readers.items()} == {
        7: [pgt_id, other],
        NEW.pgt_relid: [other],
        8: [],
    }
    streams.record_dependencies(catalog, other, [])
    assert streams.list_dependencies(catalog, other) == ()


def test_drop_takes_everything_along(catalog: Connection, pgt_id: int) -> None:
    other = add(catalog, 2, "s", "other")
    streams.record_dependencies(catalog, pgt_id, [Dependency(0, 7, "TABLE", "public.orders")])
    history.start_refresh(catalog, pgt_id, "FULL")
    catalog.execute(
        "INSERT INTO pgtrickle.pgt_refresh_groups (group_name, members) VALUES ('g', %s)",
        [[other, pgt_id]],
    )
    streams.drop_stream_table_rows(catalog, pgt_id)
    assert [st.pgt_id for st in streams.list_stream_tables(catalog)] == [other]
    assert streams.list_all_dependencies(catalog) == ()
    assert history.list_history(catalog, pgt_id) == ()
    groups = catalog.execute("SELECT members FROM pgtrickle.pgt_refresh_groups").fetchall()
    assert groups == [{"members": [other]}]


def test_a_refresh_runs_and_ends(catalog: Connection, pgt_id: int) -> None:
    refresh_id = history.start_refresh(catalog, pgt_id, "DIFFERENTIAL", "spark", 5)
    [running] = history.list_history(catalog, pgt_id)
    assert (running.refresh_id, running.status, running.action) == (
        refresh_id,
        "RUNNING",
        "DIFFERENTIAL",
    )
    assert (running.engine, running.epoch, running.end_time) == ("spark", 5, None)
    assert running.backend_pid == catalog.info.backend_pid
    outcome = RefreshOutcome(
        action="FULL",
        data_timestamp=NEW.data_timestamp,
        rows_inserted=1,
        rows_updated=2,
        rows_deleted=3,
        delta_rows=4,
        epoch=6,
        engine="postgres",
        reason="30 % changed",
        timings={"delta_ms": 1.5},
    )
    history.finish_refresh(catalog, refresh_id, outcome)
    [ended] = history.list_history(catalog, pgt_id)
    assert {f.name: getattr(ended, f.name) for f in fields(outcome)} == {
        f.name: getattr(outcome, f.name) for f in fields(outcome)
    }
    assert ended.end_time is not None
    assert ended.end_time > ended.start_time == running.start_time


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (QueryFailed("division by zero", "y", "z"), "HW-111", "user"),
        (SourceAltered("x", "y", "z"), "HW-202", "schema"),
        (LockTimeout("x", "y", "z"), "HW-302", "system"),
        (bug("x", "y"), "HW-901", "internal"),
        (psycopg.errors.DiskFull("x"), "53100", "internal"),
        (RuntimeError("x"), None, "internal"),
    ],
)
def test_a_refresh_fails(
    catalog: Connection, pgt_id: int, error: Exception, code: str | None, kind: str
) -> None:
    history.fail_refresh(catalog, history.start_refresh(catalog, pgt_id, "FULL"), error)
    [row] = history.list_history(catalog, pgt_id)
    assert (row.status, row.error_message) == ("FAILED", str(error))
    assert (row.error_code, row.error_class) == (code, kind)
    assert row.end_time is not None


def test_a_lost_history_row_is_an_error(catalog: Connection) -> None:
    with pytest.raises(NotFound, match="no refresh 9"):
        history.finish_refresh(catalog, 9, RefreshOutcome(action="FULL"))
    with pytest.raises(NotFound, match="no refresh 9"):
        history.fail_refresh(catalog, 9, RuntimeError())


def test_record_refresh_runs_from_the_start_of_the_transaction(
    catalog: Connection, pgt_id: int
) -> None:
    with catalog.transaction():
        [now] = catalog.execute("SELECT extract(epoch FROM now())::float8 AS seconds").fetchall()
        catalog.execute("SELECT pg_sleep(0.05)")
        skip = RefreshOutcome(action="SKIP", status="SKIPPED", reason="still running")
        refresh_id = history.record_refresh(catalog, pgt_id, skip)
    [row] = history.list_history(catalog, pgt_id)
    assert (row.refresh_id, row.action, row.status) == (refresh_id, "SKIP", "SKIPPED")
    assert row.start_time.timestamp() == pytest.approx(now["seconds"], abs=1e-5)
    assert row.end_time is not None
    assert row.end_time - row.start_time >= timedelta(milliseconds=50)


def test_abandoned_refreshes_fail(catalog: Connection, database: str, pgt_id: int) -> None:
    other = add(catalog, 2, "s", "other")
    done = history.record_refresh(catalog, pgt_id, RefreshOutcome(action="NO_DATA"))
    history.start_refresh(catalog, other, "FULL")
    with psycopg.connect(database, autocommit=True) as ended:
        abandoned = history.start_refresh(ended, pgt_id, "FULL")
    with psycopg.connect(database, autocommit=True) as waiting:
        waits = history.start_refresh(waiting, pgt_id, "FULL")
        own = history.start_refresh(catalog, pgt_id, "FULL")
        states = {row.refresh_id: row.status for row in history.list_history(catalog, pgt_id)}
    expected = {own: "RUNNING", waits: "RUNNING", abandoned: "FAILED", done: "COMPLETED"}
    assert states == expected
    [failed] = [r for r in history.list_history(catalog, pgt_id) if r.refresh_id == abandoned]
    assert failed.error_message == "the refreshing process ended before the refresh did"
    assert failed.end_time is not None
    assert history.list_history(catalog, other)[0].status == "RUNNING"


def test_history_is_cut_newest_first(catalog: Connection, pgt_id: int) -> None:
    ids = [history.start_refresh(catalog, pgt_id, "FULL") for _ in range(22)]
    found = [row.refresh_id for row in history.list_history(catalog, pgt_id)]
    assert found == ids[:1:-1]
    assert len(history.list_history(catalog, pgt_id, max_rows=3)) == 3


def test_epochs(catalog: Connection, database: str) -> None:
    """An epoch holds what its transaction sees: not a writer in flight, but its own writes."""
    catalog.execute("CREATE TABLE public.buffer (xid xid8 DEFAULT pg_current_xact_id())")
    with psycopg.connect(database) as writer:
        catalog.execute("INSERT INTO public.buffer DEFAULT VALUES")
        writer.execute("INSERT INTO public.buffer DEFAULT VALUES")
        with catalog.transaction():
            catalog.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            epoch = epochs.record_epoch(catalog)
            catalog.execute("INSERT INTO public.buffer DEFAULT VALUES")
        writer.commit()
    assert epochs.get_epoch(catalog, epoch.epoch) == epoch
    rows = catalog.execute(
        """SELECT pg_visible_in_snapshot(xid, %(snapshot)s::pg_snapshot) OR xid = %(xid)s::xid8
                  AS belongs FROM public.buffer ORDER BY xid""",
        {"snapshot": epoch.snapshot, "xid": epoch.xid},
    ).fetchall()
    assert [row["belongs"] for row in rows] == [True, False, True]


def test_prune_epochs(catalog: Connection, pgt_id: int) -> None:
    numbers = [epochs.record_epoch(catalog).epoch for _ in range(5)]
    streams.update_stream_table(catalog, pgt_id, epoch=numbers[1])
    history.start_refresh(catalog, pgt_id, "FULL", epoch=numbers[3])
    assert epochs.prune_epochs(catalog, "7 days") == 2
    left = catalog.execute("SELECT epoch FROM pgtrickle.pgt_epochs ORDER BY 1").fetchall()
    assert [row["epoch"] for row in left] == [numbers[1], numbers[3], numbers[4]]
    with pytest.raises(NotFound, match=f"no epoch {numbers[0]}"):
        epochs.get_epoch(catalog, numbers[0])
    assert epochs.prune_epochs(catalog, "7 days") == 0


def test_prune_skips_an_epoch_about_to_be_stood_at(
    catalog: Connection, database: str, pgt_id: int
) -> None:
    first, _ = (epochs.record_epoch(catalog).epoch for _ in range(2))
    with psycopg.connect(database) as refresher:
        streams.update_stream_table(refresher, pgt_id, epoch=first)
        assert epochs.prune_epochs(catalog, "7 days") == 0
    assert streams.get_by_id(catalog, pgt_id).epoch == first


def test_tracking_round_trip(catalog: Connection) -> None:
    first = Tracking(
        source_relid=4_000_000_000,
        source_name='public."Orders"',
        trigger_name="t",
        function_name="f",
        buffer_name="pgtrickle_changes.changes_1",
        columns=("a", "B"),
        all_columns=True,
        tracked_by_pgt_ids=(1, 2),
        leaves=(7, 4_000_000_001),
        last_consumed_epoch=3,
    )
    second = replace(first, source_relid=9, leaves=(), last_consumed_epoch=None, trigger_name=None)
    for row in (first, second):
        tracking.upsert_tracking(catalog, row)
    assert tracking.find_tracking(catalog, 9) == second
    assert tracking.find_tracking(catalog, 8) is None
    assert tracking.list_tracking(catalog) == (second, first)
    assert tracking.list_tracking(catalog, [first.source_relid, 8]) == (first,)
    assert tracking.list_tracking(catalog, []) == ()
    changed = replace(second, columns=(), tracked_by_pgt_ids=(5,), source_name="x")
    tracking.upsert_tracking(catalog, changed)
    tracking.drop_tracking(catalog, first.source_relid)
    assert tracking.list_tracking(catalog) == (changed,)


DEFAULTS = Settings(default_engine="postgres")  # which all tests run under


def test_settings_are_read_from_the_session(catalog: Connection) -> None:
    assert read_settings(catalog) == DEFAULTS
    catalog.execute("SET pg_trickle.enabled = off")
    catalog.execute("SET pg_trickle.auto_full_ratio = 0.5")
    catalog.execute("SET pg_trickle.log_level = 'DEBUG'")
    expected = replace(DEFAULTS, enabled=False, auto_full_ratio=0.5, log_level="debug")
    assert read_settings(catalog) == expected
    catalog.execute("RESET pg_trickle.enabled")
    assert read_settings(catalog) == replace(expected, enabled=True)


def test_settings_of_the_database(catalog: Connection, database: str) -> None:
    name = catalog.info.dbname
    catalog.execute(f'ALTER DATABASE "{name}" SET pg_trickle.scheduler_interval_ms = 250'.encode())
    with psycopg.connect(database) as later:
        assert read_settings(later) == replace(DEFAULTS, scheduler_interval_ms=250)
        later.execute("SET pg_trickle.cdc_mode = 'guess'")
        with pytest.raises(InvalidArgument, match=r"pg_trickle\.cdc_mode is set to 'guess'"):
            read_settings(later)


def test_every_setting_can_be_set(catalog: Connection) -> None:
    for setting in SETTINGS:
        catalog.execute("SELECT set_config(%s, %s, false)", [setting.name, str(setting.default)])
    assert read_settings(catalog) == Settings()


def test_quoting_is_the_server_s(catalog: Connection) -> None:
    words = ["a", "A", "1a", "_", "a$", "é", 'q"q', "a b", "", "a.b"]
    rows = catalog.execute(
        """SELECT word, quote_ident(word) AS quoted
             FROM (SELECT word FROM pg_get_keywords() UNION SELECT unnest(%s::text[])) w""",
        [words],
    ).fetchall()
    server = {row["word"]: row["quoted"] for row in rows}
    ours = {word: quote_identifier(word) for word in server}
    extra = {word for word in ours if ours[word] != server[word]}
    assert all(server[word] == word for word in extra), "a word that this server quotes is not"
    assert len(extra) < 20  # keywords of other versions only


@pytest.mark.parametrize(
    "name", ["a", "A.b", '"A"."b.c"', "é_1$.x", ' "a""b" . c', "ÀB", "x" * 70, "é" * 40]
)
def test_names_are_split_as_the_server_does(catalog: Connection, name: str) -> None:
    [row] = catalog.execute("SELECT parse_ident(%s)::name[]::text[] AS parts", [name]).fetchall()
    assert [part for part in split_name(name) if part is not None] == row["parts"]
