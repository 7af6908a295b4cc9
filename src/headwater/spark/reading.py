"""A range of a source to files of a trace: what an executor does of a first load.

Everything here runs in a Python process of Spark's, perhaps on another machine, and gets all that
it needs in one value. Faults come back as values too: an error that Spark reports has lost its
class, and Spark would try again what fails for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import psycopg
from deltalake.exceptions import DeltaError

from headwater.errors import HeadwaterError, ServerUnreachable
from headwater.spark.copying import Columns, copy_out
from headwater.spark.traces import Files, Trace

LOCK_TIMEOUT = "2s"

Blocks = tuple[int, int | None]  # from one block to before another; None: to the end

_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_SET = (
    "SELECT pg_catalog.set_config(name, value, true)"
    " FROM unnest(%s::text[], %s::text[]) AS settings (name, value)"
)


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The rows of a source, and the trace that they are for."""

    select: str  # SELECT … FROM source, to which a WHERE can be added
    columns: Columns
    url: str
    epoch: int
    order: str = ""  # an ORDER BY, where the files are to have one


@dataclass(frozen=True, slots=True)
class Reading:
    """What to read, as whom and under which snapshot.

    It travels inside the task, which Spark shows nowhere; `repr` leaves the secrets out as well.
    """

    connection: Mapping[str, str] = field(repr=False)  # with the password
    snapshot: str
    settings: Mapping[str, str]
    role: str
    storage_options: Mapping[str, str] = field(repr=False)
    source: SourceRows


def read_range(reading: Reading, blocks: Blocks) -> Files | Exception:
    """Write the rows of some blocks as files that no version names yet; return these or a fault."""
    try:
        with _connected(reading) as conn:
            _imitate(conn, reading)
            source = reading.source
            select = f"{source.select} WHERE {_within(blocks)}{source.order}"
            rows = copy_out(conn, select, source.columns)
            return Trace(source.url, reading.storage_options).write(source.epoch, rows)
    except (HeadwaterError, psycopg.Error) as error:
        return error
    except (OSError, DeltaError) as error:
        return OSError(str(error))  # of the lake; not all of delta-rs's own survive the way


def _connected(reading: Reading) -> psycopg.Connection:
    try:
        return psycopg.connect(**reading.connection, autocommit=True)  # type: ignore[arg-type]
    except psycopg.OperationalError as error:
        raise ServerUnreachable(
            f"an executor has no connection to PostgreSQL: {str(error).strip()}",
            "a first load reads large sources on Spark's executors, with the DSN of this process",
            "name a host in the DSN that executors reach, and let them in; or load through this"
            " process: SET pg_trickle.parallel_load_connections = 0",
        ) from error


def _imitate(conn: psycopg.Connection, reading: Reading) -> None:
    """See what the refresher's transaction sees: its snapshot, its settings, its role.

    A lock is not waited for: who holds or awaits it may be waiting for the refresher, and the
    server cannot know that the refresher waits for us.
    """
    conn.execute(_BEGIN)
    conn.execute(f"SET TRANSACTION SNAPSHOT '{reading.snapshot}'".encode())
    settings = {**reading.settings, "lock_timeout": LOCK_TIMEOUT, "role": reading.role}
    for name, value in settings.items():  # the role last: it may not set all of them
        conn.execute(_SET, ([name], [value]))


def _within(blocks: Blocks) -> str:
    first, end = blocks
    after = f"ctid >= '({first},0)'::pg_catalog.tid"
    return after if end is None else f"{after} AND ctid < '({end},0)'::pg_catalog.tid"
