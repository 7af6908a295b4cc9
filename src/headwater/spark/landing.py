"""What Spark computed, handed over to PostgreSQL in temporary tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from psycopg import Connection

from headwater.algebra.schema import Schema
from headwater.postgres.quote import WEIGHT, identifier, listed
from headwater.spark.copying import copy_in
from headwater.spark.wire import INTEGER, Wire, landing_type
from headwater.spark.wires import Wires

CHANGE = "pg_temp.pgt_landed_change"
GROUPS = "pg_temp.pgt_landed_groups"
_ROWS = "pg_temp.pgt_landed_rows"


def landed_rows(columns: Schema) -> str:
    """Return the relation with the rows of a state, as many copies of each as its weight says."""
    names = listed(identifier(c.name) for c in columns)
    series = f"CROSS JOIN LATERAL generate_series(1, {WEIGHT}) AS copies"
    return (
        f"(SELECT {names} FROM {_ROWS} {series}) AS landed"
        if names
        else (f"(SELECT FROM {_ROWS} {series}) AS landed")
    )


def read_landed(columns: Schema) -> str:
    """Return the SELECT of the change that was handed over."""
    return f"SELECT {listed([*(identifier(c.name) for c in columns), WEIGHT])} FROM {CHANGE}"


def land_change(
    conn: Connection[Any], columns: Schema, wires: Wires, rows: Iterable[pa.RecordBatch]
) -> int:
    """Hand over rows with weights that came and went."""
    return _land(conn, CHANGE, (columns, wires), rows, weighted=True)


def land_rows(
    conn: Connection[Any], columns: Schema, wires: Wires, rows: Iterable[pa.RecordBatch]
) -> int:
    """Hand over rows of a state, with how many copies of each there are."""
    return _land(conn, _ROWS, (columns, wires), rows, weighted=True)


def land_groups(
    conn: Connection[Any], columns: Schema, wires: Wires, rows: Iterable[pa.RecordBatch]
) -> int:
    """Hand over sums per group."""
    return _land(conn, GROUPS, (columns, wires), rows, weighted=False)


def drop_landed(conn: Connection[Any]) -> None:
    """Drop what was handed over: the next table of the transaction may belong to another role."""
    conn.execute(f"DROP TABLE IF EXISTS {CHANGE}, {GROUPS}, {_ROWS}")


def _land(
    conn: Connection[Any],
    table: str,
    shape: tuple[Schema, Wires],
    rows: Iterable[pa.RecordBatch],
    *,
    weighted: bool,
) -> int:
    columns, wires = shape
    named: list[tuple[str, Wire]] = [(c.name, wires[c.name]) for c in columns]
    types = [f"{identifier(c.name)} {landing_type(wires[c.name], c.type)}" for c in columns]
    if weighted:
        named.append((WEIGHT, INTEGER))
        types.append(f"{WEIGHT} int")
    bare = table.removeprefix("pg_temp.")
    conn.execute(f"CREATE TEMPORARY TABLE {bare} ({listed(types)}) ON COMMIT DROP")
    landed = copy_in(conn, table, named, rows)
    conn.execute(f"ANALYZE {table}")
    return landed
