"""Exact types of expressions over an operator, from the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from headwater.algebra.expr import Expr
from headwater.algebra.ops import Op
from headwater.algebra.schema import SqlType
from headwater.postgres.quote import expression, listed
from headwater.postgres.render import Renderer
from headwater.sql.analyse import describe


def describe_exprs(conn: Connection[Any], op: Op, exprs: Sequence[Expr]) -> tuple[SqlType, ...]:
    """Return the types of the expressions over the columns of `op`; nothing is executed."""
    renderer = Renderer()
    inner = renderer.render(op)
    outputs = listed(f"{expression(e)} AS c{i}" for i, e in enumerate(exprs))
    select = f"{renderer.with_clause()}SELECT {outputs} FROM ({inner.sql}) AS q"
    return tuple(column.type for column in describe(conn, select))
