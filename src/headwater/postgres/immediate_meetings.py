"""Where rows of different relations meet in a view, and which of these values a writer locks.

A *place* is one occurrence of a source in the query. A *meeting* is a value that the query sets
equal in several places. Places and meetings form a tree if each join adds one meeting. Meetings are
ranked: those far from one place, the root, before those near it. A writer locks the values of its
own rows, and walks on from there to meetings of higher rank, reading the rows on its way under the
locks that it has. On the path between any two places ranks rise and then fall, so two writers whose
rows are in one combination both come to the meeting of the highest rank on it: there one of them
waits for the other. All take their locks by rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from headwater.algebra.expr import as_column, equality
from headwater.algebra.ops import (
    AntiJoin,
    Expand,
    Filter,
    Join,
    Op,
    Project,
    Repeat,
    Scan,
    SemiJoin,
    UnionAll,
    schema,
)
from headwater.algebra.schema import Column, SqlType, compare_alike, names
from headwater.algebra.walk import scans, walk
from headwater.sql.blanks import null_of

Joining = Join | SemiJoin | AntiJoin
Attribute = tuple[str, SqlType]  # a column of a source
Attributes = tuple[Attribute, ...]  # compared together
End = tuple[int, Attribute]  # the column in which a place holds a value

_HASHED = {"numeric", "real", "double precision", "interval"}


def is_hashed(type: SqlType) -> bool:
    """Tell whether equal values of the type have equal hashes here."""
    return type.is_image or type.name.partition("(")[0] in _HASHED


class Unknown(Exception):
    """Why the values where rows meet are not known."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """A value that is the same in several places: in each of them, the columns that hold it."""

    ends: tuple[tuple[int, Attributes], ...]

    def at(self, place: int) -> Attributes:
        """Return the columns of a place."""
        return dict(self.ends)[place]

    @property
    def places(self) -> frozenset[int]:
        """All places that take part."""
        return frozenset(place for place, _ in self.ends)


@dataclass(frozen=True, slots=True)
class Hop:
    """From the rows at hand to those of another relation: by the value of a meeting."""

    rank: int
    left: Attributes
    relation: str
    right: Attributes


@dataclass(frozen=True, slots=True)
class Walk:
    """How a changed row comes to the values of one meeting; without hops they are its own."""

    rank: int
    columns: Attributes
    hops: tuple[Hop, ...] = ()


@dataclass(frozen=True)
class _Joined:
    """One join: its meeting, and the places whose rows only count as there or not there."""

    meeting: Meeting
    tested: frozenset[int]


def find_walks(view: Op) -> dict[int, tuple[Walk, ...]]:
    """Return the walks of each source, by rank; raise Unknown if values are not lock enough."""
    joins = [op for op in walk(view) if isinstance(op, Joining)]
    graph = _Graph(view)
    found = _merged([joined for op in joins if (joined := graph.meet(op))])
    walks: dict[int, dict[Walk, None]] = {}
    for place, made in _ranked(graph, found).items():
        walks.setdefault(graph.scans[place].source.oid, {}).update(dict.fromkeys(made))
    return {oid: tuple(sorted(own, key=lambda w: w.rank)) for oid, own in walks.items()}


class _Graph:
    """The places of a view, found by the names of their columns.

    An outer join is a union in which both sides occur twice, under the same names: one place each.
    """

    def __init__(self, view: Op) -> None:
        self.scans: list[Scan] = []
        self._of: dict[str, int] = {}
        for scan in scans(view):
            known = [self._of[name] for name in names(scan.columns) if name in self._of]
            place = known[0] if known else len(self.scans)
            if not known:
                self.scans.append(scan)
            self._of |= dict.fromkeys(names(scan.columns), place)

    def places(self, op: Op) -> frozenset[int]:
        """Return the places of a tree."""
        return frozenset(self._of[n] for scan in scans(op) for n in names(scan.columns))

    def meet(self, op: Joining) -> _Joined | None:
        """Return where the rows of a join meet; None if they never do."""
        if self.places(op.left) & self.places(op.right):
            raise Unknown("a relation is compared with itself")
        of = {c.name: c for c in (*schema(op.left), *schema(op.right))}
        own = set(names(schema(op.left)))
        groups: dict[frozenset[int], list[dict[int, Attribute]]] = {}
        for a, b in filter(None, map(equality, op.on)):
            if (a in own) == (b in own) or not _comparable(of[a], of[b]):
                continue
            left, right = (a, b) if a in own else (b, a)
            ends = self._ends(op, left, right)
            if ends is not None:
                groups.setdefault(frozenset(ends), []).append(ends)
        if not groups:
            raise Unknown("a join is not by equality of hashable columns")
        if frozenset() in groups:
            return None
        tested = frozenset[int]() if isinstance(op, Join) else self.places(op.right)
        return _Joined(_meeting(max(groups.values(), key=len)), tested)

    def _ends(self, op: Joining, left: str, right: str) -> dict[int, Attribute] | None:
        """Return the columns of sources that two columns are; {} if one of them is always NULL."""
        sides = [self._origins(op.left, left), self._origins(op.right, right)]
        ends: dict[int, Attribute] = {}
        for side in sides:
            if side is None:
                return None
            for place, attribute in side:
                if ends.setdefault(place, attribute) != attribute:
                    return None
        return ends if all(sides) else {}

    def _origins(self, op: Op, name: str) -> list[End] | None:  # noqa: C901, PLR0911 - by node
        """Return which columns of which places a column is, one entry for each arm of a union.

        None if it is something else; an arm in which it is NULL has no entry.
        """
        match op:
            case Scan():
                at = names(op.columns).index(name)
                return [(self._of[name], (op.attributes[at], op.columns[at].type))]
            case Filter() | Repeat():
                return self._origins(op.input, name)
            case Expand() if name in names(schema(op.input)):
                return self._origins(op.input, name)
            case Join():
                side = op.left if name in names(schema(op.left)) else op.right
                return self._origins(side, name)
            case SemiJoin() | AntiJoin():
                return self._origins(op.left, name)
            case Project():
                output = next(o for o in op.outputs if o.column.name == name)
                below = as_column(output.expr)
                if below is not None:
                    return self._origins(op.input, below)
                return [] if output.expr == null_of(output.column) else None
            case UnionAll():
                return self._united(op, names(op.columns).index(name))
        return None

    def _united(self, op: UnionAll, at: int) -> list[End] | None:
        arms = [self._origins(arm, schema(arm)[at].name) for arm in op.inputs]
        known = [arm for arm in arms if arm is not None]
        return [end for arm in known for end in arm] if len(known) == len(arms) else None


def _comparable(a: Column, b: Column) -> bool:
    return compare_alike(a.type, b.type) and is_hashed(a.type) and is_hashed(b.type)


def _meeting(pairs: list[dict[int, Attribute]]) -> Meeting:
    """Put columns that are compared together into one order, whichever join names them."""
    places = sorted(pairs[0])
    ordered = sorted({tuple(pair[p] for p in places) for pair in pairs}, key=repr)
    return Meeting(tuple((p, tuple(pair[n] for pair in ordered)) for n, p in enumerate(places)))


def _merged(joins: list[_Joined]) -> list[_Joined]:
    """Take meetings as one that share the columns of a place: a = b and b = c is one value."""
    found: list[_Joined] = []
    for joined in joins:
        ends, tested = set(joined.meeting.ends), [joined.tested]
        apart = []
        for other in found:
            if ends & set(other.meeting.ends):
                ends |= set(other.meeting.ends)
                tested.append(other.tested)
            else:
                apart.append(other)
        one = Meeting(tuple(sorted(ends, key=repr)))
        found = [*apart, _Joined(one, frozenset[int]().union(*tested))]
    return found


@dataclass(frozen=True)
class _Tree:
    """Meetings in the order of their ranks, as one root gives it."""

    graph: _Graph
    meetings: tuple[Meeting, ...]

    @cached_property
    def _of(self) -> dict[int, list[int]]:
        of: dict[int, list[int]] = {}
        for rank, meeting in enumerate(self.meetings):
            for place in meeting.places:
                of.setdefault(place, []).append(rank)
        return of

    def walks(self, place: int) -> Iterator[Walk]:
        """Yield the walks that begin in a place."""
        for rank in self._of.get(place, ()):
            yield from self._on(place, rank, ())

    def _on(self, place: int, rank: int, hops: tuple[Hop, ...]) -> Iterator[Walk]:
        meeting = self.meetings[rank]
        yield Walk(rank, meeting.at(place), hops)
        for other in sorted(meeting.places - {place}):
            name = self.graph.scans[other].source.name
            hop = Hop(rank, meeting.at(place), name, meeting.at(other))
            for higher in self._of[other]:
                if higher > rank:
                    yield from self._on(other, higher, (*hops, hop))


def _ranked(graph: _Graph, joins: list[_Joined]) -> dict[int, list[Walk]]:
    """Return the walks of every place, under the best ranks that are right."""
    orders = []
    for part in _parts(joins):
        places = sorted(frozenset[int]().union(*(j.meeting.places for j in part)))
        ends = sum(len(j.meeting.ends) for j in part)
        if ends != len(places) + len(part) - 1:
            raise Unknown("relations are joined in a circle")
        rooted = [_rooted(graph, part, root) for root in places]
        right = [(order, score) for order, score in rooted if _reaches(graph, order, part)]
        if not right:
            raise Unknown("rows of several relations are tested together")
        orders.append(max(right, key=lambda found: found[1])[0])
    tree = _Tree(graph, tuple(meeting for order in orders for meeting in order))
    walks = {place: list(tree.walks(place)) for place in range(len(graph.scans))}
    return {place: own for place, own in walks.items() if own}


def _parts(joins: list[_Joined]) -> list[list[_Joined]]:
    """Return the joins in parts that share no place."""
    parts: list[tuple[frozenset[int], list[_Joined]]] = []
    for joined in joins:
        touched = [part for part in parts if part[0] & joined.meeting.places]
        places = joined.meeting.places.union(*(part[0] for part in touched))
        members = [j for _, own in touched for j in own]
        parts = [part for part in parts if part not in touched]
        parts.append((places, [*members, joined]))
    return [members for _, members in parts]


def _rooted(graph: _Graph, part: list[_Joined], root: int) -> tuple[tuple[Meeting, ...], int]:
    """Return the meetings, farthest from the root first, and how many lead to a single row.

    Where they all do, the root is what others only describe, such as the lines of an order. Most
    rows are written there, and then nothing need be read to know the locks.
    """
    order: list[Meeting] = []
    seen, single, level = {root}, 0, [root]
    left = [joined.meeting for joined in part]
    while left:
        found = [m for m in left if m.places & set(level)]
        left = [m for m in left if m not in found]
        level = []
        for meeting in found:
            for place in sorted(meeting.places - seen):
                seen.add(place)
                level.append(place)
                own = {attribute for attribute, _ in meeting.at(place)}
                single += any(set(key) <= own for key in graph.scans[place].source.keys)
        order = [*found, *order]
    return tuple(order), single


def _reaches(graph: _Graph, order: tuple[Meeting, ...], part: list[_Joined]) -> bool:
    """Tell whether whoever changes what a semi- or anti-join tests comes to its meeting.

    Two writers of the tested side are in no combination, and yet each must know of the other: the
    last match goes when both of two go.
    """
    tree = _Tree(graph, order)
    for joined in part:
        rank = order.index(joined.meeting)
        for place in joined.tested:
            if all(walk.rank != rank for walk in tree.walks(place)):
                return False
    return True
