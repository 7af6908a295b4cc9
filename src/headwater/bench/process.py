"""What a server process has used, from /proc where the server runs on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from psycopg import Connection


def is_local(conn: Connection[Any]) -> bool:
    """Tell whether the backend of `conn` is a process that we can look at."""
    try:
        comm = (_directory(conn.info.backend_pid) / "comm").read_text()
    except OSError:
        return False
    return comm.startswith("postgres") and conn.info.host.startswith(("/", "localhost", "127."))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used; to the nanosecond where the kernel tells."""
    try:
        ran = int((_directory(pid) / "schedstat").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        ran = 0
    if ran:
        return ran / 1e9
    fields = (_directory(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def reset_peak_memory(pid: int) -> None:
    """Forget how much memory a process has used so far, where we may."""
    try:
        (_directory(pid) / "clear_refs").write_text("5")
    except OSError:
        return


def peak_memory_mb(pid: int) -> float | None:
    """Return the most private memory a process held since the reset; None if it cannot be seen.

    The peak includes shared memory; what it maps of that now is taken away.
    """
    try:
        lines = (_directory(pid) / "status").read_text().splitlines()
    except OSError:
        return None
    values = dict(line.split(":", 1) for line in lines)
    if not {"VmHWM", "RssShmem"} <= values.keys():
        return None
    peak, shared = (int(values[name].split()[0]) for name in ("VmHWM", "RssShmem"))
    return round((peak - shared) / 1024, 1)


def _directory(pid: int) -> Path:
    return Path("/proc") / str(pid)
