"""Fixtures for real servers, the markers of whole directories, and the hypothesis profile."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings

from tests.in_server import prepare, readable_copy
from tests.scale import scaled
from tests.scheduling import OWN_SPARK, SPARK, OneSpark
from tests.servers import Debian15, Embedded, Server

MARKER_OF_DIRECTORY = {"property": "generated", "soak": "soak", "bench": "bench"}
NOT_RUN = "not run: "
SHARE_ON_15 = 4  # of the costly tests, one of so many: not always of the same isolation level

# A run fails by its own change, not by its luck; `make generated` draws others every time.
settings.register_profile(
    "default",
    derandomize=scaled(1) == 1,
    deadline=None,
    print_blob=True,
    max_examples=scaled(100),
)
settings.load_profile("default")

# What is meant to run on Spark says so: no other test starts a virtual machine.
os.environ["PGOPTIONS"] = "-c pg_trickle.default_engine=postgres"
# Many small statements, most of them new: the virtual machine's first compiler will do for them.
# Its classes are read from what `scripts/spark_classes.py` has kept, if that is there.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    f" -XX:SharedArchiveFile={Path(sys.prefix) / 'spark.jsa'}",
)


@pytest.fixture(scope="session")
def start_server() -> Iterator[Callable[[type[Server]], Server]]:
    """Start each kind of server at most once, however the tests alternate between them."""
    running: dict[type[Server], Server] = {}
    with ExitStack() as stack:

        def start(kind: type[Server]) -> Server:
            if kind not in running:
                _require(kind)
                running[kind] = kind()
                stack.callback(running[kind].stop)
            return running[kind]

        yield start


@pytest.fixture(scope="session", params=[Embedded, Debian15], ids=["pg18", "pg15"])
def server(
    request: pytest.FixtureRequest, start_server: Callable[[type[Server]], Server]
) -> Server:
    """Each kind of server in turn."""
    return start_server(request.param)


@pytest.fixture(scope="session")
def pg18(start_server: Callable[[type[Server]], Server]) -> Server:
    """The embedded server only."""
    return start_server(Embedded)


@pytest.fixture(scope="session")
def pg15(start_server: Callable[[type[Server]], Server]) -> Server:
    """Debian's server only: the one with PL/Python."""
    return start_server(Debian15)


@pytest.fixture(scope="session")
def server_path() -> Iterator[str]:
    """A directory from which any server can import the package."""
    with readable_copy() as directory:
        yield directory


@pytest.fixture
def inside(pg15: Server, server_path: str) -> Iterator[str]:
    """The DSN of a fresh database in which the verbs run in the server."""
    dsn = prepare(pg15, server_path)
    yield dsn
    pg15.drop_database(dsn)


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """The DSN of a fresh database on `server`."""
    dsn = server.create_database()
    yield dsn
    server.drop_database(dsn)


@pytest.fixture
def conn(database: str) -> Iterator[psycopg.Connection]:
    """An autocommit connection to `database`."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of a directory that stands for a marker, give those on Spark more time, and
    leave most of the costly ones on PostgreSQL 15 to `make generated`."""
    here = Path(__file__).parent
    for item in items:
        if (
            item.nodeid.startswith((*SPARK, *OWN_SPARK))
            and item.get_closest_marker("timeout") is None
        ):
            item.add_marker(pytest.mark.timeout(900))  # one may start a few virtual machines
        directory = item.path.relative_to(here).parts[0]
        if directory in MARKER_OF_DIRECTORY:
            item.add_marker(MARKER_OF_DIRECTORY[directory])
    if scaled(1) == 1:
        costly = [item for item in items if item.get_closest_marker("costly") and _is_on_15(item)]
        left = {item.nodeid for item in costly} - {item.nodeid for item in costly[::SHARE_ON_15]}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
        items[:] = [item for item in items if item.nodeid not in left]


def _is_on_15(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "[pg15" in item.name


@pytest.hookimpl(optionalhook=True)  # there is none without xdist
def pytest_xdist_auto_num_workers() -> int:
    """Start one more than there are processors: two of them drive virtual machines, and wait."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> OneSpark | None:
    """Replace the way that xdist shares out tests unless told another."""
    return OneSpark(config, log) if config.getvalue("dist") == "load" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the servers that were missing, so that a green run does not hide what it left out."""
    reasons = Counter(
        report.longrepr[2].partition(NOT_RUN)[2]
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple) and NOT_RUN in report.longrepr[2]
    )
    if reasons:
        terminalreporter.section("not run")
    for reason, count in sorted(reasons.items()):
        terminalreporter.line(f"{count} tests: {reason}")


def _require(kind: type[Server]) -> None:
    missing = kind.find_missing()
    if missing is None:
        return
    if os.environ.get("CI") == "true" or os.environ.get("HEADWATER_TEST_REQUIRE_DB") == "1":
        pytest.fail(missing)
    pytest.skip(NOT_RUN + missing)
