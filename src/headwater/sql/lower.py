"""The structure of a query to an operator tree.

Every step is an equivalence on bags, NULLs included:

    A UNION B           =  δ(A ⊎ B)
    A INTERSECT ALL B   =  each row min(a, b) times     a, b: how often the row is in A and in B
    A EXCEPT ALL B      =  each row max(a − b, 0) times
    A LEFT JOIN B       =  (A ⋈ B) ⊎ (A ▷ B) × NULLs
    δ(A)                =  A grouped by all its columns
    HAVING              =  a filter on the aggregate
    a view, a CTE       =  its query, once for each use
    a subquery          =  a join with what it gives for each value of what it reads from outside
    DISTINCT ON, LIMIT  =  a filter on row_number()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Protocol

from headwater.algebra.calls import Call, Kind
from headwater.algebra.expr import Expr, as_column, column, text
from headwater.algebra.ops import (
    Aggregate,
    Filter,
    Op,
    Output,
    Project,
    Repeat,
    Single,
    UnionAll,
    Whole,
    passing,
    schema,
)
from headwater.algebra.schema import BIGINT, Column, Schema, SqlType, names
from headwater.sql.correlate import Outer, carried
from headwater.sql.from_clause import Common, Shared
from headwater.sql.lexer import Tokens, tokenize
from headwater.sql.names import Namer
from headwater.sql.parse import parse_query, refuse
from headwater.sql.recursion import is_recursive, lower_whole, recursive_table
from headwater.sql.relations import Analysis
from headwater.sql.scope import NOTHING, Scope, to_expr
from headwater.sql.select import Sorted, lower_select, lower_sorted
from headwater.sql.subqueries import filtered
from headwater.sql.subquery_values import without_subqueries
from headwater.sql.syntax import Ordered, Query, Select, SetOperation, Values, With, output_names


class Describe(Protocol):
    """What the server is asked for; nothing is executed."""

    @property
    def max_grouping_sets(self) -> int:
        """How many grouping sets a GROUP BY may have."""

    def types(self, op: Op, exprs: Sequence[Expr]) -> Sequence[SqlType]:
        """Return the types of expressions over the columns of `op`."""

    def rows(self, op: Op, functions: Sequence[Expr], *, numbered: bool) -> Schema:
        """Return the columns that functions in FROM have side by side."""

    def whole(self, op: Whole) -> Schema:
        """Return the columns of a query."""


def lower(analysis: Analysis, describe: Describe) -> Op:
    """Return the operator tree of an analysed query; `describe` asks the server for types."""
    lowering = Lowering(analysis, describe)
    op = lowering.query(parse_query(analysis.qualified), {})
    return _renamed(op, analysis.columns)


def _renamed(op: Op, columns: Schema) -> Op:
    """Give the outputs the user's own names; the only names that are not made unique."""
    pairs = zip(columns, schema(op), strict=True)
    outputs = (Output(Column(c.name, c.type, own.nullable), column(own.name)) for c, own in pairs)
    return Project(op, tuple(outputs))


