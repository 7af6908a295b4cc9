"""Recursions inside a view whose rows are kept as private state, like those at its root.

What a recursion has found is a set R, of which equality tells all. Its table holds R⁻; the change
of R is told from that, as for a stream table that shows a recursion (`delta/recursion.py`), or by
computing R⁺ as a whole where its parts do not say enough. For what stands above, R is a source:

ΔR    what was told, −1 and +1
R⁺    R⁻ ⊎ ΔR, as a signed union, so that an index finds rows of it, too
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.algebra.ops import Consolidate, Op, Scan, Source, Whole
from headwater.algebra.schema import BIGINT, FIXED_SIZE, Column, Schema, names
from headwater.delta.recursion import step_columns
from headwater.delta.stored import change_from_stored
from headwater.errors import bug
from headwater.postgres.quote import WEIGHT, at_places, identifier, listed, looked_up
from headwater.postgres.render import Renderer

_INDEX_LIMIT = 32  # columns of an index in PostgreSQL
_HASHED = {"text", "character varying", "bytea"}  # types of any length whose values have a hash


def change_of_rows(whole: Whole, stored: Source, changed: frozenset[int]) -> Op:
    """Return the change of a recursion whose rows before it are those of a table."""
    scan = Scan(stored, whole.columns, names(whole.columns))
    change = change_from_stored(whole, scan, changed)
    if change is None:
        raise bug("a kept recursion cannot follow", "a query computed as a whole always can")
    return change


class Move:
    """The common tables of a statement that move the rows of a recursion."""

    def __init__(self, renderer: Renderer, whole: Whole, table: str, change: Op) -> None:
        """Add them to the statement."""
        self._table, self._columns = table, listed(identifier(c.name) for c in whole.columns)
        made = renderer.render(Consolidate(change)).sql
        self.change = renderer.add("found_change", made)
        going = f"(SELECT * FROM {self.change} WHERE {WEIGHT} < 0)"
        found = looked_up("t.ctid AS __row", going, table, _sides(whole.columns))
        self._gone = renderer.add("found_gone", found)

    @property
    def after(self) -> str:
        """The rows after the change, with weights: those that are stored, and what changed.

        In a form that the planner can look rows up in: weights of one type, and the common table as
        a subquery (OFFSET 0), since it knows no scan of a common table for one value at a time.
        """
        stored = f"SELECT {self._columns}, 1::bigint AS {WEIGHT} FROM {self._table}"
        moved = f"(SELECT * FROM {self.change} OFFSET 0) AS c"
        return f"({stored}\nUNION ALL\nSELECT {self._columns}, {WEIGHT} FROM {moved}) AS s"

    @property
    def writes(self) -> dict[str, str]:
        """The statements that store the new rows."""
        return {
            "deleted": f"DELETE FROM {self._table} AS t"
            f" WHERE {at_places(f'SELECT __row FROM {self._gone}')}",
            "inserted": f"INSERT INTO {self._table} ({self._columns})"
            f" SELECT {self._columns} FROM {self.change} WHERE {WEIGHT} > 0",
        }

    @property
    def damaged(self) -> str:
        """How many of the rows that should go are not there."""
        expected = f"(SELECT count(*) FROM {self.change} WHERE {WEIGHT} < 0)"
        return f"abs({expected} - (SELECT count(*) FROM {self._gone}))"


def _sides(columns: Schema) -> list[tuple[str, str, Column]]:
    """Both sides of each comparison of a row with a stored one, and of what the index is on."""
    named = ((identifier(c.name), c) for c in columns)
    sides = [(f"l.{name}", f"t.{name}", c) for name, c in named]
    if not _fits(columns) and _hashable(columns):
        hashes = _hash("l.", columns), _hash("t.", columns)
        sides.append((*hashes, Column("", BIGINT, nullable=False)))
    return sides


def _hash(alias: str, columns: Schema) -> str:
    values = listed(f"{alias}{identifier(c.name)}" for c in _hashable(columns))
    return f"hash_record_extended(ROW({values}), 0)"


def _fits(columns: Schema) -> bool:
    """Tell whether all values of the columns fit into an index."""
    return len(columns) <= _INDEX_LIMIT and all(c.type.name in FIXED_SIZE for c in columns)


def _hashable(columns: Schema) -> Schema:
    known = (c for c in columns if c.type.name in FIXED_SIZE or _base(c) in _HASHED)
    return tuple(known)[:_INDEX_LIMIT]


def _base(column: Column) -> str:
    return column.type.name.partition("(")[0]


def index_statements(table: str, whole: Whole, ways: Iterable[frozenset[str]]) -> tuple[str, ...]:
    """Return the statements that make the indexes of the rows of a recursion.

    Of whole rows, of the columns that a step goes on from, and of those that others look rows up
    by. A value that may be too long for an index of values is found by its hash.
    """
    columns = whole.columns
    made: dict[str, None] = {}
    if _fits(columns):
        on = listed(identifier(c.name) for c in columns)
        made[f"CREATE UNIQUE INDEX ON {table} ({on}) NULLS NOT DISTINCT"] = None
    elif _hashable(columns):
        made[f"CREATE INDEX ON {table} (({_hash('', columns)}))"] = None
    for way in (frozenset(step_columns(whole)), *sorted(ways, key=sorted)):
        wanted = tuple(c for c in columns if c.name in way)
        if way and not (_fits(columns) and wanted == columns[: len(wanted)]):
            made |= {f"CREATE INDEX ON {table} {on}": None for on in _index_of(wanted)}
    return tuple(made)


def _index_of(columns: Schema) -> tuple[str, ...]:
    if _fits(columns):
        return (f"({listed(identifier(c.name) for c in columns)})",)
    long = [c for c in _hashable(columns) if c.type.name not in FIXED_SIZE]
    return tuple(f"USING hash ({identifier(c.name)})" for c in long[:1])
