"""One changed row, followed by short statements: what most transactions do.

A short statement carries its own test, and finds no row where it would not be right: a new group, a
row that moves between groups, one that a filter now lets through. Then the statement for any change
follows. It comes to the same result whether or not the short one would have been enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from headwater.algebra.calls import Call
from headwater.algebra.expr import as_column, equality, refs
from headwater.algebra.ops import Filter, Join, Op, Project, Scan, schema
from headwater.algebra.prune import prune
from headwater.algebra.schema import Column, Schema, names
from headwater.algebra.walk import scans, walk
from headwater.delta.differentiate import differentiate
from headwater.postgres.immediate_groups import Groups, is_shown, overwriting, variables
from headwater.postgres.immediate_rows import rows_of
from headwater.postgres.immediate_view import source_columns
from headwater.postgres.maintenance import Maintenance
from headwater.postgres.quote import equal, expression, identifier, image, listed
from headwater.postgres.target import Target

# Types that a variable may have in a list of several: not so composite types, whose kind the name
# does not tell.
_SCALARS = frozenset(
    ("smallint", "integer", "bigint", "numeric", "real", "double precision", "boolean", "uuid",
     "text", "character varying", "character", "bytea", "date", "interval", "jsonb",
     "time without time zone", "timestamp without time zone", "timestamp with time zone")
)  # fmt: skip


def _is_scalar(column: Column) -> bool:
    return re.sub(r"\(.*?\)", "", column.type.name) in _SCALARS


@dataclass(frozen=True, slots=True)
class Short:
    """How one changed row is followed.

    Its values are looked up together with the number of rows: `look` has them as SQL over the row
    that goes (`o`) and the row that comes (`n`), with their types. `source` is what they are read
    from, the transition tables unless it is given. If `__pgt_same` is among them, the statement is
    right only if that holds.
    """

    statement: str
    then: tuple[str, ...] = ()
    look: dict[str, tuple[str, str]] = field(default_factory=dict)
    source: str | None = None
    idle: str | None = None  # when nothing is to be done
    is_certain: bool = False  # whatever the statement finds


def short_group(groups: Groups, target: Target, event: str, rest: Iterable[str]) -> Short | None:
    """Return how one row of one table moves one group; None if rows are joined or multiplied.

    `rest` are the lines that take a group away, given its key.
    """
    root = groups.root
    plain = all(isinstance(op, Scan | Filter | Project) for op in walk(root.input))
    if not plain or not all(map(_is_scalar, groups.keys)) or (event == "update" and not root.calls):
        return None
    at, by = _variables(groups), [f"__pgt_by_{n}" for n in range(len(root.calls))]
    there = f"{at[root.count.name]} > 0"
    if groups.shown.conjuncts:
        there = f"(SELECT {is_shown(groups)} FROM (SELECT {_named(at)}) AS q)"
    keys = (
        f"{variable} := ARRAY[{at[key]}];"
        for variable, key in zip(variables(groups), root.keys, strict=True)
    )
    hidden = (*keys, f"__pgt_damaged := ({at[root.count.name]} < 0)::int;", *rest)
    then = (f"IF {there} THEN", *_shown(groups, target, at), "ELSE", *hidden, "END IF;")
    return Short(
        _added(groups, target, event, at, by),
        then,
        _look(groups, event, at, by),
        _source(groups, event),
        " AND ".join(f"{variable} = 0" for variable in by) if event == "update" else None,
    )


def _variables(groups: Groups) -> dict[str, str]:
    """Return the variable for each column of the state."""
    return {c.name: f"__pgt_at_{n}" for n, c in enumerate(_state_columns(groups))}


def _state_columns(groups: Groups) -> Schema:
    root = groups.root
    return (*groups.keys, root.count, *(call.column for call in root.calls))


def _typed(column: Column) -> str:
    collate = f" COLLATE {column.type.collation}" if column.type.collation else ""
    return f"{column.type.name}{collate}"


def state_variables(groups: Groups) -> dict[str, str]:
    """Return the variables that hold one group of the state, with their types."""
    return {f"__pgt_at_{n}": _typed(c) for n, c in enumerate(_state_columns(groups))}


def _named(at: dict[str, str]) -> str:
    return listed(f"{variable} AS {identifier(name)}" for name, variable in at.items())


def _source(groups: Groups, event: str) -> str:
    """Return the row that goes and the one that comes, as the groups see them."""
    (scan,) = scans(groups.root.input)
    change = differentiate(groups.root.input, frozenset({scan.source.oid}))
    sides = {"insert": "n", "delete": "o", "update": "on"}[event]
    tables = {"n": "new_rows", "o": "old_rows"}
    return listed(f"({rows_of(change, tables[side])}) AS {side}" for side in sides)


def _look(
    groups: Groups, event: str, at: dict[str, str], by: list[str]
) -> dict[str, tuple[str, str]]:
    """Return the key of the group, by how much its sums move, and whether the row stays in it."""
    side = "o" if event == "delete" else "n"
    found = {at[c.name]: (f"{side}.{identifier(c.name)}", _typed(c)) for c in groups.keys}
    for variable, call in zip(by, groups.root.calls, strict=True):
        found[variable] = _moved(call, event), call.column.type.name
    if event == "update":
        tests = (equal(f"o.{n}", f"n.{n}", k) for n, k in _identified(groups.keys))
        found["__pgt_same"] = " AND ".join(tests), "boolean"
    return found


def _moved(call: Call, event: str) -> str:
    """Return by how much one row moves a sum."""
    column = identifier(str(as_column(call.expr)))
    new, old = (f"coalesce({side}.{column}, 0)::{call.column.type.name}" for side in "no")
    return {"insert": new, "delete": f"- {old}", "update": f"{new} - {old}"}[event]


def _added(groups: Groups, target: Target, event: str, at: dict[str, str], by: list[str]) -> str:
    """Return the UPDATE of the group, and of the variables by what it comes to."""
    root = groups.root
    pairs = zip(root.calls, by, strict=True)
    sets = {identifier(call.column.name): f"+ {variable}" for call, variable in pairs}
    if event != "update":
        sets[identifier(root.count.name)] = "+ 1" if event == "insert" else "- 1"
    tests = (equal(f"m.{n}", at[k.name], k) for n, k in _identified(groups.keys))
    values = [name for name in at if name not in root.keys]
    return (
        f"UPDATE {target.state} AS m SET {listed(f'{n} = m.{n} {v}' for n, v in sets.items())}"
        f" WHERE {' AND '.join(tests)} RETURNING {listed(f'm.{identifier(n)}' for n in values)}"
        f" INTO {listed(at[n] for n in values)}"
    )


def _shown(groups: Groups, target: Target, at: dict[str, str]) -> list[str]:
    """Return the lines that overwrite the row of a group, or bring it."""
    values = listed(
        f"{expression(groups.shown.values[c.name])} AS {identifier(c.name)}" for c in target.columns
    )
    made = f"SELECT {values} FROM (SELECT {_named(at)}) AS q"
    others = tuple(c for c in target.columns if c.name not in groups.key)
    columns = listed(identifier(c.name) for c in target.columns)
    conflict = f"ON CONFLICT ({listed(map(identifier, groups.key))}) {overwriting(others)}"
    insert = f"INSERT INTO {target.name} AS t ({columns}) {made} WHERE TRUE {conflict};"
    if not others:
        return [insert]
    of = {c.name: c for c in groups.keys}
    found = " AND ".join(
        equal(f"t.{identifier(name)}", at[key], of[key]) for name, key in groups.key.items()
    )
    update = (
        f"{_overwritten(target, others)} FROM ({made}) AS e WHERE {found} AND {_differs(others)};"
    )
    return [update, "IF NOT FOUND THEN", insert, "END IF;"]


def _overwritten(target: Target, columns: Schema) -> str:
    return (
        f"UPDATE {target.name} AS t SET {listed(f'{n} = e.{n}' for n, _ in _identified(columns))}"
    )


def _differs(columns: Schema) -> str:
    pairs = ((image(f"t.{n}", c), image(f"e.{n}", c)) for n, c in _identified(columns))
    return f"({' OR '.join(f'{old} IS DISTINCT FROM {new}' for old, new in pairs)})"


def _identified(columns: Schema) -> list[tuple[str, Column]]:
    return [(identifier(c.name), c) for c in columns]


def short_rows(plan: Maintenance, target: Target, oid: int, event: str) -> Short | None:
    """Return how one row of one source moves rows of a projection or join that it is in once.

    Not for a self-join, where one row may be on both sides.
    """
    found = [scan for scan in scans(plan.view) if scan.source.oid == oid]
    passing = all(isinstance(op, Scan | Filter | Project | Join) for op in walk(plan.view))
    if len(found) != 1 or not passing:
        return None
    if event == "insert":
        return _inserted(plan, target, oid) if len(scans(plan.view)) > 1 else None
    own = {name: _attribute(plan.view, name, oid) for name in plan.key or ()}
    attributes = {name: attribute for name, attribute in own.items() if attribute is not None}
    is_own = len(attributes) == len(own) and all(map(_is_scalar, target.key_columns))
    if not own or (event == "delete" and not is_own):
        return None
    if event == "delete":
        return _deleted(plan, target, oid, attributes)
    key_images = {c.name for c in target.key_columns if c.type.is_image}
    others = tuple(c for c in target.columns if c.name not in key_images)
    if is_own:
        return _updated(plan, target, oid, others, _same_key(target, attributes))
    moved = tuple(c for c in others if _reads(plan.view, c.name, oid))
    return _updated(plan, target, oid, moved, _same_place(plan, oid))


def _reads(op: Op, name: str, oid: int) -> bool:
    """Tell whether a column of the view is made from columns of the source."""
    match op:
        case Scan():
            return op.source.oid == oid
        case Project():
            exprs = {o.column.name: o.expr for o in op.outputs}
            return any(_reads(op.input, below, oid) for below in refs(exprs[name]))
        case Join():
            return _reads(op.left if name in names(schema(op.left)) else op.right, name, oid)
        case Filter():
            return _reads(op.input, name, oid)
    return True


def _row(plan: Maintenance, oid: int) -> tuple[str, dict[str, tuple[str, str]]]:
    """Return the row that came as a relation, of variables if it can be, and what to look up.

    The planner folds what it knows about a variable, also what a filter would have kept away from
    an error: so views with expressions read the transition table.
    """
    if not _is_bare(plan.view) or not all(map(_is_scalar, source_columns(plan.view)[oid])):
        return "new_rows", {}
    named, look = [], {}
    for number, column in enumerate(source_columns(plan.view)[oid]):
        variable, name = f"__pgt_row_{number}", identifier(column.name)
        named.append(f"{variable} AS {name}")
        look[variable] = f"n.{name}", _typed(column)
    return f"(SELECT {listed(named)}) AS r", look


def _is_bare(view: Op) -> bool:
    """Tell whether the view only joins by equality and names columns."""
    for op in walk(view):
        match op:
            case Filter():
                return False
            case Join() if not all(map(equality, op.on)):
                return False
            case Project() if any(as_column(o.expr) is None for o in op.outputs):
                return False
    return True


def _inserted(plan: Maintenance, target: Target, oid: int) -> Short:
    row, look = _row(plan, oid)
    columns = listed(identifier(c.name) for c in target.columns)
    came = rows_of(differentiate(plan.view, frozenset({oid})), row)
    return Short(f"INSERT INTO {target.name} ({columns}) {came}", look=look, is_certain=True)


def _attribute(op: Op, name: str, oid: int) -> str | None:
    """Return the column of the source that a column of the view is; None if it is another's."""
    match op:
        case Scan():
            of = dict(zip(names(op.columns), op.attributes, strict=True))
            return of.get(name) if op.source.oid == oid else None
        case Filter():
            return _attribute(op.input, name, oid)
        case Project():
            exprs = {o.column.name: o.expr for o in op.outputs}
            below = as_column(exprs[name])
            return _attribute(op.input, below, oid) if below is not None else None
        case Join():
            side = op.left if name in names(schema(op.left)) else op.right
            return _attribute(side, name, oid)
    return None


