"""The doctor on the lake: directories without a catalog row, and the other way round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from headwater.api.symptoms import Check, Symptom
from headwater.catalog import streams, traces
from headwater.errors import MissingComponent
from headwater.spark.lake import find_lake, find_missing_package, get_lake

if TYPE_CHECKING:
    from headwater.catalog.model import TraceRow
    from headwater.spark.lake import Lake


def _reachable(conn: Connection[Any]) -> Lake | None:
    """Return the lake, if there is one and the packages that read it are there."""
    return find_lake(conn) if _missing() is None else None


def _missing() -> str | None:
    return find_missing_package("deltalake", "pyarrow")


def _find_unlooked(conn: Connection[Any]) -> Iterator[Symptom]:
    if _reachable(conn) is None and traces.list_all(conn):
        why = "this connection has no lake" if find_lake(conn) is None else _missing()
        yield Symptom(None, f"the lake was not looked at: {why}")


def _cannot(conn: Connection[Any], symptom: Symptom) -> None:
    raise MissingComponent(
        symptom.detail,
        "stream tables on Spark keep copies of their sources there",
        "name the lake with --lake, and install headwater[spark]",
    )


def _find_orphans(conn: Connection[Any]) -> Iterator[Symptom]:
    lake = _reachable(conn)
    if lake is None:
        return
    from headwater.spark import ingest  # noqa: PLC0415 - an optional package

    for url in ingest.list_orphans(conn, lake):
        yield Symptom(url, "a transaction that was rolled back left it in the lake")


def _find_unread(conn: Connection[Any]) -> Iterator[Symptom]:
    for row in traces.list_unread(conn) if _reachable(conn) else ():
        yield Symptom(row.url, "no stream table reads this copy of a source")


def _sweep(conn: Connection[Any], symptom: Symptom) -> None:
    from headwater.spark import ingest  # noqa: PLC0415 - an optional package

    ingest.sweep(conn, get_lake(conn))


def _find_damaged(conn: Connection[Any]) -> Iterator[Symptom]:
    lake = _reachable(conn)
    if lake is None:
        return
    from headwater.spark import ingest  # noqa: PLC0415 - an optional package

    for row in traces.list_all(conn):
        fault = ingest.find_fault(lake, row)
        if fault is not None:
            yield Symptom(row.url, fault, row)


def _load_anew(conn: Connection[Any], symptom: Symptom) -> None:
    """Forget the copy and delete what is left of it; whoever reads it loads another one."""
    row: TraceRow = symptom.key
    with conn.transaction():
        readers = traces.detach_all(conn, row.trace_id)
        traces.drop_trace(conn, row.trace_id)
        streams.mark_for_rebuild(conn, readers, "a copy of a source in the lake was damaged")
    _sweep(conn, symptom)


CHECKS = (
    Check("lake", "name the lake, and install headwater[spark]", _find_unlooked, _cannot),
    Check("orphaned files", "delete them", _find_orphans, _sweep),
    Check("unread copy", "delete it", _find_unread, _sweep),
    Check("damaged copy", "load it anew; its readers are computed anew", _find_damaged, _load_anew),
)
