"""Operator trees as lowering builds them, but without SQL text and without a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from headwater.algebra.calls import Call, Kind
from headwater.algebra.expr import Expr, as_column, column, text
from headwater.algebra.keys import unique_keys
from headwater.algebra.ops import (
    Aggregate,
    AntiJoin,
    Filter,
    Join,
    Op,
    Output,
    Project,
    Repeat,
    UnionAll,
    schema,
)
from headwater.algebra.schema import BIGINT, NUMERIC, Column, Schema, SqlType, names

INTEGER = SqlType("integer")
INTEGERS = SqlType("integer[]")
NUMBERS = (INTEGER, BIGINT, NUMERIC)  # in the order in which they are widened


def widest(types: Iterable[SqlType]) -> SqlType:
    return max(types, key=NUMBERS.index)


class Build:
    """Makes operators with column names that are unique in one tree."""

    def __init__(self) -> None:
        self._used: Counter[str] = Counter()

    def fresh(self, name: str, type: SqlType, *, nullable: bool = True) -> Column:
        stem = name.rstrip("0123456789")
        self._used[stem] += 1
        return Column(f"{stem}{self._used[stem]}", type, nullable)

    def compute(self, op: Op, wanted: Sequence[tuple[str, SqlType, Expr]]) -> Project:
        """Project; a bare column keeps its name, but for a second use."""
        of = {c.name: c for c in schema(op)}
        outputs: list[Output] = []
        for name, type, expr in wanted:
            bare = as_column(expr)
            if bare is None or bare in {o.column.name for o in outputs}:
                known = of[bare].nullable if bare else True
                outputs.append(Output(self.fresh(name, type, nullable=known), expr))
            else:
                outputs.append(Output(of[bare], expr))
        return Project(op, tuple(outputs))

    def narrow(self, op: Op, kept: Sequence[Column]) -> Op:
        """Project to some of the columns, unless those are all."""
        if tuple(kept) == schema(op):
            return op
        return self.compute(op, [(c.name, c.type, column(c.name)) for c in kept])

    def aggregate(
        self, op: Op, keys: Sequence[str], calls: Sequence[tuple[Kind, SqlType, Expr]] = ()
    ) -> Aggregate:
        made = tuple(
            Call(self.fresh(kind.value, type, nullable=kind is not Kind.SUM), kind, expr)
            for kind, type, expr in calls
        )
        return Aggregate(op, tuple(keys), self.fresh("count", BIGINT, nullable=False), made)

    def distinct(self, op: Op) -> Op:
        return Project(self.aggregate(op, names(schema(op))), passing(schema(op)))

    def union(self, left: Op, right: Op) -> UnionAll:
        """A ⊎ B, both cast to the wider type of each column."""
        made = tuple(
            self.fresh(a.name, widest((a.type, b.type)), nullable=a.nullable or b.nullable)
            for a, b in zip(schema(left), schema(right), strict=True)
        )
        return UnionAll((self._cast(left, made), self._cast(right, made)), made)

    def _cast(self, op: Op, wanted: Schema) -> Op:
        if [c.type for c in schema(op)] == [c.type for c in wanted]:
            return op
        outputs = []
        for own, want in zip(schema(op), wanted, strict=True):
            bare = column(own.name)
            expr = bare if own.type == want.type else text("(", bare, f")::{want.type.name}")
            outputs.append(Output(self.fresh(own.name, want.type, nullable=own.nullable), expr))
        return Project(op, tuple(outputs))

    def set_operation(self, kind: str, left: Op, right: Op) -> Op:
        """INTERSECT [ALL] and EXCEPT [ALL]: count each row on both sides."""
        union = self.union(self._tagged(left, "1", "0"), self._tagged(right, "0", "1"))
        *columns, in_left, in_right = union.columns
        calls = [(Kind.SUM, BIGINT, column(tag.name)) for tag in (in_left, in_right)]
        counted = self.aggregate(union, names(tuple(columns)), calls)
        a, b = (column(call.column.name) for call in counted.calls)
        kept = {
            "INTERSECT ALL": Repeat(counted, text("LEAST(", a, ", ", b, ")")),
            "EXCEPT ALL": Repeat(counted, text("GREATEST(", a, " - ", b, ", 0)")),
            "INTERSECT": Filter(counted, (text(a, " > 0"), text(b, " > 0"))),
            "EXCEPT": Filter(counted, (text(a, " > 0"), text(b, " = 0"))),
        }
        return Project(kept[kind], passing(tuple(columns)))

    def _tagged(self, op: Op, left: str, right: str) -> Project:
        own = [(c.name, c.type, column(c.name)) for c in schema(op)]
        tags = [("in_left", INTEGER, text(left)), ("in_right", INTEGER, text(right))]
        return self.compute(op, own + tags)

    def outer_join(self, kind: str, join: Join) -> UnionAll:
        """LEFT, RIGHT and FULL: the inner join and NULL-padded anti-joins."""
        columns = schema(join)
        arms: list[Op] = [join]
        padded: set[str] = set()
        if kind in ("LEFT", "FULL"):
            arms.append(self._pad(AntiJoin(join.left, join.right, join.on), columns))
            padded |= set(names(schema(join.right)))
        if kind in ("RIGHT", "FULL"):
            arms.append(self._pad(AntiJoin(join.right, join.left, join.on), columns))
            padded |= set(names(schema(join.left)))
        made = tuple(
            self.fresh(c.name, c.type, nullable=c.nullable or c.name in padded) for c in columns
        )
        return UnionAll(tuple(arms), made, _outer_key(kind, join, made))

    def _pad(self, kept: AntiJoin, columns: Schema) -> Project:
        own = set(names(schema(kept)))
        exprs = [column(c.name) if c.name in own else text(f"NULL::{c.type.name}") for c in columns]
        pairs = zip(columns, exprs, strict=True)
        return Project(kept, tuple(Output(self.fresh(c.name, c.type), e) for c, e in pairs))


def passing(columns: Schema) -> tuple[Output, ...]:
    return tuple(Output(c, column(c.name)) for c in columns)


def _outer_key(kind: str, join: Join, made: Schema) -> tuple[str, ...]:
    position = {c.name: m.name for c, m in zip(schema(join), made, strict=True)}
    not_null = {c.name for c in schema(join) if not c.nullable}
    left, right, keys = (
        [key for key in unique_keys(op) if key <= not_null] for op in (join.left, join.right, join)
    )
    if kind == "LEFT":
        keys = [key for key in keys if any(own <= key for own in left)]
    elif kind == "RIGHT":
        keys = [key for key in keys if any(own <= key for own in right)]
    else:
        keys = [a | b for a in left for b in right]
    return tuple(sorted(position[name] for name in keys[0])) if keys else ()
