"""The oracle itself, on cases small enough to check by eye."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.algebra import ops
from headwater.algebra.calls import Call, Kind
from headwater.algebra.expr import Expr, column, text
from headwater.algebra.ops import (
    After,
    Aggregate,
    AntiJoin,
    Before,
    Consolidate,
    Delta,
    Empty,
    Expand,
    Filter,
    Join,
    Keys,
    Negate,
    Op,
    Output,
    Project,
    Repeat,
    Restrict,
    Scan,
    SemiJoin,
    Single,
    Source,
    Timed,
    UnionAll,
    Whole,
    Window,
)
from headwater.algebra.outside import Outside
from headwater.algebra.schema import BIGINT, Column
from headwater.errors import InvalidPlan
from headwater.reference.evaluate import OPERATORS, Database, Table, When, evaluate
from headwater.reference.expressions import FUNCTIONS, REACHED, UNION, compute
from headwater.reference.zset import Value, Zset, add, collect, difference, negate

A, B, C, D = (Column(name, BIGINT) for name in "abcd")
COUNT = Column("n", BIGINT)
LEFT = Scan(Source(1, "l"), (A, B), ("x", "y"))
RIGHT = Scan(Source(2, "r"), (C, D), ("x", "y"))
ON = (text(column("a"), " = ", column("c")),)

L: Zset = {(1, 1): 2, (1, None): 1, (2, 1): 1, (None, 1): 1}
R: Zset = {(1, 5): 1, (1, 6): 2, (None, 7): 1}


def database(left: Zset, right: Zset, left_before: Zset | None = None) -> Database:
    def tables(rows: Zset) -> dict[int, Table]:
        return {1: Table(("x", "y"), rows), 2: Table(("x", "y"), right)}

    return Database(tables(left if left_before is None else left_before), tables(left))


def call(kind: Kind, *parts: str | Expr) -> Call:
    return Call(Column("v", BIGINT), kind, text(*parts))


def whole(said: str) -> Whole:
    first, second, last = said.replace("#1", "#0").split("#0")
    parts = (first, 0, second, 1, last)
    return Whole((LEFT, RIGHT), tuple(part for part in parts if part != ""), (A, B))


def over(*parts: str | Expr, keys: tuple[str, ...] = ()) -> Window:
    order = (column("a"), column("b"))
    return Window(LEFT, keys, order, (Output(COUNT, text(*parts)),))


# --- Z-sets ---


def test_weights_add_up_and_zeros_vanish() -> None:
    assert collect([((1,), 2), ((2,), 1), ((1,), -2)]) == {(2,): 1}
    assert add({(1,): 1}, {(1,): 2, (2,): 1}, {(2,): -1}) == {(1,): 3}
    assert add() == {}


def test_negate_and_difference() -> None:
    assert negate({(1,): 1, (2,): -3}) == {(1,): -1, (2,): 3}
    assert difference({(1,): 1, (2,): 1}, {(1,): 1, (3,): 2}) == {(2,): 1, (3,): -2}


# --- operators ---


def test_every_operator_is_known() -> None:
    nodes = {n for n in vars(ops).values() if isinstance(n, type) and issubclass(n, Op)}
    # What a recursion has found so far is put in place by the fixpoint around it.
    assert set(OPERATORS) == {*nodes, Outside} - {Op, ops.Itself}
    with pytest.raises(InvalidPlan) as caught:
        evaluate(Op(), database({}, {}))
    assert caught.value.what == "Op cannot be evaluated"


@pytest.mark.parametrize(
    ("op", "rows"),
    [
        (LEFT, L),
        (Scan(LEFT.source, (A,), ("y",)), {(1,): 4, (None,): 1}),
        (Scan(LEFT.source, (A, B), ("y", "x")), {(1, 1): 2, (None, 1): 1, (1, 2): 1, (1, None): 1}),
        (Scan(LEFT.source, (), ()), {(): 5}),
        (Single(), {(): 1}),
        (Empty((A,)), {}),
        (Project(LEFT, (Output(A, column("b")),)), {(1,): 4, (None,): 1}),
        (Filter(LEFT, (text(column("a"), " = ", column("b")),)), {(1, 1): 2}),
        (Filter(LEFT, ()), L),
        (Repeat(LEFT, column("a")), {(1, 1): 2, (1, None): 1, (2, 1): 2}),
        (Repeat(Negate(LEFT), column("a")), {(1, 1): -2, (1, None): -1, (2, 1): -2}),
        (UnionAll((LEFT, Negate(RIGHT), RIGHT), (A, B)), L),
        (
            Join(LEFT, RIGHT, ON),
            {(1, 1, 1, 5): 2, (1, 1, 1, 6): 4, (1, None, 1, 5): 1, (1, None, 1, 6): 2},
        ),
        (SemiJoin(LEFT, RIGHT, ON), {(1, 1): 2, (1, None): 1}),
        (SemiJoin(LEFT, Negate(RIGHT), ON), {(1, 1): 2, (1, None): 1}),
        (AntiJoin(LEFT, RIGHT, ON), {(2, 1): 1, (None, 1): 1}),
        (AntiJoin(LEFT, UnionAll((RIGHT, Negate(RIGHT)), (C, D)), ON), L),
        (AntiJoin(LEFT, RIGHT, ()), {}),
        (Timed(LEFT, (text(column("a"), " IS NULL"),), ON[:0]), {(None, 1): 1}),
        (
            Expand(LEFT, (text("generate_series(1, ", column("a"), ")"),), (C,)),
            {(1, 1, 1): 2, (1, None, 1): 1, (2, 1, 1): 1, (2, 1, 2): 1},
        ),
        (
            Expand(
                Negate(LEFT),
                tuple(text("generate_series(1, ", column(name), ")") for name in "ab"),
                (C, D, COUNT),
                numbered=True,
            ),
            {
                (1, 1, 1, 1, 1): -2,
                (1, None, 1, None, 1): -1,
                (2, 1, 1, 1, 1): -1,
                (2, 1, 2, None, 2): -1,
                (None, 1, None, 1, 1): -1,
            },
        ),
        (whole(UNION), {**dict.fromkeys(L, 1), **dict.fromkeys(R, 1)}),
        (
            whole(REACHED),
            {
                **dict.fromkeys(L, 1),
                (1, 5): 1,
                (1, 6): 1,
                (2, 5): 1,
                (2, 6): 1,
                (None, 5): 1,
                (None, 6): 1,
            },
        ),
        (Keys(LEFT, ("a",)), {(1,): 1, (2,): 1, (None,): 1}),
        (Keys(Negate(LEFT), ()), {(): 1}),
        (Keys(Empty((A,)), ()), {}),
        (Restrict(LEFT, ("a",), Keys(RIGHT, ("c",))), {(1, 1): 2, (1, None): 1, (None, 1): 1}),
        (Restrict(LEFT, (), Keys(RIGHT, ())), L),
        (Restrict(LEFT, (), Empty(())), {}),
        (Consolidate(LEFT), L),
    ],
)
def test_operator(op: Op, rows: Zset) -> None:
    assert evaluate(op, database(L, R)) == rows


def test_states() -> None:
    db = database({(1, 1): 1, (2, 2): 3}, {}, left_before={(1, 1): 2})
    assert evaluate(LEFT, db) == evaluate(After(LEFT), db, When.BEFORE) == db.after[1].rows
    assert evaluate(LEFT, db, When.BEFORE) == evaluate(Before(LEFT), db) == db.before[1].rows
    assert evaluate(Delta(LEFT), db) == {(1, 1): -1, (2, 2): 3}
    assert evaluate(Before(Filter(LEFT, ON[:0])), db) == {(1, 1): 2}


# --- aggregates ---


@pytest.mark.parametrize(
    ("keys", "calls", "rows"),
    [
        (("a",), (), {(1, 3): 1, (2, 1): 1, (None, 1): 1}),
        ((), (), {(5,): 1}),
        (("a",), (call(Kind.SUM, column("b")),), {(1, 3, 2): 1, (2, 1, 1): 1, (None, 1, 1): 1}),
        ((), (call(Kind.MIN, column("a")),), {(5, 1): 1}),
        ((), (call(Kind.MAX, column("a")),), {(5, 2): 1}),
        ((), (call(Kind.OPAQUE, "count(DISTINCT ", column("a"), ")"),), {(5, 2): 1}),
        ((), (call(Kind.OPAQUE, "count(", column("a"), ")"),), {(5, 4): 1}),
        (
            ("b",),
            (call(Kind.OPAQUE, "array_agg(", column("a"), " ORDER BY ", column("a"), ")"),),
            {(1, 4, (1, 1, 2, None)): 1, (None, 1, (1,)): 1},
        ),
    ],
)
def test_aggregate(keys: tuple[str, ...], calls: tuple[Call, ...], rows: Zset) -> None:
    assert evaluate(Aggregate(LEFT, keys, COUNT, calls), database(L, R)) == rows


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (call(Kind.SUM, column("a")), 0),
        (call(Kind.MIN, column("a")), None),
        (call(Kind.MAX, column("a")), None),
        (call(Kind.OPAQUE, "count(DISTINCT ", column("a"), ")"), 0),
        (call(Kind.OPAQUE, "array_agg(", column("a"), " ORDER BY ", column("a"), ")"), None),
    ],
)
def test_aggregate_of_nothing(value: Call, result: Value) -> None:
    empty = database({}, {})
    assert evaluate(Aggregate(LEFT, (), COUNT, (value,)), empty) == {(0, result): 1}
    assert evaluate(Aggregate(LEFT, ("b",), COUNT, (value,)), empty) == {}


def test_sums_take_negative_rows_and_others_refuse_them() -> None:
    signed = Delta(LEFT)
    db = database({(2, 1): 1}, {}, left_before={(1, 1): 3})
    assert evaluate(Aggregate(signed, ("b",), COUNT, (call(Kind.SUM, column("a")),)), db) == {
        (1, -2, -1): 1
    }
    with pytest.raises(InvalidPlan) as caught:
        evaluate(Aggregate(signed, ("b",), COUNT, (call(Kind.MIN, column("a")),)), db)
    assert caught.value.why == "a group of negative rows is no bag"


def test_an_array_in_an_order_that_leaves_ties_is_refused() -> None:
    order = call(Kind.OPAQUE, "array_agg(", column("a"), " ORDER BY ", column("b"), ")")
    with pytest.raises(InvalidPlan) as caught:
        evaluate(Aggregate(LEFT, (), COUNT, (order,)), database({(1, 2): 1}, {}))
    assert caught.value.what == "array_agg ordered by another column"


# --- windows ---

BY_B = (" OVER (PARTITION BY ", column("b"), " ORDER BY ", column("a"), ")")


@pytest.mark.parametrize(
    ("window", "rows"),
    [
        (
            over("row_number()", *BY_B, keys=("b",)),
            {(1, 1, 1): 1, (1, 1, 2): 1, (2, 1, 3): 1, (None, 1, 4): 1, (1, None, 1): 1},
        ),
        (
            over("rank()", *BY_B, keys=("b",)),
            {(1, 1, 1): 2, (2, 1, 3): 1, (None, 1, 4): 1, (1, None, 1): 1},
        ),
        (
            over("sum(", column("a"), ")", *BY_B, keys=("b",)),
            {(1, 1, 2): 2, (2, 1, 4): 1, (None, 1, 4): 1, (1, None, 1): 1},
        ),
        (
            over("count(", column("b"), ") OVER ()"),
            {(1, 1, 4): 2, (2, 1, 4): 1, (None, 1, 4): 1, (1, None, 4): 1},
        ),
        (
            over("count(*) OVER (ORDER BY ", column("b"), ")"),
            {(1, 1, 4): 2, (2, 1, 4): 1, (None, 1, 4): 1, (1, None, 5): 1},
        ),
    ],
)
def test_window(window: Window, rows: Zset) -> None:
    assert evaluate(window, database(L, R)) == rows


def test_numbers_in_an_order_that_leaves_ties_are_refused() -> None:
    number = Output(COUNT, text("row_number() OVER (ORDER BY ", column("b"), ")"))
    with pytest.raises(InvalidPlan) as caught:
        evaluate(Window(LEFT, (), (), (number,)), database(L, R))
    assert caught.value.what == "row_number() in an order that leaves ties"


@pytest.mark.parametrize("op", [over("count(*) OVER ()"), whole(UNION)])
def test_negative_rows_are_refused(op: Window | Whole) -> None:
    with pytest.raises(InvalidPlan) as caught:
        evaluate(op, database({(1, 1): -1}, {}))
    assert caught.value.why.endswith("no bag")


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (over("ntile(2) OVER ()"), "ntile(2) OVER ()"),
        (Expand(LEFT, (text("f(", column("a"), ")"),), (C,)), "f({})"),
        (Whole((LEFT,), ("TABLE ", 0), (C, D)), "TABLE #0"),
    ],
)
def test_what_the_oracle_has_not_learnt_is_refused(op: Op, said: str) -> None:
    with pytest.raises(InvalidPlan) as caught:
        evaluate(op, database(L, R))
    assert caught.value.what == f"the oracle cannot compute {said}"


def test_a_condition_on_the_time_asks_the_clock_of_the_state() -> None:
    is_null, is_one = text(column("a"), " IS NULL"), text(column("a"), " = ", column("b"))
    timed = Timed(LEFT, (is_null,), (is_one,))
    assert evaluate(After(timed), database(L, R)) == {(None, 1): 1}
    assert evaluate(Before(timed), database(L, R)) == {(1, 1): 2}


# --- expressions ---

NULL_TABLE: list[tuple[str, tuple[Any, ...], Any]] = [
    ("{}", (None,), None),
    ("{} + {}", (1, 2), 3),
    ("{} + {}", (1, None), None),
    ("{} - {}", (1, 2), -1),
    ("{} = {}", (1, 1), True),
    ("{} = {}", (1, 2), False),
    ("{} = {}", (None, None), None),
    ("{} <> {}", (1, None), None),
    ("{} < {}", (1, 2), True),
    ("{} < {}", (None, 2), None),
    ("{} <= {}", (2, 2), True),
    ("{} = 0", (None,), None),
    ("{} = 0", (0,), True),
    ("{} > 0", (0,), False),
    ("{} > 0", (None,), None),
    ("{} IS NULL", (None,), True),
    ("{} IS NULL", (0,), False),
    ("{} IS NOT NULL", (0,), True),
    ("{} IS NOT DISTINCT FROM {}", (None, None), True),
    ("{} IS NOT DISTINCT FROM {}", (None, 0), False),
    ("({} = {}) IS NOT FALSE", (None, 0), True),
    ("({} = {}) IS NOT FALSE", (1, 0), False),
    ("({} = {}) IS NOT FALSE", (1, 1), True),
    ("NOT ({} > 0)", (0,), True),
    ("NOT ({} > 0)", (None,), None),
    ("(({} > 0)) IS NOT TRUE", (None,), True),
    ("(({} > 0)) IS NOT TRUE", (0,), True),
    ("(({} > 0)) IS NOT TRUE", (1,), False),
    ("(({} IS NOT NULL)) IS NOT TRUE", (None,), True),
    ("(({} IS NOT NULL)) IS NOT TRUE", (0,), False),
    ("(({} > 0) AND ({} IS NOT NULL)) IS NOT TRUE", (1, 0), False),
    ("(({} > 0) AND ({} IS NOT NULL)) IS NOT TRUE", (None, 0), True),
    ("(({} > 0) AND ({} IS NOT NULL)) IS NOT TRUE", (1, None), True),
    ("COALESCE({}, 0)", (None,), 0),
    ("COALESCE({}, 0)", (3,), 3),
    ("CASE WHEN ({}) IS DISTINCT FROM NULL THEN 1 ELSE 0 END", (None,), 0),
    ("CASE WHEN ({}) IS DISTINCT FROM NULL THEN 1 ELSE 0 END", (0,), 1),
    ("LEAST({}, {})", (2, 1), 1),
    ("LEAST({}, {})", (None, 1), 1),
    ("LEAST({}, {})", (None, None), None),
    ("GREATEST({} - {}, 0)", (3, 1), 2),
    ("GREATEST({} - {}, 0)", (1, 3), 0),
    ("GREATEST({} - {}, 0)", (None, 3), 0),
    ("({})::bigint", (3,), 3),
    ("({})::numeric", (None,), None),
    ("0", (), 0),
    ("1", (), 1),
    ("NULL::integer", (), None),
    ("NULL::bigint", (), None),
    ("NULL::numeric", (), None),
    ("NULL::integer[]", (), None),
]


@pytest.mark.parametrize(("template", "arguments", "value"), NULL_TABLE)
def test_expression(template: str, arguments: tuple[Value, ...], value: Value) -> None:
    values = {f"c{at}": argument for at, argument in enumerate(arguments)}
    holes: list[str | Expr] = [column(name) for name in values]
    texts = template.split("{}")
    parts = [part for pair in zip(texts, [*holes, ""], strict=True) for part in pair]
    assert compute(text(*parts), values) is value


def test_every_function_is_tested() -> None:
    assert {template for template, _, _ in NULL_TABLE} == set(FUNCTIONS)


def test_an_unknown_expression_is_refused() -> None:
    with pytest.raises(InvalidPlan) as caught:
        compute(text("sqrt(", column("a"), ")"), {"a": 1})
    assert caught.value.what == "the oracle cannot compute sqrt({})"


def test_an_unknown_aggregate_is_refused() -> None:
    unknown = call(Kind.OPAQUE, "stddev(", column("a"), ")")
    with pytest.raises(InvalidPlan) as caught:
        evaluate(Aggregate(LEFT, (), COUNT, (unknown,)), database(L, R))
    assert caught.value.what == "the oracle cannot compute stddev({})"
