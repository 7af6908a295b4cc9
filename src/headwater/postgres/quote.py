"""Small helpers for SQL text: identifiers, lists, comparisons with and without NULL."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.algebra.expr import Expr, show
from headwater.algebra.schema import Column

WEIGHT = "__weight"
# The planner does not see that, and counts the rows of an arm that it guards.
NEVER = "current_setting('server_version') IS NULL"


def identifier(name: str) -> str:
    """Return a name as SQL: always in quotes, so that no word is special."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return text as a string constant."""
    return "'" + text.replace("'", "''") + "'"


def dollar_quoted(code: str) -> str:
    """Return code as a string constant, whatever names it holds."""
    tag = "$code$"
    while tag in code:
        tag = f"{tag[:-1]}_$"
    return f"{tag}{code}{tag}"


def listed(parts: Iterable[str]) -> str:
    """Return the parts with commas between them."""
    return ", ".join(parts)


def expression(expr: Expr) -> str:
    """Return an expression's text; column names are unique, so none needs an alias."""
    return show(expr, identifier)


def condition(conjuncts: Iterable[Expr]) -> str:
    """Return the conjunction, TRUE if there is nothing to check."""
    return " AND ".join(f"({expression(c)})" for c in conjuncts) or "TRUE"


def equal(left: str, right: str, column: Column) -> str:
    """Compare by the type's own equality; NULL matches nothing."""
    return f"{left} {column.type.equality} {right}"


def same(left: str, right: str, column: Column) -> str:
    """Compare by the type's own equality with NULL equal to NULL, in a form that can be hashed.

    Arrays treat NULL elements as equal and hash like any value; IS NOT DISTINCT FROM does not
    hash, and a FULL JOIN takes nothing that neither hashes nor sorts. An array inside an array
    would lose its NULL, so it goes in as a row, which sorts.
    """
    if not column.nullable:
        return equal(left, right, column)
    if column.type.name.endswith("[]"):
        return f"ARRAY[ROW({left})] = ARRAY[ROW({right})]"
    if "." in column.type.name:  # a domain on one side may be its base type on the other
        left, right = (f"{side}::{column.type.name}" for side in (left, right))
    return f"ARRAY[{left}] = ARRAY[{right}]"


def is_null(value: str) -> str:
    """Test for NULL itself: IS NULL also holds for a composite whose fields are all NULL."""
    return f"{value} IS NOT DISTINCT FROM NULL"


def image(value: str, column: Column) -> str:
    """Return what tells two values of the column apart, also where equality does not."""
    return value if column.type.is_image else f"({value})::text"


def restored(value: str, column: Column) -> str:
    """Return the value again from its image."""
    return value if column.type.is_image else f"(({value})::text)::{column.type.name}"


def looked_up(
    outputs: str,
    left: str,
    stored: str,
    pairs: Iterable[tuple[str, str, Column]],
    *,
    is_small: bool = False,
) -> str:
    """Return the SELECT that finds the stored row (alias `t`) of each left row (alias `l`) by key.

    By plain equality one row at a time, which takes the unique index whatever the planner believes
    about sizes; a small table is read as a whole, and hashed. Left rows whose key contains a NULL
    take a second, null-safe join, which ends at once when there are none.
    """
    sides = list(pairs)
    test = " AND ".join(equal(a, b, k) for a, b, k in sides) or "TRUE"
    if is_small and sides:
        whole = f"SELECT t.ctid, t.* FROM {stored} AS t OFFSET 0"  # which no index serves
        sql = f"SELECT {outputs} FROM {left} AS l JOIN ({whole}) AS t ON {test}"
    else:
        one = f"SELECT t.ctid, t.* FROM {stored} AS t WHERE {test} LIMIT 1"
        sql = f"SELECT {outputs} FROM {left} AS l CROSS JOIN LATERAL ({one}) AS t"
    nullable = [is_null(a) for a, _, k in sides if k.nullable]
    if nullable:
        safe = " AND ".join(same(a, b, k) for a, b, k in sides)
        sql += (
            f"\nUNION ALL\nSELECT {outputs} FROM {left} AS l JOIN {stored} AS t ON {safe}"
            f" WHERE {' OR '.join(nullable)}"
        )
    return sql


def at_places(places: str) -> str:
    """Return the test for rows at the places that a SELECT gives, in the order of the table."""
    return f"t.ctid = ANY (ARRAY({places}))"
