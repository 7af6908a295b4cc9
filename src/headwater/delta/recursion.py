"""The change of a recursion R = δ(T(R)), T(R) = base ⊎ step(R), by the rows that it had before.

Delete and rederive, all by smallest sets μ:

    D = μ X. R⁻ ⋉ (lost ⊎ step⁺(X))       what may have gone
    K = R⁻ ▷ D                            what certainly stays
    N = μ X. (T⁺(K) ⋉ C ⊎ step⁺(X)) ▷ K   what comes, and what comes back
    ΔR = (N ▷ R⁻) ⊖ (D ▷ N)

`lost` are the rows of R⁻ of which a derivation went, even if another came: that one may hang on the
row itself, over a cycle. Every row of K has a derivation without D, by induction over the number of
steps that it took before. A row outside K that one step derives from K was derived so before, and
is in D, or is derived by what changed: C = D ⊎ ΔT(R⁻) are all that can be.

The step is linear in R (`algebra/loops.py`): what a row leads to does not depend on the others.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.algebra.expr import Expr, as_column, column, equality, text
from headwater.algebra.ops import (
    After,
    AntiJoin,
    Empty,
    Expand,
    Filter,
    Fixpoint,
    Itself,
    Join,
    Keys,
    Loop,
    Negate,
    OneWay,
    Op,
    Output,
    Project,
    Repeat,
    Restrict,
    Scan,
    SemiJoin,
    UnionAll,
    Whole,
    schema,
)
from headwater.algebra.outside import Outside
from headwater.algebra.schema import Column, Schema, names
from headwater.algebra.walk import bottom_up, rebuild, walk
from headwater.delta.registry import derive
from headwater.delta.simplify import simplify
from headwater.delta.verify import check_delta_plan

_LOST, _FOUND = "__lost", "__found"  # names of our own sets, beside common tables of others


def stored_columns(view: Op) -> dict[str, str] | None:
    """Return the columns that show those of a recursion; None if not all rows or columns show."""
    match view:
        case Whole(loop=Loop()):
            return {name: name for name in names(view.columns)}
        case Project():
            below = stored_columns(view.input)
            shown = {as_column(o.expr): o.column.name for o in reversed(view.outputs)}
            if below is None or not set(below.values()) <= shown.keys():
                return None
            return {name: shown[own] for name, own in below.items()}
    return None


def step_columns(view: Op) -> tuple[str, ...]:
    """Return the columns by which a change finds the rows that a recursion goes on from."""
    shown = stored_columns(view)
    if shown is None:
        return ()
    loop = _root(view).loop
    assert loop is not None
    own = dict(zip(names(loop.itself.columns), shown.values(), strict=True))
    joins = (op for op in walk(loop.step) if isinstance(op, Join))
    pairs = (pair for op in joins for pair in map(equality, op.on) if pair is not None)
    return tuple(dict.fromkeys(own[name] for pair in pairs for name in pair if name in own))


def change_of_recursion(view: Op, stored: Scan, changed: frozenset[int] | None) -> Op | None:
    """Return the change of a view that shows a recursion; None if it is none."""
    shown = stored_columns(view)
    if shown is None:
        return None
    root = _root(view)
    assert root.loop is not None
    moved = _moved(root.loop, Stored(root, stored, shown), changed)
    if moved is None:
        return Empty(schema(view))
    pairs = zip(root.columns, names(schema(moved)), strict=True)
    named = Project(moved, tuple(Output(c, column(name)) for c, name in pairs))
    plan = simplify(_replaced(view, root, named), changed)
    check_delta_plan(plan, view)
    return plan


def _root(view: Op) -> Whole:
    while isinstance(view, Project):
        view = view.input
    assert isinstance(view, Whole)
    return view


class Stored:
    """The rows of the recursion before the change, as the stream table holds them."""

    def __init__(self, root: Whole, stored: Scan, shown: dict[str, str]) -> None:
        assert root.loop is not None
        self._stored = stored
        pairs = zip(root.loop.itself.columns, names(root.columns), strict=True)
        self._outputs = tuple(Output(c, column(shown[name])) for c, name in pairs)

    def state(self) -> Op:
        """Return them as a part of a state, under the names of the recursion."""
        return Project(self._stored, self._outputs)

    def rows(self) -> Op:
        """Return them as a relation."""
        return After(self.state())


def _moved(loop: Loop, before: Stored, changed: frozenset[int] | None) -> Op | None:
    """ΔR; None if no part of the recursion changed."""
    columns = loop.itself.columns
    once = UnionAll((loop.base, loop.step), columns)
    change = _with(simplify(derive(once), changed), loop.itself, before.state())
    if isinstance(change, Empty):
        return None
    gone = lost_rows(loop, change, before)
    found = found_rows(loop, change, gone, before)
    came = AntiJoin(found, _other(before.rows()), _same(columns))
    left = AntiJoin(gone, _other(found), _same(columns))
    return UnionAll((came, Negate(left)), columns)


def lost_rows(loop: Loop, change: Op, before: Stored) -> Fixpoint:
    """D = μ X. R⁻ ⋉ (lost ⊎ step⁺(X))."""
    itself = replace(loop.itself, name=_LOST)
    step = After(_with(loop.step, loop.itself, itself))
    parts = (_named(one_way(change, going=True), itself.columns), _named(step, itself.columns))
    base, further = (SemiJoin(p, _other(before.rows()), _same(itself.columns)) for p in parts)
    return Fixpoint(base, further, itself)


def kept_rows(gone: Op, before: Stored) -> Op:
    """K = R⁻ ▷ D."""
    rows = before.rows()
    return AntiJoin(rows, _other(gone), _same(schema(rows)))


def found_rows(loop: Loop, change: Op, gone: Op, before: Stored) -> Fixpoint:
    """N = μ X. (T⁺(K) ⋉ C ⊎ step⁺(X)) ▷ K."""
    kept = kept_rows(gone, before)
    itself = replace(loop.itself, name=_FOUND)
    columns = itself.columns
    base = After(_named(loop.base, columns))
    once = UnionAll((base, _named(_over(loop.step, loop.itself, kept), columns)), columns)
    # Each for itself: a row that a derivation lost and that is lost must not add up to nothing.
    asked = UnionAll((Keys(change, names(columns)), gone), columns)
    derived = Restrict(once, names(columns), Keys(asked, names(columns)))
    step = _named(After(_with(loop.step, loop.itself, itself)), columns)
    first, further = (Outside(part, before.rows(), gone) for part in (derived, step))
    return Fixpoint(first, further, itself)


def one_way(op: Op, *, going: bool) -> Op:  # noqa: PLR0911 - one case per node
    """Return the rows of a change that have a derivation which goes, or comes, whatever their sum.

    A derivation goes where one of the rows that it is made of goes; so the sign is asked for below
    everything that adds up rows of different origin. It may find more than went, never less.
    """
    match op:
        case After():
            return Empty(schema(op)) if going else op
        case Negate():
            return one_way(op.input, going=not going)
        case UnionAll():
            return replace(op, inputs=tuple(one_way(arm, going=going) for arm in op.inputs))
        case Project() | Filter() | Expand() | Repeat() | Restrict():
            return replace(op, input=one_way(op.input, going=going))
        case SemiJoin() | AntiJoin():
            return replace(op, left=one_way(op.left, going=going))
        case Join():
            return _joined_one_way(op, going=going)
    return OneWay(op, going)


def _joined_one_way(op: Join, *, going: bool) -> Op:
    """Weights multiply: a pair goes if one of both goes and the other comes or stays."""
    terms = (
        replace(op, left=one_way(op.left, going=a), right=one_way(op.right, going=a != going))
        for a in (True, False)
    )
    return UnionAll(tuple(terms), schema(op))


def _with(op: Op, itself: Itself, new: Op) -> Op:
    """Put something else where the recursion is read."""
    return bottom_up(op, lambda node: new if node == itself else node)


def _over(op: Op, itself: Itself, new: Op) -> Op:
    """The step over other rows, with its sources after the change."""
    if op == itself:
        return new
    if itself not in walk(op):
        return After(op)
    return rebuild(op, lambda child: _over(child, itself, new))


def _named(op: Op, columns: Schema) -> Op:
    pairs = zip(columns, names(schema(op)), strict=True)
    return Project(op, tuple(Output(c, column(name)) for c, name in pairs))


def _other(op: Op) -> Op:
    """The same rows under other names, for the right side of a comparison."""
    made = (Column(_aside(c.name), c.type, c.nullable) for c in schema(op))
    return _named(op, tuple(made))


def _aside(name: str) -> str:
    return f"__other {name}"


def _same(columns: Schema) -> tuple[Expr, ...]:
    """Two rows are the same, NULL equal to NULL."""
    words = {True: " IS NOT DISTINCT FROM ", False: " = "}
    return tuple(text(column(c.name), words[c.nullable], column(_aside(c.name))) for c in columns)


def _replaced(op: Op, old: Op, new: Op) -> Op:
    return new if op is old else rebuild(op, lambda child: _replaced(child, old, new))
