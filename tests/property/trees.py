"""Random view trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter

from headwater.algebra.calls import Kind
from headwater.algebra.expr import Expr, column, text
from headwater.algebra.ops import (
    AntiJoin,
    Expand,
    Filter,
    Join,
    Op,
    Output,
    Project,
    Repeat,
    Scan,
    SemiJoin,
    Single,
    Timed,
    Whole,
    Window,
    schema,
)
from headwater.algebra.pretty import pretty
from headwater.algebra.schema import BIGINT, NUMERIC, Column, Schema, SqlType
from headwater.algebra.walk import scans
from headwater.reference.expressions import REACHED, UNION
from tests.property.build import INTEGER, INTEGERS, NUMBERS, Build, widest
from tests.property.data import RELATIONS, State, histories

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Op])
MAX_KEYED = 3

SUM_TYPE = {INTEGER: BIGINT, BIGINT: NUMERIC, NUMERIC: NUMERIC}
ONE_SIDED = (" IS NOT NULL", " > 0", " = 0", " IS NULL")
TWO_SIDED = (" = ", " <> ", " < ", " <= ", " IS NOT DISTINCT FROM ")


@dataclass(frozen=True)
class Case:
    """A view and the states that its sources go through."""

    view: Op
    states: tuple[State, ...]

    def _repr_pretty_(self, printer: RepresentationPrinter, cycle: bool) -> None:
        """Show the tree as text; hypothesis would print every field of every node."""
        states = "".join(f"\n{state}" for state in self.states)
        printer.text(f"\n{pretty(self.view)}{states}\n")


@st.composite
def cases(draw: st.DrawFn, changes: int = 1, *, clocks: bool = False) -> Case:
    view = draw(views(clocks=clocks))
    return Case(view, draw(histories({scan.source.oid for scan in scans(view)}, changes)))


@st.composite
def views(draw: st.DrawFn, *, clocks: bool = False) -> Op:
    """Draw shallow trees more often: what goes wrong inside them shows at the root."""
    depth = draw(st.sampled_from((1, 2, 2, 2, 3, 3, 4)))
    leaves = draw(st.sampled_from((1, 2, 2, 2, 3, 3)))
    op = Grower(draw, clocks=clocks).grow(depth, leaves)
    return named(op, draw(st.permutations(schema(op)))) if draw(st.booleans()) else op


def named(op: Op, shown: Sequence[Column]) -> Op:
    """Give the outputs other names, as the root does: the only names that are used twice."""
    pairs = zip(schema(op), shown, strict=True)
    outputs = (Output(Column(s.name, c.type, c.nullable), column(c.name)) for c, s in pairs)
    return Project(op, tuple(outputs))


class Grower:
    """Grows one tree from the root down, with unique names.

    `leaves` bounds the scans below a node and MAX_KEYED the keyed operators of the whole tree:
    each makes the delta of what is above it several times longer.
    """

    def __init__(self, draw: st.DrawFn, *, clocks: bool = False) -> None:
        self._draw, self._clocks = draw, clocks
        self._build = Build()
        self._keyed_left = MAX_KEYED

    def grow(self, depth: int, leaves: int) -> Op:
        if depth == 0:
            return self._leaf()
        if leaves > 1 and self._draw(st.integers(0, 4)):
            joins = (self._anti_join, self._semi_join, self._outer_join)
            keyed = (*joins, self._set_operation, self._whole)
            make = self._pick_operator((self._join, self._union), keyed)
            ours = self._draw(st.integers(1, leaves - 1))
            return make(self.grow(depth - 1, ours), self.grow(depth - 1, leaves - ours))
        linear = (self._project, self._filter, self._repeat, self._expand)
        if self._clocks and self._draw(st.booleans()):
            return self._timed(self.grow(depth - 1, leaves))
        grouping = (self._aggregate, self._distinct, self._aggregate, self._window, self._window)
        return self._pick_operator(linear, grouping)(self.grow(depth - 1, leaves))

    def _pick_operator(self, others: tuple[F, ...], keyed: tuple[F, ...]) -> F:
        make = self._pick(others + keyed if self._keyed_left else others)
        self._keyed_left -= make in keyed
        return make

    # --- one input ---

    def _leaf(self) -> Op:
        oid = self._draw(st.sampled_from((1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 0)))
        if oid == 0:
            constants = [("c", INTEGER, text(t)) for t in self._some(("0", "1", "NULL::integer"))]
            return self._build.compute(Single(), constants) if constants else Single()
        relation = RELATIONS[oid]
        is_pruned = self._draw(st.integers(0, 5)) == 5
        attributes = self._some(relation.attributes) if is_pruned else relation.attributes
        made = tuple(
            self._build.fresh(a, INTEGER, nullable=relation.is_nullable(a)) for a in attributes
        )
        return Scan(relation.source, made, tuple(attributes))

    def _filter(self, op: Op) -> Op:
        found = _numbers(op)
        if not found:
            return op
        return Filter(op, tuple(self._test(found) for _ in range(self._pick((1, 1, 1, 2)))))

    def _timed(self, op: Op) -> Op:
        """A condition before and another after: any two tell whether both are asked in place."""
        found = _numbers(op)
        if not found:
            return op
        now, past = self._clock_test(found), self._clock_test(found)
        return Timed(op, now, past)

    def _clock_test(self, found: Schema) -> tuple[Expr, ...]:
        positive, present = (
            text(column(self._pick(found).name), test) for test in (" > 0", " IS NOT NULL")
        )
        return self._pick(((positive,), (present,), (positive, present)))

    def _expand(self, op: Op) -> Op:
        numbers, lists = _numbers(op), [c for c in schema(op) if c.type == INTEGERS]
        calls = [text("generate_series(1, ", column(c.name), ")") for c in numbers[:2]]
        calls += [text("unnest(", column(c.name), ")") for c in lists]
        if not calls:
            return op
        functions = (self._pick(calls),) if self._draw(st.booleans()) else tuple(calls[:2])
        numbered = self._draw(st.booleans())
        made = [self._build.fresh("v", INTEGER) for _ in functions]
        made += [self._build.fresh("at", BIGINT, nullable=False)] if numbered else []
        return Expand(op, functions, tuple(made), numbered)

    def _project(self, op: Op) -> Op:
        wanted = [self._output(op) for _ in range(self._draw(st.integers(1, 3)))]
        return self._build.compute(op, wanted)

    def _output(self, op: Op) -> tuple[str, SqlType, Expr]:
        found = _numbers(op)
        if not found:
            return "c", INTEGER, text(self._pick(("0", "1", "NULL::integer")))
        a, b = self._pick(found), self._pick(found)
        one, other = column(a.name), column(b.name)
        present = text("CASE WHEN (", one, ") IS DISTINCT FROM NULL THEN 1 ELSE 0 END")
        return self._pick(
            (
                (a.name, a.type, one),
                ("plus", widest((a.type, b.type)), text(one, " + ", other)),
                ("coalesce", a.type, text("COALESCE(", one, ", 0)")),
                ("case", INTEGER, present),
                ("c", INTEGER, text("1")),
            )
        )

    def _repeat(self, op: Op) -> Op:
        found = _numbers(op)
        return Repeat(op, column(self._pick(found).name)) if found else op

    def _distinct(self, op: Op) -> Op:
        return self._build.distinct(op) if schema(op) else op

    def _aggregate(self, op: Op) -> Op:
        keys = self._some(schema(op))[:2]
        found = _numbers(op)
        calls = [self._call(found) for _ in range(self._draw(st.integers(0, 2)))] if found else []
        return self._build.aggregate(op, [c.name for c in keys], calls)

    def _window(self, op: Op) -> Op:
        """Sorted by all columns beside what the window asks for, so that only copies tie."""
        found = _numbers(op)
        if len(found) < len(schema(op)) or not found:
            return op
        keys = tuple(c.name for c in self._some(found)[:2])
        by = self._some(found)[:1]
        calls = tuple(self._windowed(found, keys, by) for _ in range(self._draw(st.integers(1, 2))))
        return Window(op, keys, tuple(column(c.name) for c in found), calls)

    def _windowed(self, found: Schema, keys: tuple[str, ...], by: Sequence[Column]) -> Output:
        of = self._pick(found)
        value = column(of.name)
        function, type = self._pick(
            (
                (text("row_number()"), BIGINT),
                (text("rank()"), BIGINT),
                (text("sum(", value, ")"), SUM_TYPE[of.type]),
                (text("count(", value, ")"), BIGINT),
                (text("count(*)"), BIGINT),
            )
        )
        over: list[str | Expr] = [function, " OVER ("]
        for word, names in (("PARTITION BY ", keys), (" ORDER BY ", [c.name for c in by])):
            for number, name in enumerate(names):
                over += [", " if number else word, column(name)]
        return Output(self._build.fresh("w", type), text(*over, ")"))

    def _call(self, found: Schema) -> tuple[Kind, SqlType, Expr]:
        of = self._pick(found)
        value = column(of.name)
        return self._pick(
            (
                (Kind.SUM, SUM_TYPE[of.type], value),
                (Kind.MIN, of.type, value),
                (Kind.MAX, of.type, value),
                (Kind.DISTINCT, BIGINT, text("count(DISTINCT ", value, ")")),
                (Kind.DISTINCT, SUM_TYPE[of.type], text("coalesce(sum(DISTINCT ", value, "), 0)")),
                (Kind.OPAQUE, INTEGERS, text("array_agg(", value, " ORDER BY ", value, ")")),
            )
        )

    # --- two inputs ---

    def _join(self, left: Op, right: Op) -> Op:
        return Join(left, right, self._on(left, right))

    def _semi_join(self, left: Op, right: Op) -> Op:
        return SemiJoin(left, right, self._on(left, right))

    def _whole(self, left: Op, right: Op) -> Op:
        """Distinct union, or what can be reached from the left by steps of the right."""
        ours, theirs = self._aligned(left, right)
        wide = [c.type for c in schema(ours)] == [c.type for c in schema(theirs)]
        if not wide or not schema(ours):
            return SemiJoin(left, right, self._on(left, right))
        is_chain = len(schema(ours)) == len(("a", "b"))
        said = REACHED if is_chain and self._draw(st.booleans()) else UNION
        before, between, after = said.replace("#1", "#0").split("#0")
        made = tuple(self._build.fresh(c.name, c.type) for c in schema(ours))
        parts = (before, 0, between, 1, after)
        return Whole((ours, theirs), tuple(part for part in parts if part != ""), made)

    def _anti_join(self, left: Op, right: Op) -> Op:
        return AntiJoin(left, right, self._on(left, right))

    def _outer_join(self, left: Op, right: Op) -> Op:
        join = Join(left, right, self._on(left, right))
        return self._build.outer_join(self._pick(("LEFT", "RIGHT", "FULL")), join)

    def _union(self, left: Op, right: Op) -> Op:
        return self._build.union(*self._aligned(left, right))

    def _set_operation(self, left: Op, right: Op) -> Op:
        kind = self._pick(("INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"))
        return self._build.set_operation(kind, *self._aligned(left, right))

    def _aligned(self, left: Op, right: Op) -> tuple[Op, Op]:
        """Cut both sides to the same number of columns."""
        ours, theirs = _numbers(left), _numbers(right)
        width = min(len(ours), len(theirs))
        return self._build.narrow(left, ours[:width]), self._build.narrow(right, theirs[:width])

    def _on(self, left: Op, right: Op) -> tuple[Expr, ...]:
        """Draw equalities for the most part, other conditions, or nothing: a cross join."""
        ours, theirs = _numbers(left), _numbers(right)
        if not ours or not theirs:
            return ()
        drawn = [self._match(ours, theirs) for _ in range(self._pick((1, 1, 2, 0)))]
        return tuple(dict.fromkeys(drawn))

    def _match(self, ours: Schema, theirs: Schema) -> Expr:
        a, b = column(self._pick(ours).name), column(self._pick(theirs).name)
        kind = self._pick(("=", "=", "reversed", "null-aware", "any", "one side"))
        if kind == "reversed":
            return text(b, " = ", a)
        if kind == "null-aware":
            return text("(", a, " = ", b, ") IS NOT FALSE")
        if kind == "one side":
            return self._test(self._pick((ours, theirs)))
        return text(a, " = " if kind == "=" else self._pick(TWO_SIDED), b)

    # --- helpers ---

    def _test(self, found: Schema) -> Expr:
        a = self._pick(found)
        tests = [text(column(a.name), test) for test in ONE_SIDED]
        b = self._pick(found)  # the same column too: it is no equality across a join
        tests += [text(column(a.name), test, column(b.name)) for test in TWO_SIDED]
        return self._pick(tests)

    def _pick(self, options: Sequence[T]) -> T:
        return self._draw(st.sampled_from(options))

    def _some(self, options: Sequence[T]) -> list[T]:
        """Draw a subset, in any order."""
        if not options:
            return []
        at = self._draw(st.lists(st.sampled_from(range(len(options))), unique=True, max_size=3))
        return [options[i] for i in at]


def _numbers(op: Op) -> tuple[Column, ...]:
    return tuple(c for c in schema(op) if c.type in NUMBERS)
