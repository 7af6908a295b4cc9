"""Exact types, from the server: of expressions, of functions in FROM, of whole queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import Connection, errors

from headwater.algebra.expr import Expr
from headwater.algebra.ops import Itself, Op, Output, Project, Single, Whole
from headwater.algebra.schema import BIGINT, Column, Schema, SqlType
from headwater.algebra.walk import bottom_up
from headwater.catalog.settings import read_settings
from headwater.errors import UnsupportedQuery
from headwater.postgres.pieces import functions_sql
from headwater.postgres.quote import expression, listed
from headwater.postgres.render import Renderer
from headwater.sql.analyse import describe
from headwater.sql.blanks import null_of


def _typed(op: Op) -> Op:
    """A recursion has no name to read it by while it is described; a row of its types will do."""
    if not isinstance(op, Itself):
        return op
    return Project(Single(), tuple(Output(c, null_of(c)) for c in op.columns))


class Described:
    """Asks the server about parts of a query; nothing is executed."""

    def __init__(self, conn: Connection[Any]) -> None:
        self._conn = conn

    @property
    def max_grouping_sets(self) -> int:
        """How many grouping sets a GROUP BY may have."""
        return read_settings(self._conn).max_grouping_sets

    def types(self, op: Op, exprs: Sequence[Expr]) -> tuple[SqlType, ...]:
        """Return the types of the expressions over the columns of `op`."""
        outputs = listed(f"{expression(e)} AS c{i}" for i, e in enumerate(exprs))
        return tuple(column.type for column in self._described(op, outputs))

    def rows(self, op: Op, functions: Sequence[Expr], *, numbered: bool) -> Schema:
        """Return the columns that functions in FROM have side by side."""
        found: Schema = ()
        for function in functions:  # one by one, since they may name columns alike
            rows = functions_sql([function], numbered=False)
            found += self._described(op, "e.*", f" CROSS JOIN LATERAL {rows} AS e")
        return (*found, Column("ordinality", BIGINT)) if numbered else found

    def whole(self, op: Whole) -> Schema:
        """Return the columns of a query."""
        return describe(self._conn, f"SELECT * FROM ({Renderer().whole_sql(op)}) AS q")

    def _described(self, op: Op, outputs: str, rest: str = "") -> Schema:
        renderer = Renderer()
        inner = renderer.render(bottom_up(op, _typed))
        select = f"{renderer.with_clause()}SELECT {outputs} FROM ({inner.sql}) AS q{rest}"
        try:
            return describe(self._conn, select)
        except errors.InvalidTableDefinition as error:
            raise UnsupportedQuery(
                f"part of the query cannot be kept in a column: {error.diag.message_primary}",
                "what a subquery or a function gives is kept in columns on the way",
                "select or compare the fields of a row one by one",
            ) from error
