"""Refreshes one stream table and writes on the clock of the parent: a process made to be killed."""

from __future__ import annotations

import sys

import headwater


def main(dsn: str, name: str) -> None:
    with headwater.connect(dsn) as hw:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        hw.refresh_stream_table(name)


if __name__ == "__main__":
    main(*sys.argv[1:])
