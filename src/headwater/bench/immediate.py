"""`bench immediate`: what writes cost the server with an IMMEDIATE table, against without."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headwater.api import Headwater
from headwater.bench import immediate_hand
from headwater.bench.capture import server_clock
from headwater.bench.immediate_writes import TOGETHER, VIEWS, WRITES, Write
from headwater.bench.shop import SCHEMA, execute
from headwater.errors import MissingComponent

NONE, HAND, OURS = "without", "by hand", "with"
RIVAL_NONE, RIVAL = "without, there", "pg_ivm"


@dataclass(frozen=True, slots=True)
class Load:
    """What to measure: rows of the large tables, statements of one row, rounds, seconds."""

    rows: int
    single: int
    rounds: int
    clients: tuple[int, ...]
    seconds: float

    @property
    def few(self) -> int:
        """Customers, and a tenth of that are groups."""
        return max(10, self.rows // 10)


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of the server per statement for each way, medians over rounds."""

    view: str
    write: str
    rows: int
    ms: dict[str, float]


@dataclass(frozen=True, slots=True)
class Rate:
    """Transactions per second of so many clients at once, for each way."""

    view: str
    clients: int
    tps: dict[str, float]


@dataclass(frozen=True, slots=True)
class Place:
    """The tables of one way, in a schema of their own, and a session that finds them first."""

    way: str
    schema: str
    dsn: str
    conn: Connection[Any]


def measure(hw: Headwater, load: Load, rival: str | None = None) -> Iterator[Cost | Rate]:
    """Measure all writes in each way, in turns, in schemas that are gone afterwards.

    `rival` is the DSN of a server with pg_ivm, on which writes without a view are measured, too.
    """
    with ExitStack() as stack:
        places = [stack.enter_context(_place(hw.dsn, way)) for way in (NONE, HAND, OURS)]
        if rival is not None:
            _require_rival(rival)
            places += [stack.enter_context(_place(rival, way)) for way in (RIVAL_NONE, RIVAL)]
        try:
            for place in places:
                _build(hw, place, load)
            for view in VIEWS:
                yield from _costs(places, load, view)
            for view in VIEWS:
                for clients in load.clients:
                    yield _rates(places, load, view, clients)
            _check(hw, places)
        finally:
            for place in places:
                _drop(hw, place)


@contextmanager
def _place(dsn: str, way: str) -> Iterator[Place]:
    names = {NONE: "_none", HAND: "_hand", OURS: "", RIVAL_NONE: "_there", RIVAL: "_rival"}
    schema = f"{SCHEMA}{names[way]}"
    given = str(conninfo_to_dict(dsn).get("options") or "")
    settings = f"-c search_path={schema} -c synchronous_commit=off"
    own = make_conninfo(dsn, options=f"{given} {settings}".strip())
    with psycopg.connect(own, autocommit=True) as conn:
        yield Place(way, schema, own, conn)


def _require_rival(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute("SELECT FROM pg_extension WHERE extname = 'pg_ivm'").fetchone()
    if row is None:
        raise MissingComponent(
            "the server of --pg-ivm-dsn has no pg_ivm in this database",
            why="the same writes are measured with its views",
            fix="run CREATE EXTENSION pg_ivm there, or leave the option out",
        )


def _build(hw: Headwater, place: Place, load: Load) -> None:
    _drop(hw, place)
    conn = place.conn
    for statement in (
        f"CREATE SCHEMA {place.schema}",
        "CREATE TABLE t (id bigint PRIMARY KEY, g int, v int)",
        "CREATE TABLE customers (id int PRIMARY KEY, name text)",
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer_id int, amount int)",
        "CREATE INDEX ON orders (customer_id)",
        f"INSERT INTO t SELECT n, n % {load.few // 10}, n FROM generate_series(1, {load.rows}) n",
        f"INSERT INTO customers SELECT n, 'customer ' || n FROM generate_series(1, {load.few}) n",
        "INSERT INTO orders"
        f" SELECT n, n % {load.few} + 1, n FROM generate_series(1, {load.rows}) n",
        "VACUUM ANALYZE t, customers, orders",
    ):
        execute(conn, statement)
    _maintain(place)


