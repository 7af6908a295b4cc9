"""The rows of the catalog as values: one frozen class per table, one field per column."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from headwater.catalog.names import qualified_name

Json = Any  # what jsonb decodes to


def follows_writers(mode: str | None) -> bool:
    """Tell whether a mode moves a table inside the transactions that write to its sources."""
    return mode in ("IMMEDIATE", "COMMIT")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStreamTable:
    """What is known of a stream table before it has an id."""

    pgt_relid: int
    pgt_name: str
    pgt_schema: str
    defining_query: str
    refresh_mode: str
    owner: int
    canonical_query: str | None = None
    schedule: str | None = None
    target_lag: timedelta | None = None
    effective_mode: str | None = None
    status: str = "INITIALIZING"
    is_populated: bool = False
    data_timestamp: datetime | None = None
    frontier: Json = None
    epoch: int | None = None
    last_refresh_at: datetime | None = None
    consecutive_errors: int = 0
    last_error: str | None = None
    needs_reinit: bool = False
    reinit_reason: str | None = None
    engine: str = "auto"
    effective_engine: str | None = None
    reason: str | None = None
    cdc_mode: str | None = None
    publish: bool = True
    plan: Json = None
    key_columns: tuple[str, ...] | None = None
    pinned_settings: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamTable:
    """A row of pgt_stream_tables; a NULL schedule means DOWNSTREAM."""

    pgt_id: int
    pgt_relid: int
    pgt_name: str
    pgt_schema: str
    defining_query: str
    canonical_query: str | None
    schedule: str | None
    target_lag: timedelta | None
    refresh_mode: str
    effective_mode: str | None
    status: str
    is_populated: bool
    data_timestamp: datetime | None
    frontier: Json
    epoch: int | None
    last_refresh_at: datetime | None
    consecutive_errors: int
    last_error: str | None
    needs_reinit: bool
    reinit_reason: str | None
    engine: str
    effective_engine: str | None
    reason: str | None
    cdc_mode: str | None
    publish: bool
    owner: int
    plan: Json
    key_columns: tuple[str, ...] | None
    pinned_settings: Json
    created_at: datetime
    updated_at: datetime

    @property
    def follows_changes(self) -> bool:
        """Whether its sources are captured: FULL computes from the sources on PostgreSQL, and an
        IMMEDIATE or COMMIT table is moved by the writers themselves."""
        return self.effective_mode == "DIFFERENTIAL" or self.effective_engine == "spark"

    @property
    def follows_writers(self) -> bool:
        """Whether the writers of its sources move it."""
        return follows_writers(self.effective_mode)

    @property
    def keeps_result(self) -> bool:
        """Whether its result is kept in the lake, too: it is then a reader of its own trace."""
        return bool(self.plan and self.plan.get("keeps_result"))

    @property
    def qualified_name(self) -> str:
        """The name as SQL text, schema included, quoted where needed."""
        return qualified_name(self.pgt_schema, self.pgt_name)


@dataclass(frozen=True, slots=True)
class Dependency:
    """A row of pgt_dependencies: one source that a stream table reads."""

    pgt_id: int
    source_relid: int
    source_type: str
    source_name: str
    columns_used: tuple[str, ...] | None = None
    fingerprint: Json = None
    policy: Json = None


@dataclass(frozen=True, slots=True)
class Refresh:
    """A row of pgt_refresh_history."""

    refresh_id: int
    pgt_id: int
    data_timestamp: datetime | None
    start_time: datetime
    end_time: datetime | None
    action: str
    rows_inserted: int
    rows_updated: int
    rows_deleted: int
    delta_rows: int | None
    error_message: str | None
    error_code: str | None
    error_class: str | None
    status: str
    epoch: int | None
    engine: str | None
    reason: str | None
    timings: Json
    backend_pid: int | None


@dataclass(frozen=True, slots=True)
class Tracking:
    """A row of pgt_change_tracking: how the changes of one source are captured."""

    source_relid: int
    source_name: str
    trigger_name: str | None
    function_name: str | None
    buffer_name: str | None
    columns: tuple[str, ...]
    all_columns: bool
    tracked_by_pgt_ids: tuple[int, ...]
    leaves: tuple[int, ...] = ()
    last_consumed_epoch: int | None = None
    generation: int = 0


@dataclass(frozen=True, slots=True)
class TraceRow:
    """A row of pgt_traces: a copy of one source in the lake."""

    trace_id: int
    source_relid: int
    url: str
    columns: Json  # by position: SQL over a row of the source, and its type
    columns_used: tuple[str, ...]
    version: int
    epoch: int
    since: int
    owner: int
    pinned_settings: Json
    generation: int
    fingerprint: Json


@dataclass(frozen=True, slots=True)
class Epoch:
    """A row of pgt_epochs; `snapshot` and `xid` as PostgreSQL writes them."""

    epoch: int
    snapshot: str
    xid: str
    data_timestamp: datetime
    in_lake: bool = False
