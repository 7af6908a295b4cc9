"""The change of a view whose outermost operator is keyed, by what is stored of it.

Δf(A) = f(A⁺ ⋉ K) ⊖ f(A⁻ ⋉ K), and f(A⁻ ⋉ K) stands in the stream table: the rows of the touched
keys, if the view shows its keys. That spares the state before the change, which is dear where K is
everything: a window without PARTITION BY, ORDER BY … LIMIT. Recursion is followed by its own rule
where that is known (`recursion.py`), else computed as a whole.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.algebra.expr import as_column
from headwater.algebra.ops import (
    After,
    Empty,
    Filter,
    Keys,
    Negate,
    Op,
    Project,
    Restrict,
    Scan,
    UnionAll,
    Whole,
    Window,
    schema,
)
from headwater.algebra.walk import rebuild
from headwater.delta.recursion import change_of_recursion
from headwater.delta.registry import derive
from headwater.delta.simplify import simplify
from headwater.delta.verify import check_delta_plan


def shown_keys(view: Op) -> tuple[str, ...] | None:
    """Return the columns that show the keys of the outermost keyed operator.

    None if there is none that is taken here, or if a key is not shown.
    """
    match view:
        case Whole():
            return ()
        case Window(keys=keys):
            return keys
        case Filter():
            return shown_keys(view.input)
        case Project():
            below = shown_keys(view.input)
            shown = {as_column(o.expr): o.column.name for o in reversed(view.outputs)}
            if below is None or not set(below) <= shown.keys():
                return None
            return tuple(shown[key] for key in below)
    return None


def change_from_stored(view: Op, stored: Scan, changed: frozenset[int] | None) -> Op | None:
    """Return the change of a view by what `stored` holds of it; None if it cannot be told so."""
    keys = shown_keys(view)
    if keys is None:
        return None
    recursion = change_of_recursion(view, stored, changed)
    if recursion is not None:
        return recursion
    root = _root(view)
    touched = simplify(_touched(root), changed)
    if isinstance(touched, Empty):
        return Empty(schema(view))
    after = _replaced(view, root, _after(root, touched))
    before = Restrict(After(stored), keys, touched)
    plan = simplify(UnionAll((after, Negate(before)), schema(view)), changed)
    check_delta_plan(plan, view)
    return plan


def _root(view: Op) -> Window | Whole:
    while isinstance(view, Filter | Project):
        view = view.input
    assert isinstance(view, Window | Whole)
    return view


def _touched(root: Window | Whole) -> Op:
    """The keys that a change touches; of a whole query one without columns, if anything changed."""
    if isinstance(root, Window):
        return Keys(derive(root.input), root.keys)
    arms = tuple(Keys(derive(i), ()) for i in root.inputs)
    return Keys(UnionAll(arms, ()), ()) if arms else Empty(())


def _after(root: Window | Whole, touched: Op) -> Op:
    if isinstance(root, Window):
        return replace(root, input=Restrict(After(root.input), root.keys, touched))
    return Restrict(replace(root, inputs=tuple(map(After, root.inputs))), (), touched)


def _replaced(op: Op, old: Op, new: Op) -> Op:
    return new if op is old else rebuild(op, lambda child: _replaced(child, old, new))
