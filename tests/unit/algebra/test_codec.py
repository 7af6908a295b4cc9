from __future__ import annotations

import json

import pytest

from headwater.algebra.calls import Call, Kind
from headwater.algebra.codec import decode, decode_op, encode
from headwater.algebra.expr import column, text
from headwater.algebra.ops import (
    After,
    Aggregate,
    AntiJoin,
    Consolidate,
    Delta,
    Empty,
    Filter,
    Join,
    Keys,
    Negate,
    Op,
    Repeat,
    Restrict,
    SemiJoin,
    Single,
    UnionAll,
)
from headwater.algebra.schema import BIGINT, Column, SqlType
from headwater.errors import InvalidPlan
from tests.unit.algebra.samples import (
    COUNT,
    CUSTOMERS,
    EVENTS,
    ORDERS,
    grouped,
    ints,
    is_equal,
    keep,
    ranked,
    recursive,
    series,
    union,
)

ON = (is_equal("o_customer", "c_id"),)
CALL = Call(Column("c", SqlType("text", "pg_catalog.C")), Kind.MIN, column("o_amount"))


def test_form() -> None:
    assert encode(Repeat(Single(), text("1"))) == {
        "is": "Repeat",
        "input": {"is": "Single"},
        "times": {"is": "Expr", "parts": ["1"]},
    }
    assert encode(Call(Column("n", BIGINT, nullable=False), Kind.SUM, column("x"))) == {
        "is": "Call",
        "column": {
            "is": "Column",
            "name": "n",
            "type": {
                "is": "SqlType",
                "name": "bigint",
                "collation": None,
                "equality": "=",
                "is_image": True,
            },
            "nullable": False,
        },
        "kind": {"is": "Kind", "value": "sum"},
        "expr": {"is": "Expr", "parts": [{"is": "Ref", "name": "x"}]},
    }


@pytest.mark.parametrize(
    "op",
    [
        Single(),
        Empty(()),
        ORDERS,
        Aggregate(Join(ORDERS, CUSTOMERS, ON), ("c_name",), COUNT, (CALL,)),
        UnionAll((CUSTOMERS, EVENTS), ints("a", "b"), disjoint=("a",)),
        union(AntiJoin(ORDERS, CUSTOMERS, ON), SemiJoin(After(ORDERS), Delta(CUSTOMERS), ON)),
        ranked(series(ORDERS, "o_amount"), "o_customer", by="o_id"),
        recursive(EVENTS, Filter(CUSTOMERS, ON[:0])),
        Consolidate(Negate(Restrict(After(EVENTS), (), Keys(Delta(EVENTS), ())))),
        grouped(keep(EVENTS)),
    ],
)
def test_round_trip(op: Op) -> None:
    assert decode_op(json.loads(json.dumps(encode(op)))) == op


def test_only_trees_are_stored() -> None:
    for value in (object(), 1.5, Op):
        with pytest.raises(InvalidPlan) as caught:
            encode(value)
        assert caught.value.what == f"{type(value).__name__} cannot be stored"


def test_an_unknown_node_is_refused() -> None:
    with pytest.raises(InvalidPlan) as caught:
        decode({"is": "Nothing"})
    assert caught.value.what == "unknown node Nothing in a stored plan"


def test_what_is_no_operator_is_no_plan() -> None:
    with pytest.raises(InvalidPlan) as caught:
        decode_op(encode(column("x")))
    assert caught.value.what == "a stored plan is no operator tree"


def test_a_stored_plan_is_checked_like_any_other() -> None:
    stored = encode(Repeat(EVENTS, column("e_x")))
    stored["times"] = encode(column("x"))
    with pytest.raises(InvalidPlan) as caught:
        decode_op(stored)
    assert caught.value.what == "Repeat reads ['x'], which its input does not produce"
