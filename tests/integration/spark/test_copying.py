"""COPY between a connection and Arrow: batches, transactions, names, errors."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.algebra.schema import SqlType
from headwater.errors import InexactValue
from headwater.spark import copying
from headwater.spark.copying import copy_in, copy_out
from headwater.spark.wire import BIGINT, INTEGER, Wire, wire_of

TEXT = wire_of(SqlType("text"))
BYTES = wire_of(SqlType("bytea"))
MONEY = wire_of(SqlType("numeric(10,2)"))
MOMENT = wire_of(SqlType("timestamp with time zone"))


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[tuple[object, ...]]:
    return [
        tuple(row) for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)
    ]


def test_no_rows_is_no_batch(conn: psycopg.Connection) -> None:
    assert list(copy_out(conn, "SELECT 1 WHERE false", [("a", INTEGER)])) == []


def test_a_single_column_of_nulls(conn: psycopg.Connection) -> None:
    select = "SELECT x FROM unnest(ARRAY[NULL, '', NULL, '\\.']::text[]) AS x"
    (batch,) = copy_out(conn, select, [("a", TEXT)])
    assert batch["a"].to_pylist() == [None, "", None, "\\."]


def test_names_of_columns_are_only_labels(conn: psycopg.Connection) -> None:
    names = ["0", 'q"uote', "a b", "A b", "ü,;", "__weight", "x" * 63]
    columns = [(name, INTEGER) for name in names]
    (batch,) = copy_out(conn, "SELECT 0, 1, 2, 3, 4, 5, 6", columns)
    assert batch.schema.names == names
    declared = ", ".join('"' + name.replace('"', '""') + '" int' for name in names)
    conn.execute(f"CREATE TABLE t ({declared})".encode())
    assert copy_in(conn, "t", columns[::-1], [batch.select(range(6, -1, -1))]) == 1
    assert conn.execute("TABLE t").fetchall() == [(0, 1, 2, 3, 4, 5, 6)]


def test_a_percent_sign_is_no_parameter(conn: psycopg.Connection) -> None:
    assert rows_of(copy_out(conn, "SELECT '%s' || 5 % 3", [("a", TEXT)])) == [("%s2",)]


def test_many_batches_hold_every_row(
    conn: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(copying, "CHUNK_ROWS", 7)
    select = "SELECT i, repeat(E'x\\n', i % 50) FROM generate_series(1, 2000) AS i"
    columns = [("i", INTEGER), ("t", TEXT)]
    batches = list(copy_out(conn, select, columns))
    assert len(batches) > 50
    conn.execute("CREATE TABLE t (i int, t text)")
    assert copy_in(conn, "t", columns, batches) == 2000
    assert conn.execute(f"{select} EXCEPT ALL TABLE t".encode()).fetchall() == []


def test_a_value_larger_than_a_chunk(conn: psycopg.Connection) -> None:
    select = "SELECT repeat(E'ä\"\\n', 5000000), decode(repeat('00ff', 5000000), 'hex')"
    encoded = f"SELECT a, encode(b, 'hex') FROM ({select}) AS s (a, b)"
    batches = list(copy_out(conn, encoded, [("a", TEXT), ("b", BYTES)]))
    conn.execute("CREATE TABLE t (a text, b bytea)")
    copy_in(conn, "t", [("a", TEXT), ("b", BYTES)], batches)
    assert conn.execute(f"{select} EXCEPT ALL TABLE t".encode()).fetchall() == []


def test_it_sees_and_shares_the_transaction(database: str, conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE t (a int)")
    batch = pa.RecordBatch.from_pydict({"a": [1, None]})
    with conn.transaction(force_rollback=True):
        assert copy_in(conn, "t", [("a", INTEGER)], [batch]) == 2
        assert rows_of(copy_out(conn, "TABLE t", [("a", INTEGER)])) == [(1,), (None,)]
    assert conn.execute("TABLE t").fetchall() == []


def test_an_abandoned_copy_leaves_the_connection_usable(conn: psycopg.Connection) -> None:
    rows = copy_out(conn, "SELECT generate_series(1, 3000000)", [("a", INTEGER)])
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert conn.execute("SELECT 1").fetchone() == (1,)


def test_the_error_names_the_column_among_many_rows(conn: psycopg.Connection) -> None:
    select = (
        "SELECT i, '1.00', CASE i WHEN 7777 THEN 'NaN' ELSE '2.50' END FROM"
        " generate_series(1, 10000) AS i"
    )
    columns = [("i", INTEGER), ("fine", MONEY), ('so "wrong"', MONEY)]
    with pytest.raises(InexactValue) as caught:
        list(copy_out(conn, select, columns))
    assert caught.value.what == (
        'column "so "wrong"" holds NaN, which DECIMAL(10,2) cannot hold exactly'
    )
    assert conn.execute("SELECT 1").fetchone() == (1,)


def test_server_errors_come_through(conn: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        list(copy_out(conn, "SELECT 1 / 0", [("a", INTEGER)]))


def test_what_spark_returns_is_cast_without_loss(conn: psycopg.Connection) -> None:
    conn.execute("CREATE TABLE t (a int, b text, c numeric(10,2), d timestamptz)")
    columns = [("a", INTEGER), ("b", TEXT), ("c", MONEY), ("d", MOMENT)]
    moment = datetime(2024, 3, 31, 1, 30, tzinfo=UTC)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([1, None], pa.int64()),
            pa.array(["", None], pa.large_string()),
            pa.array([Decimal("1.500"), None], pa.decimal128(20, 3)),
            pa.array([moment, None], pa.timestamp("us", tz="Europe/Berlin")),
        ],
        names=list("abcd"),
    )
    copy_in(conn, "t", columns, [batch])
    expected = [(1, "", Decimal("1.50"), moment), (None, None, None, None)]
    assert conn.execute("TABLE t").fetchall() == expected
    lossy = pa.RecordBatch.from_pydict({"a": [2**40]})
    with pytest.raises(pa.ArrowInvalid):
        copy_in(conn, "t", [("a", INTEGER)], [lossy])


def test_latin1_databases_travel_as_utf8(pg18: object, conn: psycopg.Connection) -> None:
    conn.execute("SET client_encoding = 'LATIN1'")
    batches = list(copy_out(conn, "SELECT chr(233)", [("a", TEXT)]))
    assert batches[0]["a"].to_pylist() == ["é"]
    conn.execute("CREATE TABLE t (a text)")
    copy_in(conn, "t", [("a", TEXT)], batches)
    assert conn.execute("SELECT ascii(a) FROM t").fetchone() == (233,)


ROWS = st.lists(
    st.tuples(
        st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
        st.none() | st.binary(),
        st.none() | st.integers(-(2**63), 2**63 - 1),
    ),
    max_size=20,
)


@given(rows=ROWS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
def test_any_row_survives(conn: psycopg.Connection, rows: list[tuple[object, ...]]) -> None:
    conn.execute("CREATE TEMP TABLE IF NOT EXISTS t (n serial, a text, b bytea, c bigint)")
    conn.execute("TRUNCATE t")
    columns: list[tuple[str, Wire]] = [("a", TEXT), ("b", BYTES), ("c", BIGINT)]
    types = [pa.string(), pa.binary(), pa.int64()]
    arrays = [pa.array([row[i] for row in rows], type) for i, type in enumerate(types)]
    batch = pa.RecordBatch.from_arrays(arrays, names=["a", "b", "c"])
    copy_in(conn, "t", columns, [batch])
    select = "SELECT a, encode(b, 'hex'), c FROM t ORDER BY n"
    assert rows_of(copy_out(conn, select, columns)) == rows
