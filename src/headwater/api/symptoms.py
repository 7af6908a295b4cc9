"""What a check of the doctor is: how to find a thing, and how to mend it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from psycopg import Connection


@dataclass(frozen=True, slots=True)
class Symptom:
    """One thing that was found; `key` is what mending it needs to know."""

    subject: str | None
    detail: str
    key: Any = None


@dataclass(frozen=True, slots=True)
class Check:
    """A kind of damage: its name, what mending does, in words, and both halves of the work."""

    name: str
    fix: str
    find: Callable[[Connection[Any]], Iterable[Symptom]]
    mend: Callable[[Connection[Any], Symptom], None]
