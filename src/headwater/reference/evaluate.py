"""Operator trees to Z-sets, straight from the definition of each operator.

Nothing here is clever: joins are nested loops and states are evaluated anew wherever they stand.
Expressions are PostgreSQL's text, which we do not parse: `FUNCTIONS` knows some by heart.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from headwater.algebra.expr import Expr, Ref, template
from headwater.algebra.ops import (
    After,
    Aggregate,
    AntiJoin,
    Before,
    Call,
    Consolidate,
    Delta,
    Empty,
    Filter,
    Join,
    Keys,
    Kind,
    Negate,
    Op,
    Picked,
    Project,
    Repeat,
    Restrict,
    Scan,
    SemiJoin,
    Single,
    UnionAll,
    schema,
)
from headwater.algebra.schema import names
from headwater.errors import InvalidPlan, bug
from headwater.reference.zset import Row, Value, Zset, add, collect, difference, negate


class When(enum.Enum):
    """A state of the sources."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Table:
    """A source's rows, whose values stand in the order of `attributes`."""

    attributes: tuple[str, ...]
    rows: Zset


@dataclass(frozen=True, slots=True)
class Database:
    """The sources by oid, before and after a change."""

    before: Mapping[int, Table]
    after: Mapping[int, Table]


def evaluate(op: Op, db: Database, when: When = When.AFTER) -> Zset:
    """Return the value of a view tree in one state, or of a delta tree, which names its states."""
    if type(op) not in OPERATORS:
        raise bug(f"{type(op).__name__} cannot be evaluated", "the oracle does not know it")
    return OPERATORS[type(op)](op, db, when)


# --- linear ---


def _scan(op: Scan, db: Database, when: When) -> Zset:
    table = (db.before if when is When.BEFORE else db.after)[op.source.oid]
    at = [table.attributes.index(attribute) for attribute in op.attributes]
    return collect((tuple(row[i] for i in at), weight) for row, weight in table.rows.items())


def _project(op: Project, db: Database, when: When) -> Zset:
    outputs = [output.expr for output in op.outputs]
    return collect(
        (tuple(compute(expr, values) for expr in outputs), weight)
        for values, _, weight in _rows(op.input, db, when)
    )


def _filter(op: Filter, db: Database, when: When) -> Zset:
    found = _rows(op.input, db, when)
    return collect((row, weight) for values, row, weight in found if _holds(op.conjuncts, values))


def _repeat(op: Repeat, db: Database, when: When) -> Zset:
    found = _rows(op.input, db, when)
    return collect((row, weight * _times(op.times, values)) for values, row, weight in found)


def _times(expr: Expr, values: Mapping[str, Value]) -> int:
    number = compute(expr, values)
    return max(number, 0) if isinstance(number, int) else 0


def _union_all(op: UnionAll, db: Database, when: When) -> Zset:
    return add(*(evaluate(arm, db, when) for arm in op.inputs))


def _rows(op: Op, db: Database, when: When) -> Iterable[tuple[dict[str, Value], Row, int]]:
    """Yield each row by column name and as it is, with its weight."""
    columns = names(schema(op))
    for row, weight in evaluate(op, db, when).items():
        yield dict(zip(columns, row, strict=True)), row, weight


# --- joins ---


def _join(op: Join, db: Database, when: When) -> Zset:
    return collect((left + right, a * b) for left, a, right, b in _matches(op, db, when))


def _semi_join(op: SemiJoin, db: Database, when: When) -> Zset:
    return {left: weight for left, weight, _, _ in _matches(op, db, when)}


def _anti_join(op: AntiJoin, db: Database, when: When) -> Zset:
    matched = collect((left, b) for left, _, _, b in _matches(op, db, when))
    left = evaluate(op.left, db, when)
    return {row: weight for row, weight in left.items() if row not in matched}


def _matches(
    op: Join | SemiJoin | AntiJoin, db: Database, when: When
) -> Iterable[tuple[Row, int, Row, int]]:
    """Yield each pair of rows that meets the condition: left row, weight, right row, weight."""
    columns = names(schema(op.left) + schema(op.right))
    sides = (evaluate(side, db, when).items() for side in (op.left, op.right))
    for (left, a), (right, b) in product(*sides):
        if _holds(op.on, dict(zip(columns, left + right, strict=True))):
            yield left, a, right, b


# --- keyed ---


def _aggregate(op: Aggregate, db: Database, when: When) -> Zset:
    columns = names(schema(op.input))
    groups: dict[Row, Zset] = {} if op.keys else {(): {}}
    for values, row, weight in _rows(op.input, db, when):
        groups.setdefault(tuple(values[key] for key in op.keys), {})[row] = weight
    result: Zset = {}
    for key, rows in groups.items():
        count = sum(rows.values())
        if count or not op.keys:
            result[*key, count, *(_called(call, columns, rows) for call in op.calls)] = 1
    return result


def _called(call: Call, columns: tuple[str, ...], rows: Zset) -> Value:
    """Return the value of one aggregate; a sum of nothing is 0, as NULL is made from a count."""
    at = [columns.index(part.name) for part in call.expr.parts if isinstance(part, Ref)]
    entries: list[tuple[Any, int]] = [(tuple(row[i] for i in at), w) for row, w in rows.items()]
    if call.kind is Kind.SUM:
        total: int = sum(v * weight for (v,), weight in entries if v is not None)
        return total
    if any(weight < 0 for _, weight in entries):
        raise bug(f"{call.kind.value} over {entries}", "a group of negative rows is no bag")
    copies = [arguments for arguments, weight in entries for _ in range(weight)]
    if call.kind is Kind.OPAQUE:
        return _aggregate_function(call.expr)(copies)
    present = [v for (v,) in copies if v is not None]
    extremum: Value = (min if call.kind is Kind.MIN else max)(present, default=None)
    return extremum


