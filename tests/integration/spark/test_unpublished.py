"""publish => false: the result is in the lake, and nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.api import Headwater
from headwater.errors import AlreadyExists, InvalidArgument, SourceAltered, UnsupportedQuery
from headwater.spark import ingest

Connection = psycopg.Connection[Any]
SETUP = """
CREATE TABLE customers (id int PRIMARY KEY, region text, since timestamptz);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10, 2), note jsonb);
INSERT INTO customers SELECT n, (ARRAY['north', 'south', NULL])[1 + n % 3], '3026-01-01 12:00+00'
  FROM generate_series(1, 30) AS n;
INSERT INTO orders SELECT n, 1 + n % 35, n * 1.5, '{"a": 1}' FROM generate_series(1, 200) AS n;
"""
QUERIES = {
    "joined": "SELECT o.id, o.amount, o.note, c.region, c.since FROM orders o"
    " LEFT JOIN customers c ON c.id = o.customer",
    "totals": "SELECT c.region, count(*) AS n, sum(o.id) AS ids, max(o.amount) AS largest,"
    " sum(o.id::bigint) AS wide FROM orders o JOIN customers c ON c.id = o.customer"
    " GROUP BY c.region HAVING count(*) > 1",
    "bag": "SELECT region FROM customers UNION ALL SELECT region FROM customers WHERE id > 20",
    "whole": "SELECT count(*) AS n, sum(id) AS total FROM orders",
    "amounts": "SELECT customer, sum(amount) AS amount, sum(amount * 2) AS twice"
    " FROM orders GROUP BY customer HAVING sum(amount) > 3",
}


@pytest.fixture
def conn(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as opened:
        yield opened


def _create(hw: Headwater, name: str, mode: str = "DIFFERENTIAL") -> None:
    made = hw.create_stream_table(
        name, QUERIES[name], refresh_mode=mode, engine="spark", publish=False
    )
    assert made.engine == "spark"


def _change(conn: Connection) -> None:
    conn.execute("""
        INSERT INTO orders SELECT max(id) + 1, 3, 7.25, NULL FROM orders;
        UPDATE orders SET amount = amount + 1 WHERE id % 50 = 0;
        DELETE FROM orders WHERE id IN (SELECT id FROM orders ORDER BY amount DESC LIMIT 5);
        UPDATE customers SET region = CASE WHEN region IS NULL THEN 'east' END WHERE id <= 3
    """)


def _is_equal(hw: Headwater, conn: Connection, name: str, epoch: int | None) -> bool:
    """Compare without headwater's own verify: what Spark reads with what the query gives."""
    assert epoch is not None
    table = hw.read_at(name, epoch).toArrow()
    found = Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
    rows = conn.execute(QUERIES[name].encode()).fetchall()
    texts = [tuple('{"a": 1}' if isinstance(v, dict) else v for v in row) for row in rows]
    return found == Counter(texts)


@pytest.mark.parametrize("name", QUERIES)
def test_follows_its_sources(
    hw: Headwater, conn: Connection, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "MANY_FILES", 2)
    _create(hw, name)
    assert hw.verify(name).equal
    for number in range(3):
        _change(conn)
        assert number > 0 or hw.verify(name).equal
        result = hw.refresh_stream_table(name)
        assert result.action == "DIFFERENTIAL"
        assert _is_equal(hw, conn, name, result.epoch)
        assert hw.verify(name).equal
        assert hw.refresh_stream_table(name).action == "NO_DATA"
    conn.execute("UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true")
    _change(conn)
    result = hw.refresh_stream_table(name)
    assert result.action == "REINITIALIZE"
    assert _is_equal(hw, conn, name, result.epoch)
    hw.vacuum()
    conn.execute("TRUNCATE orders; DELETE FROM customers WHERE id > 1")
    result = hw.refresh_stream_table(name)
    assert result.action == "DIFFERENTIAL"
    assert _is_equal(hw, conn, name, result.epoch)
    assert hw.verify(name).equal


