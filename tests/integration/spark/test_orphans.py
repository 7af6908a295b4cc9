"""What a transaction left in the lake goes once it has ended, and not before; needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import headwater
from headwater.algebra.schema import SqlType
from headwater.api.transactions import one_snapshot
from headwater.catalog import epochs
from headwater.spark import ingest
from headwater.spark.lake import Lake
from tests.servers import Server

Connection = psycopg.Connection[Any]
COLUMNS = (("id", SqlType("integer")),)
RECORD = """
INSERT INTO pgtrickle.pgt_traces (source_relid, url, columns, columns_used, version, epoch, since,
       owner, pinned_settings, generation)
VALUES (1, %s, '[]', '{}', %s, 1, 1, 1, '{}', 1)
"""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


@pytest.fixture
def dsn(pg18: Server) -> Iterator[str]:
    """The DSN of a database with a catalog and one source."""
    dsn = pg18.create_database()
    with headwater.connect(dsn), psycopg.connect(dsn) as conn:
        conn.execute("CREATE TABLE source AS SELECT 1 AS id")
    yield dsn
    pg18.drop_database(dsn)


def _open(dsn: str) -> Connection:
    return psycopg.connect(dsn, autocommit=True)


def _load(conn: Connection, lake: Lake) -> ingest.Standing:
    epoch = epochs.record_epoch(conn)
    need = ingest.Need(1, "source", COLUMNS)
    standing = ingest.load(conn, ingest.own_lake(conn, lake, epoch), need, epoch)
    assert Path(standing.url).parent == Path(lake.url)
    return standing


def _is_there(standing: ingest.Standing) -> bool:
    return Path(standing.url).exists()


def test_lake_that_is_not_there_has_no_orphans(dsn: str, lake: Lake) -> None:
    with _open(dsn) as conn:
        ingest.sweep_orphans(conn, lake)


def test_what_was_rolled_back_goes(dsn: str, lake: Lake) -> None:
    with _open(dsn) as conn:
        with conn.transaction(force_rollback=True):
            standing = _load(conn, lake)
        assert _is_there(standing)
        ingest.sweep_orphans(conn, lake)
        assert not _is_there(standing)


def test_what_is_being_made_stays(dsn: str, lake: Lake) -> None:
    """Whether the sweeper is another session or the transaction itself."""
    with _open(dsn) as conn, _open(dsn) as other, conn.transaction():
        standing = _load(conn, lake)
        ingest.sweep_orphans(conn, lake)
        ingest.sweep_orphans(other, lake)
        assert _is_there(standing)


def test_what_was_recorded_after_the_sweepers_snapshot_stays(dsn: str, lake: Lake) -> None:
    with _open(dsn) as conn, _open(dsn) as other, one_snapshot(other):
        other.execute("SELECT 1")
        with conn.transaction():
            standing = _load(conn, lake)
            conn.execute(RECORD, [standing.url, standing.version])
        ingest.sweep_orphans(other, lake)
        assert _is_there(standing)
        ingest.sweep_orphans(conn, lake)
        assert _is_there(standing)


def test_what_another_database_made_stays(dsn: str, lake: Lake, pg18: Server) -> None:
    """Its transactions are none of ours, whatever their numbers."""
    strange = pg18.create_database()
    try:
        with headwater.connect(strange), _open(dsn) as conn, _open(strange) as other:
            with conn.transaction(force_rollback=True):
                standing = _load(conn, lake)
            ingest.sweep_orphans(other, lake)
            assert _is_there(standing)
    finally:
        pg18.drop_database(strange)


def test_the_doctor_looks_at_the_lake(dsn: str, lake: Lake) -> None:
    """Files without a row, a row without a reader, and a row without its files."""
    with headwater.connect(dsn, lake=lake.url) as hw, _open(dsn) as conn:
        hw.create_stream_table("copied", "SELECT id FROM source", engine="postgres")
        assert hw.doctor() == ()
        with conn.transaction(force_rollback=True):
            orphan = _load(conn, lake)
        unread, damaged = _recorded(conn, lake), _recorded(conn, lake)
        conn.execute(
            "INSERT INTO pgtrickle.pgt_trace_readers SELECT st.pgt_id, 1, t.trace_id"
            " FROM pgtrickle.pgt_stream_tables st, pgtrickle.pgt_traces t WHERE t.url = %s",
            [damaged.url],
        )
        next(Path(damaged.url).glob("*.parquet")).unlink()
        found = [("orphaned files", orphan.url), ("unread copy", unread.url),
                 ("damaged copy", damaged.url)]  # fmt: skip
        assert [(d.check, d.subject) for d in hw.doctor()] == found
        assert {d.is_fixed for d in hw.doctor(fix=True)} == {True}
        assert hw.doctor() == ()
        assert hw.refresh_stream_table("copied").action == "REINITIALIZE"
        assert not _is_there(orphan)
        assert not _is_there(unread)
    with headwater.Headwater(dsn) as without, _open(dsn) as conn:
        conn.execute(RECORD, ["somewhere", 1])
        [diagnosis] = without.doctor(fix=True)
        assert (diagnosis.check, diagnosis.is_fixed) == ("lake", False)


def _recorded(conn: Connection, lake: Lake) -> ingest.Standing:
    with conn.transaction():
        standing = _load(conn, lake)
        conn.execute(RECORD, [standing.url, standing.version])
    return standing
