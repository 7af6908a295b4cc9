"""Stream tables for PostgreSQL: tables that are kept equal to a query, incrementally."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.api import Headwater, connect
    from headwater.errors import HeadwaterError
    from headwater.results import (
        UNCHANGED,
        Created,
        Edge,
        Explanation,
        RefreshResult,
        Status,
        Verification,
    )

__all__ = [
    "UNCHANGED",
    "Created",
    "Edge",
    "Explanation",
    "Headwater",
    "HeadwaterError",
    "RefreshResult",
    "Status",
    "Verification",
    "connect",
]
_HOMES = {"Headwater": "api", "connect": "api", "HeadwaterError": "errors"}


def __getattr__(name: str) -> object:
    """Import what is asked for: the command line must not wait for the database driver."""
    if name not in __all__:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    return getattr(import_module(f"headwater.{_HOMES.get(name, 'results')}"), name)
