"""Traces: append-only Delta tables of weighted rows `(c0, c1, …, __weight, __epoch)`.

Columns go by position, since Delta and Spark are choosy about names; who reads a trace knows which
is which. The rows of a trace at a version are those of the files that the version names. A commit
says which files come and go, with the epochs of each in its statistics, so that a reader never
opens a file in vain. There is one writer at a time; the caller's catalog says which version counts.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import compute, fs, parquet

from headwater.errors import InvalidArgument, LockTimeout, StreamTableDamaged
from headwater.spark.batches import (
    EPOCH,
    ROW_GROUP_ROWS,
    WEIGHT,
    consolidated,
    row_groups,
    stamped,
)
from headwater.spark.wire import Wire, arrow_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_BYTES = 256 << 20  # a file that grew larger ends, and the next begins
SMALL_FILE_BYTES = 32 << 20  # what compaction merges; it holds all of it in memory

_APPLICATION = "headwater"
_LOG = "_delta_log"
# Only `vacuum` knows which versions still count. Statistics on the epoch, whatever its position.
_CONFIGURATION = {
    "delta.enableExpiredLogCleanup": "false",
    "delta.dataSkippingStatsColumns": EPOCH,
}
_VERSIONS_REMEMBERED = 16


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A Parquet file of a trace, and the epochs of its rows."""

    name: str
    uri: str
    rows: int
    first_epoch: int
    last_epoch: int
    size: int


Files = tuple[TraceFile, ...]


def physical(position: int) -> str:
    """Return the name under which the column at a position is stored."""
    return f"c{position}"


