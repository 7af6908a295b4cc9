from __future__ import annotations

from dataclasses import fields

import pytest

from headwater.catalog.settings import SETTINGS, Settings, parse_settings
from headwater.errors import InvalidArgument

DEFAULTS = {
    "pg_trickle.enabled": True,
    "pg_trickle.scheduler_interval_ms": 1000,
    "pg_trickle.min_target_lag_seconds": 60,
    "pg_trickle.max_consecutive_errors": 3,
    "pg_trickle.max_concurrent_refreshes": 4,
    "pg_trickle.default_engine": "auto",
    "pg_trickle.cdc_mode": "trigger",
    "pg_trickle.ivm_topk_max_limit": 1000,
    "pg_trickle.max_grouping_sets": 64,
    "pg_trickle.block_source_ddl": False,
    "pg_trickle.buffer_partitioning": "off",
    "pg_trickle.auto_backoff": True,
    "pg_trickle.commit_recompute": False,
    "pg_trickle.commit_full_ratio": 0.15,
    "pg_trickle.create_table_as": False,
    "pg_trickle.log_level": "info",
    "pg_trickle.change_buffer_schema": "pgtrickle_changes",
    "pg_trickle.refresh_work_mem": "256MB",
    "pg_trickle.lake_retention": "7 days",
    "pg_trickle.lake_vacuum_seconds": 3600,
    "pg_trickle.lake_results": False,
    "pg_trickle.history_retention": "7 days",
    "pg_trickle.buffer_alert_rows": 1_000_000,
    "pg_trickle.auto_full_ratio": 0.3,
    "pg_trickle.parallel_load_pages": 8192,
    "pg_trickle.parallel_load_connections": 8,
}


def test_the_table_of_settings() -> None:
    assert {setting.name: setting.default for setting in SETTINGS} == DEFAULTS
    assert all(setting.description for setting in SETTINGS)
    assert [setting.name for setting in SETTINGS] == [
        f"pg_trickle.{column.name}" for column in fields(Settings)
    ]


def test_every_default_is_its_own_text() -> None:
    texts = {name: str(default) for name, default in DEFAULTS.items()}
    assert parse_settings(texts) == Settings() == parse_settings({})


@pytest.mark.parametrize("text", ["on", "ON", "true", "t", "yes", "y", "1"])
def test_true(text: str) -> None:
    assert parse_settings({"pg_trickle.block_source_ddl": text}).block_source_ddl is True


@pytest.mark.parametrize("text", ["off", "of", "OFF", "false", "f", "no", "n", "0"])
def test_false(text: str) -> None:
    assert parse_settings({"pg_trickle.enabled": text}).enabled is False


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("scheduler_interval_ms", " 250 ", 250),
        ("ivm_topk_max_limit", "0", 0),
        ("auto_full_ratio", "0", 0.0),
        ("auto_full_ratio", "1e-1", 0.1),
        ("refresh_work_mem", "64 MB", "64 MB"),
        ("refresh_work_mem", "4096", "4096"),
        ("default_engine", "Spark", "spark"),
        ("buffer_partitioning", "auto", "auto"),
        ("change_buffer_schema", "My changes", "My changes"),
    ],
)
def test_parses(name: str, text: str, value: object) -> None:
    parsed = getattr(parse_settings({f"pg_trickle.{name}": text}), name)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("enabled", "maybe"),
        ("enabled", "o"),
        ("enabled", " "),
        ("scheduler_interval_ms", "1s"),
        ("scheduler_interval_ms", "1_000"),
        ("scheduler_interval_ms", "0"),
        ("max_concurrent_refreshes", "-1"),
        ("auto_full_ratio", "nan"),
        ("auto_full_ratio", "-0.1"),
        ("auto_full_ratio", "a third"),
        ("refresh_work_mem", "0"),
        ("refresh_work_mem", "256mb; DROP TABLE t"),
        ("log_level", "loud"),
    ],
)
def test_refuses(name: str, text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_settings({f"pg_trickle.{name}": text})


def test_a_refusal_says_what_is_taken() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_settings({"pg_trickle.cdc_mode": "guess"})
    assert caught.value.what == "pg_trickle.cdc_mode is set to 'guess'"
    assert caught.value.why == "it takes one of trigger, auto, wal: how changes are captured"
    assert caught.value.fix.startswith("SET pg_trickle.cdc_mode = 'trigger' is the default;")
