"""The structure of a query to an operator tree.

Every step is an equivalence on bags, NULLs included:

    A UNION B           =  δ(A ⊎ B)
    A INTERSECT ALL B   =  each row min(a, b) times     a, b: how often the row is in A and in B
    A EXCEPT ALL B      =  each row max(a − b, 0) times
    A LEFT JOIN B       =  (A ⋈ B) ⊎ (A ▷ B) × NULLs
    δ(A)                =  A grouped by all its columns
    HAVING              =  a filter on the aggregate
    a view, a CTE       =  its query, once for each use
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headwater.algebra.expr import Expr, as_column, column, text
from headwater.algebra.ops import (
    Aggregate,
    Call,
    Filter,
    Kind,
    Op,
    Output,
    Project,
    Repeat,
    UnionAll,
    schema,
)
from headwater.algebra.schema import BIGINT, Column, Schema, SqlType, names
from headwater.sql.from_clause import Common, lower_from
from headwater.sql.grouping import lower_grouped
from headwater.sql.lexer import tokenize
from headwater.sql.names import Namer
from headwater.sql.parse import parse_query, refuse
from headwater.sql.relations import Analysis
from headwater.sql.scope import conjuncts, find_calls, to_expr
from headwater.sql.syntax import Query, Select, SetOperation, With, output_names

Types = Callable[[Op, Sequence[Expr]], Sequence[SqlType]]


def lower(analysis: Analysis, types: Types) -> Op:
    """Return the operator tree of an analysed query; `types` asks the server for exact types."""
    lowering = Lowering(analysis, types)
    op = lowering.query(parse_query(analysis.qualified), {})
    return _renamed(op, analysis.columns)


def _renamed(op: Op, columns: Schema) -> Op:
    """Give the outputs the user's own names; the only names that are not made unique."""
    pairs = zip(columns, schema(op), strict=True)
    outputs = (Output(Column(c.name, c.type, own.nullable), column(own.name)) for c, own in pairs)
    return Project(op, tuple(outputs))


class Lowering:
    """The state of one lowering: unique names, and the server to ask for types."""

    def __init__(self, analysis: Analysis, types: Types) -> None:
        self.analysis = analysis
        self.namer = Namer()
        self.whole_rows = _whole_rows(analysis)
        self._types = types

    def query(self, query: Query, common: Common) -> Op:
        """Lower a query; `common` holds the common tables in scope, as functions of nothing."""
        match query:
            case With():
                return self._with(query, common)
            case SetOperation():
                return self._set_operation(query, common)
            case Select():
                return self._select(query, common)

    def compute(self, op: Op, wanted: Sequence[tuple[str, Expr]]) -> Project:
        """Project to the wanted (name, expression) pairs, asking for the types of all but columns.

        A bare column keeps its name, since a name tells where a value comes from; only a second
        use in one projection gets a new one.
        """
        of = {c.name: c for c in schema(op)}
        ask = [expr for _, expr in wanted if as_column(expr) is None]
        answers = iter(self._types(op, ask) if ask else ())
        outputs: list[Output] = []
        for name, expr in wanted:
            bare = as_column(expr)
            known = of[bare] if bare is not None else Column("", next(answers))
            if bare is None or bare in {o.column.name for o in outputs}:
                known = Column(self.namer.unique(name), known.type, known.nullable)
            outputs.append(Output(known, expr))
        return Project(op, tuple(outputs))

    def types(self, op: Op, exprs: Sequence[Expr]) -> Sequence[SqlType]:
        """Ask the server for the types of expressions over the columns of `op`."""
        return self._types(op, exprs) if exprs else ()

    def fresh(self, name: str, type: SqlType, *, nullable: bool = True) -> Column:
        """Return a new column with a unique name."""
        return Column(self.namer.unique(name), type, nullable)

    def _with(self, query: With, common: Common) -> Op:
        known = dict(common)
        for table in query.tables:
            before = dict(known)  # a common table sees those before it, not itself

            def make(table: object = table, before: Common = before) -> Op:
                return self.query(table.query, before)  # type: ignore[attr-defined]

            known[table.name] = (make, table.columns or output_names(table.query))
        return self.query(query.body, known)

    def _select(self, select: Select, common: Common) -> Op:
        op, scope = lower_from(self, select.from_items, common)
        if select.where is not None:
            condition = conjuncts(select.where, scope)
            op = Filter(op, condition) if condition else op
        aggregates = self.analysis.aggregates
        grouped = select.group_by is not None or select.having is not None
        if grouped or any(find_calls(t.tokens, aggregates) for t in select.targets):
            op, select, scope = lower_grouped(self, op, scope, select)
        if select.having is not None:
            condition = conjuncts(select.having, scope)
            op = Filter(op, condition) if condition else op
        op = self.compute(op, [(t.name, to_expr(t.tokens, scope)) for t in select.targets])
        return self.distinct(op) if select.distinct else op

    def distinct(self, op: Op) -> Op:
        """δ: group by all columns, then forget the count."""
        _refuse_no_columns(op)
        grouped = Aggregate(op, names(schema(op)), self.fresh("count", BIGINT, nullable=False))
        return Project(grouped, _passing(schema(op)))

    def _set_operation(self, query: SetOperation, common: Common) -> Op:
        left, right = self.query(query.left, common), self.query(query.right, common)
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
        return Project(_kept(query, counted, a, b), _passing(tuple(columns)))

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


def _passing(columns: Schema) -> tuple[Output, ...]:
    return tuple(Output(c, column(c.name)) for c in columns)


def _whole_rows(analysis: Analysis) -> frozenset[str]:
    """Aliases whose whole row is used as a value somewhere."""
    texts = [analysis.qualified, *(r.query for r in analysis.relations.values() if r.query)]
    found: set[str] = set()
    for tokens in map(tokenize, texts):
        for alias, dot, star in zip(tokens, tokens[1:], tokens[2:], strict=False):
            if alias.is_name and dot.is_punct(".") and star.text == "*":
                found.add(alias.value)
    return frozenset(found)
