from __future__ import annotations

import pytest

from headwater.algebra.expr import Expr, Ref, column, show, text
from headwater.sql.expression import NotParsed
from headwater.sql.window_call import (
    FIRST,
    LAST,
    Bound,
    Frame,
    Sort,
    WindowCall,
    parse_window,
    spelled,
)

HERE = Bound(0, is_start=False)
BY_DEFAULT = Frame("RANGE", FIRST, HERE)


def over(*parts: str | Ref) -> Expr:
    return text("sum(", Ref("a"), ") OVER (", *parts, ")")


def parsed(expr: Expr) -> WindowCall:
    call = parse_window(expr)
    assert isinstance(call, WindowCall)
    return call


def test_the_parts_of_a_call() -> None:
    call = parsed(
        text("lead(", Ref("a"), ", 2, '-1'::integer) FILTER (WHERE (", Ref("f"), " = 1))"
             " OVER (PARTITION BY ", Ref("k"), " ORDER BY ", Ref("b"), " DESC)")
    )  # fmt: skip
    assert (call.name, len(call.arguments)) == ("lead", 3)
    assert call.arguments[0] == column("a")
    assert call.condition is not None
    assert call.order == (Sort(column("b"), descending=True, nulls_first=True),)
    assert call.frame == BY_DEFAULT


@pytest.mark.parametrize(
    ("said", "descending", "nulls_first"),
    [
        ("", False, False),
        (" DESC", True, True),
        (" NULLS FIRST", False, True),
        (" DESC NULLS LAST", True, False),
    ],
)
def test_null_is_the_largest_value(said: str, descending: bool, nulls_first: bool) -> None:
    call = parsed(over("ORDER BY ", Ref("b"), said))
    assert call.order == (Sort(column("b"), descending, nulls_first),)


@pytest.mark.parametrize(
    ("said", "frame"),
    [
        ("ROWS UNBOUNDED PRECEDING", Frame("ROWS", FIRST, HERE)),
        ("ROWS 2 PRECEDING", Frame("ROWS", Bound(-2, is_start=True), HERE)),
        (
            "ROWS BETWEEN 1 PRECEDING AND 3 FOLLOWING",
            Frame("ROWS", Bound(-1, is_start=True), Bound(3, is_start=False)),
        ),
        (
            "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            Frame("RANGE", Bound(0, is_start=True), LAST),
        ),
    ],
)
def test_frames(said: str, frame: Frame) -> None:
    assert parsed(over("ORDER BY ", Ref("b"), " ", said)).frame == frame


@pytest.mark.parametrize(
    "said",
    ["GROUPS 1 PRECEDING", "ROWS 1 PRECEDING EXCLUDE TIES", "RANGE '1 day'::interval PRECEDING"],
)
def test_other_frames_are_not_known(said: str) -> None:
    assert isinstance(parse_window(over("ORDER BY ", Ref("b"), " ", said)), NotParsed)


def test_functions_of_other_schemas_are_not_known() -> None:
    assert isinstance(parse_window(text("mine.f(", Ref("a"), ") OVER ()")), NotParsed)


def test_a_call_is_spelled_as_it_means() -> None:
    call = parsed(over("PARTITION BY ", Ref("k"), " ORDER BY ", Ref("b"), ", ", Ref("c"), " DESC"))
    said = spelled(call, ("k",))
    assert show(said) == (
        "sum(a) OVER (PARTITION BY k ORDER BY b ASC NULLS LAST, c DESC NULLS FIRST"
        " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    )
    assert parse_window(said) == call
