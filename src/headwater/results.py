"""What the verbs of the API return: frozen values that print, compare and turn into JSON."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from headwater.catalog.model import Refresh


class Unchanged(enum.Enum):
    """The type of `UNCHANGED`: an argument that was not given where None has a meaning."""

    TOKEN = "unchanged"


UNCHANGED: Final = Unchanged.TOKEN


@dataclass(frozen=True, slots=True)
class Created:
    """A stream table that was created, with what the user should know about it."""

    name: str
    key_columns: tuple[str, ...] | None
    effective_mode: str
    engine: str
    reason: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RefreshResult:
    """What one refresh did; `timings` are milliseconds by step."""

    name: str
    action: str
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    delta_rows: int = 0
    epoch: int | None = None
    data_timestamp: datetime | None = None
    timings: dict[str, float] = field(default_factory=dict)
    reason: str | None = None

    @property
    def rows(self) -> int:
        """Rows of the stream table that were written."""
        return self.rows_inserted + self.rows_updated + self.rows_deleted


@dataclass(frozen=True, slots=True)
class Status:
    """One line of `pgt_status()`.

    `followed_…` count what writers made an IMMEDIATE table do, as the server's statistics tell:
    statements and milliseconds only under its setting track_functions.
    """

    name: str
    status: str
    refresh_mode: str
    target_lag: timedelta | None
    current_lag: timedelta | None
    last_refresh: datetime | None
    errors: int
    data_timestamp: datetime | None
    engine: str
    effective_mode: str | None
    reason: str | None
    followed_statements: int | None = None
    followed_rows: int | None = None
    followed_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and what to do about it; `subject` is a table or a source."""

    severity: str
    check: str
    subject: str | None
    detail: str
    fix: str


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of a stream table whose catalog came from another database.

    The outcome is marked (its next refresh computes it anew), rebuilt (IMMEDIATE and COMMIT: it
    follows its sources again), failed, or gone.
    """

    name: str
    outcome: str
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Patch:
    """What a transaction made of a document, and the position to read on from.

    `insert` and `replace` give the whole document, `update` a merge patch (RFC 7396), `delete`
    nothing.
    """

    patch_id: int
    xid: int
    entity: str
    kind: str
    key: dict[str, Any]
    patch: Any
    position: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Something left over, missing or broken, how it is mended, and whether it was.

    `fault` says why it could not be mended.
    """

    check: str
    subject: str | None
    detail: str
    fix: str
    is_fixed: bool = False
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """One dependency: a stream table and something that it reads."""

    pgt_name: str
    source_name: str
    source_type: str


@dataclass(frozen=True, slots=True)
class RefreshGroup:
    """Stream tables that move together; the epoch is None until they have."""

    group_id: int
    group_name: str
    members: tuple[str, ...]
    epoch: int | None
    data_timestamp: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class TraceSize:
    """A copy of one source in the lake; files and bytes are None where it cannot be read."""

    source: str
    url: str
    version: int
    epoch: int
    files: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """A column of a copy in the lake: how it is stored, how it is called, and its type in Spark."""

    stored: str
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class LakeView:
    """Where the lake holds a copy, from which epoch on, and code that reads its newest state."""

    name: str
    url: str
    version: int
    epoch: int
    since: int
    columns: tuple[LakeColumn, ...]
    spark: str
    delta_rs: str
    sql: str


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """A copy in the lake before it was tidied, and how many files were deleted."""

    source: str
    url: str
    files: int
    bytes: int
    deleted: int


@dataclass(frozen=True, slots=True)
class SparkExplanation:
    """What Spark does for a stream table, and what PostgreSQL does before and after it."""

    boundary: str
    at_ingest: tuple[str, ...]
    at_publish: str
    statement: str
    traces: tuple[TraceSize, ...] = ()
    jobs: int | None = None
    loads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a stream table, or a query that is none yet, is maintained.

    `sql` is what PostgreSQL runs in a refresh; on Spark that is the last step, and `spark` tells of
    the others.
    """

    name: str | None
    query: str
    canonical: str
    tree: str
    delta: str
    sql: str
    engine: str
    mode: str
    reason: str
    key_columns: tuple[str, ...] | None
    sources: tuple[str, ...]
    state: str | None
    lag: timedelta | None
    last_refresh: Refresh | None
    operators: tuple[str, ...]
    cost: dict[str, float]
    spark: SparkExplanation | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """The stream table against its query, EXCEPT ALL both ways, at one epoch."""

    name: str
    equal: bool
    missing: int
    extra: int
    rows: int
    epoch: int | None
