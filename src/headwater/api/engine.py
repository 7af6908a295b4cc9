"""Which engine maintains a stream table, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from headwater.catalog.settings import read_settings
from headwater.errors import UnsupportedQuery
from headwater.postgres.compile import Compiled
from headwater.postgres.session import read_pinned
from headwater.spark.lake import find_lake, find_missing

if TYPE_CHECKING:
    from headwater.spark.place import Placed


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine, the reason, and how the query is cut if it is Spark."""

    engine: str
    reason: str
    placed: Placed | None = None


def choose_engine(conn: Connection[Any], compiled: Compiled, wanted: str) -> EngineChoice:
    """Choose the engine: Spark wherever it is certain to give the same, unless told otherwise.

    Raises UnsupportedQuery if Spark was asked for and cannot do it.
    """
    if wanted == "auto":
        wanted = read_settings(conn).default_engine
    if wanted == "postgres":
        return EngineChoice("postgres", "engine: PostgreSQL was asked for")
    fault = _environment_fault(conn, compiled)
    if fault is None:
        choice = _placed(compiled)
        if isinstance(choice, EngineChoice):
            return choice
        fault = choice
    if wanted == "spark":
        raise UnsupportedQuery(
            f"the query cannot run on Spark: {fault}",
            "Spark takes only what it is certain to compute as PostgreSQL does",
            "use engine 'auto' or 'postgres'",
        )
    return EngineChoice("postgres", f"engine: PostgreSQL, not Spark: {fault}")


def _environment_fault(conn: Connection[Any], compiled: Compiled) -> str | None:
    """What speaks against Spark whatever the query says."""
    if find_lake(conn) is None:
        return "this connection has no lake"
    missing = find_missing()
    if missing is not None:
        return missing
    if compiled.maintenance is None:
        return "a FULL refresh runs on PostgreSQL in this version"
    if not read_pinned(conn)["DateStyle"].startswith("ISO"):
        return "DateStyle is not ISO"
    return None


def _placed(compiled: Compiled) -> EngineChoice | str:
    from headwater.spark.landing import landed_rows  # noqa: PLC0415 - an optional package
    from headwater.spark.place import place  # noqa: PLC0415
    from headwater.spark.wires import NotOnSpark  # noqa: PLC0415

    assert compiled.maintenance is not None
    try:
        placed = place(compiled.maintenance.view, landed_rows)
    except NotOnSpark as fault:
        return str(fault)
    return EngineChoice("spark", "engine: Spark, which computes the same", placed)
