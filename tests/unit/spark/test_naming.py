"""A name means one column in a tree, whatever the user calls the result."""

from __future__ import annotations

from headwater.algebra.calls import Call, Kind
from headwater.algebra.expr import column, text
from headwater.algebra.ops import (
    Aggregate,
    Expand,
    Filter,
    Join,
    Op,
    Output,
    Project,
    Scan,
    Source,
    UnionAll,
    Window,
    schema,
)
from headwater.algebra.schema import BIGINT, Column, SqlType
from headwater.algebra.walk import walk
from headwater.spark.naming import unambiguous
from headwater.spark.wires import wires

TEXT, INT = SqlType("text"), SqlType("integer")


def _scan(*columns: Column) -> Scan:
    names = tuple(f'"{c.name}"' for c in columns)
    return Scan(Source(1, "public.t"), columns, names)


def _forms(tree: Op) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for op in walk(tree):
        for name, wire in wires(op).items():
            found.setdefault(name, set()).add(wire.spark)
    return found


def _swapped(below: Op) -> Project:
    outputs = (Output(Column("a", INT), column("b")), Output(Column("b", TEXT), column("a")))
    return Project(below, outputs)


SCAN = _scan(Column("a", TEXT), Column("b", INT))


def test_a_tree_without_two_meanings_stays_the_same() -> None:
    tree = Filter(SCAN, (text(column("b"), " > 1"),))
    assert unambiguous(tree) is tree


def test_two_meanings_get_two_names() -> None:
    tree = _swapped(Filter(SCAN, (text(column("b"), " > 1"),)))
    assert any(len(forms) > 1 for forms in _forms(tree).values())
    made = unambiguous(tree)
    assert schema(made) == schema(tree)
    assert all(len(forms) == 1 for forms in _forms(made).values())


def test_every_kind_of_node_is_renamed() -> None:
    other = _scan(Column("c", INT))
    joined = Join(SCAN, other, (text(column("b"), " = ", column("c")),))
    count, total = Column("n", BIGINT), Column("s", BIGINT)
    grouped = Aggregate(joined, ("a", "b"), count, (Call(total, Kind.SUM, column("c")),))
    kept = Project(
        grouped, tuple(Output(Column(n, t), column(n)) for n, t in (("a", TEXT), ("b", INT)))
    )
    union = UnionAll((kept, SCAN), (Column("a 2", TEXT), Column("b 2", INT)))
    swapped = (("a", "b 2", INT), ("b", "a 2", TEXT))
    renamed = tuple(Output(Column(new, type), column(old)) for new, old, type in swapped)
    tree = Project(union, renamed)
    made = unambiguous(tree)
    assert schema(made) == schema(tree)
    assert all(len(forms) == 1 for forms in _forms(made).values())
    assert [c.name for c in schema(made)] == ["a", "b"]


def test_windows_and_series_are_renamed() -> None:
    said = text("row_number() OVER (PARTITION BY ", column("a"), " ORDER BY ", column("b"), ")")
    window = Window(SCAN, ("a",), (column("b"),), (Output(Column("n", BIGINT), said),))
    series = text("generate_series(1, ", column("b"), ")")
    tree = _swapped(Expand(window, (series,), (Column("x", INT),)))
    made = unambiguous(tree)
    assert schema(made) == schema(tree)
    assert all(len(forms) == 1 for forms in _forms(made).values())
