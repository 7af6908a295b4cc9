"""Moves many stream tables that have nothing to do at once, instead of each by a refresh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from headwater.catalog.standing import move_all_unchanged
from headwater.schedule.plan import Start

AT_ONCE = 200  # tables of one transaction: each is locked, and the server's lock table has an end


def move_quiet(conn: Connection[Any], starts: Sequence[Start]) -> frozenset[int]:
    """Move those of the starts for which nothing came, and return their ids.

    What cannot be moved this way, for whatever reason, is left to its own refresh.
    """
    ids = [start.pgt_id for start in starts]
    some = (ids[first : first + AT_ONCE] for first in range(0, len(ids), AT_ONCE))
    return frozenset(moved for each in some for moved in move_all_unchanged(conn, each))
