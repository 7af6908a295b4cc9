"""The change of a stream table as a Delta MERGE into a table with the same rows, by its key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from headwater.bench.shop import execute
from headwater.bench.tpch import SCHEMA
from headwater.errors import bug
from headwater.postgres.quote import WEIGHT, identifier, listed
from headwater.spark.copying import copy_out
from headwater.spark.lake import Lake
from headwater.spark.session import start_session
from headwater.spark.traces import Trace, physical, read_trace
from headwater.spark.wire import INTEGER, outgoing, wire_of
from headwater.sql.analyse import describe

_BEFORE = f"{SCHEMA}.merged"


class MergeTable:
    """A copy of a stream table in Delta, with deletion vectors, that a MERGE brings up to date."""

    def __init__(self, conn: Connection[Any], lake: Lake, name: str, key: Sequence[str]) -> None:
        self._conn, self._lake, self._name = conn, lake, name
        self._spark = start_session(lake.spark)
        self._columns = describe(conn, f"SELECT * FROM {name}")
        self._key = [identifier(column) for column in key]
        names = [column.name for column in self._columns]
        self._physical_key = [physical(names.index(column)) for column in key]
        self._table = Trace(lake.new_url("merge"))
        self._staged = Trace(lake.new_url("merge-change"))

    def fill(self) -> None:
        """Copy all rows."""
        self._stage(f"SELECT *, 1 AS {WEIGHT} FROM {self._name}")
        rows = self._spark.table("merge_change").drop(WEIGHT)
        rows.write.format("delta").save(self._table.path)
        self._spark.sql(f"ALTER TABLE delta.`{self._table.path}`"
                        " SET TBLPROPERTIES (delta.enableDeletionVectors = true)")  # fmt: skip
        self._remember()

    def stage(self) -> int:
        """Write what changed since the last time to a file that Spark can read.

        Keys are compared by `=`, which hashes: no key of these views is NULL.
        """
        same = " AND ".join(f"n.{k} = o.{k}" for k in self._key)
        rows = self._stage(
            f"SELECT *, 1 AS {WEIGHT} FROM (SELECT * FROM {self._name} EXCEPT"
            f" SELECT * FROM {_BEFORE}) AS new UNION ALL SELECT *, -1 FROM {_BEFORE} AS o"
            f" WHERE NOT EXISTS (SELECT FROM {self._name} AS n WHERE {same})"
        )
        self._remember()
        return rows

    def merge(self) -> None:
        """Merge what is staged: this is what is timed."""
        on = " AND ".join(f"t.{k} <=> c.{k}" for k in self._physical_key)
        self._spark.sql(
            f"MERGE INTO delta.`{self._table.path}` AS t USING merge_change AS c ON {on}"
            f" WHEN MATCHED AND c.{WEIGHT} < 0 THEN DELETE WHEN MATCHED THEN UPDATE SET *"
            f" WHEN NOT MATCHED AND c.{WEIGHT} > 0 THEN INSERT *"
        ).collect()

    def check(self) -> None:
        """Raise if the copy has not as many rows as the stream table."""
        here = self._spark.sql(f"SELECT count(*) FROM delta.`{self._table.path}`").collect()[0][0]
        row = self._conn.execute(f"SELECT count(*) FROM {self._name}".encode()).fetchone()
        if row != (here,):
            raise bug(f"MERGE left {here} rows", f"{self._name} has {row}")

    def drop(self) -> None:
        """Delete all files."""
        execute(self._conn, f"DROP TABLE IF EXISTS {_BEFORE}")
        for trace in (self._table, self._staged):
            trace.drop()

    def _remember(self) -> None:
        execute(self._conn, f"DROP TABLE IF EXISTS {_BEFORE}")
        execute(self._conn, f"CREATE TABLE {_BEFORE} AS SELECT * FROM {self._name}")
        execute(self._conn, f"ANALYZE {_BEFORE}")

    def _stage(self, query: str) -> int:
        forms = [(column.name, wire_of(column.type)) for column in self._columns]
        values = listed([
            *(outgoing(identifier(column.name), wire_of(column.type), column.type)
              for column in self._columns),
            WEIGHT,
        ])  # fmt: skip
        self._staged.drop()
        rows = copy_out(self._conn, f"SELECT {values} FROM ({query}) AS q",
                        [*forms, (WEIGHT, INTEGER)])  # fmt: skip
        version = self._staged.append(1, rows, self._staged.create(forms))
        files = self._staged.files(version)
        frame = read_trace(self._spark, files, forms).drop("__epoch")
        frame.createOrReplaceTempView("merge_change")
        return sum(file.rows for file in files)
