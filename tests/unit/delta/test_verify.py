from __future__ import annotations

import pytest

from headwater.algebra.ops import After, Before, Delta, Filter, Join, Keys, Op, Restrict, Scan
from headwater.delta.verify import check_delta_plan
from headwater.errors import InvalidPlan
from tests.unit.algebra.samples import (
    CUSTOMERS,
    EVENTS,
    ORDERS,
    ints,
    is_equal,
    is_positive,
    keep,
    rename,
    union,
)

KEYS = Keys(Delta(CUSTOMERS), ("c_id",))


@pytest.mark.parametrize(
    "plan",
    [
        Delta(EVENTS),
        After(EVENTS),
        union(Delta(EVENTS), After(Filter(EVENTS, (is_positive("e_x"),)))),
        After(Restrict(EVENTS, ("e_x",), KEYS)),
        Restrict(After(EVENTS), ("e_x",), KEYS),
        After(Restrict(EVENTS, ("e_x",), Keys(After(CUSTOMERS), ("c_id",)))),
        rename(Delta(CUSTOMERS), c_name="e_x", c_id="e_y"),
    ],
)
def test_a_good_plan(plan: Op) -> None:
    check_delta_plan(plan, EVENTS)


@pytest.mark.parametrize(
    ("plan", "what"),
    [
        (
            keep(Delta(EVENTS), "e_x"),
            "the delta produces ('e_x',), the view ('e_x', 'e_y')",
        ),
        (
            keep(Delta(EVENTS), "e_y", "e_x"),
            "the delta produces ('e_y', 'e_x'), the view ('e_x', 'e_y')",
        ),
        (EVENTS, "the scan of events has no state"),
        (Filter(EVENTS, (is_positive("e_x"),)), "the scan of events has no state"),
        (Before(EVENTS), "Before left above Scan"),
        (union(Delta(EVENTS), Before(EVENTS)), "Before left above Scan"),
        (Delta(Filter(EVENTS, (is_positive("e_x"),))), "Delta left above Filter"),
        (After(Filter(After(EVENTS), (is_positive("e_x"),))), "After inside a state"),
        (After(Filter(Delta(EVENTS), (is_positive("e_x"),))), "Delta inside a state"),
        (After(Filter(Before(EVENTS), (is_positive("e_x"),))), "Before inside a state"),
        (
            After(Restrict(EVENTS, ("e_x",), keep(CUSTOMERS, "c_id"))),
            "the scan of customers has no state",
        ),
        (
            After(Restrict(Delta(EVENTS), ("e_x",), KEYS)),
            "Delta inside a state",
        ),
        (
            Restrict(After(EVENTS), ("e_x",), Keys(Before(CUSTOMERS), ("c_id",))),
            "Before left above Scan",
        ),
        (
            keep(Join(Delta(EVENTS), ORDERS, (is_equal("e_x", "o_id"),)), "e_x", "e_y"),
            "the scan of orders has no state",
        ),
    ],
)
def test_a_bad_plan(plan: Op, what: str) -> None:
    with pytest.raises(InvalidPlan) as caught:
        check_delta_plan(plan, EVENTS)
    assert caught.value.what == what


def test_names_are_compared_and_types_are_not() -> None:
    narrow = Scan(EVENTS.source, ints("e_x", "e_y", nullable=False), ("x", "y"))
    check_delta_plan(Delta(narrow), EVENTS)