def _maintain(place: Place) -> None:
    if place.way == HAND:
        immediate_hand.install(place.conn)
    for view, query in VIEWS.items():
        if place.way == OURS:
            with Headwater(place.dsn) as ours:
                ours.create_stream_table(f"{SCHEMA}.{view}", query, refresh_mode="IMMEDIATE")
        if place.way == RIVAL:
            place.conn.execute("SELECT pgivm.create_immv(%s, %s)", (view, query))


def _drop(hw: Headwater, place: Place) -> None:
    if place.way == OURS:
        known = {status.name for status in hw.pgt_status()}
        for view in VIEWS:
            if f"{SCHEMA}.{view}" in known:
                hw.drop_stream_table(f"{SCHEMA}.{view}")
    execute(place.conn, f"DROP SCHEMA IF EXISTS {place.schema} CASCADE")


def _check(hw: Headwater, places: Sequence[Place]) -> None:
    """A way that is fast and wrong is not measured."""
    for view, query in VIEWS.items():
        found = hw.verify(f"{SCHEMA}.{view}")
        if not found.equal:
            raise RuntimeError(f"{view} differs from its query: {found}")
        columns = "g, n, s, a" if view == "groups" else "id, amount, customer_id, name"
        for place in (p for p in places if p.way == HAND):
            stored = f"SELECT {columns} FROM {view}"
            row = place.conn.execute(
                f"SELECT count(*) FROM (({query} EXCEPT ALL {stored}) UNION ALL"
                f" ({stored} EXCEPT ALL {query})) AS q".encode()
            ).fetchone()
            if row != (0,):
                raise RuntimeError(f"{view}, maintained by hand, differs from its query: {row}")


def _costs(places: Sequence[Place], load: Load, view: str) -> Iterator[Cost]:
    """Run every kind of write on the tables of a view, round after round; the first warms up."""
    found: dict[Write, dict[str, list[float]]] = {}
    for number in range(load.rounds + 1):
        for write in (w for w in WRITES if w.view == view):
            for place in places:
                used = _run(place, load, write, number)
                if number:
                    found.setdefault(write, {}).setdefault(place.way, []).append(used)
    for write, ways in found.items():
        medians = {way: statistics.median(times) for way, times in ways.items()}
        yield Cost(view, write.name, write.rows, medians)


def _run(place: Place, load: Load, write: Write, number: int) -> float:
    """Return the milliseconds of the server per statement in one round."""
    clock = server_clock(place.conn)
    count = load.single if write.rows == 1 else max(1, load.single // 200)
    began = clock()
    for n in range(number * count + 1, number * count + count + 1):
        values = {"n": n, "g": load.few // 10, "c": load.few}
        place.conn.execute(write.statement.encode(), values, prepare=True)
    return (clock() - began) * 1000 / count


def _rates(places: Sequence[Place], load: Load, view: str, clients: int) -> Rate:
    ways = [place for place in places if place.way != HAND]
    return Rate(view, clients, {p.way: _rate(p.dsn, load, view, clients) for p in ways})


def _rate(dsn: str, load: Load, view: str, clients: int) -> float:
    """Let clients write as fast as the server can, each in a loop inside the server."""
    write = TOGETHER[view].format(rows=load.rows, few=load.few).replace("%%", "%")
    code = (
        "DO $$ DECLARE r int; BEGIN"
        f" WHILE clock_timestamp() < timestamptz '{{until}}' LOOP"
        f" r := (random() * 1000000000)::int; {write}; COMMIT;"
        " PERFORM set_config('bench.done', (current_setting('bench.done')::int + 1)::text, false);"
        " END LOOP; END $$"
    )

    def work(until: str) -> int:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("SET bench.done = 0")
            conn.execute(code.replace("{until}", until).encode())
            row = conn.execute("SELECT current_setting('bench.done')::int").fetchone()
            return int(row[0]) if row else 0

    with psycopg.connect(dsn, autocommit=True) as conn, ThreadPoolExecutor(clients) as pool:
        row = conn.execute(
            "SELECT (clock_timestamp() + make_interval(secs => %s))::text", (load.seconds,)
        ).fetchone()
        began = time.perf_counter()
        done = sum(pool.map(work, [str(row[0] if row else "")] * clients))
        return done / (time.perf_counter() - began)
