"""The file of the daemon, and the environment above it."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from headwater.errors import InvalidArgument
from headwater.schedule.configuration import (
    Configuration,
    Database,
    read_configuration,
    with_settings,
)

FILE = """
stop_seconds = 5
http = "127.0.0.1:9187"
http_token = "secret"
[settings]
max_concurrent_refreshes = 2
enabled = false
lake_retention = "2 days"
[[databases]]
dsn = "postgresql://a/one"
[[databases]]
dsn = "postgresql://a/two"
lake = "/lake"
spark_master = "local[2]"
spark_options = { "spark.driver.memory" = "2g" }
"""


def written(directory: Path, text: str) -> Path:
    file = directory / "headwater.toml"
    file.write_text(text)
    return file


def test_nothing_said() -> None:
    assert read_configuration(None, {}) == Configuration()


def test_file(tmp_path: Path) -> None:
    assert read_configuration(written(tmp_path, FILE), {}) == Configuration(
        (
            Database("postgresql://a/one"),
            Database("postgresql://a/two", "/lake", "local[2]", (("spark.driver.memory", "2g"),)),
        ),
        "127.0.0.1:9187",
        "secret",
        5.0,
        {
            "pg_trickle.max_concurrent_refreshes": "2",
            "pg_trickle.enabled": "off",
            "pg_trickle.lake_retention": "2 days",
        },
    )


def test_the_example_means_something() -> None:
    example = Path(__file__).parents[3] / "docs" / "examples" / "headwater.toml"
    found = read_configuration(example, {})
    assert (len(found.databases), found.http) == (1, "127.0.0.1:9187")


def test_the_environment_wins(tmp_path: Path) -> None:
    environment = {
        "HEADWATER_MAX_CONCURRENT_REFRESHES": "9", "HEADWATER_LOG_LEVEL": "debug",
        "HEADWATER_HTTP": "127.0.0.1:1", "HEADWATER_STOP_SECONDS": "7", "HEADWATER_DSN": "other",
    }  # fmt: skip
    found = read_configuration(written(tmp_path, FILE), environment)
    assert found.settings["pg_trickle.max_concurrent_refreshes"] == "9"
    assert found.settings["pg_trickle.log_level"] == "debug"
    assert (found.http, found.http_token, found.stop_seconds) == ("127.0.0.1:1", "secret", 7.0)
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("speed = 3", "says speed, which means nothing"),
        ("http_token = 'two words'", "http_token has characters"),
        ("[settings]\nspeed = 3", "settings says speed, which means nothing"),
        ("[settings]\nmax_concurrent_refreshes = 0", "max_concurrent_refreshes is set to '0'"),
        ("[[databases]]\nlake = 'x'", "has a database without a dsn"),
        ("[[databases]]\ndsn = 'x'\nuser = 'y'", "databases says user, which means nothing"),
        ("stop_seconds = -1", "stop_seconds is -1"),
        ("stop_seconds = 'soon'", "stop_seconds is 'soon'"),
        ("=", "cannot be read"),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        read_configuration(written(tmp_path, text), {})
    assert what in refused.value.what


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument):
        read_configuration(tmp_path / "none.toml", {})


def test_settings_become_those_of_the_session() -> None:
    settings = {"pg_trickle.lake_retention": "2 days", "pg_trickle.enabled": "off"}
    dsn = with_settings("postgresql://a/one", settings, {"PGOPTIONS": "-c x.y=1"})
    assert conninfo_to_dict(dsn)["options"] == (
        "-c x.y=1 -c pg_trickle.lake_retention=2\\ days -c pg_trickle.enabled=off"
    )
    assert (
        with_settings("postgresql://a/one", {}, {"PGOPTIONS": "-c x.y=1"}) == "postgresql://a/one"
    )
    own = with_settings("dbname=one options='-c a.b=2'", {"pg_trickle.enabled": "on"}, {})
    assert conninfo_to_dict(own)["options"] == "-c a.b=2 -c pg_trickle.enabled=on"
