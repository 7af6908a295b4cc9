"""The statements of a refresh on Spark, over traces at certain versions."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import compute

from headwater.algebra.ops import Aggregate, Consolidate, Op, Scan
from headwater.algebra.schema import names
from headwater.algebra.walk import scans
from headwater.errors import QueryFailed, SparkFailed
from headwater.spark.faults import row_fault, told
from headwater.spark.ingest import Standing
from headwater.spark.lake import Lake
from headwater.spark.literals import literal_sql
from headwater.spark.peeking import Weights, values_of, weights_of
from headwater.spark.relations import defined
from headwater.spark.render import WEIGHT, Renderer, all_wires, netted
from headwater.spark.session import quick_session, spark_errors, start_session
from headwater.spark.sizes import SMALL_ROWS, Sizes
from headwater.spark.traces import Files, Trace, physical
from headwater.spark.wire import Wire
from headwater.spark.wires import quoted, wires

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Traces = Mapping[int, Standing]

MANY_KEYS = 500  # longer lists gain nothing over a scan
_NUMBERED = ("smallint", "integer", "bigint")  # whose text is the same under any setting
_LISTED = ("smallint", "integer", "bigint", "string", "date")
MANY_ROWS = 1 << 15  # more are not held in memory, neither by Spark's driver nor by this process
_MANY_CHANGES = 1 << 18  # more are not looked at one by one
_FEW_ROWS = 100  # of a trace: not worth to be netted
_MUCH_CHURN = 8  # as many rows as there are: then it is worth it also for large traces
_PLACE = "__place"
_ROW_BITS = 33  # of what `monotonically_increasing_id` makes of partition and row


class Compute:
    """Runs statements over the traces of one boundary, for the change between two epochs.

    To be closed. What it keeps has a name of its own: other threads share the session. `is_change`
    says that the statements follow the change, and are as small as it is; else they are as large
    as the state.
    """

    def __init__(
        self,
        lake: Lake,
        traces: Traces,
        boundary: Op,
        span: tuple[int, int],
        *,
        is_change: bool = False,
    ) -> None:
        self._is_change = is_change
        self._lake, self._traces = lake, traces
        self._after, self._upto = span
        self.wires: dict[str, Wire] = all_wires(boundary)
        self._sizes = Sizes(self)
        self._renderer = Renderer(self.wires, self._relation, self._keep, self)
        self._kept: dict[str, DataFrame] = {}
        self._shown: dict[str, DataFrame] = {}  # to every session, which the others are not
        self._opened: dict[str, Trace] = {}
        self._weights: dict[tuple[int, int], dict[str, Weights]] = {}
        self._netted: dict[str, str] = {}
        self._group = uuid.uuid4().hex
        self.statements: list[str] = []

    @cached_property
    def _spark(self) -> SparkSession:
        is_small = self._read_rows() <= MANY_ROWS
        return (quick_session if is_small else start_session)(self._lake.spark)

    @property
    def jobs(self) -> int:
        """How many jobs Spark ran for this."""
        if "_spark" not in self.__dict__:
            return 0
        with _failing():
            return len(self._spark.sparkContext.statusTracker().getJobIdsForGroup(self._group))

    def close(self) -> None:
        """Forget the views and what is kept; a Spark that has died has forgotten them."""
        with suppress(SparkFailed), _failing():
            for view, rows in self._kept.items():
                rows.unpersist()
                self._spark.catalog.dropTempView(view)
            for view, rows in self._shown.items():
                rows.unpersist()
                self._spark.catalog.dropGlobalTempView(view)

    def change_rows(self) -> int:
        """Return how many rows of change the traces hold."""
        return sum(f.rows for s in self._traces.values() for f in self._changes(s))

    def _read_rows(self) -> int:
        """Return about how many rows the statements look at."""
        if self._is_change:
            return self.change_rows()
        return sum(f.rows for s in self._traces.values() for f in self._states(s))

    def changed(self, change: Op) -> str:
        """Return the statement for the rows of a change, with weights.

        PostgreSQL consolidates what it gets. Spark does before only where that saves sending.
        """
        with _failing():  # the relations are opened on the way
            is_small = self._sizes.is_small(change)
            return self._renderer.render(change if is_small else Consolidate(change))

    def consolidated(self, op: Op) -> str:
        """Return the statement for the rows of a tree, one per image, with weights."""
        with _failing():
            return self._renderer.render(Consolidate(op))

    def grouped(self, aggregate: Aggregate, op: Op) -> str:
        """Return the statement for count and sums per group of the rows of a tree."""
        self.wires |= wires(aggregate)
        with _failing():
            return self._renderer.grouped(aggregate, self._renderer.render(op))

    def expected(self, op: Op) -> float:
        """Return about how many rows a tree will have."""
        return self._sizes.rows(op)

    def collect(self, statement: str, expected: float = 0) -> Iterable[pa.RecordBatch]:
        """Run a statement whose result is about as small as what it reads, as a rule.

        One row may meet millions in a join. Where that is not expected only the first rows come
        back, enough to see that there are too many, and the statement runs again, through files.
        """
        if max(self._read_rows(), expected) > MANY_ROWS:
            return self.stream(statement)
        with _failing():
            found = self._run(few_rows(statement)).toArrow()
        if are_cut_off(found[_PLACE]):
            return self.stream(statement)
        return list(found.drop_columns(_PLACE).to_batches())

    def stream(self, statement: str) -> Iterator[pa.RecordBatch]:
        """Run a statement whose result may be as large as the data: through files."""
        trace = Trace(self._lake.new_url("scratch"), self._lake.storage_options)
        try:
            with _failing():
                self._run(statement).write.parquet(trace.path)
            yield from trace.stored_rows()
        finally:
            trace.drop()

    def _run(self, statement: str) -> DataFrame:
        self.statements.append(statement)
        self._spark.sparkContext.setJobGroup(self._group, "headwater")  # others may have set theirs
        return self._spark.sql(statement)

    def _keep(self, statement: str) -> str:
        """Keep the rows of a statement in memory, computed when first read, until the end."""
        view = f"kept_{self._group}_{len(self._kept)}"
        self._kept[view] = self._spark.sql(statement).persist()
        self._kept[view].createOrReplaceTempView(view)
        return view

    def beside(self, boundary: Op) -> Compute:
        """Return one for the same change of another boundary, over some of the same traces."""
        traces = {scan.source.oid: self._traces[scan.source.oid] for scan in scans(boundary)}
        return Compute(self._lake, traces, boundary, (self._after, self._upto), is_change=True)

    def reads(self) -> tuple[tuple[int, int], tuple[tuple[str, int], ...]]:
        """Return what tells the rows that this reads from those of another: epochs and copies."""
        copies = sorted((s.url, s.version) for s in self._traces.values())
        return (self._after, self._upto), tuple(copies)

    def has_copy(self, oid: int, url: str) -> bool:
        """Say whether it is this copy of a source that is read."""
        return self._traces[oid].url == url

    def keep(self, op: Op) -> str:
        """Keep the rows of a tree, computed when first read, until this is closed; return the name
        under which the statements of any other find them."""
        view = f"kept_{self._group}_shown_{len(self._shown)}"
        with _failing():
            self._shown[view] = self._spark.sql(self._renderer.render(op)).persist()
            self._shown[view].createOrReplaceGlobalTempView(view)
        return f"global_temp.{view}"

    def adopt(self, op: Op, view: str) -> None:
        """Read the rows of a tree from what another keeps."""
        self._renderer.adopt(op, view)

    def _relation(self, scan: Scan, is_delta: bool) -> str:
        """Return what holds a scan's rows."""
        standing = self._traces[scan.source.oid]
        files = self._files(standing, is_delta)
        span = self._after if is_delta else None, self._upto
        what = f"{scan.source.oid}_{'change' if is_delta else 'state'}"
        view = defined(self._spark, what, files, tuple(standing.wires), span)
        place = {text: physical(i) for i, (text, _) in enumerate(standing.columns)}
        pairs = zip(scan.attributes, names(scan.columns), strict=True)
        columns = {quoted(name): place[text] for text, name in pairs}
        shown = [f"{stored} AS {name}" for name, stored in columns.items()]
        rows = f"SELECT {', '.join([*shown, WEIGHT])} FROM {view}"
        if self._is_churned(standing, files):
            is_small = self.rows(scan, is_delta) <= SMALL_ROWS
            return self._netted_once(netted(rows, list(columns)), is_small=is_small)
        return f"({rows}) AS q"

    def _netted_once(self, statement: str, *, is_small: bool) -> str:
        if statement not in self._netted:
            kept = self._keep(statement) if is_small else f"({statement}) AS q"
            self._netted[statement] = kept
        return self._netted[statement]

    @property
    def netted_scans(self) -> int:
        """How many scans read a trace without what came and went."""
        return len(self._netted)

    def rows(self, scan: Scan, is_delta: bool) -> int:
        """Return how many rows the trace of a scan has, of the change or in all."""
        standing = self._traces[scan.source.oid]
        files = self._files(standing, is_delta)
        held = sum(file.rows for file in files)
        if self._is_churned(standing, files):
            return min(held, 2 * self._source_rows(standing))
        return held

    def _is_churned(self, standing: Standing, files: Files) -> bool:
        """Tell whether rows came and went so often that a join would multiply them.

        A change nets to what was there and what is, at most; so does a state, to less. Of the rest
        each row of one side meets each of the other, for every join anew: ten times as many rows
        in each of three tables are a thousand times as many pairs. To net what churned little
        takes longer than it saves, if there is much of it.
        """
        held = sum(file.rows for file in files)
        most = 2 * self._source_rows(standing)
        if held <= SMALL_ROWS:
            return held > max(most, _FEW_ROWS)
        return held > _MUCH_CHURN * most

    def _source_rows(self, standing: Standing) -> int:
        """Return about how many rows a source has: what the server says, or what was loaded."""
        if standing.source_rows is not None:
            return standing.source_rows
        files = self._states(standing)
        first = min((file.first_epoch for file in files), default=0)
        return sum(file.rows for file in files if file.last_epoch == first)

    def keys(self, scan: Scan, name: str) -> frozenset[str] | None:
        """Return the values of a column of a small change, without NULL, as Spark SQL."""
        standing = self._traces[scan.source.oid]
        wire = self.wires[name]
        files = self._changes(standing)
        if wire.kind not in _LISTED or sum(file.rows for file in files) > 2 * MANY_KEYS:
            return None
        at = self._position(scan, name)
        found = {
            literal_sql(str(value), wire) for value in values_of(self._trace(standing), files, at)
        }
        if len(found) > MANY_KEYS:
            return None
        return frozenset(value for value in found if value is not None)

    def listed(self, scan: Scan, name: str, values: tuple[str, ...]) -> frozenset[str]:
        """Return values of a column, given as text, as Spark SQL."""
        return frozenset(str(literal_sql(value, self.wires[name])) for value in values)

    def weights(self, scan: Scan, name: str) -> dict[str, Weights] | None:
        """Return the weights of a change by the values of a column; None if there are many rows.

        NULL is left out.
        """
        standing = self._traces[scan.source.oid]
        files = self._changes(standing)
        if self.wires[name].kind not in _NUMBERED or sum(f.rows for f in files) > _MANY_CHANGES:
            return None
        at = self._position(scan, name)
        if (scan.source.oid, at) not in self._weights:
            found = weights_of(self._trace(standing), files, at, (self._after, self._upto))
            texts = {str(value): weights for value, weights in found.items()}
            self._weights[scan.source.oid, at] = texts
        return self._weights[scan.source.oid, at]

    def _position(self, scan: Scan, name: str) -> int:
        of = dict(zip(names(scan.columns), scan.attributes, strict=True))
        texts = [text for text, _ in self._traces[scan.source.oid].columns]
        return texts.index(of[name])

    def _trace(self, standing: Standing) -> Trace:
        """Return a trace, which remembers what it has listed."""
        if standing.url not in self._opened:
            self._opened[standing.url] = Trace(standing.url, self._lake.storage_options)
        return self._opened[standing.url]

    def _files(self, standing: Standing, is_delta: bool) -> Files:
        return self._changes(standing) if is_delta else self._states(standing)

    def _changes(self, standing: Standing) -> Files:
        return self._trace(standing).between(standing.version, self._after, self._upto)

    def _states(self, standing: Standing) -> Files:
        return self._trace(standing).at(standing.version, self._upto)


