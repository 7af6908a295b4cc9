from __future__ import annotations

import pytest

from headwater.algebra.expr import Expr, column, text
from headwater.algebra.ops import (
    After,
    AntiJoin,
    Delta,
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
    UnionAll,
    schema,
)
from headwater.algebra.schema import BIGINT, Column
from headwater.delta.pushdown import push_keys, restrict_filtering, restrict_joined
from tests.unit.algebra.samples import (
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
    rename,
    series,
    union,
)

CHANGED = Scan(EVENTS.source, ints("k_x", "k_y"), ("x", "y"))
ONE = Keys(Delta(CHANGED), ("k_x",))
TWO = Keys(Delta(CHANGED), ("k_x", "k_y"))
ANY = Keys(Delta(CHANGED), ())
ON = (is_equal("o_customer", "c_id"),)
PLUS = Output(Column("plus", ints("a")[0].type), text(column("e_x"), " + 1"))


def by_x(op: Op = EVENTS) -> Restrict:
    return Restrict(op, ("e_x",), ONE)


@pytest.mark.parametrize(
    ("op", "columns", "pushed"),
    [
        (EVENTS, ("e_x",), by_x()),
        (rename(EVENTS, e_x="a"), ("a",), rename(by_x(), e_x="a")),
        (Project(EVENTS, (PLUS,)), ("plus",), Restrict(Project(EVENTS, (PLUS,)), ("plus",), ONE)),
        (
            Filter(EVENTS, (is_positive("e_y"),)),
            ("e_x",),
            Filter(by_x(), (is_positive("e_y"),)),
        ),
        (Repeat(EVENTS, column("e_y")), ("e_x",), Repeat(by_x(), column("e_y"))),
        (grouped(EVENTS, "e_y", "e_x"), ("e_x",), grouped(by_x(), "e_y", "e_x")),
        (
            grouped(EVENTS, "e_x"),
            ("n",),
            Restrict(grouped(EVENTS, "e_x"), ("n",), ONE),
        ),
        (
            union(EVENTS, CUSTOMERS, names=("a", "b")),
            ("b",),
            union(
                Restrict(EVENTS, ("e_y",), ONE),
                Restrict(CUSTOMERS, ("c_name",), ONE),
                names=("a", "b"),
            ),
        ),
        (
            AntiJoin(ORDERS, CUSTOMERS, ON),
            ("o_id",),
            AntiJoin(Restrict(ORDERS, ("o_id",), ONE), CUSTOMERS, ON),
        ),
        (
            SemiJoin(ORDERS, CUSTOMERS, ON),
            ("o_id",),
            SemiJoin(Restrict(ORDERS, ("o_id",), ONE), CUSTOMERS, ON),
        ),
        (ranked(EVENTS, "e_x", by="e_y"), ("e_x",), ranked(by_x(), "e_x", by="e_y")),
        (
            ranked(EVENTS, "e_y", by="e_x"),
            ("e_x",),
            Restrict(ranked(EVENTS, "e_y", by="e_x"), ("e_x",), ONE),
        ),
        (series(EVENTS, "e_y"), ("e_x",), series(by_x(), "e_y")),
        (series(EVENTS, "e_y"), ("v",), Restrict(series(EVENTS, "e_y"), ("v",), ONE)),
        (
            recursive(EVENTS, CUSTOMERS),
            ("w_x",),
            Restrict(recursive(EVENTS, CUSTOMERS), ("w_x",), ONE),
        ),
    ],
)
def test_a_key_reaches_the_scan(op: Op, columns: tuple[str, ...], pushed: Op) -> None:
    assert push_keys(op, columns, ONE) == pushed


def test_a_key_reaches_through_several_operators() -> None:
    view = rename(grouped(Filter(EVENTS, (is_positive("e_y"),)), "e_x"), n="n", e_x="a")
    assert push_keys(view, ("a",), ONE) == rename(
        grouped(Filter(by_x(), (is_positive("e_y"),)), "e_x"), n="n", e_x="a"
    )


def test_a_key_stops_where_one_of_its_columns_is_computed() -> None:
    view = Project(EVENTS, (PLUS, Output(ints("e_y")[0], column("e_y"))))
    assert push_keys(view, ("e_y", "plus"), TWO) == Restrict(view, ("e_y", "plus"), TWO)


