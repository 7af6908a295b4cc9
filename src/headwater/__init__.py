"""Stream tables for PostgreSQL: tables that are kept equal to a query, incrementally."""

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
