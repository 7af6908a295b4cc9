"""Views mean the same with what they have in common set apart, for random views and changes."""

from __future__ import annotations

from hypothesis import given, settings

from headwater.algebra.ops import Op
from headwater.algebra.walk import replaced, scans
from headwater.delta.common import View, set_apart
from headwater.delta.differentiate import differentiate
from headwater.delta.ordering import gather
from headwater.reference.evaluate import evaluate
from tests.property.data import between
from tests.property.trees import Case, cases, views
from tests.scale import scaled

COPIES = tuple((oid, f"copy {oid}") for oid in (1, 2, 3))


@settings(max_examples=scaled(200))
@given(cases(), views())
def test_what_is_in_common_may_be_set_apart(case: Case, other: Op) -> None:
    before, after = case.states
    changed = frozenset(oid for oid in before if before[oid] != after[oid])
    db = between(before, after)
    view = case.view
    for rest in set_apart((View(view, COPIES), View(view, COPIES), View(other, COPIES)))[:2]:
        joins: dict[Op, Op] = {c.stand_in: c.joined(changed) for c in rest.commons}
        assert not any(s.source.oid < 0 for s in scans(replaced(rest.tree, joins)))
        assert evaluate(replaced(rest.tree, joins), db) == evaluate(view, db)
        moved = changed | {c.stand_in.source.oid for c in rest.commons if c.reads(changed)}
        change = differentiate(replaced(gather(rest.tree, moved), joins), changed)
        assert evaluate(change, db) == evaluate(differentiate(view), db)
