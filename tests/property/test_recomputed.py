"""The change of a view by the keys that are touched, for random views, data and changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from headwater.algebra.ops import (
    Aggregate,
    Delta,
    Keys,
    Negate,
    Op,
    Scan,
    Source,
    schema,
)
from headwater.algebra.schema import names
from headwater.algebra.walk import rebuild
from headwater.delta import recomputed
from headwater.delta.recomputed import change_by_key
from headwater.reference.evaluate import Database, Table, evaluate
from headwater.reference.zset import add, difference
from tests.property.check import state_of
from tests.property.data import between
from tests.property.trees import Case, cases
from tests.scale import scaled

STORED = -3
CHANGED = 1000  # added to the number of a source: the rows that changed in it


def is_exact_by_key(case: Case) -> bool:
    """Tell whether what is stored becomes the view; whatever columns are taken for the key."""
    before, after = case.states
    tree, columns = recomputed.touching(case.view), schema(case.view)
    known = names(schema(tree)) if tree is not None else ()
    key = tuple(c.name for c in columns if c.name in known)
    stored = Scan(Source(STORED, "stored"), columns, names(columns))
    changed = frozenset(oid for oid in before if before[oid] != after[oid])
    change = change_by_key(case.view, key, stored, changed)
    assume(change is not None)
    assert change is not None
    held = state_of(case.view, before)
    db = between(before, after)
    tables = {STORED: Table(names(columns), held)}
    for oid in before:
        rows = difference(after[oid], before[oid])
        touched = {row: abs(weight) for row, weight in rows.items()}
        tables[CHANGED + oid] = Table(db.after[oid].attributes, touched)
    full = Database({**db.before, **tables}, {**db.after, **tables})
    return add(held, evaluate(row_by_row(change), full)) == state_of(case.view, after)


def row_by_row(op: Op) -> Op:
    """Let keys be those of all rows that changed, before anything is summed up, as SQL does it."""
    if isinstance(op, Keys):
        return replace(op, input=_unsigned(op.input))
    return rebuild(op, row_by_row)


def _unsigned(op: Op) -> Op:
    match op:
        case Negate():
            return _unsigned(op.input)
        case Delta(input=Scan() as scan):
            return replace(scan, source=Source(CHANGED + scan.source.oid, "changed"))
    return rebuild(op, _unsigned)


@pytest.fixture(autouse=True)
def whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave changes the columns by which they differ: here rows are kept once, with a weight."""
    monkeypatch.setattr(recomputed, "prune", lambda op, needed: op)


@settings(
    max_examples=scaled(120),
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
)
@given(cases())
def test_touched_keys_are_enough(case: Case) -> None:
    assert is_exact_by_key(case)


def test_a_wrong_tree_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups by their own change touch only those that come or go."""
    right = recomputed.touching

    def wrong(op: Op) -> Op | None:
        if not isinstance(op, Aggregate):
            return right(op)
        below = right(op.input)
        is_known = below is not None and set(op.keys) <= set(names(schema(below)))
        return replace(op, input=below, calls=()) if is_known and below and op.keys else None

    monkeypatch.setattr(recomputed, "touching", wrong)

    @settings(
        max_examples=scaled(500),
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.filter_too_much],
    )
    @given(cases())
    def check(case: Case) -> None:
        assert is_exact_by_key(case)

    with pytest.raises(AssertionError):
        check()