def few_rows(statement: str) -> str:
    """Return the statement for the first rows of each partition of a result, and their places.

    The later a partition the fewer: that bounds the sum over however many there are. LIMIT would
    do the same after one more job.
    """
    numbered = f"SELECT q.*, monotonically_increasing_id() AS {_PLACE} FROM ({statement}) AS q"
    row, partition = f"{_PLACE} & {(1 << _ROW_BITS) - 1}", f"shiftright({_PLACE}, {_ROW_BITS})"
    return f"SELECT * FROM ({numbered}) WHERE ({row}) * (1 + {partition}) <= {MANY_ROWS}"


def are_cut_off(places: pa.ChunkedArray) -> bool:
    """Say whether there is a partition of which the last row was asked for: more may follow it."""
    if len(places) == 0:
        return False
    rows = compute.bit_wise_and(places, (1 << _ROW_BITS) - 1)
    partitions = compute.shift_right(places, _ROW_BITS)
    after = compute.multiply(compute.add(rows, 1), compute.add(partitions, 1))
    return bool(compute.max(after).as_py() > MANY_ROWS)


@contextmanager
def _failing() -> Iterator[None]:
    """Raise our errors for Spark's: a refresh writes down only those, and leaves no others."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - as in the session
    from pyspark import errors  # noqa: PLC0415

    try:
        with spark_errors():
            yield
    except (errors.PySparkException, Py4JError) as error:
        fault = row_fault(error)
        if fault is not None:
            raise QueryFailed(
                f"Spark failed on a row: {_first_line(fault)}",
                "an expression of the query fails on a value, or a subquery gives several",
                "correct the rows, or alter the query so that it does not fail on them",
            ) from error
        raise SparkFailed(
            f"Spark failed: {told(error)}",
            "a statement of the refresh did not come to its end",
            "try again; if it fails again, use engine 'postgres' and report the query",
        ) from error


def _first_line(said: str) -> str:
    return next(iter(said.splitlines()), "")
