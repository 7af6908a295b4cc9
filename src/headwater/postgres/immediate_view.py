"""A stream table as its trigger functions see it, and where they read what changed."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.algebra.ops import Op
from headwater.algebra.schema import Column, Schema
from headwater.algebra.walk import scans
from headwater.postgres.immediate_locks import Locks, choose_locks, is_isolated
from headwater.postgres.maintenance import Maintenance
from headwater.postgres.quote import WEIGHT, identifier, image, listed, restored
from headwater.postgres.target import Target

SCHEMA = "pgtrickle_state"
XID = "pg_current_xact_id()"


@dataclass(frozen=True, slots=True)
class View:
    """A stream table as its trigger functions see it."""

    pgt_id: int
    plan: Maintenance
    target: Target
    settings: dict[str, str] = field(default_factory=dict)
    over_streams: bool = False  # sources that are stream tables: those are written in several ways
    relations: tuple[int, ...] = ()  # itself, and all that it must find as it was
    uses_functions: bool = False  # that somebody may replace

    @property
    def locks(self) -> Locks:
        """What a maintaining transaction locks."""
        return choose_locks(self.plan)

    @property
    def is_isolated(self) -> bool:
        """Whether changes can be followed one by one."""
        return is_isolated(self.plan) and not self.over_streams

    @property
    def columns(self) -> dict[int, Schema]:
        """The columns of each source that the view reads, under the source's own names."""
        return source_columns(self.plan.view)


def source_columns(view: Op) -> dict[int, Schema]:
    """Return the columns of each source that a tree reads."""
    found: dict[int, dict[str, Column]] = {}
    for scan in scans(view):
        own = found.setdefault(scan.source.oid, {})
        for attribute, column in zip(scan.attributes, scan.columns, strict=True):
            own[attribute] = Column(attribute, column.type, column.nullable)
    return {oid: tuple(c for _, c in sorted(columns.items())) for oid, columns in found.items()}


def locks_name(pgt_id: int) -> str:
    """Return the table of lock slots."""
    return f"{SCHEMA}.locks_{pgt_id}"


def since_name(pgt_id: int) -> str:
    """Return the table with a row that only those see whose snapshot knows of the triggers."""
    return f"{SCHEMA}.since_{pgt_id}"


def pending_name(pgt_id: int, oid: int) -> str:
    """Return the table that collects the changes of a source until the last trigger."""
    return f"{SCHEMA}.pending_{pgt_id}_{oid}"


def function_name(pgt_id: int, *what: object) -> str:
    """Return the name of one of the functions of a stream table."""
    return f"{SCHEMA}.{'_'.join(map(str, ('follow', pgt_id, *what)))}"


def read_transition(event: str, columns: Schema) -> str:
    """Return the SELECT of what a statement changed; an UPDATE cancels what stays."""
    own = [identifier(c.name) for c in columns]
    if event == "insert":
        return f"SELECT {listed([*own, f'1 AS {WEIGHT}'])} FROM new_rows"
    if event == "delete":
        return f"SELECT {listed([*own, f'-1 AS {WEIGHT}'])} FROM old_rows"
    if not columns:
        return f"SELECT 1 AS {WEIGHT} FROM new_rows WHERE FALSE"
    pairs = list(zip(own, columns, strict=True))
    outputs = [f"{restored(n, c)} AS {n}" for n, c in pairs]
    both = (
        f"SELECT {listed([*own, f'-1 AS {WEIGHT}'])} FROM old_rows"
        f"\nUNION ALL SELECT {listed([*own, '1'])} FROM new_rows"
    )
    return (
        f"SELECT {listed([*outputs, f'sum({WEIGHT})::int AS {WEIGHT}'])} FROM ({both}) AS q"
        f" GROUP BY {listed(image(n, c) for n, c in pairs)} HAVING sum({WEIGHT}) <> 0"
    )


def read_both(event: str, columns: Schema) -> str:
    """Return the SELECT of what went and what came, where sums cancel what stays."""
    own = [identifier(c.name) for c in columns]
    if event != "update":
        return read_transition(event, columns)
    return (
        f"SELECT {listed([*own, f'-1 AS {WEIGHT}'])} FROM old_rows"
        f"\nUNION ALL SELECT {listed([*own, '1'])} FROM new_rows"
    )


def read_pending(view: View, oid: int) -> str:
    """Return the SELECT of what this transaction collected for a source."""
    columns = listed([*(identifier(c.name) for c in view.columns[oid]), WEIGHT])
    return f"SELECT {columns} FROM {pending_name(view.pgt_id, oid)} WHERE __xid = {XID}"
