"""FROM to joins, and the names that it brings into scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING

from headwater.algebra.expr import Expr, as_column, column, refs, substitute, text
from headwater.algebra.keys import unique_keys
from headwater.algebra.ops import (
    AntiJoin,
    Join,
    Op,
    Output,
    Project,
    Scan,
    Single,
    UnionAll,
    schema,
)
from headwater.algebra.schema import Column, Schema, names
from headwater.errors import UnsupportedQuery, bug
from headwater.sql.parse import parse_query, refuse
from headwater.sql.relations import Relation
from headwater.sql.scope import WHOLE_ROW, Scope, conjuncts
from headwater.sql.syntax import FromItem, JoinItem, SubqueryItem, TableItem, output_names

if TYPE_CHECKING:
    from headwater.sql.lower import Lowering

Common = Mapping[str, tuple[Callable[[], Op], tuple[str, ...]]]
Bound = tuple[Op, Scope]


def lower_from(low: Lowering, items: tuple[FromItem, ...], common: Common) -> Bound:
    """Return the cross join of the items and their scope; no item at all is a single row."""
    if not items:
        return Single(), Scope({})
    bound = [_item(low, item, common) for item in items]
    return reduce(lambda a, b: (Join(a[0], b[0]), _both(a[1], b[1])), bound)


def _item(low: Lowering, item: FromItem, common: Common) -> Bound:
    match item:
        case TableItem():
            return _table(low, item, common)
        case SubqueryItem():
            op = low.query(item.query, common)
            return op, _aliased(item.alias, item.columns, output_names(item.query), op)
        case JoinItem():
            return _join(low, item, common)


def _table(low: Lowering, item: TableItem, common: Common) -> Bound:
    if item.schema is None and item.name in common:
        make, own = common[item.name]
        op = make()
        return op, _aliased(item.alias, item.columns, own, op)
    relation = low.analysis.relations.get((item.schema, item.name))
    if relation is None and item.schema is None:  # the server does not record dependence on these
        raise UnsupportedQuery(
            f"pg_catalog.{item.name} is a system catalog: its changes cannot be captured",
            "the server fires no triggers on it",
            "use refresh_mode => 'FULL'",
        )
    if relation is None:
        raise bug(f"unknown relation {item.schema}.{item.name}", "it is not in pg_depend")
    if relation.query is not None:
        op = low.query(parse_query(relation.query), {})
        own = tuple(a.name for a in relation.attributes)
        return op, _aliased(item.alias, item.columns, own, op)
    return _scan(low, item, relation)


def _scan(low: Lowering, item: TableItem, relation: Relation) -> Bound:
    if relation.obstacle is not None:
        raise UnsupportedQuery(*relation.obstacle)
    if item.only:
        raise refuse(f"ONLY {relation.source.name}", "capture follows a table with its children")
    live = tuple(a for a in relation.attributes if not a.is_virtual)
    made = tuple(low.fresh(a.name, a.type, nullable=not a.not_null) for a in live)
    shown = dict(zip(relation.attributes, _padded(item.columns, relation), strict=True))
    order = tuple((shown[a], column(c.name)) for a, c in zip(live, made, strict=True))
    op: Op = Scan(relation.source, made, tuple(a.name for a in live))
    offered = dict(order)
    if item.alias in low.whole_rows:
        op = _with_row(low, op, relation)
        offered[WHOLE_ROW] = column(names(schema(op))[-1])
    return op, Scope({item.alias: offered}, {}, order)


def _with_row(low: Lowering, scan: Op, relation: Relation) -> Op:
    """Add the whole row as a column, so that an outer join can pad it with one NULL."""
    columns = schema(scan)
    whole = text("ROW(", *_listed(columns), f")::{relation.source.name}")
    return low.compute(scan, [*((c.name, column(c.name)) for c in columns), ("row", whole)])


def _padded(aliases: tuple[str, ...], relation: Relation) -> tuple[str, ...]:
    own = tuple(a.name for a in relation.attributes)
    return aliases + own[len(aliases) :]


def _listed(columns: Schema) -> list[str | Expr]:
    parts: list[str | Expr] = []
    for at, made in enumerate(columns):
        parts += [", ", column(made.name)] if at else [column(made.name)]
    return parts


def _aliased(alias: str, aliases: tuple[str, ...], own: tuple[str, ...], op: Op) -> Scope:
    shown = aliases + own[len(aliases) :]
    order = tuple((n, column(c)) for n, c in zip(shown, names(schema(op)), strict=True))
    return Scope({alias: dict(order)}, {}, order)


def _both(left: Scope, right: Scope) -> Scope:
    return Scope(
        {**left.aliases, **right.aliases},
        {**left.merged, **right.merged},
        left.order + right.order,
    )


# --- joins ---


def _join(low: Lowering, item: JoinItem, common: Common) -> Bound:
    left, left_scope = _item(low, item.left, common)
    right, right_scope = _item(low, item.right, common)
    scope = _both(left_scope, right_scope)
    if item.using:
        on, scope = _using(item, left_scope, right_scope, (left, right))
    else:
        on = conjuncts(item.on, scope) if item.on is not None else ()
    op: Op = Join(left, right, on)
    if item.kind != "INNER":
        op, renamed = _outer(low, item.kind, Join(left, right, on))
        scope = _substituted(scope, renamed)
    if item.alias is None:
        return op, scope
    shown = item.columns + tuple(n for n, _ in scope.order)[len(item.columns) :]
    order = tuple((n, e) for n, (_, e) in zip(shown, scope.order, strict=True))
    return op, Scope({item.alias: dict(order)}, {}, order)


def _using(
    item: JoinItem, left: Scope, right: Scope, sides: tuple[Op, Op]
) -> tuple[tuple[Expr, ...], Scope]:
    """USING: an equality for each name, and merged columns that come first in `*`.

    A merged column is the value of the side that is there; COALESCE also gives it the common type.
    """
    ours, theirs = dict(left.order), dict(right.order)
    of = {c.name: c for side in sides for c in schema(side)}
    on, merged = [], {}
    for name in item.using:
        a, b = ours[name], theirs[name]
        operator = of[next(iter(refs(a)))].type.equality or "="
        on.append(text(a, f" {operator} ", b) if as_column(a) else text("(", a, ") = ", b))
        first, second = (b, a) if item.kind == "RIGHT" else (a, b)
        merged[name] = text("COALESCE(", first, ", ", second, ")")
    rest = [p for p in left.order + right.order if p[0] not in merged]
    both = _both(left, right)
    aliases = dict(both.aliases)
    if item.using_alias:
        aliases[item.using_alias] = dict(merged)
    scope = Scope(aliases, {**both.merged, **merged}, (*merged.items(), *rest))
    return tuple(on), scope


def _outer(low: Lowering, kind: str, join: Join) -> tuple[Op, dict[str, Expr]]:
    """Lower an outer join to the inner join and NULL-padded anti-joins, matched by position.

    Returns with it where the value of each column of the inner join is now.
    """
    left, right, columns = join.left, join.right, schema(join)
    arms: list[Op] = []
    padded: set[str] = set()
    if kind in ("LEFT", "FULL"):
        arms.append(_pad(low, AntiJoin(left, right, join.on), columns))
        padded |= set(names(schema(right)))
    if kind in ("RIGHT", "FULL"):
        arms.append(_pad(low, AntiJoin(right, left, join.on), columns))
        padded |= set(names(schema(left)))
    made = tuple(
        low.fresh(c.name, c.type, nullable=c.nullable or c.name in padded) for c in columns
    )
    union = UnionAll((join, *arms), made, _outer_key(kind, join, made))
    return union, {c.name: column(m.name) for c, m in zip(columns, made, strict=True)}


def _substituted(scope: Scope, renamed: Mapping[str, Expr]) -> Scope:
    def moved(columns: Mapping[str, Expr]) -> dict[str, Expr]:
        return {name: substitute(expr, renamed) for name, expr in columns.items()}

    aliases = {alias: moved(columns) for alias, columns in scope.aliases.items()}
    order = tuple((name, substitute(expr, renamed)) for name, expr in scope.order)
    return Scope(aliases, moved(scope.merged), order)


def _pad(low: Lowering, kept: AntiJoin, columns: Schema) -> Project:
    own = set(names(schema(kept)))
    outputs = []
    for c in columns:
        expr = column(c.name) if c.name in own else _null(c)
        outputs.append(Output(low.fresh(c.name, c.type), expr))
    return Project(kept, tuple(outputs))


def _null(c: Column) -> Expr:
    """A NULL of the column's type. A domain may refuse one in a cast, but not that of no row."""
    collate = f" COLLATE {c.type.collation}" if c.type.collation else ""
    null = f"NULL::{c.type.name}{collate}"
    is_own_type = "." in c.type.name
    return text(f"(SELECT {null} WHERE FALSE)" if is_own_type else null)


def _outer_key(kind: str, join: Join, made: Schema) -> tuple[str, ...]:
    """A key of the outer join: its arms differ in which side is padded, and a key's own columns
    are never NULL unless an outer join below padded them; then the result counts as a bag."""
    position = {c.name: m.name for c, m in zip(schema(join), made, strict=True)}
    not_null = {c.name for c in schema(join) if not c.nullable}
    left = [k for k in unique_keys(join.left) if k <= not_null]
    right = [k for k in unique_keys(join.right) if k <= not_null]
    keys = [k for k in unique_keys(join) if k <= not_null]
    if kind == "LEFT":
        keys = [k for k in keys if any(own <= k for own in left)]
    elif kind == "RIGHT":
        keys = [k for k in keys if any(own <= k for own in right)]
    else:
        keys = [a | b for a in left for b in right]
    return tuple(sorted(position[name] for name in keys[0])) if keys else ()
