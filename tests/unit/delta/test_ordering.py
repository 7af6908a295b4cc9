from headwater.algebra.expr import Expr, Ref, column, text
from headwater.algebra.ops import After, Delta, Join, Op, Output, Project, Scan, Source, schema
from headwater.algebra.schema import Column, SqlType, names
from headwater.delta.differentiate import differentiate
from headwater.delta.ordering import gather, start_from_change

INTEGER = SqlType("integer")


def scan(oid: int, *columns: str) -> Scan:
    return Scan(Source(oid, f"t{oid}"), tuple(Column(c, INTEGER) for c in columns), columns)


def equal(left: str, right: str) -> Expr:
    return text(Ref(left), " = ", Ref(right))


def in_order(op: Op, wanted: Op) -> Op:
    return Project(op, tuple(Output(c, column(c.name)) for c in schema(wanted)))


CUSTOMERS, ORDERS, LINES = scan(1, "customer"), scan(2, "order", "by"), scan(3, "of", "amount")
VIEW = Join(Join(CUSTOMERS, ORDERS, (equal("customer", "by"),)), LINES, (equal("of", "order"),))


def test_changed_sources_are_joined_first_and_the_columns_stay_in_order() -> None:
    core = Join(ORDERS, LINES, (equal("of", "order"),))
    expected = Join(core, CUSTOMERS, (equal("customer", "by"),))
    assert gather(VIEW, frozenset({2, 3})) == in_order(expected, VIEW)


def test_a_source_between_two_that_changed_leads_from_one_to_the_other() -> None:
    assert gather(VIEW, frozenset({1, 3})) == VIEW


def test_what_does_not_change_stays_as_it_is() -> None:
    assert gather(VIEW, frozenset()) == VIEW


def test_a_join_begins_with_the_change() -> None:
    plan = differentiate(VIEW, frozenset({3}))
    assert plan == Join(After(VIEW.left), Delta(LINES), VIEW.on)
    led = Join(Delta(LINES), After(ORDERS), (equal("of", "order"),))
    expected = Join(led, After(CUSTOMERS), (equal("customer", "by"),))
    assert start_from_change(plan) == in_order(expected, VIEW)


def test_relations_without_a_condition_come_last() -> None:
    view = Join(Join(LINES, CUSTOMERS), ORDERS, (equal("of", "order"),))
    ordered = gather(view, frozenset({3}))
    assert isinstance(ordered, Project)
    assert names(schema(ordered.input)) == ("of", "amount", "order", "by", "customer")
