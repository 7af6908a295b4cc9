from __future__ import annotations

from dataclasses import dataclass, field

from headwater.algebra.expr import Expr, Ref, text
from headwater.algebra.ops import After, Delta, Filter, Join, Negate, Scan, Source, UnionAll, schema
from headwater.algebra.schema import Column, SqlType
from headwater.spark.facts import Wanted, wanted
from headwater.spark.sizes import SMALL_ROWS, Sizes

INTEGER = SqlType("integer")


def scan(oid: int, *columns: str) -> Scan:
    return Scan(Source(oid, f"t{oid}"), tuple(Column(c, INTEGER) for c in columns), columns)


def equal(left: str, right: str) -> Expr:
    return text(Ref(left), " = ", Ref(right))


ORDERS, LINES = scan(2, "order", "by"), scan(3, "of", "amount")
ON = (equal("of", "order"),)
BY_LINES = Join(Delta(LINES), After(ORDERS), ON)
BY_ORDERS = Join(Delta(ORDERS), After(LINES), ON)


@dataclass
class Known:
    """1,500,000 orders and four times as many lines, of which 1,000 each have changed."""

    changed: dict[str, frozenset[str]] = field(default_factory=dict)

    def rows(self, scan: Scan, is_delta: bool) -> int:
        return 1_000 if is_delta else {2: 1_500_000, 3: 6_000_000}[scan.source.oid]

    def keys(self, scan: Scan, name: str) -> frozenset[str] | None:
        return self.changed.get(name)

    def listed(self, scan: Scan, name: str, values: tuple[str, ...]) -> frozenset[str]:
        return frozenset(values)


class TestSizes:
    sizes = Sizes(Known())

    def test_a_change_that_looks_up_a_key_stays_as_small_as_it_is(self) -> None:
        assert self.sizes.rows(BY_LINES) == 1_000

    def test_a_change_that_is_referred_to_grows_by_the_references(self) -> None:
        assert self.sizes.rows(BY_ORDERS) == 4_000

    def test_a_state_is_not_small(self) -> None:
        assert not self.sizes.is_small(After(LINES))
        assert self.sizes.rows(After(LINES)) > SMALL_ROWS

    def test_branches_add_up(self) -> None:
        union = UnionAll((Delta(LINES), Negate(Delta(LINES))), schema(LINES))
        assert self.sizes.rows(union) == 2_000


class TestKeys:
    facts = Known({"of": frozenset({"7"}), "order": frozenset({"8", "9"})})

    def test_a_state_is_wanted_for_the_keys_of_the_change(self) -> None:
        assert list(wanted(BY_LINES, "right", self.facts)) == [Wanted("order", frozenset({"7"}))]

    def test_a_change_is_wanted_whole(self) -> None:
        assert list(wanted(BY_LINES, "left", self.facts)) == []

    def test_many_keys_are_no_list(self) -> None:
        assert list(wanted(BY_LINES, "right", Known())) == []

    def test_filters_let_keys_through_and_branches_unite_them(self) -> None:
        some = Filter(Delta(LINES), (text(Ref("amount"), " > 3"),))
        union = UnionAll((some, Negate(Delta(LINES))), schema(LINES))
        join = Join(union, After(ORDERS), ON)
        assert list(wanted(join, "right", self.facts)) == [Wanted("order", frozenset({"7"}))]

    def test_a_value_of_a_state_tells_nothing(self) -> None:
        others = scan(4, "other")
        join = Join(BY_LINES, After(others), (equal("by", "other"),))
        assert list(wanted(join, "right", self.facts)) == []

    def test_null_is_wanted_where_it_equals_null(self) -> None:
        same = text(Ref("of"), " IS NOT DISTINCT FROM ", Ref("order"))
        join = Join(Delta(LINES), After(ORDERS), (same,))
        found = [Wanted("order", frozenset({"7"}), null=True)]
        assert list(wanted(join, "right", self.facts)) == found
