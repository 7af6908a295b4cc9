"""Correlated queries: what a query gives for each value of what it reads from outside.

Let L be the rows outside, P the columns of L that a query Q reads. Instead of running Q for each
row, it is lowered once, over the *domain* D = δ(π_P(L)) as one more relation of its FROM:

    L × Q(P)  =  L ⋈_P Q(D)

Any set that contains D will do as well, and where P comes from one part of L, that part gives it.

Q(D) carries the columns of D in front of its own, groups by them, counts by them, and so on, so
that it holds Q(p) for every p in D and nothing mixes. P may hold NULLs, which count as equal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwater.algebra.expr import Expr, column, refs, substitute, text
from headwater.algebra.keys import unique_keys
from headwater.algebra.ops import (
    AntiJoin,
    Filter,
    Join,
    Op,
    Output,
    Project,
    SemiJoin,
    passing,
    schema,
)
from headwater.algebra.schema import Column, SqlType, names
from headwater.sql.scope import Scope

if TYPE_CHECKING:
    from headwater.sql.lower import Lowering

_TEXT = SqlType("text", '"default"')


@dataclass(frozen=True, slots=True)
class Outer:
    """The domain of a correlated query, and the outside names that mean its columns.

    `params` are the columns of the domain; a lowered query carries them in front.
    """

    domain: Op
    scope: Scope
    params: tuple[str, ...]
    matches: tuple[Expr, ...]  # what joins the rows outside with the domain
    renamed: dict[str, str]  # columns outside to those of the domain, but for what has no equality
    read: dict[str, Expr]  # how each of them is read there
    everything: Op | None = None  # the domain without the guard that keeps some values from it


def correlate(low: Lowering, op: Op, scope: Scope, wanted: frozenset[str]) -> Outer:
    """Return the domain of a query that reads the wanted columns of `op`."""
    op = narrowed(op, wanted)
    columns = [c for c in schema(op) if c.name in wanted]
    below: list[Output] = []
    matches: list[Expr] = []
    renamed: dict[str, str] = {}
    read: dict[str, Expr] = {}
    above: list[Output] = []
    for own in columns:
        made = low.fresh(own.name, own.type, nullable=own.nullable)
        kept, value, match = _carried(low, own, made)
        below.append(Output(kept, value))
        matches.append(match)
        if own.type.equality is None:  # nothing can be grouped by it
            read[own.name] = _read(kept, made)
            continue
        renamed[own.name], read[own.name] = made.name, column(made.name)
        if kept is not made:
            above.append(Output(made, _read(kept, made)))
    domain: Op = Project(op, tuple(below))
    if not any(key <= wanted for key in unique_keys(op)):
        domain = low.distinct(domain)
    if above:
        domain = Project(domain, (*passing(tuple(b.column for b in below)), *above))
    params, inside = names(schema(domain)), _inside(scope, read)
    return Outer(domain, inside, params, tuple(matches), renamed, read)


def guarded(low: Lowering, op: Op, scope: Scope, wanted: frozenset[str], guard: Expr) -> Outer:
    """Return the domain of a query that is asked only for rows which pass a guard.

    Of other rows nothing may be computed, since it could fail; yet they must find something.
    """
    everything = correlate(low, op, scope, wanted).domain
    own = tuple(c for c in schema(op) if c.name in wanted)
    asking = Project(Filter(op, (guard,)), passing(own))
    return replace(correlate(low, asking, scope, wanted), everything=everything)


def narrowed(op: Op, wanted: frozenset[str]) -> Op:
    """Return the part of `op` that the wanted columns come from, with what it is filtered by.

    It may hold more values than `op` itself, which joins with none of those. In return the domain
    changes with that part alone, and is often unique there.
    """
    match op:
        case Filter():
            found = narrowed(op.input, wanted)
            known = set(names(schema(found)))
            kept = tuple(c for c in op.conjuncts if refs(c) <= known)
            return Filter(found, kept) if kept else found
        case SemiJoin() | AntiJoin():
            return narrowed(op.left, wanted)
        case Join():
            for side in (op.left, op.right):
                if wanted <= set(names(schema(side))):
                    return narrowed(side, wanted)
    return op


def carried(op: Op, outer: Outer) -> Op:
    """Give the columns of the domain, which come first, their own names again."""
    own = schema(op)
    if names(own)[: len(outer.params)] == outer.params:
        return op
    params = zip(schema(outer.domain), own, strict=False)
    rest = passing(own[len(outer.params) :])
    return Project(op, (*(Output(p, column(c.name)) for p, c in params), *rest))


def _carried(low: Lowering, own: Column, made: Column) -> tuple[Column, Expr, Expr]:
    """Return how a parameter stands in the domain, its value, and what matches it.

    Values that are equal but not the same, such as 1.0 and 1.00, go by their text: a query may tell
    them apart. So do those of types without equality, such as json.
    """
    if own.type.is_image:
        return made, column(own.name), same_value(own, made)
    kept = low.fresh(f"{own.name}_text", _TEXT, nullable=own.nullable)
    image = text("(", column(own.name), ")::text")
    return kept, image, text(image, " IS NOT DISTINCT FROM ", column(kept.name))


def _read(kept: Column, made: Column) -> Expr:
    return text("(", column(kept.name), f")::{made.type.name}")


def same_value(a: Column, b: Column) -> Expr:
    """Tell whether columns of one type, whose equal values are the same, hold the same or NULL."""
    operator = "IS NOT DISTINCT FROM" if a.nullable else a.type.equality
    return text(column(a.name), f" {operator} ", column(b.name))


def _inside(scope: Scope, new: dict[str, Expr]) -> Scope:
    """Keep the names whose columns are in the domain."""

    def kept(offered: dict[str, Expr]) -> dict[str, Expr]:
        known = ((name, expr) for name, expr in offered.items() if refs(expr) <= new.keys())
        return {name: substitute(expr, new) for name, expr in known}

    aliases = {alias: kept(dict(columns)) for alias, columns in scope.aliases.items()}
    return Scope(aliases, kept(dict(scope.merged)), ())