def _keys(op: Keys, db: Database, when: When) -> Zset:
    found = _rows(op.input, db, when)
    return {tuple(values[name] for name in op.columns): 1 for values, _, _ in found}


def _restrict(op: Restrict, db: Database, when: When) -> Zset:
    keys = evaluate(op.keys, db, when)
    found = _rows(op.input, db, when)
    return {row: w for values, row, w in found if tuple(values[c] for c in op.columns) in keys}


def _picked(op: Picked, db: Database, when: When) -> Zset:
    found = [(str(values[op.column]), row, w) for values, row, w in _rows(op.input, db, when)]
    if op.arrived:
        return {row: w for key, row, w in found if w > 0 and key not in op.values}
    return {row: w for key, row, w in found if key in op.values}


OPERATORS: dict[type[Op], Callable[[Any, Database, When], Zset]] = {
    Scan: _scan,
    Single: lambda op, db, when: {(): 1},
    Project: _project,
    Filter: _filter,
    Repeat: _repeat,
    UnionAll: _union_all,
    Join: _join,
    AntiJoin: _anti_join,
    Aggregate: _aggregate,
    Delta: lambda op, db, when: difference(
        evaluate(op.input, db, When.AFTER), evaluate(op.input, db, When.BEFORE)
    ),
    Before: lambda op, db, when: evaluate(op.input, db, When.BEFORE),
    After: lambda op, db, when: evaluate(op.input, db, When.AFTER),
    Empty: lambda op, db, when: {},
    Negate: lambda op, db, when: negate(evaluate(op.input, db, when)),
    Consolidate: lambda op, db, when: evaluate(op.input, db, when),
    SemiJoin: _semi_join,
    Keys: _keys,
    Restrict: _restrict,
    Picked: _picked,
}


# --- expressions ---


def compute(expr: Expr, values: Mapping[str, Value]) -> Value:
    """Return the value of a scalar expression for one row; NULL is None, truth True or False."""
    if template(expr) not in FUNCTIONS:
        raise _unknown(expr, FUNCTIONS)
    value: Value = FUNCTIONS[template(expr)](
        *(values[part.name] for part in expr.parts if isinstance(part, Ref))
    )
    return value


def _holds(conjuncts: tuple[Expr, ...], values: Mapping[str, Value]) -> bool:
    return all(compute(conjunct, values) is True for conjunct in conjuncts)


def _aggregate_function(expr: Expr) -> Callable[[list[Row]], Value]:
    if template(expr) not in AGGREGATES:
        raise _unknown(expr, AGGREGATES)
    return AGGREGATES[template(expr)]


def _unknown(expr: Expr, known: Iterable[str]) -> InvalidPlan:
    return bug(f"the oracle cannot compute {template(expr)}", f"it knows {sorted(known)}")


def _strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """NULL for a NULL argument, like nearly every operator of SQL."""
    return lambda *arguments: None if None in arguments else function(*arguments)


def _least(*arguments: int | None) -> int | None:
    """LEAST passes over NULLs."""
    return min((a for a in arguments if a is not None), default=None)


def _surplus(a: int | None, b: int | None) -> int:
    """GREATEST(a - b, 0); it passes over NULLs too."""
    return 0 if a is None or b is None else max(a - b, 0)


def _array(copies: list[Row]) -> Value:
    """array_agg(value ORDER BY value), NULLs last; an empty group gives NULL."""
    if any(value != by for value, by in copies):
        raise bug("array_agg ordered by another column", "ties would come in any order")
    values: list[Any] = [value for value, _ in copies]
    return tuple(sorted(values, key=lambda value: (value is None, value))) or None


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "{}": lambda a: a,
    "0": lambda: 0,
    "1": lambda: 1,
    "NULL::integer": lambda: None,
    "NULL::bigint": lambda: None,
    "NULL::numeric": lambda: None,
    "NULL::integer[]": lambda: None,
    "({})::bigint": lambda a: a,
    "({})::numeric": lambda a: a,
    "{} + {}": _strict(lambda a, b: a + b),
    "{} - {}": _strict(lambda a, b: a - b),
    "{} = {}": _strict(lambda a, b: a == b),
    "{} <> {}": _strict(lambda a, b: a != b),
    "{} < {}": _strict(lambda a, b: a < b),
    "{} <= {}": _strict(lambda a, b: a <= b),
    "{} = 0": _strict(lambda a: a == 0),
    "{} > 0": _strict(lambda a: a > 0),
    "{} IS NULL": lambda a: a is None,
    "{} IS NOT NULL": lambda a: a is not None,
    "{} IS NOT DISTINCT FROM {}": lambda a, b: a == b,
    "({} = {}) IS NOT FALSE": lambda a, b: None in (a, b) or a == b,
    "COALESCE({}, 0)": lambda a: 0 if a is None else a,
    "CASE WHEN ({}) IS DISTINCT FROM NULL THEN 1 ELSE 0 END": lambda a: 0 if a is None else 1,
    "LEAST({}, {})": _least,
    "GREATEST({} - {}, 0)": _surplus,
}

# A whole aggregate call, given the arguments of every row of the group, copies included.
AGGREGATES: dict[str, Callable[[list[Row]], Value]] = {
    "count({})": lambda copies: sum(v is not None for (v,) in copies),
    "count(DISTINCT {})": lambda copies: len({v for (v,) in copies if v is not None}),
    "array_agg({} ORDER BY {})": _array,
}
