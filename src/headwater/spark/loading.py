"""First loads by many hands: a source cut into ranges of blocks, read by Spark's executors.

All of them see one snapshot, that of the refresher's transaction, which it exports. What that
snapshot does not show them, or what has no blocks, is read by the refresher itself; so is what is
too small to be worth it. Which of these it is, is decided before anything is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
from psycopg import Connection

from headwater.catalog.settings import read_settings
from headwater.errors import SparkFailed
from headwater.postgres.quote import identifier
from headwater.spark.lake import Lake, LakeConnection
from headwater.spark.reading import Blocks, Reading, SourceRows, read_range
from headwater.spark.session import spark_errors, start_session
from headwater.spark.traces import Files

SHARE = 4  # of the least size: what is worth a connection of its own

# A table with its partitions or children. Whoever writes a table holds this lock until the end.
_MEMBERS = """
WITH RECURSIVE members (oid) AS (
    SELECT %s::int8::oid
    UNION SELECT i.inhrelid FROM pg_inherits i JOIN members m ON i.inhparent = m.oid
)
SELECT c.relkind = 'p' OR c.relkind IN ('r', 'm') AND a.amname IS NOT DISTINCT FROM 'heap',
       coalesce(pg_relation_size(c.oid), 0) / current_setting('block_size')::int,
       coalesce(pg_table_size(c.oid), 0) / current_setting('block_size')::int,  -- with long values
       EXISTS (SELECT FROM pg_locks l
                WHERE l.locktype = 'relation' AND l.relation = c.oid AND l.pid = pg_backend_pid()
                  AND l.mode IN ('RowExclusiveLock', 'AccessExclusiveLock'))
  FROM members JOIN pg_class c USING (oid) LEFT JOIN pg_am a ON a.oid = c.relam
"""
_SESSION = """
SELECT name, current_setting(name) FROM pg_settings
 WHERE source IN ('client', 'session') AND context IN ('user', 'superuser')
   AND name NOT LIKE 'transaction\\_%'
"""

# The primary key, and how far the rows are in its order; of partitions as one, if there are any.
_KEY = """
SELECT a.attname, (SELECT abs(s.correlation) FROM pg_stats s
                    WHERE (s.schemaname, s.tablename, s.attname) =
                          (n.nspname, c.relname, a.attname)
                    ORDER BY s.inherited DESC LIMIT 1)
  FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
  JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE i.indrelid = %s::int8::oid AND i.indisprimary ORDER BY k.place
