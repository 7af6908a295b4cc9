"""No process holds what grows with the data: not Spark's with 1 GB, and Python's far less."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.integration.spark import memory_story
from tests.integration.spark.test_cluster import environment
from tests.servers import Server

GROWTH = 200  # MiB, at most


@pytest.fixture
def dsn(pg18: Server) -> Iterator[str]:
    made = pg18.create_database()
    yield made
    pg18.drop_database(made)


def fill(dsn: str, rows: int, width: int) -> int:
    """Make the sources; return how many MiB the values of the large one take."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE small AS SELECT n AS id, 'name ' || n AS name"
                     " FROM generate_series(0, 1) AS n")  # fmt: skip
        conn.execute("CREATE TABLE big (id bigint, k int, words text)")
        conn.execute(
            "INSERT INTO big SELECT n, n %% 2, repeat(md5(n::text), %s)"
            " FROM generate_series(1, %s) AS n",
            (width, rows),
        )
        found = conn.execute("SELECT sum(length(words)) >> 20 FROM big").fetchone()
    assert found is not None
    return int(found[0])


def tell(dsn: str, lake: Path, seconds: int) -> list[str]:
    story = [sys.executable, memory_story.__file__, dsn, str(lake)]
    done = subprocess.run(
        story, capture_output=True, text=True, check=False, timeout=seconds, env=environment()
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("rows", "width"),
    [
        pytest.param(150_000, 56, id="little"),
        pytest.param(5_000_000, 8, id="5M", marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_memory_is_bounded(dsn: str, java: None, tmp_path: Path, rows: int, width: int) -> None:
    size = fill(dsn, rows, width)
    assert size > GROWTH
    *told, grown = tell(dsn, tmp_path / "lake", 3000)
    sys.stdout.write(f"{size} MiB in {rows} rows, a driver with 1 GB\n" + "\n".join(told) + "\n")
    actions = [line.partition(":")[0] for line in told]
    assert actions == ["DIFFERENTIAL", "DIFFERENTIAL", "REINITIALIZE"]
    assert int(grown) < GROWTH, told
