from headwater.algebra.expr import Expr, Ref, column, text
from headwater.algebra.ops import Filter, Join, Op, Scan, Source
from headwater.algebra.schema import Column, SqlType
from headwater.algebra.sink import sink

INTEGER = SqlType("integer")


def scan(oid: int, *columns: str) -> Scan:
    return Scan(Source(oid, f"t{oid}"), tuple(Column(c, INTEGER) for c in columns), columns)


def equal(left: str, right: str) -> Expr:
    return text(Ref(left), " = ", Ref(right))


A, B, C = scan(1, "a", "x"), scan(2, "b", "y"), scan(3, "c")


def test_comma_joins_become_joins_by_their_conditions() -> None:
    view: Op = Filter(
        Join(Join(A, B), C), (equal("a", "b"), equal("y", "c"), text(Ref("x"), " > 3"))
    )
    left = Join(Filter(A, (text(Ref("x"), " > 3"),)), B, (equal("a", "b"),))
    assert sink(view) == Join(left, C, (equal("y", "c"),))


def test_a_condition_of_a_join_on_one_side_filters_that_side() -> None:
    view = Join(A, B, (equal("a", "b"), text(Ref("y"), " IS NULL")))
    assert sink(view) == Join(A, Filter(B, (text(Ref("y"), " IS NULL"),)), (equal("a", "b"),))


def test_a_condition_over_a_scan_stays() -> None:
    view = Filter(A, (text("NOT ", column("a")),))
    assert sink(view) == view
