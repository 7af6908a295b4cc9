"""Which engine maintains a stream table, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from headwater.catalog.model import follows_writers
from headwater.catalog.settings import read_settings
from headwater.errors import InvalidArgument, UnsupportedQuery
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


def require_lake(conn: Connection[Any], compiled: Compiled, wanted: str) -> EngineChoice:
    """Place a query whose result stays in the lake; raises UnsupportedQuery if Spark cannot do it
    all."""
    fault: str | None = "engine 'postgres' was asked for"
    if wanted != "postgres":
        fault = _environment_fault(conn, compiled)
    if fault is None:
        choice = _placed(compiled, publish=False)
        if isinstance(choice, EngineChoice):
            return choice
        fault = choice
    raise UnsupportedQuery(
        f"the result cannot stay in the lake only: {fault}",
        "publish => false needs a query that Spark can compute to its end",
        "leave publish out, or rewrite the query",
    )


def choose_engine(conn: Connection[Any], compiled: Compiled, wanted: str) -> EngineChoice:
    """Choose the engine: Spark wherever it is certain to give the same, unless told otherwise.

    Raises UnsupportedQuery if Spark was asked for and cannot do it. `wanted` is also "immediate".
    """
    if wanted == "immediate":
        return EngineChoice("postgres", "engine: PostgreSQL, inside the writing transaction")
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


def engine_for(mode: str, engine: str) -> str:
    """Return what to ask `choose_engine` for; what writers move lives in PostgreSQL."""
    if not follows_writers(mode):
        return engine
    if engine == "spark":
        raise InvalidArgument(
            f"a stream table in mode {mode} cannot be maintained by Spark",
            "it is maintained inside the transaction that writes to its sources",
            "leave engine out, or use refresh_mode => 'DIFFERENTIAL'",
        )
    return "immediate"


def _environment_fault(conn: Connection[Any], compiled: Compiled) -> str | None:
    """What speaks against Spark whatever the query says."""
    if find_lake(conn) is None:
        return "this connection has no lake"
    missing = find_missing()
    if missing is not None:
        return missing
    if compiled.maintenance is None:
        return _unplanned(compiled)
    if any(r.policy is not None for r in compiled.analysis.relations.values()):
        return "row-level security applies to the owner, and a copy in the lake would outlast it"
    if not read_pinned(conn)["DateStyle"].startswith("ISO"):
        return "DateStyle is not ISO"
    return None


def _unplanned(compiled: Compiled) -> str:
    """Say what makes it impossible to follow the changes of the sources into the lake."""
    refusal = compiled.refusal
    assert refusal is not None
    return f"its changes cannot be followed: {refusal.what}"


def _placed(compiled: Compiled, *, publish: bool = True) -> EngineChoice | str:
    from headwater.spark.landing import landed_rows  # noqa: PLC0415 - an optional package
    from headwater.spark.place import place, place_whole  # noqa: PLC0415
    from headwater.spark.unpublished import result_columns  # noqa: PLC0415
    from headwater.spark.wires import NotOnSpark  # noqa: PLC0415

    assert compiled.maintenance is not None
    try:
        if not publish:
            placed = place_whole(compiled.maintenance.view, landed_rows)
            result_columns(placed.boundary)
        else:
            placed = place(compiled.maintenance.view, landed_rows)
    except NotOnSpark as fault:
        return str(fault)
    return EngineChoice("spark", "engine: Spark, which computes the same", placed)
