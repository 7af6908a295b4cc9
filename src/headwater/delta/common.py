"""Joins that several views have in common, set apart so that their change is one tree in all.

A tree of inner joins, flat, is relations and conditions. Where two such sets meet there is a common
join J, and what is left of each view is joined with that:

    σp(A) ⋈ B ⋈ C  =  σp(J) ⋈ C,   J = A ⋈ B

In J a column is named by its source alone, and a scan reads what any of the views reads of it. A
condition that not all of them have stands above: Δσp(J) = σp(ΔJ), so it costs rows of the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

from headwater.algebra.expr import Expr, as_column, column, equality, refs, substitute
from headwater.algebra.ops import Filter, Join, Op, Output, Project, Scan, Source, schema
from headwater.algebra.schema import Column, names
from headwater.algebra.walk import children, rebuild
from headwater.delta.ordering import chained, joined_from

STAND_IN_OID = -3  # of the first stand-in; those of others follow below

_Key = tuple[str, int]  # the copy of a source that is read, and which of its scans in this join
_Condition = tuple[Expr, frozenset[_Key]]  # and the scans that it reads


@dataclass(frozen=True, slots=True)
class View:
    """A view, and which copy it reads of each source: others may read another state of it."""

    tree: Op
    copies: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Common:
    """A join that several views have, and the relation that stands for it in their trees."""

    stand_in: Scan
    scans: tuple[Scan, ...]
    on: tuple[Expr, ...]
    copies: tuple[tuple[int, str], ...]

    def joined(self, changed: frozenset[int]) -> Op:
        """Return the join, in the order that suits these changes."""
        return joined_from(self.scans, self.on, changed)

    def reads(self, changed: frozenset[int]) -> bool:
        """Tell whether any of these sources is joined."""
        return any(scan.source.oid in changed for scan in self.scans)


@dataclass(frozen=True, slots=True)
class Rest:
    """A view in which stand-ins stand for what it has in common with others, if anything."""

    tree: Op
    commons: tuple[Common, ...] = ()


@lru_cache(maxsize=64)
def set_apart(views: tuple[View, ...]) -> tuple[Rest, ...]:
    """Return each view with the joins set apart that it has in common with others."""
    found = [_Found(i, op, _Bunch.of(op, v)) for i, v in enumerate(views) for op in _joins(v.tree)]
    seats: list[dict[Op, _Seat]] = [{} for _ in views]
    for number, (shape, users) in enumerate(_chosen(found)):
        common = _common(shape, users, STAND_IN_OID - number)
        for user in users:
            own = frozenset(user.scans_of(shape))
            seats[user.view][user.op] = _Seat(user.bunch, own, common)
    return tuple(_rest(view.tree, own) for view, own in zip(views, seats, strict=True))


# --- a tree of joins, flat ---


@dataclass(frozen=True, slots=True)
class _Flat:
    """What is joined, all conditions, and for each output the column of what is joined."""

    leaves: tuple[Op, ...]
    on: tuple[Expr, ...]
    columns: Mapping[str, str]


def _flat(op: Op) -> _Flat:
    """Take a tree of joins apart; one in which a name means two columns stays whole."""
    match op:
        case Filter():
            below = _flat(op.input)
            return replace(below, on=(*below.on, *_renamed(op.conjuncts, below.columns)))
        case Project():
            passed = {o.column.name: as_column(o.expr) for o in op.outputs}
            if all(passed.values()):
                below = _flat(op.input)
                return replace(below, columns={n: below.columns[str(c)] for n, c in passed.items()})
        case Join():
            left, right = _flat(op.left), _flat(op.right)
            columns, leaves = {**left.columns, **right.columns}, left.leaves + right.leaves
            if _are_different(leaves):
                on = left.on + right.on + _renamed(op.on, columns)
                return _Flat(leaves, on, columns)
    return _Flat((op,), (), {name: name for name in names(schema(op))})


def _are_different(leaves: Sequence[Op]) -> bool:
    every = [name for leaf in leaves for name in names(schema(leaf))]
    return len(every) == len(set(every))


def _joins(tree: Op) -> Iterator[Op]:
    """Yield the trees of joins in a tree, each once and whole."""
    seen: set[Op] = set()
    waiting = [tree]
    while waiting:
        op = waiting.pop(0)
        if op not in seen:
            seen.add(op)
            leaves = _flat(op).leaves
            if sum(isinstance(leaf, Scan) for leaf in leaves) > 1:
                yield op
            waiting += children(op) if leaves == (op,) else leaves


@dataclass(frozen=True, slots=True)
class _Bunch:
    """A tree of joins, flat, its scans by what they read, and the common names of their columns."""

    flat: _Flat
    scans: Mapping[_Key, Scan]
    named: Mapping[str, str]

    @classmethod
    def of(cls, op: Op, view: View) -> _Bunch:
        flat, copies, scans = _flat(op), dict(view.copies), dict[_Key, Scan]()
        for leaf in flat.leaves:
            if isinstance(leaf, Scan) and leaf.source.oid in copies:
                copy = copies[leaf.source.oid]
                scans[copy, sum(copy == known for known, _ in scans)] = leaf
        named = {
            c.name: _name(key, scan, text)
            for key, scan in scans.items()
            for c, text in zip(scan.columns, scan.attributes, strict=True)
        }
        return cls(flat, scans, named)

    def conditions(self) -> tuple[Expr, ...]:
        """Return the conditions under the common names."""
        return tuple(map(_sorted, _renamed(self.flat.on, self.named)))

    def shape(self) -> _Shape:
        """Return what of it may be common: the conditions on scans alone."""
        owner = {
            self.named[name]: key
            for key, scan in self.scans.items()
            for name in names(scan.columns)
        }
        on = {
            (test, frozenset(owner[name] for name in refs(test)))
            for test in self.conditions()
            if refs(test) and refs(test) <= owner.keys()
        }
        return _Shape(frozenset(self.scans), frozenset(on))


def _name(key: _Key, scan: Scan, text: str) -> str:
    return f"__{scan.source.oid}_{key[1]} {text}"


def _renamed(exprs: Iterable[Expr], new: Mapping[str, str]) -> tuple[Expr, ...]:
    others = {name: column(other) for name, other in new.items()}
    return tuple(substitute(expr, others) for expr in exprs)


def _sorted(test: Expr) -> Expr:
    """a = b is b = a."""
    pair = equality(test)
    if pair is None or pair[0] <= pair[1]:
        return test
    return substitute(test, {pair[0]: column(pair[1]), pair[1]: column(pair[0])})


# --- what is common ---


@dataclass(frozen=True, slots=True)
class _Shape:
    """Scans, and conditions on them."""

    scans: frozenset[_Key]
    on: frozenset[_Condition]

    def is_in(self, other: _Shape) -> bool:
        """Tell whether another has all of this."""
        return self.scans <= other.scans and self.on <= other.on

    def meeting(self, other: _Shape) -> Iterator[_Shape]:
        """Yield what two have in common: scans that common conditions join."""
        rest, on = sorted(self.scans & other.scans), self.on & other.on
        while rest:
            group = {rest[0]}
            while more := {k for _, keys in on if keys & group for k in keys} - group:
                group |= more
            rest = [key for key in rest if key not in group]
            if len(group) > 1:
                yield _Shape(frozenset(group), frozenset(c for c in on if c[1] <= group))


@dataclass(frozen=True, slots=True)
class _Found:
    """A tree of joins in one of the views."""

    view: int
    op: Op
    bunch: _Bunch

    def scans_of(self, shape: _Shape) -> list[Scan]:
        """Return the scans that the shape means here."""
        return [self.bunch.scans[key] for key in sorted(shape.scans)]


def _chosen(found: Sequence[_Found]) -> Iterator[tuple[_Shape, list[_Found]]]:
    """Yield joins that at least two views have, those of most views first, and who has them.

    A tree of joins takes part in one of them.
    """
    rest = [(f, f.bunch.shape()) for f in found]
    while True:
        pairs = [(a, b) for (f, a), (g, b) in combinations(rest, 2) if f.view != g.view]
        shapes = list(dict.fromkeys(shape for a, b in pairs for shape in a.meeting(b)))
        if not shapes:
            return
        users = {s: list(_users(s, [f for f, shape in rest if s.is_in(shape)])) for s in shapes}
        best = max(shapes, key=lambda s: (_count(users[s]), len(s.scans), len(s.on)))
        yield best, users[best]
        rest = [(f, shape) for f, shape in rest if f not in users[best]]


def _users(shape: _Shape, found: Sequence[_Found]) -> Iterator[_Found]:
    """Yield those that use it; in one view they must mean the same scans, as a name means one."""
    first: dict[int, list[Scan]] = {}
    for one in found:
        scans = one.scans_of(shape)
        if first.setdefault(one.view, scans) == scans:
            yield one


def _count(users: Sequence[_Found]) -> int:
    return len({user.view for user in users})


def _common(shape: _Shape, users: Sequence[_Found], oid: int) -> Common:
    scans = tuple(_widened(key, [u.bunch.scans[key] for u in users]) for key in sorted(shape.scans))
    columns = tuple(c for scan in scans for c in scan.columns)
    stand_in = Scan(Source(oid, "what several views have"), columns, names(columns))
    copies = {(s.source.oid, key[0]) for s, key in zip(scans, sorted(shape.scans), strict=True)}
    on = sorted((test for test, _ in shape.on), key=repr)
    return Common(stand_in, scans, tuple(on), tuple(sorted(copies)))


def _widened(key: _Key, scans: Sequence[Scan]) -> Scan:
    """Return a scan that reads all that these read of one source."""
    columns: dict[str, Column] = {}
    for scan in scans:
        for old, text in zip(scan.columns, scan.attributes, strict=True):
            columns.setdefault(text, replace(old, name=_name(key, scan, text)))
    texts = sorted(columns)
    return Scan(scans[0].source, tuple(columns[text] for text in texts), tuple(texts))


# --- what is left of a view ---


@dataclass(frozen=True, slots=True)
class _Seat:
    """A tree of joins of which some scans make room for a stand-in."""

    bunch: _Bunch
    own: frozenset[Scan]
    common: Common

    def taken(self, op: Op, rest: Iterable[Op]) -> Op:
        """Return the same relation, of the stand-in and the rest of what is joined."""
        flat, inside = self.bunch.flat, self._inside()
        tests = [t for t in _renamed(flat.on, inside) if _sorted(t) not in self.common.on]
        behind = {name: inside.get(c, c) for name, c in flat.columns.items()}
        outputs = tuple(Output(c, column(behind[c.name])) for c in schema(op))
        return Project(_joined([self.common.stand_in, *rest], tuple(tests)), outputs)

    def _inside(self) -> dict[str, str]:
        own = (name for scan in self.own for name in names(scan.columns))
        return {name: self.bunch.named[name] for name in own}


def _rest(view: Op, seats: Mapping[Op, _Seat]) -> Rest:
    """Return the view with the stand-ins in their places."""
    known: dict[Op, Op] = {}

    def of(op: Op) -> Op:
        if op not in known:
            known[op] = seated(op, seats[op]) if op in seats else rebuild(op, of)
        return known[op]

    def seated(op: Op, seat: _Seat) -> Op:
        return seat.taken(op, [of(leaf) for leaf in seat.bunch.flat.leaves if leaf not in seat.own])

    return Rest(of(view), tuple(dict.fromkeys(seat.common for seat in seats.values())))


def _joined(leaves: Sequence[Op], on: tuple[Expr, ...]) -> Op:
    if len(leaves) > 1:
        return chained(leaves, on)
    return Filter(leaves[0], on) if on else leaves[0]