class Trace:
    """The trace in one directory; local paths, or what delta-rs reads with the storage options."""

    def __init__(self, path: str, storage_options: Mapping[str, str] | None = None) -> None:
        self.is_local = "://" not in path
        self.path = os.path.abspath(path) if self.is_local else path.rstrip("/")
        if self.is_local and "%" in self.path:
            raise InvalidArgument(
                f"traces cannot live in {self.path}",
                "delta-rs reads a percent sign in a path as the start of an escape",
                "name a directory without one",
            )
        self._options = dict(storage_options or {})
        self._remembered: dict[int, Files] = {}
        self._latest: DeltaTable | None = None

    def create(self, columns: Sequence[tuple[str, Wire]]) -> int:
        """Create an empty trace and return its version; what an earlier one held is forgotten."""
        stored = [(physical(i), arrow_type(wire)) for i, (_, wire) in enumerate(columns)]
        schema = pa.schema([*stored, (WEIGHT, pa.int32()), (EPOCH, pa.int64())])
        self._latest = DeltaTable.create(
            self.path,
            schema=schema,
            mode="overwrite",
            configuration=_CONFIGURATION,
            storage_options=self._options,
        )
        return self._latest.version()

    def append(self, epoch: int, batches: Iterable[pa.RecordBatch], base_version: int) -> int:
        """Add the rows of an epoch to a version; return the new version, or this one if no rows.

        The batches hold the columns in order and then the weights. Whatever later versions hold, of
        a cycle that did not reach its end, goes in the same commit: the same call again, with the
        same rows or others, leaves the rows of the last call only.
        """
        return self.adopt(epoch, self.write(epoch, batches), base_version)

    def write(self, epoch: int, batches: Iterable[pa.RecordBatch]) -> Files:
        """Write the rows of an epoch as files that no version names yet; many may do so at once."""
        schema = self._schema()
        return self._write((stamped(batch, epoch, schema) for batch in batches), schema)

    def adopt(self, epoch: int, added: Files, base_version: int) -> int:
        """Add files that were written to a version; return the new one, or this one if none."""
        return self._commit((*self.files(base_version), *added), epoch) if added else base_version

    def files(self, version: int) -> Files:
        """Return the files of a version, oldest rows first."""
        if version not in self._remembered:
            self._remember(version, self._listed(self._open(version)))
        return self._remembered[version]

    def between(self, version: int, after: int, upto: int) -> Files:
        """Return the files that can hold rows with after < epoch <= upto."""
        return tuple(f for f in self.at(version, upto) if f.last_epoch > after)

    def at(self, version: int, epoch: int) -> Files:
        """Return the files that can hold rows up to an epoch."""
        return tuple(f for f in self.files(version) if f.first_epoch <= epoch)

    def stored_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all files that are there, some at a time, whatever versions say."""
        for name in self._names(""):
            if name.endswith(".parquet"):
                file = parquet.ParquetFile(self.storage().open_input_file(name))
                yield from file.iter_batches(ROW_GROUP_ROWS >> 4)

    def compact(
        self, version: int, upto: int, keep_after: int, small: int = SMALL_FILE_BYTES
    ) -> int:
        """Merge the small files with epochs up to `upto` into one; return the new version.

        Equal rows of an epoch become one, and none if their weights cancel. Epochs before
        `keep_after` become `keep_after`, so nobody may ask for the rows of, or up to, one of them
        any more.
        """
        files = self.files(version)
        merged = [f for f in files if f.last_epoch <= upto and f.size < small]
        if len(merged) < 2:  # noqa: PLR2004 - one file is merged already
            return version
        rows = consolidated(self._read(merged), min(keep_after, upto))
        kept = tuple(f for f in files if f not in merged)
        added = self._write(rows.to_batches(), rows.schema)
        return self._commit((*kept, *added))

    def replace(self, version: int, gone: Files, added: Files) -> int:
        """Make a version in which files stand in the place of others."""
        kept = (file for file in self.files(version) if file not in gone)
        return self._commit((*kept, *added))

    def vacuum(self, versions_kept: Sequence[int]) -> tuple[str, ...]:
        """Delete every file that none of the versions names, and the log before the oldest of them.

        Not while another process writes: its file would be taken for one that a crash left. Returns
        the names of the data files deleted.
        """
        newest = self.files(max(versions_kept))
        if newest != self.files(self._refreshed().version()):
            self._commit(newest)  # else the table as others see it would name deleted files
        named = {file.name for version in versions_kept for file in self.files(version)}
        stored = self._names("")
        garbage = tuple(n for n in stored if n.endswith(".parquet") and n not in named)
        for name in garbage:
            self.storage().delete_file(name)
        for name in self._names("", fs.FileType.Directory):
            if name != _LOG:
                self.storage().delete_dir(name)
        self._shorten_log(min(versions_kept))
        return garbage

    def drop(self) -> None:
        """Delete everything in the directory; a second call does nothing."""
        self._latest = None
        self._remembered.clear()
        if not self.is_local:
            self.storage().delete_dir("")
        elif os.path.exists(self.path):
            shutil.rmtree(self.path)

    def _open(self, version: int | None = None) -> DeltaTable:
        try:
            return DeltaTable(self.path, version=version, storage_options=self._options)
        except TableNotFoundError as error:
            raise self._missing(version) from error
        except DeltaError as error:
            if version is not None and self._open().version() < version:
                raise self._missing(version) from error
            raise

    def _missing(self, version: int | None) -> StreamTableDamaged:
        return StreamTableDamaged(
            f"there is no trace at {self.path}"
            + ("" if version is None else f" of version {version}"),
            "it was deleted, or the disk lost what was written to it last",
            "refresh the stream table in full",
        )

    def _refreshed(self) -> DeltaTable:
        """Return the table at its latest version."""
        if self._latest is None:
            self._latest = self._open()
        else:
            self._latest.update_incremental()
        return self._latest

    def _schema(self) -> pa.Schema:
        if self._latest is None:
            self._latest = self._open()
        return pa.schema(self._latest.schema().to_arrow())

    def _remember(self, version: int, files: Iterable[TraceFile]) -> None:
        self._remembered[version] = tuple(sorted(files, key=_age))
        if len(self._remembered) > _VERSIONS_REMEMBERED:
            del self._remembered[min(self._remembered)]

    def _listed(self, table: DeltaTable) -> Iterator[TraceFile]:
        for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
            yield TraceFile(
                action["path"],
                f"{self.path}/{action['path']}",
                action["num_records"],
                action[f"min.{EPOCH}"],
                action[f"max.{EPOCH}"],
                action["size_bytes"],
            )

    def _commit(self, files: Files, epoch: int | None = None) -> int:
        """Make a version of exactly these files, whatever the latest one names."""
        table = self._refreshed()
        version = table.version() + 1
        latest = self.files(table.version())
        actions: list[AddAction | RemoveAction] = [
            *_additions(set(files) - set(latest)),
            *_removals(set(latest) - set(files)),
        ]
        transactions = None if epoch is None else [Transaction(_APPLICATION, epoch)]
        properties = CommitProperties(app_transactions=transactions, max_commit_retries=0)
        try:
            table.create_write_transaction(
                actions, mode="append", schema=table.schema(), commit_properties=properties
            )
        except CommitFailedError as error:
            raise LockTimeout(
                f"another process writes to the trace at {self.path}",
                "it made a version of its own at the same moment",
                "try again; if this happens often, two schedulers run on the same directory",
            ) from error
        self.settle(f"{_LOG}/{version:020}.json", _LOG, "")
        self._remember(version, files)
        return version

    def _write(self, rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> Files:
        """Write rows as files that no version names yet."""
        groups = row_groups(rows, schema)
        files: list[TraceFile] = []
        group = next(groups, None)
        while group is not None:
            file, group = self._write_file(group, groups)
            files.append(file)
        return tuple(files)

    def _write_file(
        self, group: pa.Table | None, more: Iterator[pa.Table]
    ) -> tuple[TraceFile, pa.Table | None]:
        """Write row groups until the file is large enough; return it and the next group."""
        assert group is not None
        name = f"part-{uuid.uuid4()}.parquet"
        epochs: list[int] = []
        rows = size = 0
        with (
            self.storage().open_output_stream(name) as out,
            # Decimals of up to 18 digits as integers, which Spark reads several at a time.
            parquet.ParquetWriter(
                out, group.schema, store_schema=False, store_decimal_as_integer=True
            ) as writer,
        ):
            while group is not None and size < FILE_BYTES:
                writer.write_table(group)
                rows, size = rows + group.num_rows, out.tell()
                epochs += compute.min_max(group[EPOCH]).as_py().values()
                group = next(more, None)
        self.settle(name)
        size = self.storage().get_file_info(name).size
        uri = f"{self.path}/{name}"
        return TraceFile(name, uri, rows, min(epochs), max(epochs), size), group

    def _read(self, files: Iterable[TraceFile]) -> pa.Table:
        storage, schema = self.storage(), self._schema()
        return pa.concat_tables(
            parquet.ParquetFile(storage.open_input_file(file.name)).read().cast(schema)
            for file in files
        )

    def batches(self, version: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a version: columns and weights, without epochs."""
        schema = self._schema()
        for file in self.files(version):
            stored = parquet.ParquetFile(self.storage().open_input_file(file.name))
            yield from stored.iter_batches(columns=schema.names[:-1])

    def storage(self) -> fs.FileSystem:
        """Return the file system in which the names of files are those of the trace."""
        if self.is_local:  # faster than through the handler
            return fs.SubTreeFileSystem(self.path, fs.LocalFileSystem())
        return fs.PyFileSystem(DeltaStorageHandler(self.path, self._options))

    def _names(self, directory: str, kind: fs.FileType = fs.FileType.File) -> tuple[str, ...]:
        found = self.storage().get_file_info(fs.FileSelector(directory))
        return tuple(sorted(info.base_name for info in found if info.type == kind))

    def _shorten_log(self, version: int) -> None:
        """Delete the log before a version, which a checkpoint then stands for."""
        self._open(version).create_checkpoint()
        for name in self._names(_LOG):
            number = name.partition(".")[0]
            if number.isdigit() and int(number) < version:
                self.storage().delete_file(f"{_LOG}/{name}")

    def settle(self, *names: str) -> None:
        """Have the disk hold what was written, before PostgreSQL commits that it counts."""
        if not self.is_local:
            return
        for name in names:
            handle = os.open(os.path.join(self.path, name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def read_trace(
    spark: SparkSession,
    files: Sequence[TraceFile],
    columns: Sequence[tuple[str, Wire]],
    after: int | None = None,
    upto: int | None = None,
) -> DataFrame:
    """Return the rows of the files with after < epoch <= upto, under their physical names."""
    fields = [(physical(i), wire.spark) for i, (_, wire) in enumerate(columns)]
    fields += [(WEIGHT, "INT"), (EPOCH, "BIGINT")]
    if not files:
        nulls = ", ".join(f"CAST(NULL AS {type}) AS {name}" for name, type in fields)
        return spark.sql(f"SELECT {nulls} WHERE false")
    schema = ", ".join(f"{name} {type}" for name, type in fields)
    # No listing and no patterns: a path means itself. Files by others than Spark need the calendar.
    reader = spark.read.schema(schema).option("datetimeRebaseMode", "CORRECTED")
    rows = reader.option("__globPaths__", "false").parquet(*(file.uri for file in files))
    if after is not None and min(file.first_epoch for file in files) <= after:
        rows = rows.where(f"{EPOCH} > {after}")
    if upto is not None and max(file.last_epoch for file in files) > upto:
        rows = rows.where(f"{EPOCH} <= {upto}")
    return rows


def _age(file: TraceFile) -> tuple[int, int, str]:
    return file.first_epoch, file.last_epoch, file.name


def _additions(files: Iterable[TraceFile]) -> Iterator[AddAction]:
    now = time.time_ns() // 1_000_000
    for file in sorted(files, key=_age):
        statistics = {
            "numRecords": file.rows,
            "minValues": {EPOCH: file.first_epoch},
            "maxValues": {EPOCH: file.last_epoch},
            "nullCount": {EPOCH: 0},
        }
        yield AddAction(file.name, file.size, {}, now, True, json.dumps(statistics))


def _removals(files: Iterable[TraceFile]) -> Iterator[RemoveAction]:
    now = time.time_ns() // 1_000_000
    for file in sorted(files, key=_age):
        yield RemoveAction(file.name, True, now, file.size, {})