@pytest.mark.parametrize(
    ("op", "pushed"),
    [
        (EVENTS, Restrict(EVENTS, (), ANY)),
        (Single(), Restrict(Single(), (), ANY)),
        (keep(EVENTS, "e_x"), keep(Restrict(EVENTS, (), ANY), "e_x")),
        (union(EVENTS, CUSTOMERS), union(Restrict(EVENTS, (), ANY), Restrict(CUSTOMERS, (), ANY))),
        (grouped(EVENTS, "e_x"), Restrict(grouped(EVENTS, "e_x"), (), ANY)),
        (grouped(EVENTS), Restrict(grouped(EVENTS), (), ANY)),
        (Join(ORDERS, EVENTS), Restrict(Join(ORDERS, EVENTS), (), ANY)),
        (AntiJoin(ORDERS, EVENTS, ()), Restrict(AntiJoin(ORDERS, EVENTS, ()), (), ANY)),
        (ranked(EVENTS, by="e_x"), Restrict(ranked(EVENTS, by="e_x"), (), ANY)),
        (series(EVENTS, "e_x"), series(Restrict(EVENTS, (), ANY), "e_x")),
    ],
)
def test_the_empty_key_asks_for_all_or_nothing(op: Op, pushed: Op) -> None:
    """A grand total of no row is still a row, so the question stays above it."""
    assert push_keys(op, (), ANY) == pushed


def test_a_join_is_restricted_on_the_side_that_has_the_columns() -> None:
    view = Join(ORDERS, CUSTOMERS, ON)
    left = Join(Restrict(ORDERS, ("o_id",), ONE), CUSTOMERS, ON)
    right = Join(ORDERS, Restrict(CUSTOMERS, ("c_name",), ONE), ON)
    assert push_keys(view, ("o_id",), ONE) == left
    assert push_keys(view, ("c_name",), ONE) == right


def test_a_key_over_both_sides_stays_above() -> None:
    view = Join(ORDERS, CUSTOMERS, ON)
    columns = ("o_id", "c_name")
    assert push_keys(view, columns, TWO) == Restrict(view, columns, TWO)


def test_a_key_crosses_an_equality_where_that_saves_work() -> None:
    totals = grouped(EVENTS, "e_x")
    view = Join(ORDERS, totals, (is_equal("e_x", "o_customer"),))
    assert push_keys(view, ("o_customer",), ONE) == Join(
        Restrict(ORDERS, ("o_customer",), ONE),
        grouped(by_x(), "e_x"),
        view.on,
    )
    both = ("o_amount", "e_x")
    assert push_keys(view, both, TWO) == Restrict(view, both, TWO)


def test_a_key_crosses_an_equality_of_nulls_too() -> None:
    on = (text(column("o_customer"), " IS NOT DISTINCT FROM ", column("e_x")),)
    view = Join(ORDERS, grouped(EVENTS, "e_x"), on)
    assert push_keys(view, ("o_customer",), ONE) == Join(
        Restrict(ORDERS, ("o_customer",), ONE), grouped(by_x(), "e_x"), on
    )


def test_a_key_over_both_sides_crosses_as_a_whole() -> None:
    totals = grouped(EVENTS, "e_x", "e_y")
    view = Join(ORDERS, totals, (is_equal("o_customer", "e_x"),))
    assert push_keys(view, ("o_customer", "e_y"), TWO) == Join(
        ORDERS,
        grouped(Restrict(EVENTS, ("e_x", "e_y"), TWO), "e_x", "e_y"),
        view.on,
    )


@pytest.mark.parametrize(
    "on",
    [
        text(column("o_customer"), " < ", column("e_x")),
        is_equal("o_customer", "n"),
    ],
    ids=["inequality", "another type"],
)
def test_a_key_crosses_nothing_but_an_equality_of_one_type(on: Expr) -> None:
    view = Join(ORDERS, grouped(EVENTS, "e_x"), (on,))
    restricted = Restrict(ORDERS, ("o_customer",), ONE)
    assert push_keys(view, ("o_customer",), ONE) == Join(restricted, view.right, (on,))


# --- ΔA ⋈ B⁺ ---


