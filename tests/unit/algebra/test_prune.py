from __future__ import annotations

import pytest

from headwater.algebra.calls import Call, Kind
from headwater.algebra.expr import column, text
from headwater.algebra.ops import (
    Aggregate,
    AntiJoin,
    Filter,
    Join,
    Negate,
    Op,
    Output,
    Project,
    Repeat,
    Scan,
    SemiJoin,
    Single,
    UnionAll,
)
from headwater.algebra.prune import prune
from headwater.algebra.schema import BIGINT, Column
from headwater.errors import InvalidPlan
from tests.unit.algebra.samples import (
    COUNT,
    CUSTOMERS,
    EVENTS,
    ORDERS,
    grouped,
    ints,
    is_equal,
    is_positive,
    keep,
    ranked,
    recursive,
    series,
    union,
)

ID = Scan(ORDERS.source, ints("o_id", nullable=False), ("id",))
AMOUNT = Scan(ORDERS.source, ints("o_amount"), ("amount",))
CUSTOMER = Scan(ORDERS.source, ints("o_customer"), ("customer",))
NOTHING = Scan(ORDERS.source, (), ())
C_ID = Scan(CUSTOMERS.source, ints("c_id", nullable=False), ("id",))
ON = (is_equal("o_customer", "c_id"),)


def sums(op: Op, *columns: str) -> Aggregate:
    calls = (Call(Column(f"sum_{c}", BIGINT), Kind.SUM, column(c)) for c in columns)
    return Aggregate(op, (), COUNT, tuple(calls))


@pytest.mark.parametrize(
    ("op", "needed", "pruned"),
    [
        (ORDERS, {"o_amount"}, AMOUNT),
        (ORDERS, set(), NOTHING),
        (Single(), set(), Single()),
        (keep(ORDERS, "o_id", "o_amount"), {"o_amount"}, keep(AMOUNT, "o_amount")),
        (keep(ORDERS, "o_id"), set(), keep(NOTHING)),
        (
            Project(EVENTS, (Output(COUNT, text(column("e_y"), " + 1")),)),
            {"n"},
            Project(
                Scan(EVENTS.source, ints("e_y"), ("y",)),
                (Output(COUNT, text(column("e_y"), " + 1")),),
            ),
        ),
        (
            Filter(ORDERS, (is_positive("o_amount"),)),
            set(),
            Filter(AMOUNT, (is_positive("o_amount"),)),
        ),
        (Repeat(ORDERS, column("o_amount")), set(), Repeat(AMOUNT, column("o_amount"))),
        (
            Join(ORDERS, CUSTOMERS, ON),
            {"o_amount"},
            Join(
                Scan(ORDERS.source, ints("o_customer", "o_amount"), ("customer", "amount")),
                C_ID,
                ON,
            ),
        ),
        (
            Join(ORDERS, CUSTOMERS),
            {"c_id"},
            Join(NOTHING, C_ID),
        ),
        (AntiJoin(ORDERS, CUSTOMERS, ON), set(), AntiJoin(CUSTOMER, C_ID, ON)),
        (SemiJoin(ORDERS, CUSTOMERS, ON), set(), SemiJoin(CUSTOMER, C_ID, ON)),
        (ranked(ORDERS, by="o_amount"), {"r"}, ranked(AMOUNT, by="o_amount")),
        (
            ranked(ORDERS, "o_customer", by="o_amount"),
            {"r"},
            ranked(
                Scan(ORDERS.source, ints("o_customer", "o_amount"), ("customer", "amount")),
                "o_customer",
                by="o_amount",
            ),
        ),
        (ranked(ORDERS, "o_customer", by="o_amount"), {"o_id"}, ID),
        (series(ORDERS, "o_amount"), set(), series(AMOUNT, "o_amount")),
        (recursive(EVENTS, CUSTOMERS), {"w_x"}, recursive(EVENTS, CUSTOMERS)),
        (grouped(ORDERS, "o_customer"), set(), grouped(CUSTOMER, "o_customer")),
        (grouped(ORDERS), {"n"}, grouped(NOTHING)),
        (sums(ORDERS, "o_id", "o_amount"), {"sum_o_amount"}, sums(AMOUNT, "o_amount")),
    ],
)
def test_prune(op: Op, needed: set[str], pruned: Op) -> None:
    assert prune(op, frozenset(needed)) == pruned


def test_all_columns_of_the_root_are_needed_unless_told() -> None:
    view = keep(Filter(Join(ORDERS, CUSTOMERS, ON), (is_positive("o_id"),)), "c_name")
    used = Scan(
        ORDERS.source,
        (*ints("o_id", nullable=False), *ints("o_customer")),
        ("id", "customer"),
    )
    assert prune(view) == keep(Filter(Join(used, CUSTOMERS, ON), (is_positive("o_id"),)), "c_name")


def test_a_union_keeps_a_column_by_position() -> None:
    both = union(EVENTS, CUSTOMERS, names=("a", "b"))
    left = Scan(EVENTS.source, ints("e_y"), ("y",))
    right = Scan(CUSTOMERS.source, ints("c_name"), ("name",))
    assert prune(both, frozenset({"b"})) == UnionAll((left, right), ints("b"))


def test_a_union_narrows_an_input_that_must_produce_more() -> None:
    both = union(EVENTS, Filter(CUSTOMERS, (is_positive("c_name"),)), names=("a", "b"))
    left = Scan(EVENTS.source, ints("e_x"), ("x",))
    right = keep(Filter(CUSTOMERS, (is_positive("c_name"),)), "c_id")
    assert prune(both, frozenset({"a"})) == UnionAll((left, right), ints("a"))


def test_a_union_keeps_the_key_that_it_promises() -> None:
    both = UnionAll((CUSTOMERS, EVENTS), ints("a", "b"), disjoint=("a",))
    left = C_ID
    right = Scan(EVENTS.source, ints("e_x"), ("x",))
    assert prune(both, frozenset()) == UnionAll((left, right), ints("a"), disjoint=("a",))


def test_only_views_are_pruned() -> None:
    with pytest.raises(InvalidPlan) as caught:
        prune(Negate(ORDERS))
    assert caught.value.what == "Negate cannot be pruned"