def _deleted(plan: Maintenance, target: Target, oid: int, attributes: dict[str, str]) -> Short:
    """The key of the row that goes is the key of the only row that it is in."""
    types = {c.name: _typed(c) for c in source_columns(plan.view)[oid]}
    tests, look = [], {}
    for number, column in enumerate(target.key_columns):
        variable, attribute = f"__pgt_row_{number}", attributes[column.name]
        look[variable] = f"o.{identifier(attribute)}", types[attribute]
        tests.append(equal(f"t.{identifier(column.name)}", variable, column))
    return Short(f"DELETE FROM {target.name} AS t WHERE {' AND '.join(tests)}", look=look)


def _same_key(target: Target, attributes: dict[str, str]) -> str:
    """Test that the row keeps its key: then it was, and is, in one row of the view at most."""
    named = [(identifier(attributes[c.name]), c) for c in target.key_columns]
    return " AND ".join(equal(f"o.{a}", f"n.{a}", c) for a, c in named)


def _same_place(plan: Maintenance, oid: int) -> str:
    """Test that the row keeps all that decides which rows of the view it is in."""
    assert plan.key is not None
    deciding = prune(plan.view, frozenset(plan.key))
    scan = next(scan for scan in scans(deciding) if scan.source.oid == oid)
    pairs = [(identifier(a), c) for a, c in zip(scan.attributes, scan.columns, strict=True)]
    tests = (f"{image(f'o.{a}', c)} IS NOT DISTINCT FROM {image(f'n.{a}', c)}" for a, c in pairs)
    return " AND ".join(tests) or "TRUE"


def _updated(
    plan: Maintenance, target: Target, oid: int, others: Schema, same: str
) -> Short | None:
    if not others:
        return None
    row, look = _row(plan, oid)
    came = rows_of(differentiate(plan.view, frozenset({oid})), row)
    found = " AND ".join(equal(f"t.{n}", f"e.{n}", c) for n, c in _identified(target.key_columns))
    return Short(
        f"{_overwritten(target, others)} FROM ({came}) AS e WHERE {found} AND {_differs(others)}",
        look=look | {"__pgt_same": (same, "boolean")},
    )