def test_a_recompute_appends_what_differs(hw: Headwater, conn: Connection) -> None:
    _create(hw, "joined", "FULL")
    conn.execute("UPDATE orders SET amount = amount + 1 WHERE id > 1; DELETE FROM customers")
    result = hw.refresh_stream_table("joined")
    assert (result.action, result.rows_inserted, result.rows_deleted) == ("FULL", 200, 200)
    assert _is_equal(hw, conn, "joined", result.epoch)
    assert hw.verify("joined").equal
    assert hw.refresh_stream_table("joined").action == "NO_DATA"


def test_verify_finds_a_difference(hw: Headwater, conn: Connection) -> None:
    _create(hw, "totals", "AUTO")
    conn.execute("ALTER TABLE orders DISABLE TRIGGER USER; DELETE FROM orders WHERE id = 10")
    conn.execute(
        "DO $$ DECLARE n text; BEGIN FOR n IN SELECT tgname FROM pg_trigger"
        " WHERE tgname LIKE 'pg_trickle%' AND tgrelid = 'orders'::regclass"
        " LOOP EXECUTE format('ALTER TABLE orders ENABLE ALWAYS TRIGGER %I', n); END LOOP; END $$"
    )
    found = hw.verify("totals")
    assert (found.equal, found.missing, found.extra) == (False, 1, 1)


def test_the_name_says_where_the_result_is(hw: Headwater, conn: Connection) -> None:
    _create(hw, "totals")
    for query in ("SELECT * FROM totals", "SELECT count(*) FROM totals", "SELECT 1 FROM totals"):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="in the lake only"):
            conn.execute(query.encode())
    described = conn.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 'totals'::regclass AND attnum > 0 ORDER BY attnum"
    ).fetchall()
    assert [name for name, _ in described] == ["region", "n", "ids", "largest", "wide"]
    assert hw.explain_st("totals").sql == ""
    assert [s.name for s in hw.pgt_status()] == ["public.totals"]


def test_what_spark_cannot_finish_is_refused(hw: Headwater, conn: Connection) -> None:
    average = "SELECT customer, avg(amount) AS a FROM orders GROUP BY customer"
    with pytest.raises(UnsupportedQuery, match="cannot stay in the lake only"):
        hw.create_stream_table("st", average, publish=False, engine="spark")
    with pytest.raises(UnsupportedQuery, match="'postgres' was asked for"):
        hw.create_stream_table("st", QUERIES["bag"], publish=False, engine="postgres")
    with pytest.raises(InvalidArgument, match="with refresh_mode IMMEDIATE"):
        hw.create_stream_table("st", QUERIES["bag"], None, "IMMEDIATE", publish=False)
    assert hw.pgt_status() == ()
    assert conn.execute("SELECT to_regclass('st')").fetchall() == [(None,)]


def test_nothing_is_built_on_it(hw: Headwater, conn: Connection) -> None:
    _create(hw, "bag")
    conn.execute("CREATE VIEW over AS SELECT region FROM bag")
    for mode in ("AUTO", "FULL"):
        for query in ("SELECT region FROM bag", "SELECT region FROM over"):
            with pytest.raises(UnsupportedQuery, match="whose result is in the lake only"):
                hw.create_stream_table("st", query, refresh_mode=mode)
    with pytest.raises(SourceAltered, match="another definition"):
        hw.alter_stream_table("bag", query="SELECT id FROM customers")
    with pytest.raises(AlreadyExists):
        hw.create_or_replace_stream_table("bag", "SELECT id FROM customers")
    hw.alter_stream_table("bag", schedule="5m")
    conn.execute("ALTER TABLE customers ALTER COLUMN region TYPE varchar(20)")
    with pytest.raises(SourceAltered, match="another definition"):
        hw.refresh_stream_table("bag")


def test_drop_deletes_the_files(hw: Headwater, conn: Connection, tmp_path: Path) -> None:
    _create(hw, "totals")
    assert len(list(tmp_path.iterdir())) == 3
    hw.drop_stream_table("totals")
    assert list(tmp_path.iterdir()) == []
    assert conn.execute("SELECT to_regclass('totals')").fetchall() == [(None,)]
