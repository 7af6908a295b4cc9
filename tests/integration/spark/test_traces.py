"""Traces: what every version holds, after crashes, compaction and vacuum too."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from headwater.algebra.schema import SqlType
from headwater.errors import InvalidArgument, InvalidPlan, LockTimeout, StreamTableDamaged
from headwater.spark import batches, traces
from headwater.spark.traces import Trace, TraceFile, read_trace
from headwater.spark.wire import INTEGER, Wire, arrow_type, wire_of
from tests.scale import scaled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = [("key", INTEGER), ("Key", wire_of(SqlType("text")))]
Row = tuple[int | None, str | None]
Rows = Counter[Row]  # with weights


def batch(*rows: tuple[int | None, str | None, int]) -> pa.RecordBatch:
    types = [pa.int32(), pa.string(), pa.int32()]
    arrays = [pa.array([row[i] for row in rows], type) for i, type in enumerate(types)]
    return pa.RecordBatch.from_arrays(arrays, names=["key", "Key", "w"])


def held(files: Iterable[TraceFile], after: int = -1, upto: int = 2**62) -> Rows:
    """The rows of the files, as a reader that filters by epoch sees them; without zeros."""
    rows: Rows = Counter()
    for file in files:
        path = file.uri.removeprefix("file://")
        table = parquet.ParquetFile(path).read()
        assert table.num_rows == file.rows
        assert os.path.getsize(path) == file.size
        for row in table.to_pylist():
            assert file.first_epoch <= row["__epoch"] <= file.last_epoch
            if after < row["__epoch"] <= upto:
                rows[row["c0"], row["c1"]] += row["__weight"]
    return Counter({row: weight for row, weight in rows.items() if weight})


def directory(trace: Trace) -> Path:
    return Path(trace.path.removeprefix("file://"))


def parquet_files(trace: Trace) -> set[str]:
    return {p.name for p in directory(trace).glob("*.parquet")}


@pytest.fixture(params=["path", "address"])
def trace(request: pytest.FixtureRequest, tmp_path: Path) -> Trace:
    """In a directory given by its path, and by an address as object stores have them."""
    odd = tmp_path / "odd [dir] {a,b} é #?"
    (tmp_path / "even").mkdir()
    trace = Trace(str(odd) if request.param == "path" else f"file://{tmp_path}/even")
    assert trace.create(COLUMNS) == 0
    return trace


def test_append_and_read(trace: Trace) -> None:
    first = trace.append(1, [batch((1, "", 1)), batch((None, None, 2))], 0)
    second = trace.append(4, [batch((1, "", -1))], first)
    assert (first, second) == (1, 2)
    assert trace.files(0) == ()
    assert held(trace.files(first)) == {(1, ""): 1, (None, None): 2}
    assert held(trace.files(second)) == {(None, None): 2}
    assert held(trace.between(second, 1, 4)) == {(1, ""): -1}
    assert trace.between(second, 1, 3) == trace.between(second, 4, 9) == ()
    assert trace.at(second, 3) == trace.files(first)
    assert Trace(trace.path).files(second) == trace.files(second)


def test_no_rows_make_no_version(trace: Trace) -> None:
    assert trace.append(1, [], 0) == 0
    assert trace.append(1, [batch()], 0) == 0
    assert DeltaTable(trace.path).version() == 0


def test_others_can_read_the_table(trace: Trace) -> None:
    trace.append(3, [batch((7, "x", 2))], 0)
    table = DeltaTable(trace.path)
    expected = [{"c0": 7, "c1": "x", "__weight": 2, "__epoch": 3}]
    assert table.to_pyarrow_table().to_pylist() == expected
    assert table.transaction_version("headwater") == 3


def test_what_a_crash_left_is_cut_off(trace: Trace) -> None:
    base = trace.append(1, [batch((1, "a", 1))], 0)
    lost = trace.append(2, [batch((2, "lost", 1))], base)
    trace.append(3, [batch((3, "lost", 1))], lost)
    again = Trace(trace.path)  # another process, that knows the catalog's version only
    version = again.append(2, [batch((4, "b", 1))], base)
    assert version > lost + 1
    assert held(again.files(version)) == {(1, "a"): 1, (4, "b"): 1}
    assert DeltaTable(trace.path).count() == 2


def test_the_same_append_again_changes_nothing(trace: Trace) -> None:
    base = trace.append(1, [batch((1, "a", 1))], 0)
    once = trace.append(2, [batch((2, "b", 1))], base)
    twice = trace.append(2, [batch((2, "b", 1))], base)
    assert held(trace.files(once)) == held(trace.files(twice)) == {(1, "a"): 1, (2, "b"): 1}


def test_a_compaction_that_did_not_count_is_undone(trace: Trace) -> None:
    base = trace.append(2, [batch((2, "b", 1))], trace.append(1, [batch((1, "a", 1))], 0))
    trace.compact(base, 2, 2)
    version = Trace(trace.path).append(3, [batch((3, "c", 1))], base)
    assert held(trace.between(version, 1, 2)) == {(2, "b"): 1}
    assert held(trace.files(version)) == {(1, "a"): 1, (2, "b"): 1, (3, "c"): 1}


def test_a_failing_source_of_rows_leaves_the_version(trace: Trace) -> None:
    base = trace.append(1, [batch((1, "a", 1))], 0)

    def rows() -> Iterable[pa.RecordBatch]:
        yield batch((2, "b", 1))
        raise RuntimeError("connection lost")

    with pytest.raises(RuntimeError):
        trace.append(2, rows(), base)
    assert DeltaTable(trace.path).version() == base
    assert trace.append(2, [batch((3, "c", 1))], base) == base + 1
    trace.vacuum([base + 1])
    assert parquet_files(trace) == {f.name for f in trace.files(base + 1)}


def test_two_writers_at_once(trace: Trace) -> None:
    other = Trace(trace.path)

    def rows() -> Iterable[pa.RecordBatch]:
        yield batch((1, "a", 1))
        other.append(1, [batch((2, "b", 1))], 0)

    class Racing(Trace):
        def _refreshed(self) -> DeltaTable:
            table = super()._refreshed()
            list(rows())
            return table

    with pytest.raises(LockTimeout, match="another process"):
        Racing(trace.path).append(1, [batch((1, "a", 1))], 0)


def test_compaction_keeps_what_may_be_asked_for(trace: Trace) -> None:
    version = 0
    for epoch in range(1, 9):
        weights = batch((1, "a", 1), (epoch, "b", 1), (epoch - 1, "b", -1), (0, "n", (-1) ** epoch))
        version = trace.append(epoch, [weights], version)
    compacted = trace.compact(version, 7, keep_after=4)
    assert [(f.first_epoch, f.last_epoch) for f in trace.files(compacted)] == [(4, 7), (8, 8)]
    for epoch in range(4, 10):
        assert held(trace.at(compacted, epoch), upto=epoch) == held(trace.at(version, epoch))
        for after in range(4, epoch):
            expected = held(trace.between(version, after, epoch))
            assert held(trace.between(compacted, after, epoch), after, epoch) == expected
    assert sum(f.rows for f in trace.at(compacted, 4)) < sum(f.rows for f in trace.at(version, 7))


def test_compaction_leaves_large_and_single_files(trace: Trace) -> None:
    version = trace.append(1, [batch((1, "a", 1))], 0)
    assert trace.compact(version, 1, 1) == version
    version = trace.append(2, [batch((1, "a", -1))], version)
    assert trace.compact(version, 2, 2, small=1) == version
    assert trace.files(trace.compact(version, 2, 2)) == ()


def test_vacuum_deletes_what_no_kept_version_names(trace: Trace) -> None:
    version = 0
    for epoch in range(1, 6):
        version = trace.append(epoch, [batch((epoch, "a", 1))], version)
    compacted = trace.compact(version, 5, 5)
    trace.append(6, [batch((6, "lost", 1))], compacted)
    (directory(trace) / "part-orphan.parquet").write_bytes(b"half a file")
    assert len(trace.vacuum([version, compacted])) == 2
    everything = {(epoch, "a"): 1 for epoch in range(1, 6)}
    for kept in (version, compacted):
        assert held(Trace(trace.path).files(kept)) == everything
    assert len(trace.vacuum([compacted])) == 5
    assert parquet_files(trace) == {f.name for f in trace.files(compacted)}
    assert held(Trace(trace.path).files(compacted)) == everything
    assert DeltaTable(trace.path).count() == 5
    assert trace.vacuum([compacted]) == ()
    after = Trace(trace.path).append(6, [batch((6, "a", 1))], compacted)
    assert held(trace.files(after)) == {**everything, (6, "a"): 1}


def test_a_long_log_is_shortened(tmp_path: Path) -> None:
    """Longer than the 100 versions after which delta-rs makes a checkpoint by itself."""
    trace = Trace(str(tmp_path / "t"))
    version = trace.create(COLUMNS)
    for epoch in range(1, 106):
        version = trace.append(epoch, [batch((epoch, "a", 1))], version)
    trace.vacuum([version - 1, version])
    names = sorted(p.name for p in (directory(trace) / "_delta_log").glob("0*"))
    assert [int(name.partition(".")[0]) for name in names] == [version - 1, version - 1, version]
    assert len(Trace(trace.path).files(version)) == 105
    assert len(Trace(trace.path).files(version - 1)) == 104
    with pytest.raises(StreamTableDamaged):
        Trace(trace.path).files(version - 2)


def test_large_appends_become_several_files(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "ROW_GROUP_ROWS", 10)
    monkeypatch.setattr(traces, "FILE_BYTES", 1)
    rows = [batch(*((i, "x", 1) for i in range(start, start + 7))) for start in range(0, 70, 7)]
    rows.append(batch(*((i, "y", 1) for i in range(33))))
    version = trace.append(1, rows, 0)
    assert len(trace.files(version)) > 5
    expected = {**{(i, "x"): 1 for i in range(70)}, **{(i, "y"): 1 for i in range(33)}}
    assert held(trace.files(version)) == expected


def test_a_batch_must_fit(trace: Trace) -> None:
    with pytest.raises(InvalidPlan):
        trace.append(1, [batch((1, "a", 1)).select([0, 2])], 0)
    with pytest.raises(InvalidPlan):
        trace.append(1, [pa.RecordBatch.from_pydict({"a": [1], "b": ["x"], "w": [None]})], 0)


def test_missing_traces_and_versions_are_damage(trace: Trace) -> None:
    with pytest.raises(StreamTableDamaged):
        trace.files(99)
    trace.drop()
    trace.drop()
    assert not list(directory(trace).glob("**/*.*"))
    with pytest.raises(StreamTableDamaged):
        trace.append(1, [batch((1, "a", 1))], 0)


def test_a_path_that_delta_misreads() -> None:
    with pytest.raises(InvalidArgument, match="percent"):
        Trace("/tmp/a%20b")


def test_create_again_starts_empty(trace: Trace) -> None:
    trace.append(1, [batch((1, "a", 1))], 0)
    again = Trace(trace.path)
    version = again.create([("x", INTEGER)])
    assert again.files(version) == ()
    rows = pa.RecordBatch.from_pydict({"x": [5], "w": [1]})
    assert len(again.files(again.append(1, [rows], version))) == 1


def test_a_trace_without_columns(tmp_path: Path) -> None:
    trace = Trace(str(tmp_path / "t"))
    version = trace.create([])
    for epoch in (1, 2):
        weights = pa.RecordBatch.from_arrays([pa.array([1, 1], pa.int32())], names=["w"])
        version = trace.append(epoch, [weights], version)
    (file,) = trace.files(trace.compact(version, 2, 2))
    assert parquet.read_table(file.uri).to_pylist() == [{"__weight": 4, "__epoch": 2}]


ALL_TYPES = [
    *("boolean", "smallint", "integer", "bigint", "numeric(38,10)", "numeric(9,2)", "text", "date"),
    *("timestamp with time zone", "timestamp without time zone", "bytea", "jsonb"),
]
ALL_COLUMNS: list[tuple[str, Wire]] = [(name, wire_of(SqlType(name))) for name in ALL_TYPES]
VALUES: list[tuple[object, ...]] = [
    (
        *(True, -32768, -(2**31), -(2**63), Decimal("-1234567890.0000000001"), Decimal("0.01")),
        *("", date(1, 1, 1), datetime(1, 1, 1, tzinfo=UTC), datetime(1, 1, 1)),
        *(bytes(range(256)), "{}"),
    ),
    (
        *(False, 32767, 2**31 - 1, 2**63 - 1, Decimal(0), Decimal("-9999999.99")),
        *('é\n"🦀', date(9999, 12, 31), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
        *(datetime(1582, 10, 10, 12), b"", "[]"),
    ),
    (None,) * len(ALL_TYPES),
]


def all_types_batch() -> pa.RecordBatch:
    arrays = [
        pa.array([row[i] for row in VALUES], arrow_type(wire))
        for i, (_, wire) in enumerate(ALL_COLUMNS)
    ]
    weights = pa.array([1] * len(VALUES), pa.int32())
    return pa.RecordBatch.from_arrays([*arrays, weights], names=[*ALL_TYPES, "w"])


def test_every_form_survives_parquet_and_compaction(tmp_path: Path) -> None:
    trace = Trace(str(tmp_path / "t"))
    version = trace.append(1, [all_types_batch()], trace.create(ALL_COLUMNS))
    version = trace.append(2, [all_types_batch()], version)
    (file,) = trace.files(trace.compact(version, 2, 2))
    columns = parquet.read_table(file.uri).to_pydict()
    assert columns["__weight"] == [2, 2, 2]
    stored = {tuple(columns[f"c{i}"][r] for i in range(len(ALL_TYPES))) for r in range(3)}
    assert stored == set(VALUES)


def test_spark_reads_every_form(spark: SparkSession, tmp_path: Path) -> None:
    trace = Trace(str(tmp_path / "odd [dir] {a,b} é #?"))
    first = trace.append(1, [all_types_batch()], trace.create(ALL_COLUMNS))
    version = trace.compact(trace.append(5, [all_types_batch()], first), 5, 1)
    rows = read_trace(spark, trace.at(version, 1), ALL_COLUMNS, upto=1).toArrow()
    columns = rows.to_pydict()
    assert columns["__epoch"] == [1, 1, 1]
    stored = {tuple(columns[f"c{i}"][r] for i in range(len(ALL_TYPES))) for r in range(3)}
    assert stored == set(VALUES)
    new = trace.between(version, 1, 5)
    assert read_trace(spark, new, ALL_COLUMNS, 1, 5).toArrow()["__epoch"].to_pylist() == [5] * 3
    empty = read_trace(spark, (), ALL_COLUMNS)
    assert empty.schema == read_trace(spark, new, ALL_COLUMNS).schema
    assert empty.count() == 0


ROWS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, None]), st.sampled_from(["", "a", None]), st.sampled_from([-1, 1])
    ),
    max_size=4,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), ROWS),
        st.tuples(st.just("crash"), ROWS),
        st.tuples(st.just("compact"), st.integers(0, 3)),
        st.tuples(st.just("vacuum"), st.booleans()),
        st.tuples(st.just("reopen"), st.none()),
    ),
    min_size=1,
    max_size=14,
)


class Model:
    """A trace, and beside it the changes of every epoch in plain Python."""

    def __init__(self, path: Path) -> None:
        self.trace = Trace(str(path))
        self.version = self.trace.create(COLUMNS)
        self.epoch = self.floor = 0
        self.changes: dict[int, Rows] = {}

    def append(self, rows: list[tuple[int | None, str | None, int]]) -> None:
        self.epoch += 1
        change: Rows = Counter()
        for key, text, weight in rows:
            change[key, text] += weight
        self.version = self.trace.append(self.epoch, [batch(*rows)], self.version)
        self.changes[self.epoch] = change

    def crash(self, rows: list[tuple[int | None, str | None, int]]) -> None:
        self.trace.append(self.epoch + 1, [batch(*rows)], self.version)

    def compact(self, back: int) -> None:
        self.floor = max(self.floor, self.epoch - back)
        self.version = self.trace.compact(self.version, self.epoch, self.floor)

    def vacuum(self, _: bool) -> None:
        self.trace.vacuum([self.version])
        assert parquet_files(self.trace) == {f.name for f in self.trace.files(self.version)}

    def reopen(self, _: None) -> None:
        self.trace = Trace(self.trace.path)

    def total(self, after: int, upto: int) -> Rows:
        rows: Rows = Counter()
        for epoch, change in self.changes.items():
            if after < epoch <= upto:
                for row, weight in change.items():
                    rows[row] += weight
        return Counter({row: weight for row, weight in rows.items() if weight})

    def check(self) -> None:
        for upto in range(self.floor, self.epoch + 1):
            assert held(self.trace.at(self.version, upto), upto=upto) == self.total(-1, upto)
            for after in range(self.floor, upto):
                files = self.trace.between(self.version, after, upto)
                assert held(files, after, upto) == self.total(after, upto)


@pytest.mark.generated
@given(steps=STEPS)
@settings(max_examples=scaled(60))
def test_any_history(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, object]]
) -> None:
    model = Model(tmp_path_factory.mktemp("trace") / "t")
    for name, argument in steps:
        getattr(model, name)(argument)
        model.check()
