"""Turns lags and cron lines into the moments at which a table is due. No input or output.

Moments are seconds since 1970, by the server's clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

from headwater.cron import parse_cron

SHORTEST = 0.75  # seconds; every period is this times a power of two, 48 s among them


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a table is due: by a lag in seconds, by cron lines, or, as readers want, by both.

    Neither: nobody needs it to move.
    """

    lag: float | None = None
    crons: frozenset[str] = field(default_factory=frozenset)

    @property
    def period(self) -> float | None:
        """The seconds between two refreshes for the lag."""
        return None if self.lag is None else period_of(self.lag)


def tightest(paces: Iterable[Pace]) -> Pace:
    """Return the pace that keeps all of these."""
    found = tuple(paces)
    lags = [pace.lag for pace in found if pace.lag is not None]
    return Pace(min(lags, default=None), frozenset().union(*(pace.crons for pace in found)))


def period_of(lag: float) -> float:
    """Return the longest period that is at most half the lag; the shortest there is for less.

    The other half is for waiting and for the refresh itself. Periods divide one another, so the
    moments of a longer one are moments of every shorter one.
    """
    if lag < 2 * SHORTEST:
        return SHORTEST
    return math.ldexp(SHORTEST, math.floor(math.log2(lag / 2 / SHORTEST)))


def stretched(period: float, duration: float) -> float:
    """Return the shortest period, of those from `period` on, into which a refresh fits."""
    while period < duration:
        period *= 2
    return period


def next_due(pace: Pace, since: float, duration: float = 0.0) -> float:
    """Return the first moment after `since` at which a table of this pace is due.

    `duration` is how long its refresh takes, if that is to slow it down. Never: infinity.
    """
    moments = [following(line, since) for line in pace.crons]
    if pace.period is not None:
        period = stretched(pace.period, duration)
        moments.append((math.floor(since / period) + 1) * period)
    return min(moments, default=math.inf)


@lru_cache(maxsize=16384)  # a table asks again and again, with the same answer until it moves
def following(line: str, since: float) -> float:
    """Return the first moment after `since` that a cron line means."""
    return parse_cron(line).following(datetime.fromtimestamp(since, UTC)).timestamp()
