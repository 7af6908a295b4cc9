"""The groups of a root aggregate, old and new, to the rows of the stream table that go and come.

Above the root stand projections and filters. They are functions of one group, and a group is one
row, so old and new row of a group are a pair as they are: nothing is consolidated or joined.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.algebra.expr import Expr, column, substitute
from headwater.algebra.ops import Aggregate, Filter, Op, Project, schema
from headwater.algebra.schema import names
from headwater.postgres.quote import condition, expression, identifier, image, listed
from headwater.postgres.state import is_there, old_name, values_of
from headwater.postgres.target import Target


@dataclass(frozen=True, slots=True)
class Shown:
    """What a group shows: an expression over the group for each column, and when it shows."""

    values: dict[str, Expr]
    conjuncts: tuple[Expr, ...] = ()


def shown_of(view: Op, root: Aggregate) -> Shown | None:
    """Return what stands above the root as expressions over a group; None if rows are repeated."""
    if view is root:
        return Shown({name: column(name) for name in names(schema(root))})
    match view:
        case Project():
            below = shown_of(view.input, root)
            outputs = {o.column.name: o.expr for o in view.outputs}
            return below and Shown(_over(outputs, below), below.conjuncts)
        case Filter():
            below = shown_of(view.input, root)
            tests = (substitute(c, below.values) for c in view.conjuncts) if below else ()
            return below and Shown(below.values, (*below.conjuncts, *tests))
    return None


def _over(outputs: dict[str, Expr], below: Shown) -> dict[str, Expr]:
    return {name: substitute(expr, below.values) for name, expr in outputs.items()}


def going_key(number: int) -> str:
    """Return the column with a key value of the row that goes."""
    return identifier(f"__key {number}")


def pair_groups(target: Target, root: Aggregate, shown: Shown, new_groups: str) -> str:
    """Return the pairs of old and new rows whose images differ, or of which one is missing.

    A group that is not there, or that a filter hides, may not bear its expressions: a group of no
    rows has no average. So they are looked at only where the row exists.
    """
    olds = {name: column(old_name(name)) for name in values_of(root)}
    before = Shown(
        _over(shown.values, Shown(olds)), tuple(substitute(c, olds) for c in shown.conjuncts)
    )
    marked = (
        f"SELECT *, __row IS NOT NULL AND {_holds(before)} AS __goes,"
        f" {is_there(root, 'n')} AND {_holds(shown)} AS __comes FROM {new_groups} AS n"
    )
    outputs = [
        *(
            f"{expression(before.values[k.name])} AS {going_key(n)}"
            for n, k in enumerate(target.key_columns)
        ),
        *(
            f"CASE WHEN __comes THEN {expression(shown.values[c.name])} END AS {identifier(c.name)}"
            for c in target.columns
        ),
        *(
            f"CASE WHEN __goes THEN {expression(before.values[c.name])} END AS {_was(n)}"
            for n, c in enumerate(target.columns)
        ),
        "__goes",
        "__comes",
    ]
    pairs = f"SELECT {listed(outputs)} FROM ({marked}) AS g WHERE __goes OR __comes"
    images = (
        (image(identifier(c.name), c), image(_was(n), c)) for n, c in enumerate(target.columns)
    )
    differs = " OR ".join(f"{new} IS DISTINCT FROM {old}" for new, old in images)
    return f"SELECT * FROM ({pairs}) AS p WHERE __goes <> __comes OR {differs}"


def _holds(shown: Shown) -> str:
    """Return the test of all filters; NULL counts as false."""
    return f"({condition(shown.conjuncts)}) IS TRUE" if shown.conjuncts else "TRUE"


def _was(number: int) -> str:
    return identifier(f"__was {number}")
