"""Doctor: what is left over, missing or broken in the database and the lake, and its mending."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import Connection

from headwater.api import doctor_capture, doctor_lake, doctor_tables
from headwater.api.restore import WHY, restore_stream_tables
from headwater.api.symptoms import Check, Symptom
from headwater.catalog.install import is_at_home
from headwater.errors import HeadwaterError
from headwater.results import Diagnosis

# In this order: what one leaves behind, or brings back, the next one finds.
CHECKS = (*doctor_tables.CHECKS, *doctor_capture.CHECKS, *doctor_lake.CHECKS)


def _find_restored(conn: Connection[Any]) -> Iterator[Symptom]:
    if not is_at_home(conn):
        yield Symptom(None, WHY)


RESTORED = Check(
    "restored",
    "find all relations by their names: headwater init --restore",
    _find_restored,
    lambda conn, _: _restored(conn),
)


def _restored(conn: Connection[Any]) -> None:
    restore_stream_tables(conn)


def examine(conn: Connection[Any], *, fix: bool) -> tuple[Diagnosis, ...]:
    """Return what was found, check by check; with `fix`, what each finds is mended at once.

    In a database that is a copy of another one the checks would look at other relations: that comes
    first, and without `fix` nothing else does.
    """
    first = list(_diagnoses(conn, RESTORED, fix=fix))
    if not is_at_home(conn):
        return tuple(first)
    found = (_diagnoses(conn, check, fix=fix) for check in CHECKS)
    return (*first, *(diagnosis for each in found for diagnosis in each))


def _diagnoses(conn: Connection[Any], check: Check, *, fix: bool) -> Iterator[Diagnosis]:
    for symptom in list(check.find(conn)):
        fault = _mend(conn, check, symptom) if fix else None
        yield Diagnosis(
            check.name, symptom.subject, symptom.detail, check.fix, fix and fault is None, fault
        )


def _mend(conn: Connection[Any], check: Check, symptom: Symptom) -> str | None:
    """Mend one thing; return why it cannot be, so that the others still are."""
    try:
        check.mend(conn, symptom)
    except (psycopg.Error, HeadwaterError) as error:
        return str(error).strip()
    return None
