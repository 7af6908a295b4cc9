"""The value of expressions, aggregates, windows, set-returning functions and whole queries.

They are PostgreSQL's text, which we do not parse: the tables below know some by heart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headwater.algebra.expr import Expr, Ref, template
from headwater.errors import InvalidPlan, bug
from headwater.reference.zset import Row, Value, Zset


def compute(expr: Expr, values: Mapping[str, Value]) -> Value:
    """Return the value of a scalar expression for one row; NULL is None, truth True or False."""
    if template(expr) not in FUNCTIONS:
        raise unknown(template(expr), FUNCTIONS)
    value: Value = FUNCTIONS[template(expr)](
        *(values[part.name] for part in expr.parts if isinstance(part, Ref))
    )
    return value


def holds(conjuncts: tuple[Expr, ...], values: Mapping[str, Value]) -> bool:
    """Tell whether every conjunct is true; NULL is not."""
    return all(compute(conjunct, values) is True for conjunct in conjuncts)


def aggregate_function(expr: Expr) -> Callable[[list[Row]], Value]:
    """Return the function of an aggregate call that is written out."""
    if template(expr) not in AGGREGATES:
        raise unknown(template(expr), AGGREGATES)
    return AGGREGATES[template(expr)]


def unknown(said: str, known: Iterable[str]) -> InvalidPlan:
    """Return the error for text that the oracle has not learnt."""
    return bug(f"the oracle cannot compute {said}", f"it knows {sorted(known)}")


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


def _different(copies: list[Row]) -> set[Any]:
    """Return the values of a group, each once."""
    return {value for (value,) in copies if value is not None}


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
    "NOT ({} > 0)": _strict(lambda a: a <= 0),
    "(({} > 0)) IS NOT TRUE": lambda a: a is None or a <= 0,
    "(({} IS NOT NULL)) IS NOT TRUE": lambda a: a is None,
    "(({} > 0) AND ({} IS NOT NULL)) IS NOT TRUE": lambda a, b: a is None or a <= 0 or b is None,
    "COALESCE({}, 0)": lambda a: 0 if a is None else a,
    "CASE WHEN ({}) IS DISTINCT FROM NULL THEN 1 ELSE 0 END": lambda a: 0 if a is None else 1,
    "LEAST({}, {})": _least,
    "GREATEST({} - {}, 0)": _surplus,
}

# A whole aggregate call, given the arguments of every row of the group, copies included.
AGGREGATES: dict[str, Callable[[list[Row]], Value]] = {
    "count({})": lambda copies: sum(v is not None for (v,) in copies),
    "count(DISTINCT {})": lambda copies: len(_different(copies)),
    "coalesce(sum(DISTINCT {}), 0)": lambda copies: sum(_different(copies)),
    "array_agg({} ORDER BY {})": _array,
}


# --- windows ---


def place(values: Iterable[Value]) -> tuple[tuple[bool, Any], ...]:
    """Return what sorts rows by values, NULLs last."""
    return tuple((value is None, 0 if value is None else value) for value in values)


def _sum(arguments: list[Row]) -> Value:
    present: list[Any] = [value for (value,) in arguments if value is not None]
    return sum(present) if present else None


# Given the arguments of the rows of the frame, in order, copies included.
FRAMED: dict[str, Callable[[list[Row]], Value]] = {
    "sum({})": _sum,
    "count({})": lambda arguments: sum(value is not None for (value,) in arguments),
    "count(*)": len,
}
# Given how many rows of the partition stand before a row, and how many of those sort before it.
RANKED: dict[str, Callable[[int, int], Value]] = {
    "row_number()": lambda before, less: before + 1,
    "rank()": lambda before, less: less + 1,
}


# --- sets ---

# A set-returning call: its rows, each of one value.
EXPANDED: dict[str, Callable[..., list[Value]]] = {
    "generate_series(1, {})": lambda a: [] if a is None else list(range(1, a + 1)),
    "unnest({})": lambda a: list(a or ()),
}


def _reached(start: Zset, step: Zset) -> Zset:
    """Return the pairs that a chain of steps goes on from; NULL leads nowhere."""
    found = set(start)
    while True:
        more = {(a, d) for a, b in found for c, d in step if b == c and b is not None}
        if more <= found:
            return dict.fromkeys(found, 1)
        found |= more


UNION = "SELECT * FROM #0 UNION SELECT * FROM #1"
REACHED = (
    "WITH RECURSIVE r(a, b) AS (SELECT * FROM #0 UNION SELECT r.a, s.b FROM r"
    " JOIN #1 AS s(a, b) ON r.b = s.a) SELECT a, b FROM r"
)
# A query as a whole, given its inputs.
WHOLE: dict[str, Callable[..., Zset]] = {
    UNION: lambda a, b: dict.fromkeys({**a, **b}, 1),
    REACHED: _reached,
}