"""
IN_ORDER = 0.9  # of the correlation of place and key, of which 1 is perfect order

# Parameters that lead to others by way of files or lists; what they led to is known by now.
_RESOLVED = frozenset({"hostaddr", "port", "service", "servicefile", "passfile"})


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """How all rows of a source are read: the ranges, or none if the refresher reads them itself.

    `kind` is what history counts, `words` what `explain` shows.
    """

    kind: str
    words: str
    ranges: tuple[Blocks, ...] = ()


def plan_load(conn: Connection[Any], relid: int) -> LoadPlan:
    """Decide how to load a source in the open transaction."""
    settings = read_settings(conn)
    members = conn.execute(_MEMBERS, [relid]).fetchall()
    sizes = [int(blocks) for _, blocks, _, _ in members]
    pages = sum(int(pages) for _, _, pages, _ in members)
    if settings.parallel_load_connections == 0:
        return _by_itself("off", "pg_trickle.parallel_load_connections is 0")
    if not all(has_blocks for has_blocks, *_ in members):
        return _by_itself("no_blocks", "not all of it is stored in PostgreSQL's own kind of table")
    if pages < settings.parallel_load_pages:
        least = settings.parallel_load_pages
        return _by_itself("small", f"{pages} pages, pg_trickle.parallel_load_pages is {least}")
    if any(is_written for *_, is_written in members):
        return _by_itself("written", "this transaction wrote it, which nobody else sees yet")
    if not isinstance(conn, LakeConnection) or conn.depth > 1:
        return _by_itself("nested", "a snapshot cannot be exported from within a savepoint")
    worthwhile = max(1, SHARE * pages // max(1, settings.parallel_load_pages))
    ranges = cut(sizes, min(settings.parallel_load_connections, worthwhile))
    return LoadPlan("parallel", f"by executors, in {len(ranges)} ranges of blocks", ranges)


def key_order(conn: Connection[Any], relid: int, texts: Collection[str]) -> str:
    """Return the ORDER BY for a load whose rows do not come in the order of their key anyway.

    The server sorts each range, on its disk. Then the few keys of a small change are looked for in
    one row group of each file, not in all of them. Nothing for a key that is not among `texts`.
    """
    key = conn.execute(_KEY, [relid]).fetchall()
    names = [identifier(name) for name, _ in key]
    is_known = bool(key) and key[0][1] is not None
    if not is_known or key[0][1] >= IN_ORDER or not set(names) <= set(texts):
        return ""
    return f" ORDER BY {', '.join(names)}"


def cut(sizes: Sequence[int], parts: int) -> tuple[Blocks, ...]:
    """Cut tables of these sizes at the same blocks, so that the parts have about equal sizes.

    Partitions are read through the table that they belong to, whose rights and policies count: so
    a range takes the blocks of these numbers from every one of them. The last has no end.
    """

    def below(block: int) -> int:
        return sum(min(size, block) for size in sizes)

    blocks = range(max(sizes, default=0))
    wanted = (below(len(blocks)) * part // parts for part in range(1, parts))
    starts = sorted({0, *(bisect_left(blocks, pages, key=below) for pages in wanted)})
    return tuple(zip(starts, [*starts[1:], None], strict=True))


def load_counts(plans: Iterable[LoadPlan]) -> dict[str, float]:
    """Return how many sources were loaded in which way, for the history."""
    return {f"load_{kind}": float(n) for kind, n in Counter(plan.kind for plan in plans).items()}


def load_ranges(
    conn: Connection[Any], lake: Lake, plan: LoadPlan, source: SourceRows
) -> tuple[LoadPlan, Files]:
    """Have executors write all rows as files that no version names yet.

    Without any files, and with another plan, if they could not lock the source.
    """
    conn.execute(f"{source.select} LIMIT 0".encode())  # from here on nobody else alters it
    reading = Reading(
        _parameters(conn),
        _exported(conn),
        dict(conn.execute(_SESSION).fetchall()),
        str(_value(conn, "SELECT current_user")),
        lake.storage_options,
        source,
    )
    files = _gathered(_run(lake, plan, reading))
    return (BLOCKED, ()) if files is None else (plan, files)


def _by_itself(kind: str, why: str) -> LoadPlan:
    return LoadPlan(kind, f"by this process: {why}")


BLOCKED = _by_itself("blocked", "someone waits for a lock on it, and executors would wait behind")


def _parameters(conn: Connection[Any]) -> dict[str, str]:
    """Return how to connect to the very server of a connection, which may be one of several."""
    info = conn.info
    given = {k: v for k, v in info.get_parameters().items() if k not in _RESOLVED}
    given |= {"host": info.host, "port": str(info.port), "dbname": info.dbname, "user": info.user}
    if info.hostaddr and not info.host.startswith("/"):
        given["hostaddr"] = info.hostaddr
    return given | ({"password": info.password} if info.password else {})


def _exported(conn: Connection[Any]) -> str:
    """Export the snapshot, which then waits for executors however long they take."""
    conn.execute("SELECT set_config('idle_in_transaction_session_timeout', '0', true)")
    return str(_value(conn, "SELECT pg_export_snapshot()"))


def _value(conn: Connection[Any], query: str) -> object:
    row = conn.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def _run(lake: Lake, plan: LoadPlan, reading: Reading) -> list[Files | Exception]:
    with _failing():
        context = start_session(lake.spark).sparkContext
        context.setJobGroup(reading.source.url, "headwater: first load")
        tasks = context.parallelize(plan.ranges, len(plan.ranges))
        return tasks.map(partial(read_range, reading)).collect()


def _gathered(outcomes: Iterable[Files | Exception]) -> Files | None:
    """Return all files, or raise the first fault; those of locks count only without others."""
    files: list[Any] = []
    is_blocked = False
    for outcome in outcomes:
        if isinstance(outcome, psycopg.errors.LockNotAvailable):
            is_blocked = True
        elif isinstance(outcome, Exception):
            raise outcome
        else:
            files += outcome
    return None if is_blocked else tuple(files)


@contextmanager
def _failing() -> Iterator[None]:
    from py4j.protocol import Py4JError  # noqa: PLC0415 - as in the session
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        with spark_errors():
            yield
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(
            "Spark's executors could not load a source",
            "\n".join(_told(str(error))),
            "executors need the same Python with headwater[spark], see docs/how-to/spark.md; or"
            " load through this process: SET pg_trickle.parallel_load_connections = 0",
        ) from error


def _told(text: str) -> list[str]:
    """Return what a long report says in lines of its own: the names of errors."""
    lines = [line.strip() for line in text.splitlines()]
    named = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
    return (named or lines)[:2]
