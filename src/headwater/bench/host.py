"""Where a benchmark ran: machine, server, settings, and the commit of the code."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from psycopg import Connection

from headwater.spark.session import SparkOptions

_SETTINGS = (
    "shared_buffers", "work_mem", "hash_mem_multiplier", "maintenance_work_mem",
    "effective_cache_size", "random_page_cost", "jit", "max_parallel_workers_per_gather",
    "fsync", "synchronous_commit", "wal_level", "wal_compression", "max_wal_size",
    "checkpoint_timeout", "autovacuum",
)  # fmt: skip


def describe_host(conn: Connection[Any]) -> dict[str, object]:
    """Return the facts that a figure depends on."""
    rows = conn.execute(
        "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s) ORDER BY name",
        (list(_SETTINGS),),
    ).fetchall()
    server = conn.execute("SHOW server_version").fetchone()
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "server_version": server[0] if server else None,
        "settings": dict(rows),
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "commit": _commit(),
    }


def describe_spark(options: SparkOptions) -> dict[str, object]:
    """Return how Spark was run."""
    return {
        "pyspark": version("pyspark"),
        "master": options.master,
        "options": dict(options.options),
        "delta": options.delta,
    }


def _commit() -> str | None:
    """The commit of the source tree that this package is run from, marked if it was changed."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=Path(__file__).parent,
            check=True,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
