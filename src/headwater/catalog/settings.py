"""Turns the pg_trickle.* parameters of a PostgreSQL session into typed settings."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from headwater.catalog.rows import Connection, fetch_scalar
from headwater.errors import InvalidArgument

PREFIX = "pg_trickle."


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of setting: its name, the values it takes in words, and how it is read."""

    name: str
    takes: str
    parse: Callable[[str], Any]  # raises ValueError for a value that has no meaning


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, as documented."""

    name: str
    kind: Kind
    default: object
    description: str


def _parse_boolean(text: str) -> bool:
    """Take what PostgreSQL takes: on, off, and unambiguous starts of true, false, yes and no."""
    word = text.strip().lower()
    if word in {"on", "1"} or (word and ("true".startswith(word) or "yes".startswith(word))):
        return True
    is_false = word in {"off", "of", "0"} or "false".startswith(word) or "no".startswith(word)
    if word and is_false:
        return False
    raise ValueError(text)


def _parse_ratio(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise ValueError(text)
    return value


def _parse_memory(text: str) -> str:
    if re.fullmatch(r"\s*[1-9][0-9]*\s*(B|kB|MB|GB|TB)?\s*", text) is None:
        raise ValueError(text)
    return text.strip()


def _parse_text(text: str) -> str:
    return text


def _whole_number(minimum: int) -> Kind:
    def parse(text: str) -> int:
        if re.fullmatch(r"\s*[+-]?[0-9]+\s*", text) is None or int(text) < minimum:
            raise ValueError(text)
        return int(text)

    return Kind("integer", f"a whole number of at least {minimum}", parse)


def _one_of(*words: str) -> Kind:
    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(text)
        return word

    return Kind("enum", "one of " + ", ".join(words), parse)


def _parse_span(text: str) -> str:
    """Take what is an interval to PostgreSQL, too, and cannot be anything else."""
    if re.fullmatch(r"\s*[0-9]+\s*(s|min|h|d|(second|minute|hour|day|week)s?)\s*", text) is None:
        raise ValueError(text)
    return text.strip()


_SPAN = Kind("interval", "a time such as 7 days, 12 hours or 30 min", _parse_span)
_BOOLEAN = Kind("boolean", "on or off", _parse_boolean)
_RATIO = Kind("real", "a number of at least 0", _parse_ratio)
_MEMORY = Kind("memory", "an amount of memory such as 256MB", _parse_memory)
_TEXT = Kind("text", "a name", _parse_text)


def _setting(default: object, kind: Kind, description: str) -> Any:
    return field(default=default, metadata={"kind": kind, "description": description})


@dataclass(frozen=True, slots=True)
class Settings:
    """The value of every setting; the defaults are those of a session that sets none."""

    enabled: bool = _setting(True, _BOOLEAN, "whether the scheduler starts refreshes")
    scheduler_interval_ms: int = _setting(
        1000, _whole_number(1), "how often the scheduler looks for due stream tables"
    )
    min_target_lag_seconds: int = _setting(
        60, _whole_number(1), "the shortest lag that a schedule may ask for"
    )
    max_consecutive_errors: int = _setting(
        3, _whole_number(1), "failed refreshes in a row after which a stream table is suspended"
    )
    max_concurrent_refreshes: int = _setting(4, _whole_number(1), "how many refreshes run at once")
    default_engine: str = _setting(
        "auto", _one_of("auto", "postgres", "spark"), "the engine of tables created without one"
    )
    cdc_mode: str = _setting(
        "trigger", _one_of("trigger", "auto", "wal"), "how changes are captured"
    )
    ivm_topk_max_limit: int = _setting(
        1000, _whole_number(0), "the largest LIMIT that IMMEDIATE and COMMIT take"
    )
    commit_recompute: bool = _setting(
        False, _BOOLEAN, "whether COMMIT mode takes queries of which a commit computes all rows"
    )
    commit_full_ratio: float = _setting(
        0.15, _RATIO, "share of changed rows above which a commit may compute a table anew"
    )
    create_table_as: bool = _setting(
        False, _BOOLEAN, "whether CREATE TABLE tv_x AS SELECT … makes a tview (event triggers)"
    )
    max_grouping_sets: int = _setting(
        64, _whole_number(1), "the most grouping sets that a query may expand to"
    )
    block_source_ddl: bool = _setting(
        False, _BOOLEAN, "whether a change of a source that breaks a stream table is refused"
    )
    buffer_partitioning: str = _setting(
        "off", _one_of("off", "on", "auto"), "whether change buffers are partitioned"
    )
    auto_backoff: bool = _setting(
        True, _BOOLEAN, "whether a table that cannot keep its schedule is refreshed less often"
    )
    log_level: str = _setting(
        "info", _one_of("debug", "info", "warning", "error"), "the least level that is logged"
    )
    change_buffer_schema: str = _setting(
        "pgtrickle_changes", _TEXT, "the schema of the change buffers"
    )
    refresh_work_mem: str = _setting("256MB", _MEMORY, "work_mem while a refresh runs")
    lake_retention: str = _setting(
        "7 days", _SPAN, "how far back the copies in the lake can be read"
    )
    lake_vacuum_seconds: int = _setting(
        3600, _whole_number(0), "how often the daemon tidies the lake; 0: never"
    )
    lake_results: bool = _setting(
        False, _BOOLEAN, "whether the results of tables on Spark are kept in the lake, too"
    )
    history_retention: str = _setting(
        "7 days", _SPAN, "how long the daemon keeps the history of refreshes"
    )
    buffer_alert_rows: int = _setting(
        1_000_000, _whole_number(1), "waiting changes of a source above which there is an alert"
    )
    auto_full_ratio: float = _setting(
        0.3, _RATIO, "share of changed rows above which AUTO runs one refresh as FULL"
    )
    parallel_load_pages: int = _setting(
        8192, _whole_number(0), "pages of a source from which on Spark's executors load it"
    )
    parallel_load_connections: int = _setting(
        8, _whole_number(0), "connections of executors that load a source; 0: none ever do"
    )


SETTINGS: tuple[Setting, ...] = tuple(
    Setting(PREFIX + f.name, f.metadata["kind"], f.default, f.metadata["description"])
    for f in fields(Settings)
)


NAMES = [setting.name for setting in SETTINGS]
# The texts of those that are set, by name. An empty value counts as not set: a RESET leaves one.
GIVEN = (
    "SELECT jsonb_object_agg(name, current_setting(name, true))"
    " FROM unnest(%(names)s::text[]) AS name WHERE current_setting(name, true) <> ''"
)


def read_settings(conn: Connection) -> Settings:
    """Return the settings of this session, with defaults for those that are not set."""
    return parse_settings(fetch_scalar(conn, GIVEN.encode(), {"names": NAMES}) or {})


def parse_settings(texts: dict[str, str]) -> Settings:
    """Return settings from their texts by full name; raise InvalidArgument for a bad one."""
    values = {
        setting.name.removeprefix(PREFIX): _parse(setting, texts[setting.name])
        for setting in SETTINGS
        if setting.name in texts
    }
    return Settings(**values)


def _parse(setting: Setting, text: str) -> Any:
    try:
        return setting.kind.parse(text)
    except ValueError as error:
        raise InvalidArgument(
            f"{setting.name} is set to {text!r}",
            why=f"it takes {setting.kind.takes}: {setting.description}",
            fix=f"SET {setting.name} = '{setting.default}' is the default;"
            " look for the value in ALTER DATABASE, ALTER ROLE and postgresql.conf",
        ) from error
