"""Statements for PL/Python, and what the SQL functions and the package must agree on."""

from __future__ import annotations

import re
from datetime import timedelta
from importlib.resources import files
from pathlib import Path

import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

import headwater
from headwater.database.inside import TOUCHED
from headwater.database.values import is_several, loader_of, merged
from headwater.database.verbs import VERBS
from headwater.sql.functions import PINNED_SETTINGS

MIGRATIONS = files("headwater.catalog") / "migrations"
MIGRATION = MIGRATIONS / "0003_database.sql"


def test_parameters_become_literals() -> None:
    assert merged("SELECT '%'", None) == "SELECT '%'"
    assert merged("SELECT %s, '%%', %s", ["it's", None]) == "SELECT 'it''s', '%', NULL"
    assert merged(b"SELECT %(a)s, %(a)s", {"a": 1}) == "SELECT 1, 1"
    assert merged(sql.SQL("SELECT {}").format(sql.Identifier("A b")), None) == 'SELECT "A b"'
    assert merged("SELECT %s::jsonb", [Jsonb({"a": "\\"})]).count("\\") == 4
    assert merged("SELECT %s", [["a", "b"]]) == "SELECT '{a,b}'"


@pytest.mark.parametrize(
    ("statement", "several"),
    [
        ("SELECT 1", False),
        ("SELECT 1;", False),
        ("SELECT 1; ", False),
        ("SELECT 1; SELECT 2", True),
        ("SELECT ';', \";\", E'\\';', $$;$$, $a$;$$;$a$ -- ;\n /* ; */", False),
        ("SELECT 'a'; DROP TABLE t --", True),
    ],
)
def test_several_statements_are_told_from_one(statement: str, several: bool) -> None:
    assert is_several(statement) is several


def test_texts_of_the_server_become_values() -> None:
    load = loader_of(1186)
    assert load is not None
    assert load("1 day 02:00:00") == timedelta(days=1, hours=2)
    assert loader_of(25) is None


def test_functions_call_verbs_that_exist() -> None:
    text = "".join(file.read_text() for file in MIGRATIONS.iterdir())
    text += (files("headwater.database") / "pgivm.sql").read_text()
    called = set(re.findall(r"carry_out\(\s*'(\w+)'", text))
    assert called == set(VERBS)


def test_all_that_the_verbs_set_is_given_back() -> None:
    source = Path(headwater.__file__).parent
    parts = ("api", "catalog", "postgres", "sql", "database")
    texts = [path.read_text() for part in parts for path in (source / part).glob("*.py")]
    patterns = (r"set_config\('([\w.]+)'", r"SET LOCAL (\w+)", r'"(pg_trickle\.\w+)":')
    found = {name for text in texts for pattern in patterns for name in re.findall(pattern, text)}
    assert len(found) > 5
    assert found - set(TOUCHED) == set()


def test_requests_carry_the_settings_of_compilation() -> None:
    text = MIGRATION.read_text()
    assert [name for name in PINNED_SETTINGS if f"'{name}'" not in text] == []
