"""Sources, their rows and changes of them, over tiny domains so that values collide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from itertools import product

from hypothesis import strategies as st

from headwater.algebra.ops import Source
from headwater.reference.evaluate import Database, Table
from headwater.reference.zset import Row, Zset, add

VALUES = (0, 1, 2)


@dataclass(frozen=True)
class Relation:
    """A source with its columns; those of a key are not NULL."""

    source: Source
    attributes: tuple[str, ...]

    def is_nullable(self, attribute: str) -> bool:
        return not any(attribute in key for key in self.source.keys)

    def rows(self) -> list[Row]:
        """Return every row there can be."""
        domains = ((*VALUES, None) if self.is_nullable(a) else VALUES for a in self.attributes)
        return list(product(*domains))

    def obeys_keys(self, rows: Zset) -> bool:
        return all(is_unique(rows, self.attributes, key) for key in self.source.keys)


RELATIONS = {
    relation.source.oid: relation
    for relation in (
        Relation(Source(1, "bag"), ("x", "y")),
        Relation(Source(2, "keyed", (("k",),)), ("k", "v")),
        Relation(Source(3, "pair", (("l", "m"),)), ("l", "m", "w")),
    )
}

State = Mapping[int, Zset]


@dataclass(frozen=True)
class Statement:
    """One write; DELETE and UPDATE pick an existing row by number, or do nothing if none is."""

    verb: str
    oid: int
    row: Row
    at: int = 0


def is_unique(rows: Zset, columns: tuple[str, ...], key: Iterable[str]) -> bool:
    """Tell whether no two rows, copies included, agree in `key`, NULL equal to NULL."""
    at = [columns.index(name) for name in key]
    return len({tuple(row[i] for i in at) for row in rows}) == sum(rows.values())


def write(state: State, statement: Statement) -> State:
    """Return the state after a statement; one that breaks a key changes nothing."""
    rows = state[statement.oid]
    old, new = _images(rows, statement)
    changed = add(rows, dict.fromkeys(old, -1), dict.fromkeys(new, 1))
    if not RELATIONS[statement.oid].obeys_keys(changed):
        return state
    return {**state, statement.oid: changed}


def _images(rows: Zset, statement: Statement) -> tuple[list[Row], list[Row]]:
    """Return the rows that go and those that come, one copy of each."""
    if statement.verb == "INSERT":
        return [], [statement.row]
    if statement.verb == "DELETE ALL":
        return list(rows), []
    old = [list(rows)[statement.at % len(rows)]] if rows else []
    return old, [statement.row] if old and statement.verb == "UPDATE" else []


@cache
def inserts(oids: tuple[int, ...]) -> st.SearchStrategy[list[Statement]]:
    """Draw rows of any source: one choice in place of one for each column."""
    return st.lists(_rows(oids).map(lambda d: Statement("INSERT", *d)), min_size=2, max_size=8)


@cache
def writes(oids: tuple[int, ...]) -> st.SearchStrategy[list[Statement]]:
    verbs = st.sampled_from(("INSERT", "DELETE", "UPDATE") * 4 + ("DELETE ALL",))
    drawn = st.tuples(verbs, _rows(oids), st.integers(0, 3))
    statement = drawn.map(lambda d: Statement(d[0], *d[1], d[2]))
    return st.lists(statement, min_size=1, max_size=4)


def _rows(oids: tuple[int, ...]) -> st.SearchStrategy[tuple[int, Row]]:
    return st.sampled_from([(oid, row) for oid in oids for row in RELATIONS[oid].rows()])


@st.composite
def histories(draw: st.DrawFn, oids: Iterable[int], changes: int = 1) -> tuple[State, ...]:
    """Draw a first state and those that some changes lead to, each over several sources."""
    read = tuple(sorted(oids))
    empty: State = {oid: {} for oid in read}
    if not read:
        return (empty,) * (changes + 1)
    found = [write_all(empty, draw(inserts(read)))]
    for _ in range(changes):
        found.append(write_all(found[-1], draw(writes(read))))
    return tuple(found)


def write_all(state: State, change: Iterable[Statement]) -> State:
    return reduce(write, change, state)


def between(before: State, after: State) -> Database:
    return Database(_tables(before), _tables(after))


def _tables(state: State) -> dict[int, Table]:
    return {oid: Table(RELATIONS[oid].attributes, rows) for oid, rows in state.items()}


def shifted(state: State, change: Mapping[int, Zset]) -> State:
    return {oid: add(rows, change[oid]) for oid, rows in state.items()}


def is_possible(state: State) -> bool:
    """Tell whether the sources can be in this state: no negative row, and every key unique."""
    return all(
        min(rows.values(), default=1) > 0 and RELATIONS[oid].obeys_keys(rows)
        for oid, rows in state.items()
    )
