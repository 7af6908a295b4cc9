"""Turns the file of the daemon, and the environment above it, into what the daemon does."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from headwater.catalog.settings import PREFIX, SETTINGS, parse_settings
from headwater.errors import InvalidArgument

ENVIRONMENT = "HEADWATER_"


@dataclass(frozen=True, slots=True)
class Database:
    """A database to look after, and its lake."""

    dsn: str
    lake: str | None = None
    spark_master: str = "local[*]"
    spark_options: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """What libpq takes for its name, from DSN, environment and user."""
        known = {d.keyword.decode(): d.val.decode() for d in Conninfo.get_defaults() if d.val}
        given = known | conninfo_to_dict(self.dsn)
        return str(given.get("dbname") or given.get("user"))


@dataclass(frozen=True, slots=True)
class Configuration:
    """All that the file and the environment say; `settings` are pg_trickle.* by full name."""

    databases: tuple[Database, ...] = ()
    http: str | None = None  # address and port of the status page, or "off"
    http_token: str | None = field(default=None, repr=False)
    stop_seconds: float = 30.0
    settings: Mapping[str, str] = field(default_factory=dict)


def read_configuration(path: Path | None, environment: Mapping[str, str]) -> Configuration:
    """Read the file, if one is named, and let the environment win; refuse what has no meaning."""
    known = _read(path) if path is not None else {}
    where = str(path)
    _refuse_unknown(where, known, {f.name for f in fields(Configuration)})
    settings = _settings(where, known.get("settings", {})) | _from_environment(environment)
    parse_settings(settings)
    return Configuration(
        tuple(_database(where, each) for each in known.get("databases", ())),
        environment.get(ENVIRONMENT + "HTTP") or known.get("http"),
        _token(environment.get(ENVIRONMENT + "HTTP_TOKEN") or known.get("http_token")),
        _seconds(environment.get(ENVIRONMENT + "STOP_SECONDS") or known.get("stop_seconds", 30)),
        settings,
    )


def with_settings(dsn: str, settings: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return a DSN whose sessions have these settings, above those of database and role."""
    if not settings:
        return dsn
    given = conninfo_to_dict(dsn).get("options") or environment.get("PGOPTIONS", "")
    ours = [f"-c {name}={_escaped(value)}" for name, value in settings.items()]
    return make_conninfo(dsn, options=" ".join(filter(None, [str(given), *ours])))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidArgument(
            f"the configuration {path} cannot be read",
            str(error),
            "write it in TOML, as docs/how-to/daemon.md shows",
        ) from error


def _database(where: str, given: Mapping[str, Any]) -> Database:
    _refuse_unknown(f"{where}, databases", given, {f.name for f in fields(Database)})
    if not isinstance(given.get("dsn"), str):
        raise InvalidArgument(
            f"{where} has a database without a dsn", "it says how to connect", "give it a dsn"
        )
    options = tuple(sorted((k, str(v)) for k, v in given.get("spark_options", {}).items()))
    return Database(**{**given, "spark_options": options})


def _settings(where: str, given: Mapping[str, Any]) -> dict[str, str]:
    _refuse_unknown(f"{where}, settings", given, {s.name.removeprefix(PREFIX) for s in SETTINGS})
    return {PREFIX + name: _text(value) for name, value in given.items()}


def _text(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    names = {s.name: ENVIRONMENT + s.name.removeprefix(PREFIX).upper() for s in SETTINGS}
    return {name: environment[key] for name, key in names.items() if environment.get(key)}


def _token(value: object) -> str | None:
    """A token travels in a header and a cookie."""
    if value is None:
        return None
    if isinstance(value, str) and re.fullmatch(r"[\w.~+/=-]+", value, re.ASCII):
        return value
    raise InvalidArgument(
        "http_token has characters that a cookie cannot hold",
        "it is made of letters, digits and . _ ~ + / = -",
        "make one: python3 -c 'import secrets; print(secrets.token_urlsafe())'",
    )


def _seconds(value: object) -> float:
    try:
        seconds = float(str(value))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InvalidArgument(
            f"stop_seconds is {value!r}", "it is a number of seconds", "use 30, the default"
        )
    return seconds


def _refuse_unknown(where: str, given: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(given.keys() - known)
    if unknown:
        raise InvalidArgument(
            f"{where} says {', '.join(unknown)}, which means nothing",
            f"it may say {', '.join(sorted(known))}",
            "correct or remove it",
        )