def test_a_keyed_state_is_evaluated_for_the_keys_of_the_change() -> None:
    totals = grouped(EVENTS, "e_x")
    on = (is_equal("o_customer", "e_x"),)
    keys = Keys(Delta(ORDERS), ("o_customer",))
    restricted = After(grouped(Restrict(EVENTS, ("e_x",), keys), "e_x"))
    assert restrict_joined(Join(Delta(ORDERS), After(totals), on)) == Join(
        Delta(ORDERS), restricted, on
    )
    assert restrict_joined(Join(After(totals), Delta(ORDERS), on)) == Join(
        restricted, Delta(ORDERS), on
    )


@pytest.mark.parametrize("kind", [SemiJoin, AntiJoin])
def test_a_filtering_join_looks_at_its_right_side_for_the_keys_of_the_change(
    kind: type[SemiJoin] | type[AntiJoin],
) -> None:
    totals, on = grouped(EVENTS, "e_x"), (is_equal("o_customer", "e_x"),)
    keys = Keys(Delta(ORDERS), ("o_customer",))
    restricted = After(grouped(Restrict(EVENTS, ("e_x",), keys), "e_x"))
    assert restrict_filtering(kind(Delta(ORDERS), After(totals), on)) == kind(
        Delta(ORDERS), restricted, on
    )
    gone = Negate(grouped(Delta(EVENTS), "e_x"))
    before = UnionAll((After(totals), gone), schema(totals))
    assert restrict_filtering(kind(Delta(ORDERS), before, on)) == kind(
        Delta(ORDERS), UnionAll((restricted, gone), schema(totals)), on
    )


def test_touched_rows_are_looked_up_by_the_keys_of_the_change() -> None:
    keys = Keys(Delta(EVENTS), ("e_x",))
    on = (is_equal("o_customer", "e_x"), text(column("o_id"), " <> ", column("e_y")))
    assert restrict_filtering(SemiJoin(After(ORDERS), Delta(EVENTS), on)) == SemiJoin(
        After(Restrict(ORDERS, ("o_customer",), keys)), Delta(EVENTS), on
    )
    unequal = SemiJoin(After(ORDERS), Delta(EVENTS), on[1:])
    assert restrict_filtering(unequal) == unequal


def test_all_equalities_make_the_key() -> None:
    pairs = grouped(EVENTS, "e_x", "e_y")
    on = (is_equal("e_y", "o_amount"), is_equal("o_customer", "e_x"), is_positive("o_id"))
    keys = Keys(Delta(ORDERS), ("o_amount", "o_customer"))
    assert restrict_joined(Join(Delta(ORDERS), After(pairs), on)) == Join(
        Delta(ORDERS),
        After(grouped(Restrict(EVENTS, ("e_y", "e_x"), keys), "e_x", "e_y")),
        on,
    )


TOTALS = grouped(EVENTS, "e_x")
BIG = Scan(ORDERS.source, (Column("b_id", BIGINT),), ("id",))


@pytest.mark.parametrize(
    "join",
    [
        Join(Delta(ORDERS), After(EVENTS), (is_equal("o_customer", "e_x"),)),
        Join(Delta(ORDERS), After(TOTALS)),
        Join(Delta(ORDERS), After(TOTALS), (text(column("o_id"), " < ", column("e_x")),)),
        Join(Delta(BIG), After(TOTALS), (is_equal("b_id", "e_x"),)),
        Join(Delta(ORDERS), Delta(EVENTS), (is_equal("o_customer", "e_x"),)),
        Join(After(ORDERS), After(TOTALS), (is_equal("o_customer", "e_x"),)),
        Join(Delta(ORDERS), After(TOTALS), (is_equal("o_customer", "o_id"),)),
    ],
    ids=["scan", "cross", "inequality", "types", "two changes", "two states", "one side"],
)
def test_other_joins_stay_as_they_are(join: Join) -> None:
    assert restrict_joined(join) == join


def test_pushing_keeps_the_columns() -> None:
    view = UnionAll((EVENTS, CUSTOMERS), ints("a", "b"), disjoint=("a",))
    pushed = push_keys(view, ("a",), ONE)
    assert schema(pushed) == schema(view)
    assert pushed == UnionAll(
        (by_x(), Restrict(CUSTOMERS, ("c_id",), ONE)), ints("a", "b"), disjoint=("a",)
    )


def test_a_column_compared_with_itself_makes_no_key() -> None:
    joined = Join(
        Delta(CUSTOMERS),
        After(grouped(EVENTS, "e_x")),
        (text(column("e_x"), " = ", column("e_x")),),
    )
    assert restrict_joined(joined) == joined
