from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.algebra.calls import Call, Kind
from headwater.algebra.expr import column, text
from headwater.algebra.ops import (
    After,
    Aggregate,
    AntiJoin,
    Before,
    Consolidate,
    Delta,
    Empty,
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
    UnionAll,
    schema,
)
from headwater.algebra.schema import BIGINT, Column, Schema
from headwater.errors import InvalidPlan
from tests.unit.algebra.samples import (
    COUNT,
    CUSTOMERS,
    EVENTS,
    INTEGER,
    ORDERS,
    ints,
    is_equal,
    is_positive,
    keep,
    ranked,
    recursive,
    series,
)

ON = (is_equal("o_customer", "c_id"),)
TOTAL = Column("total", BIGINT, nullable=False)
SUM = Call(TOTAL, Kind.SUM, column("o_amount"))


@pytest.mark.parametrize(
    ("op", "columns"),
    [
        (ORDERS, (*ints("o_id", nullable=False), *ints("o_customer", "o_amount"))),
        (Single(), ()),
        (Empty(ints("a")), ints("a")),
        (Project(EVENTS, (Output(TOTAL, text("1")),)), (TOTAL,)),
        (Filter(EVENTS, (is_positive("e_x"),)), ints("e_x", "e_y")),
        (Repeat(EVENTS, column("e_x")), ints("e_x", "e_y")),
        (UnionAll((EVENTS, CUSTOMERS), ints("a", "b")), ints("a", "b")),
        (Join(CUSTOMERS, EVENTS), (*schema(CUSTOMERS), *ints("e_x", "e_y"))),
        (SemiJoin(EVENTS, CUSTOMERS, ()), ints("e_x", "e_y")),
        (AntiJoin(EVENTS, CUSTOMERS, ()), ints("e_x", "e_y")),
        (Aggregate(ORDERS, ("o_customer",), COUNT, (SUM,)), (*ints("o_customer"), COUNT, TOTAL)),
        (Aggregate(ORDERS, (), COUNT), (COUNT,)),
        (ranked(EVENTS, "e_x", by="e_y"), (*ints("e_x", "e_y"), Column("r", BIGINT))),
        (series(EVENTS, "e_x"), ints("e_x", "e_y", "v")),
        (recursive(EVENTS, CUSTOMERS), ints("w_x", "w_y")),
        (Keys(EVENTS, ("e_y",)), ints("e_y")),
        (Restrict(EVENTS, ("e_x",), keep(CUSTOMERS, "c_id")), ints("e_x", "e_y")),
        *((state(EVENTS), ints("e_x", "e_y")) for state in (Delta, Before, After)),
        *((kind(EVENTS), ints("e_x", "e_y")) for kind in (Negate, Consolidate)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Op) else "",
)
def test_schema(op: Op, columns: Schema) -> None:
    assert schema(op) == columns


def test_schema_of_an_unknown_node() -> None:
    with pytest.raises(InvalidPlan) as caught:
        schema(Op())
    assert caught.value.what == "Op has no schema"


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (
            lambda: Scan(Source(1, "t"), ints("a", "b"), ("a",)),
            "a scan has more names than columns",
        ),
        (
            lambda: Project(ORDERS, (Output(TOTAL, column("x")),)),
            "Project reads ['x'], which its input does not produce",
        ),
        (
            lambda: Filter(ORDERS, (is_positive("b"), is_positive("a"))),
            "Filter reads ['a', 'b'], which its input does not produce",
        ),
        (
            lambda: Repeat(Single(), column("a")),
            "Repeat reads ['a'], which its input does not produce",
        ),
        (
            lambda: ranked(EVENTS, "a", by="e_x"),
            "Window reads ['a'], which its input does not produce",
        ),
        (
            lambda: series(EVENTS, "a"),
            "Expand reads ['a'], which its input does not produce",
        ),
        (
            lambda: UnionAll((EVENTS, ORDERS), ints("a", "b")),
            "UNION ALL of inputs of different width",
        ),
        (
            lambda: UnionAll((EVENTS, CUSTOMERS), ints("a")),
            "UNION ALL of inputs of different width",
        ),
        (
            lambda: UnionAll((), ()),
            "UNION ALL of inputs of different width",
        ),
        (
            lambda: Join(ORDERS, ORDERS),
            "Join with shared columns ['o_amount', 'o_customer', 'o_id'], unknown []",
        ),
        (
            lambda: AntiJoin(ORDERS, CUSTOMERS, (is_equal("o_id", "x"),)),
            "AntiJoin with shared columns [], unknown ['x']",
        ),
        (
            lambda: SemiJoin(ORDERS, CUSTOMERS, (is_equal("y", "x"),)),
            "SemiJoin with shared columns [], unknown ['x', 'y']",
        ),
        (
            lambda: Aggregate(ORDERS, ("x",), COUNT),
            "malformed aggregate",
        ),
        (
            lambda: Aggregate(ORDERS, (), COUNT, (Call(TOTAL, Kind.SUM, text("1")),)),
            "malformed aggregate",
        ),
        (
            lambda: Aggregate(EVENTS, (), COUNT, (SUM,)),
            "Aggregate reads ['o_amount'], which its input does not produce",
        ),
        (
            lambda: Keys(EVENTS, ("e_x", "x")),
            "Keys reads ['x'], which its input does not produce",
        ),
        (
            lambda: Restrict(EVENTS, ("x",), keep(CUSTOMERS, "c_id")),
            "Restrict reads ['x'], which its input does not produce",
        ),
        (
            lambda: Restrict(EVENTS, ("e_x",), CUSTOMERS),
            "a restriction compares different numbers of columns",
        ),
    ],
)
def test_what_cannot_be_built(build: Callable[[], Op], what: str) -> None:
    with pytest.raises(InvalidPlan) as caught:
        build()
    assert caught.value.what == what


def test_an_opaque_call_may_be_any_expression() -> None:
    call = Call(Column("c", INTEGER), Kind.OPAQUE, text("max(", column("e_x"), " + 1)"))
    assert schema(Aggregate(EVENTS, (), COUNT, (call,))) == (COUNT, Column("c", INTEGER))


def test_nodes_are_values() -> None:
    assert Join(ORDERS, CUSTOMERS, ON) == Join(ORDERS, CUSTOMERS, ON)
    nodes: list[Op] = [Before(ORDERS), After(ORDERS), Delta(ORDERS), Before(ORDERS)]
    assert set(nodes) == {Before(ORDERS), After(ORDERS), Delta(ORDERS)}
