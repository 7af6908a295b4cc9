"""FROM to joins, and the names that it brings into scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.algebra.expr import Expr, as_column, column, refs, substitute, text
from headwater.algebra.ops import Join, Op, Output, Project, Single, passing, schema
from headwater.algebra.schema import Schema, names
from headwater.errors import UnsupportedQuery, bug
from headwater.sql.calls import hole
from headwater.sql.clock import has_clock
from headwater.sql.correlate import Outer, carried, correlate, same_value
from headwater.sql.expanding import lower_functions
from headwater.sql.lexer import Token, Tokens
from headwater.sql.outer_join import outer_join
from headwater.sql.parse import parse_query, refuse
from headwater.sql.relations import Relation
from headwater.sql.scanning import scanned
from headwater.sql.scope import (
    NOTHING,
    WHOLE_ROW,
    Scope,
    both,
    conjuncts,
    free_columns,
    has_subquery,
    to_expr,
)
from headwater.sql.syntax import (
    FromItem,
    FunctionItem,
    JoinItem,
    Query,
    SubqueryItem,
    TableItem,
    expressions_of,
    mapped,
    output_names,
    tables_of,
)

if TYPE_CHECKING:
    from headwater.sql.lower import Lowering


@dataclass(frozen=True)
class Shared:
    """A common table: its query, the common tables that it sees, and the names of its columns.

    `make` gives the relation of one that is computed as a whole.
    """

    names: tuple[str, ...]
    query: Query
    common: Common
    make: Callable[[], Op] | None = None


Common = Mapping[str, Shared]
Bound = tuple[Op, Scope]


def lower_from(
    low: Lowering, items: tuple[FromItem, ...], common: Common, outer: Outer | None
) -> Bound:
    """Return the cross join of the items and their scope; no item at all is a single row."""
    bound = None if outer is None else (outer.domain, outer.scope)
    for item in items:
        bound = _attach(low, bound, item, common)
    if outer is None or bound is None:
        return bound or (Single(), NOTHING)
    op, scope = bound
    moved = zip(names(schema(op)), outer.params, strict=False)  # an outer join renames its columns
    return carried(op, outer), _substituted(scope, {old: column(new) for old, new in moved})


def _attach(low: Lowering, left: Bound | None, item: FromItem, common: Common) -> Bound:
    """Return the cross join of what stands to the left and an item, which may read from it."""
    wanted = reads_outside(item, left[1], common) if left else None
    if left is None or not (wanted or isinstance(item, FunctionItem)):
        alone = _item(low, item, common)
        return alone if left is None else (Join(left[0], alone[0]), both(left[1], alone[1]))
    match item:
        case FunctionItem():
            return lower_functions(low, left, item, common)
        case JoinItem(kind="INNER" | "LEFT"):
            return _join(low, item, common, left)
    outer = correlate(low, *left, wanted or frozenset())
    inner = renamed_holes(item, outer.renamed)
    if isinstance(inner, JoinItem):
        op, scope = _join_over(low, inner, common, outer)
    else:
        op, scope = _item(low, inner, common, outer)
    return Join(left[0], op, outer.matches), both(left[1], scope)


def reads_outside(part: object, scope: Scope, common: Common) -> frozenset[str]:
    """Return the columns behind outside names that a part of a query reads.

    So do the common tables that it names, if they are made outside.
    """
    found = free_columns(expressions_of(part), scope)
    for name in tables_of(part):
        if name in common and common[name].make is None:
            shared = common[name]
            found |= reads_outside(shared.query, scope, shared.common)
    return found


def renamed_holes(part: Any, renamed: Mapping[str, str]) -> Any:
    """Return a part of a query with its holes for outside columns put to those of the domain."""

    def change(token: Token) -> Token:
        if token.kind != "hole":
            return token
        if token.value not in renamed:
            raise UnsupportedQuery(
                f"a subquery reads the value {token.value} from outside, which has no equality",
                "it is computed there, and cannot be found again by its value",
                "compute it inside of the subquery, or cast it to text outside",
            )
        return hole(renamed[token.value], spaced=token.spaced)

    return mapped(part, change)


def _item(low: Lowering, item: FromItem, common: Common, outer: Outer | None = None) -> Bound:
    match item:
        case TableItem():
            return _table(low, item, common, outer)
        case SubqueryItem():
            op = low.query(item.query, common, outer)
            return op, _aliased(item.alias, item.columns, output_names(item.query), op, outer)
        case FunctionItem():
            return lower_functions(low, (Single(), NOTHING), item, common)
        case JoinItem():
            return _join(low, item, common)


def _table(low: Lowering, item: TableItem, common: Common, outer: Outer | None) -> Bound:
    if item.schema is None and item.name in common:
        shared = common[item.name]
        op = shared.make() if shared.make else low.query(shared.query, shared.common, outer)
        return op, _aliased(item.alias, item.columns, shared.names, op, outer)
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
        return op, _aliased(item.alias, item.columns, own, op, None)
    return _scan(low, item, relation)


def _scan(low: Lowering, item: TableItem, relation: Relation) -> Bound:
    if relation.obstacle is not None:
        raise UnsupportedQuery(*relation.obstacle)
    if item.only:
        raise refuse(f"ONLY {relation.source.name}", "capture follows a table with its children")
    op = scanned(relation, lambda a: low.fresh(a.name, a.type, nullable=not a.not_null))
    shown = _padded(item.columns, relation)
    order = tuple((n, column(c)) for n, c in zip(shown, names(schema(op)), strict=True))
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


def _aliased(
    alias: str, aliases: tuple[str, ...], own: tuple[str, ...], op: Op, outer: Outer | None
) -> Scope:
    shown = aliases + own[len(aliases) :]
    columns = names(schema(op))[len(outer.params) if outer else 0 :]
    order = tuple((n, column(c)) for n, c in zip(shown, columns, strict=True))
    return Scope({alias: dict(order)}, {}, order)


# --- joins ---


def _join(low: Lowering, item: JoinItem, common: Common, start: Bound | None = None) -> Bound:
    """A join, and if it reads from what stands to its left, together with that."""
    left = _attach(low, start, item.left, common)
    wanted = reads_outside(item.right, left[1], common)
    is_function = isinstance(item.right, FunctionItem)
    if item.kind == "INNER" and (wanted or is_function):
        op, scope = _attach(low, left, item.right, common)
        return _shown(item, low.filtered(op, scope, item.on or (), common), scope)
    matches: tuple[Expr, ...] = ()
    if wanted:
        outer = correlate(low, *left, wanted)
        inner = renamed_holes(item.right, outer.renamed)
        right = _attach(low, (outer.domain, outer.scope), inner, common)
        right, matches = (right[0], _only(right[1], left[1])), outer.matches
    else:
        right = _attach(low, None, item.right, common)
    made = _joined(low, item, common, (left, right), matches)
    return made if start is None else _named_as(made, schema(start[0]))


def _named_as(bound: Bound, first: Schema) -> Bound:
    """Give the first columns, which an outer join renamed, the names that holes have for them."""
    op, scope = bound
    now = schema(op)
    outputs = tuple(Output(f, column(c.name)) for f, c in zip(first, now, strict=False))
    back = {c.name: column(f.name) for f, c in zip(first, now, strict=False)}
    return Project(op, (*outputs, *passing(now[len(first) :]))), _substituted(scope, back)


def _join_over(low: Lowering, item: JoinItem, common: Common, outer: Outer) -> Bound:
    """A RIGHT or FULL JOIN that reads from outside: each side over a domain of its own.

    Rows meet where both come from the same values; those without a match have the ones of their
    side.
    """
    twin = _twin(low, outer)
    left = _over(low, item.left, common, outer)
    right = _over(low, renamed_holes(item.right, twin.renamed), common, twin)
    ours, theirs = (_params_of(scope, o) for (_, scope), o in ((left, outer), (right, twin)))
    of = {c.name: c for op, _ in (left, right) for c in schema(op)}
    pairs = [(of[a], of[b]) for a, b in zip(ours.values(), theirs.values(), strict=True)]
    matches = tuple(same_value(a, b) for a, b in pairs if a.type.is_image)  # else its text does
    here = replace(renamed_holes(item, ours), left=item.left, right=item.right, alias=None)
    sides = left, (right[0], _only(right[1], outer.scope))
    op, scope = _joined(low, here, common, sides, matches)
    merged = [
        Output(p, text("COALESCE(", column(a), ", ", column(b), ")"))
        for p, a, b in zip(
            schema(outer.domain),
            _params_of(scope, outer).values(),
            _params_of(scope, twin).values(),
            strict=True,
        )
    ]
    made = Project(op, (*merged, *passing(schema(op))))
    return _shown(item, made, _only(scope, outer.scope))


def _over(low: Lowering, item: FromItem, common: Common, outer: Outer) -> Bound:
    """An item over a domain, whose columns go by an alias that no query can say."""
    own = {name: column(name) for name in outer.params}
    scope = both(outer.scope, Scope({outer.params[0]: own}))
    return _attach(low, (outer.domain, scope), item, common)


def _params_of(scope: Scope, outer: Outer) -> dict[str, str]:
    """Return where the columns of a domain are by now."""
    offered = scope.aliases[outer.params[0]]
    return {name: str(as_column(offered[name])) for name in outer.params}


def _twin(low: Lowering, outer: Outer) -> Outer:
    """Return the same domain with other names."""
    own = [(c, low.fresh(c.name, c.type, nullable=c.nullable)) for c in schema(outer.domain)]
    domain = Project(outer.domain, tuple(Output(new, column(old.name)) for old, new in own))
    moved = {old.name: new.name for old, new in own}
    read = {old: column(new) for old, new in moved.items()}
    return Outer(domain, _substituted(outer.scope, read), names(schema(domain)), (), moved, read)


def _only(scope: Scope, outside: Scope) -> Scope:
    """Forget the names of the domain, which stand for those outside."""
    aliases = {a: c for a, c in scope.aliases.items() if a not in outside.aliases}
    merged = {n: e for n, e in scope.merged.items() if n not in outside.merged}
    return Scope(aliases, merged, scope.order)


def _joined(
    low: Lowering,
    item: JoinItem,
    common: Common,
    sides: tuple[Bound, Bound],
    matches: tuple[Expr, ...],
) -> Bound:
    """Join two sides by ON or USING, and by what makes them match if one reads from the other."""
    left, right = sides
    scope = both(left[1], right[1])
    later: list[Tokens] = []
    if item.using:
        on, scope = _using(item, left[1], right[1], (left[0], right[0]))
    else:
        tests = conjuncts(item.on or ())
        later = [t for t in tests if has_subquery(t) or has_clock(t)]
        on = tuple(to_expr(t, scope) for t in tests if t not in later)
    if item.kind == "INNER":
        op: Op = Join(left[0], right[0], matches + on)
        for test in later:
            op = low.filtered(op, scope, test, common)
        return _shown(item, op, scope)
    for test in later:
        if has_clock(test):
            to_expr(test, scope)  # refuses it
    left, right, marks, later = _marked(low, (left, right), later, common)
    join = Join(left[0], right[0], (*matches, *on, *marks))
    matched: Op | None = join if later else None
    for test in later:
        matched = low.filtered(matched or join, scope, test, common)
    op, renamed = outer_join(low, item.kind, join, matched)
    return _shown(item, op, _substituted(scope, renamed))


def _marked(
    low: Lowering, sides: tuple[Bound, Bound], tests: list[Tokens], common: Common
) -> tuple[Bound, Bound, list[Expr], list[Tokens]]:
    """Compute the subqueries in conditions of an outer join on the side from which they read.

    Returns the conditions with their values, and those whose subqueries read from both sides.
    """
    grown, whole = [*sides], both(sides[0][1], sides[1][1])
    made: list[Expr] = []
    rest: list[Tokens] = []
    for test in tests:
        wanted = free_columns([test], whole)
        own = [n for n, (op, _) in enumerate(sides) if wanted <= set(names(schema(op)))]
        if not own:
            rest.append(test)
            continue
        op, scope = grown[own[0]]
        op, plain = low.without_subqueries(op, scope, test, common)
        grown[own[0]] = (op, scope)
        made.append(to_expr(plain, whole))
    return grown[0], grown[1], made, rest


def _shown(item: JoinItem, op: Op, scope: Scope) -> Bound:
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
    every = both(left, right)
    aliases = dict(every.aliases)
    if item.using_alias:
        aliases[item.using_alias] = dict(merged)
    scope = Scope(aliases, {**every.merged, **merged}, (*merged.items(), *rest))
    return tuple(on), scope


def _substituted(scope: Scope, renamed: Mapping[str, Expr]) -> Scope:
    def moved(columns: Mapping[str, Expr]) -> dict[str, Expr]:
        return {name: substitute(expr, renamed) for name, expr in columns.items()}

    aliases = {alias: moved(columns) for alias, columns in scope.aliases.items()}
    order = tuple((name, substitute(expr, renamed)) for name, expr in scope.order)
    return Scope(aliases, moved(scope.merged), order)