class Lowering:
    """The state of one lowering: unique names, and the server to ask for types."""

    def __init__(self, analysis: Analysis, describe: Describe) -> None:
        self.analysis = analysis
        self.namer = Namer()
        self.whole_rows = _whole_rows(analysis)
        self.rows, self.whole = describe.rows, describe.whole
        self.describe = describe
        self._types = describe.types

    def query(self, query: Query, common: Common, outer: Outer | None = None) -> Op:
        """Lower a query; `common` holds the common tables in scope.

        With `outer` it is lowered for every row of the domain, whose columns come first.
        """
        op = self._query(query, common, outer)
        return carried(op, outer) if outer else op

    def _query(self, query: Query, common: Common, outer: Outer | None) -> Op:
        match query:
            case With():
                return self._with(query, common, outer)
            case SetOperation():
                return self._set_operation(query, common, outer)
            case Ordered():
                return lower_sorted(self, query, common, outer).plain()
            case Values():
                return self._values(query, common, outer)
            case Select():
                return lower_select(self, query, common, outer)

    def sorted(self, query: Query, common: Common, outer: Outer | None) -> Sorted:
        """Lower a query with what it is sorted by."""
        made = lower_sorted(self, query, common, outer)
        return replace(made, op=carried(made.op, outer)) if outer else made

    def filtered(self, op: Op, scope: Scope, tokens: Tokens, common: Common) -> Op:
        """Return the rows for which a condition holds, which may have subqueries."""
        return filtered(self, op, scope, tokens, common)

    def without_subqueries(
        self, op: Op, scope: Scope, tokens: Tokens, common: Common
    ) -> tuple[Op, Tokens]:
        """Return the rows with the values of the subqueries in an expression, and it with holes."""
        op, (plain,) = without_subqueries(self, op, scope, [tokens], common)
        return op, plain

    def compute(self, op: Op, wanted: Sequence[tuple[str, Expr]]) -> Project:
        """Project to the wanted (name, expression) pairs, asking for the types of all but columns.

        A bare column keeps its name, since a name tells where a value comes from; only a second
        use in one projection gets a new one.
        """
        of = {c.name: c for c in schema(op)}
        ask = [expr for _, expr in wanted if as_column(expr) is None]
        answers = iter(self.types(op, ask))
        outputs: list[Output] = []
        for name, expr in wanted:
            bare = as_column(expr)
            known = of[bare] if bare is not None else Column("", next(answers))
            if bare is None or bare in {o.column.name for o in outputs}:
                known = Column(self.namer.unique(name), known.type, known.nullable)
            outputs.append(Output(known, expr))
        return Project(op, tuple(outputs))

    def extended(self, op: Op, wanted: Sequence[tuple[str, Expr]]) -> Project:
        """Add columns under names that are unique already."""
        types = self.types(op, [expr for _, expr in wanted])
        made = (
            Output(Column(name, type), expr)
            for (name, expr), type in zip(wanted, types, strict=True)
        )
        return Project(op, (*passing(schema(op)), *made))

    def types(self, op: Op, exprs: Sequence[Expr]) -> Sequence[SqlType]:
        """Ask the server for the types of expressions over the columns of `op`."""
        return self._types(op, exprs) if exprs else ()

    def fresh(self, name: str, type: SqlType, *, nullable: bool = True) -> Column:
        """Return a new column with a unique name."""
        return Column(self.namer.unique(name), type, nullable)

    def _with(self, query: With, common: Common, outer: Outer | None) -> Op:
        whole = lower_whole(self, query, common, outer)
        if whole is not None:
            return whole
        known = dict(common)
        for table in query.tables:
            shared = Shared(table.columns or output_names(table.query), table.query, dict(known))
            if query.recursive and is_recursive(table):
                shared = recursive_table(self, query.tables, table, known)
            known[table.name] = shared
        return self.query(query.body, known, outer)

    def _values(self, values: Values, common: Common, outer: Outer | None) -> Op:
        """Rows of constants; rows that read from outside, one for each row of the domain."""
        start, scope = (outer.domain, outer.scope) if outer else (Single(), NOTHING)
        params = [(p, column(p)) for p in outer.params] if outer else []
        titles = output_names(values)
        rows: list[Op] = []
        for row in values.rows:
            op, plain = without_subqueries(self, start, scope, row, common)
            exprs = [to_expr(tokens, scope) for tokens in plain]
            rows.append(self.compute(op, [*params, *zip(titles, exprs, strict=True)]))
        return reduce(self.union, rows)

    def distinct(self, op: Op) -> Op:
        """δ: group by all columns, then forget the count."""
        _refuse_no_columns(op)
        grouped = Aggregate(op, names(schema(op)), self.fresh("count", BIGINT, nullable=False))
        return Project(grouped, passing(schema(op)))

    def _set_operation(self, query: SetOperation, common: Common, outer: Outer | None) -> Op:
        left, right = (self.query(side, common, outer) for side in (query.left, query.right))
        if query.kind == "UNION":
            union = self.union(left, right)
            return union if query.all else self.distinct(union)
        return self._counted(query, left, right)

    def union(self, left: Op, right: Op) -> UnionAll:
        """A ⊎ B with both sides cast to the common types that the server resolves."""
        columns = [self.namer.unique(name) for name in names(schema(left))]
        ours, theirs = schema(left), schema(right)
        made = tuple(
            Column(name, a.type, a.nullable or b.nullable)
            for name, a, b in zip(columns, ours, theirs, strict=True)
        )
        if all(a.type == b.type for a, b in zip(ours, theirs, strict=True)):
            return UnionAll((left, right), made)
        common = self._types(UnionAll((left, right), made), [column(c.name) for c in made])
        made = tuple(Column(c.name, t, c.nullable) for c, t in zip(made, common, strict=True))
        return UnionAll((self._cast(left, made), self._cast(right, made)), made)

    def _cast(self, op: Op, wanted: Schema) -> Op:
        if all(c.type == w.type for c, w in zip(schema(op), wanted, strict=True)):
            return op
        outputs = []
        for own, want in zip(schema(op), wanted, strict=True):
            expr = column(own.name)
            if own.type != want.type:
                expr = text("(", expr, f")::{want.type.name}")
            made = self.fresh(own.name, want.type, nullable=own.nullable)
            outputs.append(Output(made, expr))
        return Project(op, tuple(outputs))

    def _counted(self, query: SetOperation, left: Op, right: Op) -> Op:
        """INTERSECT and EXCEPT: count each row on both sides, then decide how often it stays."""
        _refuse_no_columns(left)
        union = self.union(self._tagged(left, "1", "0"), self._tagged(right, "0", "1"))
        *columns, in_left, in_right = union.columns
        calls = tuple(
            Call(self.fresh(name, BIGINT, nullable=False), Kind.SUM, column(tag.name))
            for name, tag in (("in_left", in_left), ("in_right", in_right))
        )
        count = self.fresh("count", BIGINT, nullable=False)
        counted = Aggregate(union, names(tuple(columns)), count, calls)
        a, b = (column(call.column.name) for call in calls)
        return Project(_kept(query, counted, a, b), passing(tuple(columns)))

    def _tagged(self, op: Op, left: str, right: str) -> Project:
        pairs = [(c.name, column(c.name)) for c in schema(op)]
        return self.compute(op, [*pairs, ("in_left", text(left)), ("in_right", text(right))])


def _refuse_no_columns(op: Op) -> None:
    """Without columns there is nothing to group by, and no group is not the same as one."""
    if not schema(op):
        raise refuse("DISTINCT or a set operation without columns", "there is nothing to compare")


def _kept(query: SetOperation, counted: Aggregate, a: Expr, b: Expr) -> Op:
    match query.kind, query.all:
        case "INTERSECT", True:
            return Repeat(counted, text("LEAST(", a, ", ", b, ")"))
        case "EXCEPT", True:
            return Repeat(counted, text("GREATEST(", a, " - ", b, ", 0)"))
        case "INTERSECT", False:
            return Filter(counted, (text(a, " > 0"), text(b, " > 0")))
    return Filter(counted, (text(a, " > 0"), text(b, " = 0")))


def _whole_rows(analysis: Analysis) -> frozenset[str]:
    """Aliases whose whole row is used as a value somewhere."""
    texts = [analysis.qualified, *(r.query for r in analysis.relations.values() if r.query)]
    found: set[str] = set()
    for tokens in map(tokenize, texts):
        for alias, dot, star in zip(tokens, tokens[1:], tokens[2:], strict=False):
            if alias.is_name and dot.is_punct(".") and star.text == "*":
                found.add(alias.value)
    return frozenset(found)
