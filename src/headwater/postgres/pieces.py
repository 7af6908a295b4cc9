"""Parts of statements that depend on the operator: conditions of joins, functions, aggregates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headwater.algebra.calls import WRITTEN_OUT, Call, Kind
from headwater.algebra.expr import Expr, as_column, equality, matching
from headwater.algebra.ops import (
    After,
    AntiJoin,
    Delta,
    Itself,
    Join,
    Op,
    Restrict,
    SemiJoin,
    schema,
)
from headwater.algebra.outside import Outside
from headwater.algebra.schema import Column
from headwater.algebra.walk import children
from headwater.postgres.quote import NEVER, WEIGHT, expression, identifier, listed, same

_TABLES = ("JSON_TABLE", "XMLTABLE")  # not functions to the grammar, so no ROWS FROM


def joined(op: Join | SemiJoin | AntiJoin) -> str:
    """Return the condition of a join; columns that are the same, NULL or not, in hashable form."""
    of = {c.name: c for side in (op.left, op.right) for c in schema(side)}
    return " AND ".join(f"({_compared(conjunct, of)})" for conjunct in op.on) or "TRUE"


def _compared(conjunct: Expr, of: dict[str, Column]) -> str:
    pair = matching(conjunct)
    if pair is None or equality(conjunct) is not None:
        return expression(conjunct)
    left, right = pair
    nullable = of[left].nullable and of[right].nullable
    return same(identifier(left), identifier(right), replace(of[left], nullable=nullable))


def is_change(op: Op) -> bool:
    """Tell whether a relation is a change, and not a state, of which changes may pick the keys."""
    match op:
        case Delta():
            return True
        case After():
            return False
        case Restrict():
            return is_change(op.input)
    return any(map(is_change, children(op)))


def functions_sql(functions: Sequence[Expr], *, numbered: bool) -> str:
    """Return functions in FROM, side by side."""
    calls = [expression(function) for function in functions]
    if calls[0].upper().startswith(_TABLES):
        return calls[0]
    return f"ROWS FROM ({listed(calls)})" + (" WITH ORDINALITY" if numbered else "")


def shown_key(key: Column) -> str:
    """Return what stands for a group: the same of its equal values whenever it is computed."""
    name = identifier(key.name)
    if key.type.is_image:
        return name
    return f"(min(({name})::text))::{key.type.name} AS {name}"


# The least value of a type has no opposite in it: −1 times that would overflow.
WIDER = {"smallint": "bigint", "integer": "bigint", "bigint": "numeric"}


def aggregated(call: Call, of: dict[str, Column], signed: bool) -> str:
    """Return the SQL of one aggregate call; a sum over signed rows weighs them."""
    value = expression(call.expr)
    if call.kind in WRITTEN_OUT:
        return value
    if call.kind is not Kind.SUM:
        return f"{call.kind.value}({value})"
    if signed:
        column = of[str(as_column(call.expr))]
        wide = WIDER.get(column.type.name)
        value = f"{value}::{wide} * {WEIGHT}" if wide else f"{value} * {WEIGHT}"
    return f"coalesce(sum({value}), 0)::{call.column.type.name}"


def expected(itself: Itself) -> str:
    """Return an empty addition that has the planner expect more than a few rows of a recursion.

    It knows nothing of how far steps lead, and would compare what is lost pair by pair.
    """
    nulls = listed(f"NULL::{c.type.name}" for c in itself.columns)
    return f" UNION ALL SELECT {nulls} FROM generate_series(1, 1000) WHERE {NEVER}"


def new_to(op: Outside, known: str, lost: str) -> str:
    """Return what leaves the known rows out of a SELECT (alias `q`), but not those that are lost.

    By outer joins, so that the planner can look one of both up and hash the other.
    """
    joins = []
    for mark, side, select in (("known", op.known, known), ("lost", op.lost, lost)):
        pairs = [(c, other.name) for c, other in zip(schema(op), schema(side), strict=True)]
        tests = (same(f"q.{identifier(c.name)}", f"{mark}.{identifier(n)}", c) for c, n in pairs)
        rows = f"SELECT *, TRUE AS __{mark} FROM ({select}) AS q"
        joins.append(f" LEFT JOIN ({rows}) AS {mark} ON {' AND '.join(tests)}")
    return f"{''.join(joins)} WHERE known.__known IS NULL OR lost.__lost"
