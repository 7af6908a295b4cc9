"""Sources and results as they were, from the lake."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import psycopg
import pyarrow
import pyarrow.compute
import pytest
from click.testing import CliRunner

from headwater.api import Headwater
from headwater.cli import main
from headwater.errors import InvalidArgument, NotFound
from headwater.spark import ingest
from tests.battery.oracle import find_difference
from tests.servers import Server
from tests.spark_traces import list_traces, prove_traces

Connection = psycopg.Connection[Any]
Rows = Counter[tuple[Any, ...]]
SETUP = """
CREATE TABLE sales (shop int, "The Amount" numeric(10, 2), sold timestamptz, note text);
INSERT INTO sales SELECT n % 4, n, '2026-01-01 12:00+00', 'n' || n % 3
  FROM generate_series(1, 30) AS n;
INSERT INTO sales SELECT * FROM sales WHERE shop = 1;
"""
TOTALS = """
SELECT shop, count(*) AS n, sum("The Amount")::numeric(12, 2) AS "The Total", max(sold) AS sold,
       min(note) AS note
  FROM sales GROUP BY shop"""
BAG = "SELECT shop, note FROM sales"
OVER = 'SELECT n, count(*) AS shops, sum("The Total")::numeric(12, 2) AS t FROM totals GROUP BY n'


@pytest.fixture
def dsn(pg18: Server) -> Iterator[str]:
    made = pg18.create_database()
    with psycopg.connect(made) as conn:
        conn.execute(SETUP.encode())
        conn.execute(f"ALTER DATABASE {conn.info.dbname} SET pg_trickle.lake_results = on".encode())
    yield made
    pg18.drop_database(made)


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as opened:
        yield opened


def _create(hw: Headwater, name: str, query: str) -> None:
    assert hw.create_stream_table(
        name, query, refresh_mode="DIFFERENTIAL", engine="spark"
    ).engine == ("spark")


def _change(conn: Connection, number: int) -> None:
    conn.execute('UPDATE sales SET "The Amount" = "The Amount" + 1 WHERE shop = %s', [number % 4])
    conn.execute("INSERT INTO sales VALUES (%s, NULL, NULL, 'new')", [number])
    conn.execute("DELETE FROM sales WHERE note = 'n1' AND shop = %s", [number % 3])


def _now(conn: Connection, relation: str) -> Rows:
    return Counter(conn.execute(f"SELECT * FROM {relation}".encode()).fetchall())


def _then(hw: Headwater, relation: str, when: int | datetime) -> Rows:
    """Return what the lake says, moments as PostgreSQL gives them."""
    table = hw.read_at(relation, when).toArrow()
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return Counter(rows)


def _lived(
    hw: Headwater, conn: Connection, name: str, times: int = 4
) -> list[tuple[int, datetime, Rows, Rows]]:
    """Change and refresh; return epoch, moment, the stream table and its source at each step."""
    seen = []
    for number in range(times):
        _change(conn, number)
        result = hw.refresh_stream_table(name)
        assert result.epoch is not None
        assert result.data_timestamp is not None
        moment = datetime.now(UTC)
        seen.append((result.epoch, moment, _now(conn, name), _now(conn, "sales")))
    return seen


def test_every_epoch_and_moment_can_be_read(hw: Headwater, conn: Connection) -> None:
    _create(hw, "totals", TOTALS)
    first = _now(conn, "totals"), _now(conn, "sales")
    [(created,)] = conn.execute("SELECT epoch FROM pgtrickle.pgt_stream_tables").fetchall()
    lived = _lived(hw, conn, "totals")
    assert _then(hw, "totals", created) == first[0]
    assert _then(hw, "public.sales", created) == first[1]
    for epoch, moment, result, source in lived:
        for when in (epoch, moment):
            assert _then(hw, "totals", when) == result
            assert _then(hw, "sales", when) == source
    assert len({str(result) for _, _, result, _ in lived}) == len(lived)
    assert hw.read_at("sales", created).columns == ["shop", "The Amount", "sold", "note"]


def test_a_bag_has_as_many_copies_as_it_had(hw: Headwater, conn: Connection) -> None:
    _create(hw, "bag", BAG)
    assert max(_now(conn, "bag").values()) > 1
    for epoch, _, result, _ in _lived(hw, conn, "bag", 2):
        assert _then(hw, "bag", epoch) == result


def test_a_table_over_a_table_shares_its_result(hw: Headwater, conn: Connection) -> None:
    _create(hw, "totals", TOTALS)
    _create(hw, "over", OVER)
    assert sorted(source for _, _, source, _ in list_traces(conn)) == ["over", "sales", "totals"]
    for epoch, _, result, _ in _lived(hw, conn, "over", 3):
        assert _then(hw, "over", epoch) == result
        assert find_difference(conn, TOTALS, "totals") is None
        assert find_difference(conn, OVER, "over") is None
        assert prove_traces(conn) == 3
        assert hw.refresh_stream_table("over").action == "NO_DATA"


def test_rebuilds_and_alters_begin_anew(hw: Headwater, conn: Connection, tmp_path: Path) -> None:
    _create(hw, "totals", TOTALS)
    [(epoch, _, _, _)] = _lived(hw, conn, "totals", 1)
    conn.execute("UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true")
    _change(conn, 5)
    assert hw.refresh_stream_table("totals").action == "REINITIALIZE"
    assert prove_traces(conn) == 2
    with pytest.raises(InvalidArgument, match="too long ago"):
        hw.read_at("totals", epoch)
    hw.alter_stream_table("totals", query="SELECT shop, count(*) AS n FROM sales GROUP BY shop")
    assert prove_traces(conn) == 2
    [(epoch, _, result, _)] = _lived(hw, conn, "totals", 1)
    assert _then(hw, "totals", epoch) == result
    captured = "SELECT source_name FROM pgtrickle.pgt_change_tracking ORDER BY 1"
    assert conn.execute(captured).fetchall() == [("public.sales",), ("public.totals",)]
    hw.alter_stream_table("totals", engine="postgres")
    assert conn.execute(captured).fetchall() == [("public.sales",)]
    hw.alter_stream_table("totals", engine="spark")
    _change(conn, 6)
    assert hw.refresh_stream_table("totals").action == "DIFFERENTIAL"
    assert prove_traces(conn) == 2
    hw.drop_stream_table("totals")
    assert conn.execute(captured).fetchall() == []
    assert list(tmp_path.iterdir()) == []


def test_a_first_fill_writes_no_change_rows(hw: Headwater, conn: Connection) -> None:
    _create(hw, "totals", TOTALS)
    sizes = "SELECT source_name, pending_rows FROM pgtrickle.change_buffer_sizes() ORDER BY 1"
    assert conn.execute(sizes).fetchall() == [("public.sales", 0), ("public.totals", 0)]


def test_what_cannot_be_read_is_said(hw: Headwater, conn: Connection, dsn: str) -> None:
    conn.execute("CREATE TABLE untouched (a int)")
    with pytest.raises(NotFound, match="the lake holds no copy of untouched"):
        hw.read_at("untouched", 1)
    with pytest.raises(NotFound, match="there is no stream table nothing"):
        hw.read_at("nothing", 1)
    before = datetime.now(UTC)
    _create(hw, "totals", TOTALS)
    for when in (10**6, datetime.now(UTC) + timedelta(hours=1)):
        with pytest.raises(InvalidArgument, match="that is in the future"):
            hw.read_at("totals", when)
    for early in (0, before):
        with pytest.raises(InvalidArgument, match="that is too long ago"):
            hw.read_at("totals", early)


def test_only_who_may_act_for_the_owner_can_read(
    hw: Headwater, conn: Connection, dsn: str, tmp_path: Path
) -> None:
    _create(hw, "totals", TOTALS)
    conn.execute("CREATE ROLE stranger LOGIN")
    conn.execute("GRANT USAGE ON SCHEMA pgtrickle TO stranger")
    conn.execute("GRANT SELECT ON ALL TABLES IN SCHEMA pgtrickle TO stranger")
    try:
        with psycopg.connect(dsn, user="stranger") as other:
            from headwater.catalog.traces import list_readable  # noqa: PLC0415

            [(relid,)] = conn.execute("SELECT 'sales'::regclass::oid::int8").fetchall()
            assert list_readable(other, relid) == ()
            assert len(list_readable(conn, relid)) == 1
    finally:
        conn.execute("DROP OWNED BY stranger; DROP ROLE stranger")


def test_merged_files_keep_what_the_retention_says(
    hw: Headwater, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "MANY_FILES", 2)
    _create(hw, "totals", TOTALS)
    lived = _lived(hw, conn, "totals", 6)
    for epoch, _, result, source in lived:
        assert _then(hw, "totals", epoch) == result
        assert _then(hw, "sales", epoch) == source
    hw.vacuum()
    for epoch, _, result, source in lived:
        assert _then(hw, "totals", epoch) == result
        assert _then(hw, "sales", epoch) == source


def test_what_is_older_than_the_retention_goes(
    hw: Headwater, conn: Connection, dsn: str, tmp_path: Path
) -> None:
    _create(hw, "totals", TOTALS)
    lived = _lived(hw, conn, "totals", 4)
    conn.execute(
        "UPDATE pgtrickle.pgt_epochs SET data_timestamp = data_timestamp - interval '8 days'"
        " WHERE epoch <= %s",
        [lived[1][0]],
    )
    hw.vacuum()
    with pytest.raises(InvalidArgument, match=f"reaches back to epoch {lived[1][0]}, "):
        hw.read_at("totals", lived[0][0])
    for epoch, _, result, source in lived[1:]:
        assert _then(hw, "totals", epoch) == result
        assert _then(hw, "sales", epoch) == source
    kept = conn.execute("SELECT epoch FROM pgtrickle.pgt_epochs ORDER BY 1").fetchall()
    assert [epoch for (epoch,) in kept] == [epoch for epoch, *_ in lived[1:]]
    _change(conn, 9)
    assert hw.refresh_stream_table("totals").action == "DIFFERENTIAL"
    assert prove_traces(conn) == 2


def test_vacuum_deletes_what_a_crash_left(hw: Headwater, conn: Connection, tmp_path: Path) -> None:
    _create(hw, "totals", TOTALS)
    [(url, *_), _] = list_traces(conn)
    orphan = Path(url) / "part-orphan.parquet"
    orphan.write_bytes(b"")
    done = {(v.source, v.deleted) for v in hw.vacuum()}
    assert done == {("public.sales", 1), ("public.totals", 0)}
    assert not orphan.exists()
    _change(conn, 1)
    assert hw.refresh_stream_table("totals").action == "DIFFERENTIAL"
    assert prove_traces(conn) == 2


def test_lake_view_is_code_that_runs(
    hw: Headwater, conn: Connection, dsn: str, tmp_path: Path
) -> None:
    _create(hw, "totals", TOTALS)
    _lived(hw, conn, "totals", 2)
    view = hw.lake_view("totals")
    assert [column.name for column in view.columns] == ["shop", "n", "The Total", "sold", "note"]
    *lines, last = view.delta_rs.splitlines()
    names = {"deltalake": deltalake, "pyarrow": pyarrow}
    exec("\n".join(lines), names)
    table = eval(last, names)
    assert Counter(zip(*(c.to_pylist() for c in table.columns), strict=True)) == _now(
        conn, "totals"
    )
    compile(view.spark, "spark", "exec")
    arguments = ["--dsn", dsn, "--lake", str(tmp_path)]
    shown = CliRunner().invoke(main, [*arguments, "lake-view", "totals", "--json"])
    assert json.loads(shown.stdout)["url"] == view.url
    shown = CliRunner().invoke(main, [*arguments, "lake-view", "totals"])
    assert view.spark in shown.stdout
    tidied = CliRunner().invoke(main, [*arguments, "vacuum"])
    assert (tidied.exit_code, "public.totals" in tidied.stdout) == (0, True)
