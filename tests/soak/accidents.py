"""What befalls the system: kills of daemon, virtual machine and server, and DDL on sources.

After each of them headwater goes on by itself, or after the repair that docs/how-to/source-ddl.md
names, which is made here, too.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import psutil  # type: ignore[import-untyped]
import psycopg

import headwater
from headwater.errors import Unavailable
from tests.daemons import Process, until
from tests.servers import Server
from tests.soak.world import TABLES, downstream

Connection = psycopg.Connection[Any]
ALL = frozenset(TABLES)
LONGEST = 120.0  # seconds of a refresh on a busy machine, with the start of Spark
BEGUN = """
SELECT FROM pgtrickle.pgt_refresh_history h JOIN pg_stat_activity a ON a.pid = h.backend_pid
 WHERE h.status = 'RUNNING' AND h.start_time < %s
"""


@dataclass
class Stage:
    """The server, the daemon that runs at the moment, and the chance by which things befall."""

    server: Server
    dsn: str
    home: Path
    random: Random
    machines: list[Any] = field(default_factory=list)
    _daemon: Process | None = None

    @property
    def daemon(self) -> Process:
        """The daemon that runs."""
        assert self._daemon is not None
        return self._daemon

    def start_daemon(self) -> None:
        """Start a daemon with a Spark for two cores."""
        file = self.home / "headwater.toml"
        file.write_text(
            f'[[databases]]\ndsn = "{self.dsn}"\nlake = "{self.home / "lake"}"\n'
            'spark_master = "local[2]"\nspark_options = { "spark.driver.memory" = "1g" }\n'
        )
        self._daemon = Process(self.dsn, "--config", str(file), HEADWATER_LOG_LEVEL="info")

    def end_daemon(self, number: int = signal.SIGKILL) -> int:
        """End the daemon, and return its exit code; its virtual machine follows it."""
        if self._daemon is None:
            return 0
        self.machines += self.list_machines()
        code = self.daemon.end(number)
        self.daemon.close()
        return code

    def list_machines(self) -> list[Any]:
        """Return the Java virtual machines of the daemon."""
        try:
            children = psutil.Process(self.daemon.pid).children(recursive=True)
            return [child for child in children if child.name() == "java"]
        except psutil.NoSuchProcess:
            return []

    @contextmanager
    def verbs(self) -> Iterator[headwater.Headwater]:
        """The verbs over a session of their own, for what needs no Spark."""
        with headwater.connect(self.dsn, lake=str(self.home / "lake")) as hw:
            hw.connection.execute("SET pg_trickle.min_target_lag_seconds = 1")
            yield hw

    def execute(self, text: str) -> None:
        """Run DDL."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            patiently(lambda: conn.execute(text.encode()))


def patiently(do: Callable[[], object]) -> None:
    """Do a thing again if a writer's transaction and it were in each other's way."""
    for _ in range(9):
        try:
            do()
        except (psycopg.errors.DeadlockDetected, Unavailable):
            time.sleep(0.2)
        else:
            return
    do()


@dataclass(frozen=True)
class Accident:
    """Something that befalls, and the stream tables that may fall behind because of it."""

    name: str
    happen: Callable[[Stage], None]
    touches: frozenset[str]


def kill_daemon(stage: Stage) -> None:
    """Kill −9, a moment without any, another one."""
    stage.end_daemon()
    time.sleep(stage.random.uniform(0, 2))
    stage.start_daemon()


def kill_machine(stage: Stage) -> None:
    """Kill Spark's virtual machine, if there is one."""
    for machine in stage.list_machines():
        machine.kill()


def crash_server(stage: Stage) -> None:
    """Immediate shutdown; recovery."""
    stage.server.restart("immediate")


def add_column(stage: Stage) -> None:
    source = stage.random.choice(("customers", "orders", "lines", "payments", "visits"))
    stage.execute(f"ALTER TABLE {source} ADD COLUMN IF NOT EXISTS more int DEFAULT 7")


def drop_column(stage: Stage) -> None:
    for source in ("customers", "orders", "lines", "payments", "visits"):
        stage.execute(f"ALTER TABLE {source} DROP COLUMN IF EXISTS more")


def make_index(stage: Stage) -> None:
    stage.execute("CREATE INDEX by_product ON lines (product)")
    stage.execute("DROP INDEX by_product")


def replace_view(stage: Stage) -> None:
    least = stage.random.randint(1, 99)
    stage.execute(
        f"CREATE OR REPLACE VIEW dear AS SELECT id, title FROM products WHERE price > {least}"
    )


def rename_column(stage: Stage) -> None:
    """Rename a column that is used; when somebody has noticed, rename it back and repair."""
    stage.execute("ALTER TABLE customers RENAME region TO area")
    time.sleep(stage.random.uniform(0, 8))
    stage.execute("ALTER TABLE customers RENAME area TO region")
    repair(stage)


def alter_type(stage: Stage) -> None:
    """Alter the type of a column that a stream table uses which writers maintain."""
    kind = stage.random.choice(("varchar(20)", "varchar(30)", "text"))
    stage.execute(f"ALTER TABLE customers ALTER name TYPE {kind}")
    repair(stage)


def change_mode(stage: Stage) -> None:
    mode = stage.random.choice(("FULL", "DIFFERENTIAL", "AUTO"))
    with stage.verbs() as hw:
        patiently(lambda: hw.alter_stream_table("paid", refresh_mode=mode))


def come_and_go(stage: Stage) -> None:
    """Create a stream table more, and drop it."""
    with stage.verbs() as hw:
        query = "SELECT page, count(*) AS n FROM visits GROUP BY page"
        patiently(lambda: hw.create_stream_table("guest", query))
        patiently(lambda: hw.drop_stream_table("guest"))


def repair(stage: Stage) -> None:
    """Do what the documentation says: resume what is suspended, refresh what writers maintain.

    A refresh that began before may still fail, and be the one after which a table is suspended.
    """
    with stage.verbs() as hw:
        [(now,)] = hw.connection.execute("SELECT clock_timestamp()").fetchall()
        until(lambda: hw.connection.execute(BEGUN, [now]).fetchall() == [], patience=LONGEST)
        status = {line.name.removeprefix("public."): line.status for line in hw.pgt_status()}
        for name, table in TABLES.items():
            if status[name] == "ERROR" and table.follows:
                patiently(partial(hw.refresh_stream_table, name))
            elif status[name] == "SUSPENDED":
                patiently(partial(hw.alter_stream_table, name, status="ACTIVE"))


KILLS = (
    Accident("kill -9 of the daemon", kill_daemon, ALL),
    Accident("kill -9 of the virtual machine", kill_machine, ALL),
    Accident("crash of the server", crash_server, ALL),
)
CHANGES = (
    Accident("add a column", add_column, frozenset()),
    Accident("drop a column that nobody uses", drop_column, frozenset()),
    Accident("make an index", make_index, frozenset()),
    Accident("replace a view", replace_view, downstream("dear")),
    Accident("rename a column and back", rename_column, downstream("customers")),
    Accident("alter the type of a column", alter_type, downstream("customers")),
    Accident("change the mode of a table", change_mode, downstream("paid") | {"paid"}),
    Accident("create and drop a stream table", come_and_go, frozenset()),
)


def accidents(random: Random) -> Iterator[Accident]:
    """Deal accidents without end, each kind before any comes a second time.

    The daemon goes first: what comes after it befalls one that stays, and can be seen to grow.
    """
    first, *others = *KILLS, *CHANGES
    while True:
        random.shuffle(others)
        yield from (first, *others)
