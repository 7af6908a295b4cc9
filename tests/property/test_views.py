"""What holds of a view itself: no negative rows, pruning, storing, and true unique keys."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.algebra.codec import decode, encode
from headwater.algebra.keys import unique_keys
from headwater.algebra.ops import Op, schema
from headwater.algebra.prune import prune
from headwater.algebra.schema import names
from headwater.algebra.sink import sink
from headwater.algebra.walk import walk
from headwater.delta.differentiate import differentiate
from headwater.reference.zset import Zset, collect
from tests.property.check import state_of
from tests.property.data import is_unique
from tests.property.trees import Case, cases, views
from tests.scale import scaled


@settings(max_examples=scaled(150))
@given(cases())
def test_no_row_is_negative(case: Case) -> None:
    for state in case.states:
        assert [w for w in state_of(case.view, state).values() if w < 0] == []


@settings(max_examples=scaled(200))
@given(cases())
def test_unique_keys_are_unique(case: Case) -> None:
    for node in walk(case.view):
        for state in case.states:
            rows = state_of(node, state)
            for key in unique_keys(node):
                assert is_unique(rows, names(schema(node)), key), (node, key)


@settings(max_examples=scaled(100))
@given(cases())
def test_columns_without_nulls_have_none(case: Case) -> None:
    for node in walk(case.view):
        for state in case.states:
            for row in state_of(node, state):
                pairs = zip(schema(node), row, strict=True)
                assert [c.name for c, v in pairs if v is None and not c.nullable] == []


@settings(max_examples=scaled(150))
@given(cases())
def test_pruning_keeps_the_rows(case: Case) -> None:
    pruned = prune(case.view)
    assert schema(pruned) == schema(case.view)
    assert state_of(pruned, case.states[1]) == state_of(case.view, case.states[1])


@settings(max_examples=scaled(200))
@given(cases())
def test_sinking_conditions_keeps_the_rows(case: Case) -> None:
    sunk = sink(case.view)
    assert schema(sunk) == schema(case.view)
    assert state_of(sunk, case.states[1]) == state_of(case.view, case.states[1])


@settings(max_examples=scaled(150))
@given(cases(), st.data())
def test_pruning_keeps_the_needed_columns(case: Case, data: st.DataObject) -> None:
    columns = names(schema(case.view))
    needed = data.draw(st.lists(st.sampled_from(columns), unique=True)) if columns else []
    kept = [name for name in columns if name in needed]
    pruned = prune(case.view, frozenset(needed))
    assert columns_of(pruned, case, kept) == columns_of(case.view, case, kept)


def columns_of(op: Op, case: Case, wanted: list[str]) -> Zset:
    at = [names(schema(op)).index(name) for name in wanted]
    rows = state_of(op, case.states[1])
    return collect((tuple(row[i] for i in at), weight) for row, weight in rows.items())


@settings(max_examples=scaled(100))
@given(views())
def test_trees_can_be_stored(view: Op) -> None:
    for op in (view, differentiate(view)):
        assert decode(json.loads(json.dumps(encode(op)))) == op
