"""Small trees for the unit tests of the algebra and the delta rules."""

from __future__ import annotations

from headwater.algebra.expr import Expr, column, text
from headwater.algebra.ops import (
    Aggregate,
    Expand,
    Op,
    Output,
    Project,
    Scan,
    Source,
    UnionAll,
    Whole,
    Window,
    schema,
)
from headwater.algebra.schema import BIGINT, Column, Schema, SqlType

INTEGER = SqlType("integer")
COUNT = Column("n", BIGINT, nullable=False)


def ints(*names: str, nullable: bool = True) -> Schema:
    return tuple(Column(name, INTEGER, nullable) for name in names)


def is_equal(a: str, b: str) -> Expr:
    return text(column(a), " = ", column(b))


def is_positive(a: str) -> Expr:
    return text(column(a), " > 0")


def keep(op: Op, *names: str) -> Project:
    """Project to bare columns under their own names."""
    of = {c.name: c for c in schema(op)}
    return Project(op, tuple(Output(of[name], column(name)) for name in names))


def rename(op: Op, **new: str) -> Project:
    """Project to bare columns under new names."""
    of = {c.name: c for c in schema(op)}
    return Project(
        op, tuple(Output(Column(new[o], of[o].type, of[o].nullable), column(o)) for o in new)
    )


def grouped(op: Op, *keys: str, count: str = "n") -> Aggregate:
    return Aggregate(op, keys, Column(count, BIGINT, nullable=False))


def ranked(op: Op, *keys: str, by: str, name: str = "r") -> Window:
    """Number the rows of equal keys by a column."""
    over: list[str | Expr] = ["row_number() OVER ("]
    for number, key in enumerate(keys):
        over += [", " if number else "PARTITION BY ", column(key)]
    call = text(*over, " ORDER BY ", column(by), ")")
    return Window(op, keys, (column(by),), (Output(Column(name, BIGINT), call),))


def series(op: Op, to: str, *, name: str = "v") -> Expand:
    """Each row with the numbers up to a column."""
    return Expand(op, (text("generate_series(1, ", column(to), ")"),), ints(name))


def recursive(*inputs: Op, names: tuple[str, ...] = ("w_x", "w_y")) -> Whole:
    """A query over the inputs that no rule looks into."""
    parts: list[str | int] = ["SELECT * FROM "]
    for number, _ in enumerate(inputs):
        parts += [number, " UNION SELECT * FROM "]
    return Whole(inputs, tuple(parts[:-1]), ints(*names))


def union(*inputs: Op, names: tuple[str, ...] = ()) -> UnionAll:
    """Union under the names of the first input, or other ones."""
    rows = list(zip(*(schema(op) for op in inputs), strict=True))
    shown = names or tuple(same[0].name for same in rows)
    columns = (
        Column(name, same[0].type, any(c.nullable for c in same))
        for name, same in zip(shown, rows, strict=True)
    )
    return UnionAll(inputs, tuple(columns))


# Two tables with keys and one bag: orders(id, customer, amount), customers(id, name), events(x, y).
ORDERS = Scan(
    Source(1, "orders", (("id",),)),
    (*ints("o_id", nullable=False), *ints("o_customer", "o_amount")),
    ("id", "customer", "amount"),
)
CUSTOMERS = Scan(
    Source(2, "customers", (("id",),)),
    (*ints("c_id", nullable=False), *ints("c_name")),
    ("id", "name"),
)
EVENTS = Scan(Source(3, "events"), ints("e_x", "e_y"), ("x", "y"))
