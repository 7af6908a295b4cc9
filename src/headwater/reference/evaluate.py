"""Operator trees to Z-sets, straight from the definition of each operator.

Nothing here is clever: joins are nested loops. What stands in several places is evaluated once.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product, zip_longest
from typing import Any

from headwater.algebra.calls import WRITTEN_OUT, Call, Kind
from headwater.algebra.expr import Expr, Ref, template
from headwater.algebra.ops import (
    After,
    Aggregate,
    AntiJoin,
    Before,
    Consolidate,
    Delta,
    Empty,
    Expand,
    Filter,
    Fixpoint,
    Join,
    Keys,
    Negate,
    OneWay,
    Op,
    Picked,
    Project,
    Repeat,
    Restrict,
    Scan,
    SemiJoin,
    Single,
    Source,
    Timed,
    UnionAll,
    Whole,
    Window,
    schema,
)
from headwater.algebra.outside import Outside
from headwater.algebra.schema import names
from headwater.algebra.walk import bottom_up
from headwater.errors import bug
from headwater.reference.expressions import (
    EXPANDED,
    FRAMED,
    RANKED,
    WHOLE,
    aggregate_function,
    compute,
    holds,
    place,
    unknown,
)
from headwater.reference.zset import Row, Value, Zset, add, collect, difference, negate

_ITSELF = -1  # what a recursion has found so far, as a source


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
    known: dict[tuple[Op, When], Zset] = field(default_factory=dict, compare=False, repr=False)


def evaluate(op: Op, db: Database, when: When = When.AFTER) -> Zset:
    """Return the value of a view tree in one state, or of a delta tree, which names its states."""
    if type(op) not in OPERATORS:
        raise bug(f"{type(op).__name__} cannot be evaluated", "the oracle does not know it")
    if (op, when) not in db.known:
        db.known[op, when] = OPERATORS[type(op)](op, db, when)
    return db.known[op, when]


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
    return collect((row, weight) for values, row, weight in found if holds(op.conjuncts, values))


def _timed(op: Timed, db: Database, when: When) -> Zset:
    tests = op.past if when is When.BEFORE else op.conjuncts
    found = _rows(op.input, db, when)
    return collect((row, weight) for values, row, weight in found if holds(tests, values))


def _expand(op: Expand, db: Database, when: When) -> Zset:
    """Functions side by side, the shorter ones padded with NULLs; then the number of the row."""
    entries: list[tuple[Row, int]] = []
    for values, row, weight in _rows(op.input, db, when):
        lists = [_expanded(function, values) for function in op.functions]
        for number, made in enumerate(zip_longest(*lists), 1):
            entries.append(((*row, *made, *((number,) if op.numbered else ())), weight))
    return collect(entries)


def _expanded(expr: Expr, values: Mapping[str, Value]) -> list[Value]:
    if template(expr) not in EXPANDED:
        raise unknown(template(expr), EXPANDED)
    return EXPANDED[template(expr)](*_arguments(expr, values))


def _arguments(expr: Expr, values: Mapping[str, Value]) -> Row:
    return tuple(values[part.name] for part in expr.parts if isinstance(part, Ref))


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
        if holds(op.on, dict(zip(columns, left + right, strict=True))):
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
    if call.kind in WRITTEN_OUT:
        return aggregate_function(call.expr)(copies)
    present = [v for (v,) in copies if v is not None]
    extremum: Value = (min if call.kind is Kind.MIN else max)(present, default=None)
    return extremum


def _window(op: Window, db: Database, when: When) -> Zset:
    partitions: dict[Row, list[tuple[dict[str, Value], Row]]] = {}
    for values, row, weight in _rows(op.input, db, when):
        if weight < 0:
            raise bug(
                f"a window over {row} times {weight}", "a partition of negative rows is no bag"
            )
        key = tuple(values[name] for name in op.keys)
        partitions.setdefault(key, []).extend([(values, row)] * weight)
    return add(*(_windowed(op, rows) for rows in partitions.values()))


def _windowed(op: Window, rows: list[tuple[dict[str, Value], Row]]) -> Zset:
    """Return the rows of one partition with the values of its calls."""
    results = [_over(call.expr, len(op.keys), op.order, rows) for call in op.calls]
    numbered = enumerate(rows)
    return collect(((*row, *(result[at] for result in results)), 1) for at, (_, row) in numbered)


def _over(
    expr: Expr, keys: int, order: tuple[Expr, ...], rows: list[tuple[dict[str, Value], Row]]
) -> list[Value]:
    """Return the values of one call; the default frame ends with the rows that sort as a row does.

    After the arguments come the columns of the partition, then those that the window sorts by.
    """
    function, _, _ = template(expr).partition(" OVER ")
    if function not in {**FRAMED, **RANKED}:
        raise unknown(template(expr), [*FRAMED, *RANKED])
    count = function.count("{}")
    found = [_arguments(expr, values) for values, _ in rows]
    sorts = [place(refs[count + keys :]) for refs in found]
    if function in FRAMED:
        frames = (
            [r[:count] for r, s in zip(found, sorts, strict=True) if s <= own] for own in sorts
        )
        return [FRAMED[function](frame) for frame in frames]
    ties = [place(compute(item, values) for item in order) for values, _ in rows]
    places = [(s, t, at) for at, (s, t) in enumerate(zip(sorts, ties, strict=True))]
    if function == "row_number()":
        _refuse_ties([(s, t, row) for (s, t, _), (_, row) in zip(places, rows, strict=True)])
    return [
        RANKED[function](sum(other < own for other in places), sum(s < own[0] for s in sorts))
        for own in places
    ]


def _refuse_ties(placed: list[tuple[object, object, Row]]) -> None:
    seen: dict[object, Row] = {}
    for sort, tie, row in placed:
        if seen.setdefault((sort, tie), row) != row:
            raise bug("row_number() in an order that leaves ties", "they would fall in any order")


def _whole(op: Whole, db: Database, when: When) -> Zset:
    said = "".join(f"#{part}" if isinstance(part, int) else part for part in op.sql)
    if said not in WHOLE:
        raise unknown(said, WHOLE)
    inputs = [evaluate(one, db, when) for one in op.inputs]
    if any(weight < 0 for rows in inputs for weight in rows.values()):
        raise bug(f"a query over {inputs}", "negative rows are no bag")
    return WHOLE[said](*inputs)


def _fixpoint(op: Fixpoint, db: Database, when: When) -> Zset:
    """Put in what was found so far as a table, until nothing is new."""
    columns = op.itself.columns
    scan = Scan(Source(_ITSELF, op.itself.name), columns, names(columns))
    step = bottom_up(op.step, lambda node: scan if node == op.itself else node)
    found = set(evaluate(op.base, db, when))
    while True:
        table = {_ITSELF: Table(names(columns), dict.fromkeys(found, 1))}
        states = Database({**db.before, **table}, {**db.after, **table}, dict(db.known))
        more = set(evaluate(step, states, when))
        if more <= found:
            return dict.fromkeys(found, 1)
        found |= more


def _outside(op: Outside, db: Database, when: When) -> Zset:
    known, lost = (set(evaluate(side, db, when)) for side in (op.known, op.lost))
    rows = evaluate(op.input, db, when)
    return {row: weight for row, weight in rows.items() if row not in known - lost}


def _one_way(op: OneWay, db: Database, when: When) -> Zset:
    rows = evaluate(op.input, db, when)
    return {row: 1 for row, weight in rows.items() if (weight < 0) is op.going}


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
    Timed: _timed,
    Expand: _expand,
    Repeat: _repeat,
    UnionAll: _union_all,
    Join: _join,
    AntiJoin: _anti_join,
    Aggregate: _aggregate,
    Window: _window,
    Whole: _whole,
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
    Fixpoint: _fixpoint,
    OneWay: _one_way,
    Outside: _outside,
}
