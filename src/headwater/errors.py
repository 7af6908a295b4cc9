"""Every error that headwater raises, sorted by who must act.

HeadwaterError
├── UserError          HW-1xx   the definition or the call is wrong: change it
│   ├── UnsupportedQuery    HW-101
│   ├── InvalidArgument     HW-102
│   ├── NotFound            HW-103
│   ├── AlreadyExists       HW-104
│   ├── DependentsExist     HW-105
│   ├── DependencyCycle     HW-106
│   ├── UnsupportedServer   HW-107
│   ├── CatalogMissing      HW-108
│   ├── CatalogTooNew       HW-109
│   ├── MissingRights       HW-110
│   ├── QueryFailed         HW-111   PostgreSQL refused the query or its data
│   ├── InexactValue        HW-112   Spark cannot hold a value exactly
│   ├── WrongTransaction    HW-113   not inside this transaction of the caller
│   └── ForeignExtension    HW-114   a real pg_ivm is in the database
├── SourceChanged      HW-2xx   the sources no longer fit the definition: rebuild
│   ├── SourceDropped       HW-201
│   ├── SourceAltered       HW-202
│   ├── StreamTableDamaged  HW-203
│   └── CatalogRestored     HW-204   the catalog came from another database
├── Unavailable        HW-3xx   the surroundings refuse for now: try again later
│   ├── ServerUnreachable   HW-301
│   ├── LockTimeout         HW-302
│   ├── ServerResources     HW-303
│   ├── MissingComponent    HW-304
│   │   └── LakeMissing     HW-307
│   ├── SparkFailed         HW-305
│   └── RequestLost         HW-306   nobody knows how far a request came
└── InvalidPlan        HW-901   our bug: report it
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import ClassVar


class Retry(enum.Enum):
    """Whether doing the same thing again can help."""

    NEVER = "never"
    REBUILD = "rebuild"
    LATER = "later"


class HeadwaterError(Exception):
    """Root of every error raised by this package: what is wrong, why, and how to fix it."""

    code: ClassVar[str]
    retry: ClassVar[Retry] = Retry.NEVER
    is_recorded = False  # whether the history of a stream table tells of it

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(what, why, fix)  # positional, so that the error survives pickling
        self.what, self.why, self.fix = what, why, fix

    def __str__(self) -> str:
        return f"{self.code}: {self.what}\n  why: {self.why}\n  fix: {self.fix}"


class UserError(HeadwaterError):
    """The definition, the call or the installation is wrong; the user must change it."""

    code = "HW-100"


class UnsupportedQuery(UserError):
    """The query uses something that cannot be maintained incrementally."""

    code = "HW-101"


class InvalidArgument(UserError):
    """An argument has a value that has no meaning."""

    code = "HW-102"


class NotFound(UserError):
    """The named stream table or relation does not exist."""

    code = "HW-103"


class AlreadyExists(UserError):
    """A relation of that name exists already."""

    code = "HW-104"


class DependentsExist(UserError):
    """Other stream tables read this one."""

    code = "HW-105"


class DependencyCycle(UserError):
    """The change would make a stream table depend on itself."""

    code = "HW-106"


class UnsupportedServer(UserError):
    """The server is older than PostgreSQL 15 or is in recovery."""

    code = "HW-107"


class CatalogMissing(UserError):
    """The database holds no headwater catalog, or an older one."""

    code = "HW-108"


class CatalogTooNew(UserError):
    """The catalog was written by a newer headwater."""

    code = "HW-109"


class MissingRights(UserError):
    """A role lacks a right that maintenance needs."""

    code = "HW-110"


class QueryFailed(UserError):
    """PostgreSQL raised an error from the query itself, such as a division by zero."""

    code = "HW-111"


class InexactValue(UserError):
    """A value has no exact form in Spark, such as NaN in a decimal or an infinite date."""

    code = "HW-112"


class WrongTransaction(UserError):
    """Inside the server: the caller's transaction does not allow what was asked for."""

    code = "HW-113"


class ForeignExtension(UserError):
    """Another extension has the names that were to be created."""

    code = "HW-114"


class SourceChanged(HeadwaterError):
    """The sources changed in a way that the definition does not survive as it is."""

    code = "HW-200"
    retry = Retry.REBUILD


class SourceDropped(SourceChanged):
    """A relation that the query reads no longer exists."""

    code = "HW-201"


class SourceAltered(SourceChanged):
    """A column that the query reads was altered, renamed or dropped."""

    code = "HW-202"


class StreamTableDamaged(SourceChanged):
    """The stored rows are not those that the last refresh left."""

    code = "HW-203"


class CatalogRestored(SourceChanged):
    """The catalog came out of a dump, or with a copy of its database, and names other relations."""

    code = "HW-204"


class Unavailable(HeadwaterError):
    """Something outside headwater refuses for now; the same call may work later."""

    code = "HW-300"
    retry = Retry.LATER


class ServerUnreachable(Unavailable):
    """No connection to PostgreSQL, or it was lost."""

    code = "HW-301"


class LockTimeout(Unavailable):
    """A lock could not be had in time, or PostgreSQL broke a deadlock or conflict."""

    code = "HW-302"


class ServerResources(Unavailable):
    """The server ran out of memory, disk or connections."""

    code = "HW-303"


class MissingComponent(Unavailable):
    """An optional component that this call needs is not installed."""

    code = "HW-304"


class LakeMissing(MissingComponent):
    """This connection has no lake, and a table on Spark needs one."""

    code = "HW-307"


class SparkFailed(Unavailable):
    """Spark does not start, or its virtual machine died."""

    code = "HW-305"


class RequestLost(Unavailable):
    """The process that served a request ended before it could say what became of it."""

    code = "HW-306"


class InvalidPlan(HeadwaterError):
    """The compiler broke one of its own rules; this is a bug in headwater."""

    code = "HW-901"


def all_errors(root: type[HeadwaterError] = HeadwaterError) -> Iterator[type[HeadwaterError]]:
    """Yield every concrete error class, in the order of the tree above."""
    for child in root.__subclasses__():
        yield child
        yield from all_errors(child)


def bug(what: str, why: str) -> InvalidPlan:
    """Return the error for a broken invariant of the compiler."""
    return InvalidPlan(what, why, "this is a bug in headwater; please report the query")
