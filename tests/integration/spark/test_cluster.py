"""The engine on clusters: executors that are processes of their own, and a real master."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.integration.spark import cluster_story
from tests.servers import Server

PASSWORD = "hunter2-never-shown"
TOLD = [
    "joined ['load_parallel']",
    "totals ['load_parallel']",
    "extremes []",  # reads the trace that another table loaded
    "DIFFERENTIAL DIFFERENTIAL",
    "NO_DATA NO_DATA",
    "FULL FULL",
]
ALL = ",".join(cluster_story.QUERIES)
SHORT = "-XX:TieredStopAtLevel=1"  # none lives long enough for what the second compiler gains
OPTIONS = {
    "spark.driver.extraJavaOptions": SHORT,
    "spark.executor.extraJavaOptions": SHORT,
    "spark.driver.memory": "600m",
    "spark.sql.shuffle.partitions": "3",
    "spark.log.level": "INFO",
}


@pytest.fixture
def dsn(pg18: Server) -> Iterator[str]:
    made = pg18.create_database()
    yield f"{made}&password={PASSWORD}"  # the server trusts anyone; what is given must not show
    pg18.drop_database(made)


@pytest.fixture
def home(java: None, tmp_path: Path) -> Path:
    """A SPARK_HOME of our own: executors work there."""
    home = tmp_path / "spark"
    home.mkdir()
    for part in ("bin", "jars"):
        (home / part).symlink_to(Path(pyspark.__file__).parent / part)
    return home


def environment(home: Path | None = None) -> dict[str, str]:
    """What the processes run with: this code, this Python, and perhaps a home of Spark."""
    root = Path(__file__).parents[3]
    found = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return found if home is None else found | {"SPARK_HOME": str(home)}


def tell(home: Path, dsn: str, master: str, options: dict[str, str], names: str = ALL) -> list[str]:
    story = [sys.executable, cluster_story.__file__, dsn, str(home.parent / "lake"), master]
    story += [json.dumps(options), names]
    done = subprocess.run(
        story, capture_output=True, text=True, check=False, timeout=240, env=environment(home)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_local_cluster(dsn: str, home: Path) -> None:
    """Also: neither the logs of all processes nor what Spark's pages show has the password."""
    events = home.parent / "events"
    events.mkdir()
    shown = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }
    told = tell(home, dsn, "local-cluster[2,1,1024]", OPTIONS | shown)
    assert told == [*TOLD, "2 executors"]
    logs = [*(home / "work").rglob("std*"), home.parent / "lake.log", *events.rglob("events_*")]
    assert len(logs) >= 6  # of two executors, the driver and its events
    assert any(b"headwater: first load" in log.read_bytes() for log in logs)
    assert [log for log in logs if PASSWORD.encode() in log.read_bytes()] == []


def test_standalone_master(dsn: str, home: Path) -> None:
    here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    size = {"spark.executor.memory": "800m", "spark.executor.cores": "1"}
    with standalone(home) as master:
        told = tell(home, dsn, master, OPTIONS | here | size, "joined,totals")
    assert told == [*TOLD[:2], "DIFFERENTIAL", "1 executors"]


@contextmanager
def standalone(home: Path) -> Iterator[str]:
    """A master and a worker on this machine, from Spark's own classes."""
    place = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with ExitStack() as stack:
        log = home / "master.log"
        stack.enter_context(started(home, log, "master.Master", *place))
        master = awaited(log, r"Starting Spark master at (spark://\S+)")
        log, work = home / "worker.log", str(home / "work")
        size = ["--cores", "1", "--memory", "1g", "--work-dir", work]
        stack.enter_context(started(home, log, "worker.Worker", *place, *size, master))
        awaited(log, r"(Successfully registered with master)")
        yield master


@contextmanager
def started(home: Path, log: Path, name: str, *arguments: str) -> Iterator[None]:
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    memory = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": SHORT}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env=environment(home) | memory, cwd=home
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def awaited(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text(errors="replace"))
