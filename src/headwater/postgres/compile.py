"""A query to all that is needed to maintain it: what the server says, the tree, the plan."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from headwater.algebra.loops import with_loops
from headwater.algebra.ops import Op
from headwater.algebra.prune import prune
from headwater.algebra.schema import Schema, names
from headwater.algebra.sink import sink
from headwater.algebra.walk import scans
from headwater.delta.differentiate import differentiate
from headwater.delta.ordering import connect
from headwater.errors import UnsupportedQuery, bug
from headwater.postgres.describe import Described
from headwater.postgres.maintenance import Maintenance, plan_maintenance
from headwater.sql.analyse import analyse
from headwater.sql.functions import check_functions
from headwater.sql.lower import lower
from headwater.sql.relations import Analysis


@dataclass(frozen=True, slots=True)
class Compiled:
    """An analysed query and, if it can be maintained incrementally, how; else why not."""

    query: str
    analysis: Analysis
    maintenance: Maintenance | None
    refusal: UnsupportedQuery | None
    columns: Schema  # of the result, with what is known not to be NULL
    key: tuple[str, ...] | None = None  # unique in the result, also where maintenance is FULL

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is no error but may surprise."""
        return _warnings(self.analysis, self.query)

    @property
    def incremental(self) -> Maintenance:
        """How to maintain it; raises what makes that impossible."""
        if self.maintenance is None:
            raise self.refusal or bug("neither a plan nor a refusal", "compile lost both")
        return self.maintenance


def compile_query(conn: Connection[Any], query: str, reader: int | None = None) -> Compiled:
    """Analyse a query and plan its maintenance; errors of the server pass unchanged.

    Needs an open transaction, of which nothing remains. The `reader` is the owner of the stream
    table, if that is not the current role.
    """
    analysis = analyse(conn, query, reader)
    _check_names("the query", names(analysis.columns), "give the column another name with AS")
    try:
        check_functions(analysis)
        view = _tidied(with_loops(lower(analysis, Described(conn)), _tidied))
        _check_sources(analysis, view)
        for scan in scans(view):
            _check_names(scan.source.name, scan.attributes, "rename the column")
        differentiate(view)
    except UnsupportedQuery as refusal:
        return Compiled(query, analysis, None, refusal, analysis.columns)
    plan = plan_maintenance(view)
    return Compiled(query, analysis, plan, None, plan.columns, indexable(plan.key))


def _tidied(op: Op) -> Op:
    """Return the same relation as a change goes through it best."""
    return prune(connect(sink(op)))


def _check_sources(analysis: Analysis, view: Op) -> None:
    """What the tree scans must be what the server says that the query depends on."""
    scanned = {scan.source.oid for scan in scans(view)}
    named = {r.source.oid for r in analysis.relations.values() if r.query is None}
    if not scanned <= named:
        raise bug("the tree reads relations that the query does not", f"{scanned - named}")


_OWN_NAMES = frozenset(
    {
        *("__weight", "__w", "__xid", "__id", "__row", "__stale", "__goes", "__comes", "__new"),
        *("__place", "__places", "__before", "__after", "__rank", "__last", "__ahead", "__now"),
    }
)
_OWN_PREFIXES = ("__old ", "__gone ", "__key ", "__was ")


def _check_names(owner: str, columns: Iterable[str], fix: str) -> None:
    """Refuse columns whose names stand beside our own in the statements of a refresh."""
    for name in columns:
        if name in _OWN_NAMES or name.startswith(_OWN_PREFIXES):
            raise UnsupportedQuery(
                f"{owner} has a column {name}",
                "a refresh uses this name for a column of its own",
                fix,
            )


_INDEX_LIMIT = 32  # columns of an index in PostgreSQL


def indexable(key: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the key, unless it is too wide for an index: the result then counts as a bag."""
    return key if key is None or len(key) <= _INDEX_LIMIT else None


def columns_used(view: Op) -> dict[int, tuple[str, ...]]:
    """Return the columns of each source that the tree reads."""
    used: dict[int, set[str]] = {}
    for scan in scans(view):
        used.setdefault(scan.source.oid, set()).update(scan.attributes)
    return {oid: tuple(sorted(names)) for oid, names in used.items()}


_UNORDERED = {"array_agg", "string_agg", "json_agg", "jsonb_agg", "xmlagg", "json_object_agg"}


_STAR = re.compile(r"(\bselect(\s+distinct)?|,|\.)\s*\*\s*(,|\bfrom\b|$)", re.IGNORECASE)


def _warnings(analysis: Analysis, query: str) -> tuple[str, ...]:
    found = []
    if _STAR.search(query):
        found.append("the query takes the columns of now for *: one added later does not join in")
    unordered = sorted(name for _, name in analysis.aggregates if name in _UNORDERED)
    if unordered and "ORDER BY" not in analysis.canonical:
        found.append(
            f"{', '.join(unordered)} without ORDER BY: the order inside is whatever the rows come"
            " in, and may differ from that of the query run by hand"
        )
    return tuple(found)
