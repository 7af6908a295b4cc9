"""The change of a view with a key, by computing the touched rows anew and looking at the stored.

Δv = (v⁺ ⋉ K) ⊖ (stored ⋉ K), with K the keys of all rows that a change may touch. That is the keyed
rule at the root of the view: nothing is computed as it was before the change.

K comes from a simpler tree U(v), of which two things hold. At every state each row of v has one in
U(v), and each row that changes in v has one in ΔU(v), equal in the columns that U(v) kept:
    U(γ(A)) = π_keys(U(A)),   U(A ▷ B) = U(A ⋉ B) = U(A) ⊎ π_A(U(A) ⋈ U(B))
and else U goes down the tree, leaving out what hangs on columns that are gone. ΔU(v) is meant row
by row, not summed up: what is left is linear or bilinear, so that its change is a union of terms,
each of which begins with changed rows of a source. A row that changed in a column that is gone is
there twice, and its two weights must not cancel.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.algebra.expr import Expr, as_column, column, equality, refs
from headwater.algebra.ops import (
    After,
    Aggregate,
    AntiJoin,
    Delta,
    Empty,
    Expand,
    Filter,
    Join,
    Keys,
    Negate,
    Op,
    Output,
    Project,
    Repeat,
    Restrict,
    Scan,
    SemiJoin,
    Single,
    UnionAll,
    passing,
    schema,
)
from headwater.algebra.prune import prune
from headwater.algebra.schema import names
from headwater.algebra.walk import rebuild, walk
from headwater.delta.registry import derive
from headwater.delta.simplify import simplify
from headwater.delta.verify import check_delta_plan


def change_by_key(
    view: Op, key: tuple[str, ...], stored: Scan, changed: frozenset[int]
) -> Op | None:
    """Return the change of a view whose rows are those of `stored`; None if K cannot be told."""
    touched = touched_keys(view, key, changed)
    if touched is None:
        return None
    if isinstance(touched, Empty):
        return Empty(schema(view))
    after = Restrict(After(view), key, touched)
    before = Restrict(After(stored), key, touched)
    plan = simplify(UnionAll((after, Negate(before)), schema(view)), changed)
    check_delta_plan(plan, view)
    return plan


def touched_keys(view: Op, key: tuple[str, ...], changed: frozenset[int]) -> Op | None:
    """Return K, for changes of these sources; None if it cannot be told."""
    tree = touching(view)
    if not key or tree is None or not set(key) <= _known(tree):
        return None
    keys = simplify(Keys(derive(prune(tree, frozenset(key))), key), changed)
    return _each_once(
        replace(keys, input=_led(keys.input, key)) if isinstance(keys, Keys) else keys
    )


def _led(op: Op, wanted: tuple[str, ...]) -> Op:
    """Return rows with at least the same values in the wanted columns, with fewer joins: a row that
    changed often tells the key itself, and a key too many costs less than to look."""
    if isinstance(op, UnionAll):
        place = [names(op.columns).index(name) for name in wanted]
        arms = ((arm, tuple(names(schema(arm))[at] for at in place)) for arm in op.inputs)
        led = tuple(_led(arm, own) for arm, own in arms)
        return UnionAll(led, tuple(op.columns[at] for at in place))
    source, found = _source(op, wanted)
    of = {c.name: c for c in schema(op)}
    return Project(
        source, tuple(Output(of[w], column(f)) for w, f in zip(wanted, found, strict=True))
    )


def _source(op: Op, wanted: tuple[str, ...]) -> tuple[Op, tuple[str, ...]]:
    """Return where the values come from at the latest, and how the columns are called there."""
    match op:
        case Project():
            of = {o.column.name: as_column(o.expr) for o in op.outputs}
            below = tuple(b for w in wanted if (b := of[w]) is not None)
            if len(below) == len(wanted):
                return _source(op.input, below)
        case Filter():
            source, found = _source(op.input, wanted)
            kept = tuple(c for c in op.conjuncts if refs(c) <= _known(source))
            return (Filter(source, kept) if kept else source), found
        case Join():
            for side, other in ((op.left, op.right), (op.right, op.left)):
                if not _changes(other) and (own := _on_side(op, side, wanted)) is not None:
                    return _source(side, own)
    return op, wanted


def _on_side(op: Join, side: Op, wanted: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the columns of one side that have the wanted values; None if it does not tell them."""
    of, own = {c.name: c for c in schema(op)}, dict[str, str]()
    for a, b in filter(None, map(equality, op.on)):
        if of[a].type == of[b].type and of[a].type.is_image:
            own |= {a: b, b: a}
    found = tuple(w if w in _known(side) else own.get(w, "") for w in wanted)
    return found if set(found) <= _known(side) else None


def _changes(op: Op) -> bool:
    return any(isinstance(node, Delta) for node in walk(op))


def _each_once(op: Op) -> Op:
    """Take changed rows that agree in all that is read of them once: weights tell no keys.

    Ten images of a document's lines are one number of a document.
    """
    match op:
        case Delta(input=Scan(columns=columns)) if all(c.type.is_image for c in columns):
            return Keys(op, names(columns))
    return rebuild(op, _each_once)


def touching(op: Op) -> Op | None:  # noqa: PLR0911 - one case per node
    """Return U(op); None if a change of it may touch rows that no column tells."""
    match op:
        case Scan() | Single():
            return op
        case Project() | Filter() | Repeat() | Expand() | Aggregate():
            below = touching(op.input)
            return _above(op, below) if below is not None else None
        case Join() | SemiJoin() | AntiJoin():
            left, right = touching(op.left), touching(op.right)
            if left is None or right is None or not _has(op.on, left, right):
                return None
            joined = Join(left, right, op.on)
            if isinstance(op, Join):
                return joined
            return UnionAll((left, Project(joined, passing(schema(left)))), schema(left))
        case UnionAll():
            return _union(op)
    return None


def _above(op: Project | Filter | Repeat | Expand | Aggregate, below: Op) -> Op | None:
    known = _known(below)
    match op:
        case Project():
            return Project(below, tuple(o for o in op.outputs if refs(o.expr) <= known))
        case Filter():
            return Filter(below, tuple(c for c in op.conjuncts if refs(c) <= known))
        case Repeat():
            return below
        case Expand() if _has(op.functions, below):
            return Expand(below, op.functions, op.columns, op.numbered)
        case Aggregate(keys=keys) if keys and set(keys) <= known:
            return Project(below, passing(tuple(c for c in schema(below) if c.name in keys)))
    return None


def _union(op: UnionAll) -> Op | None:
    """Keep the columns that all arms have kept."""
    arms = [(arm, touching(arm)) for arm in op.inputs]
    kept = [
        n
        for n in range(len(op.columns))
        if all(below is not None and names(schema(arm))[n] in _known(below) for arm, below in arms)
    ]
    inputs = []
    for arm, below in arms:
        if below is None:
            return None
        of = {c.name: c for c in schema(below)}
        columns = tuple(of[names(schema(arm))[n]] for n in kept)
        inputs.append(Project(below, passing(columns)))
    return UnionAll(tuple(inputs), tuple(op.columns[n] for n in kept))


def _known(op: Op) -> set[str]:
    return set(names(schema(op)))


def _has(exprs: tuple[Expr, ...], *ops: Op) -> bool:
    return refs(*exprs) <= set[str]().union(*map(_known, ops))
