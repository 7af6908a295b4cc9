"""The views of the battery, one file per group: every construct that is maintained incrementally.

A file holds entries of the form

    -- name: tags
    SELECT …;

Each group becomes one database, and a view may read the stream tables of those before it in its
group as `st.<name>`. What SQL leaves open (an order inside string_agg, the rounding of a sum of
floats) is pinned in the query itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.scale import scaled

VIEWS = Path(__file__).parent / "views"
_ENTRY = re.compile(r"^-- (\w+): (.+)\n((?:.*\n)*?.*);$", re.MULTILINE)


@dataclass(frozen=True)
class Fixture:
    """One view: its name, its query, and what it exercises."""

    name: str
    query: str
    tags: tuple[str, ...]

    @property
    def table(self) -> str:
        """The stream table that keeps the query."""
        return f"st.{self.name}"


def _read(group: str) -> tuple[Fixture, ...]:
    text = (VIEWS / f"{group}.sql").read_text(encoding="utf-8")
    return tuple(Fixture(m[1], m[3], tuple(m[2].split())) for m in _ENTRY.finditer(text))


_NAMES = (
    *("scalar", "joins", "aggregates", "sets", "nested", "chains"),
    *("subqueries", "windows", "lateral", "types"),
)
GROUPS = {group: _read(group) for group in _NAMES}


def share(group: str, every: int) -> tuple[Fixture, ...]:
    """Return one of so many fixtures of a group; in `make generated`, and of a chain, all."""
    return GROUPS[group][:: 1 if scaled(1) > 1 or group == "chains" else every]
