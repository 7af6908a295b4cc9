from __future__ import annotations

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
    SemiJoin,
    Single,
)
from headwater.algebra.pretty import label, pretty
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

TOTAL = Call(Column("total", BIGINT), Kind.SUM, column("o_amount"))
NAMES = Call(Column("names", BIGINT), Kind.OPAQUE, text("count(DISTINCT ", column("c_name"), ")"))


def test_view() -> None:
    joined = Join(ORDERS, CUSTOMERS, (is_equal("o_customer", "c_id"), is_positive("o_amount")))
    view = Project(
        Aggregate(joined, ("o_customer",), COUNT, (TOTAL, NAMES)),
        (
            Output(Column("total", BIGINT), column("total")),
            Output(Column("more", BIGINT), text(column("n"), " + 1")),
        ),
    )
    assert pretty(view) == (
        "Project total, n + 1 AS more\n"
        "  Aggregate by (o_customer): total := sum(o_amount), names := count(DISTINCT c_name)\n"
        "    Join on o_customer = c_id AND o_amount > 0\n"
        "      Scan orders (id, customer, amount)\n"
        "      Scan customers (id, name)"
    )


def test_delta() -> None:
    touched = Keys(Delta(EVENTS), ("e_x",))
    after = grouped(Restrict(After(EVENTS), ("e_x",), touched), "e_x")
    before = grouped(Restrict(Before(EVENTS), ("e_x",), touched), "e_x")
    assert pretty(Consolidate(union(after, Negate(before)))) == (
        "Consolidate\n"
        "  Union all\n"
        "    Aggregate by (e_x)\n"
        "      Restrict (e_x) to\n"
        "        events after\n"
        "        #1: Keys (e_x)\n"
        "          Δ events\n"
        "    Negate\n"
        "      Aggregate by (e_x)\n"
        "        Restrict (e_x) to\n"
        "          events before\n"
        "          Keys #1, as above"
    )


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (Single(), "One row"),
        (Filter(EVENTS, (is_positive("e_x"), is_positive("e_y"))), "Filter e_x > 0 AND e_y > 0"),
        (Filter(EVENTS, ()), "Filter true"),
        (Repeat(EVENTS, column("e_x")), "Repeat e_x times"),
        (Join(ORDERS, EVENTS), "Cross join"),
        (SemiJoin(ORDERS, EVENTS, (is_equal("o_id", "e_x"),)), "Semi-join on o_id = e_x"),
        (AntiJoin(ORDERS, EVENTS, ()), "Anti-join on true"),
        (grouped(EVENTS), "Aggregate by ()"),
        (
            ranked(ORDERS, "o_customer", by="o_id"),
            "Window by (o_customer):"
            " row_number() OVER (PARTITION BY o_customer ORDER BY o_id) AS r",
        ),
        (series(EVENTS, "e_x"), "Expand generate_series(1, e_x)"),
        (
            recursive(EVENTS, CUSTOMERS),
            "Whole query SELECT * FROM #0 UNION SELECT * FROM #1",
        ),
        (Empty(ints("a")), "Nothing"),
        (After(keep(EVENTS, "e_x")), "After"),
        (Before(keep(EVENTS, "e_x")), "Before"),
        (Delta(keep(EVENTS, "e_x")), "Delta"),
        (keep(EVENTS), "Project "),
    ],
)
def test_label(op: Op, said: str) -> None:
    assert label(op) == said


def test_a_state_of_more_than_a_scan_shows_what_it_is_the_state_of() -> None:
    assert pretty(After(keep(EVENTS, "e_x"))) == "After\n  Project e_x\n    Scan events (x, y)"


def test_unknown_node() -> None:
    with pytest.raises(InvalidPlan) as caught:
        label(Op())
    assert caught.value.what == "Op has no label"
