from __future__ import annotations

import pytest

from headwater.algebra.expr import (
    Expr,
    Ref,
    as_column,
    column,
    equality,
    refs,
    show,
    substitute,
    template,
    text,
)


@pytest.mark.parametrize(
    ("parts", "merged"),
    [
        ((), ()),
        (("a", "b"), ("ab",)),
        (("", Ref("x"), ""), (Ref("x"),)),
        (("f(", Ref("x"), ")", " + ", "1"), ("f(", Ref("x"), ") + 1")),
        ((Ref("x"), Ref("y")), (Ref("x"), Ref("y"))),
        (("(", Expr(("a ", Ref("x"), " b")), ")"), ("(a ", Ref("x"), " b)")),
        ((column("x"), " = ", column("y")), (Ref("x"), " = ", Ref("y"))),
    ],
)
def test_text_merges_neighbours(
    parts: tuple[str | Ref | Expr, ...], merged: tuple[str | Ref, ...]
) -> None:
    assert text(*parts) == Expr(merged)


def test_refs() -> None:
    assert refs() == frozenset()
    assert refs(text("1")) == frozenset()
    assert refs(text(Ref("x"), " + ", Ref("y")), column("x")) == {"x", "y"}


@pytest.mark.parametrize(
    ("expr", "name"),
    [
        (column("x"), "x"),
        (text("x"), None),
        (text("(", Ref("x"), ")"), None),
        (text(Ref("x"), Ref("y")), None),
        (text(), None),
    ],
)
def test_as_column(expr: Expr, name: str | None) -> None:
    assert as_column(expr) == name


def test_substitute_puts_a_column_without_brackets() -> None:
    new = substitute(text(Ref("x"), " + ", Ref("y")), {"x": column("z")})
    assert new == text(Ref("z"), " + ", Ref("y"))


def test_substitute_brackets_an_expression() -> None:
    new = substitute(text(Ref("x"), " * ", Ref("x")), {"x": text(Ref("a"), " + 1")})
    assert new == text("(", Ref("a"), " + 1) * (", Ref("a"), " + 1)")


def test_substitute_replaces_all_at_once() -> None:
    new = substitute(text(Ref("x"), " - ", Ref("y")), {"x": column("y"), "y": column("x")})
    assert new == text(Ref("y"), " - ", Ref("x"))


def test_template_and_show() -> None:
    expr = text("COALESCE(", Ref("x"), ", ", Ref("y"), ")")
    assert template(expr) == "COALESCE({}, {})"
    assert show(expr) == "COALESCE(x, y)"
    assert show(expr, lambda name: f'"{name}"') == 'COALESCE("x", "y")'


@pytest.mark.parametrize(
    ("conjunct", "pair"),
    [
        (text(Ref("x"), " = ", Ref("y")), ("x", "y")),
        (text(Ref("x"), " IS NOT DISTINCT FROM ", Ref("y")), None),
        (text(Ref("x"), " <> ", Ref("y")), None),
        (text(Ref("x"), " = 1"), None),
        (text("(", Ref("x"), " = ", Ref("y"), ")"), None),
        (column("x"), None),
    ],
)
def test_equality_is_that_of_two_columns(conjunct: Expr, pair: tuple[str, str] | None) -> None:
    assert equality(conjunct) == pair
