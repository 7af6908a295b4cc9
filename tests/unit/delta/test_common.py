"""What several views have in common is found, and is one tree in all of them."""

from __future__ import annotations

from dataclasses import replace

from headwater.algebra.expr import column, refs, text
from headwater.algebra.ops import AntiJoin, Filter, Join, Op, Scan, Source, UnionAll, schema
from headwater.algebra.schema import Column, SqlType, names
from headwater.algebra.walk import distinct, replaced, scans
from headwater.delta.common import Rest, View, set_apart
from headwater.delta.differentiate import differentiate
from headwater.delta.ordering import gather
from tests.unit.algebra.samples import grouped, is_equal, is_positive, keep, rename

TEXT = SqlType("text")
COPIES = ((1, "lake/orders"), (2, "lake/lines"), (3, "lake/parts"))


def scan(oid: int, prefix: str, *attributes: str) -> Scan:
    columns = tuple(Column(f"{prefix}{a}", TEXT) for a in attributes)
    return Scan(Source(oid, f"t{oid}"), columns, attributes)


def orders(prefix: str, *attributes: str) -> Scan:
    return scan(1, prefix, *attributes)


def lines(prefix: str, *attributes: str) -> Scan:
    return scan(2, prefix, *attributes)


PLAIN = Join(orders("a ", "id"), lines("b ", "of", "amount"), (is_equal("a id", "b of"),))
TURNED = Join(lines("c ", "of"), orders("d ", "id", "who"), (is_equal("c of", "d id"),))
PARTS = scan(3, "p ", "part")
LONGER = Join(
    Join(PARTS, lines("e ", "of", "part"), (is_equal("p part", "e part"),)),
    orders("o ", "id"),
    (is_equal("e of", "o id"),),
)


def apart(*trees: Op, copies: tuple[tuple[int, str], ...] = COPIES) -> tuple[Rest, ...]:
    return set_apart(tuple(View(tree, copies) for tree in trees))


def put_back(rest: Rest, changed: frozenset[int]) -> Op:
    return replaced(rest.tree, {c.stand_in: c.joined(changed) for c in rest.commons})


def conditions(rest: Rest) -> list[str]:
    [common] = rest.commons
    return ["".join(str(part) for part in test.parts) for test in common.on]


def test_a_join_is_the_same_whatever_its_columns_and_sides() -> None:
    found = apart(PLAIN, TURNED, LONGER)
    [common] = {common for rest in found for common in rest.commons}
    assert [s.attributes for s in common.scans] == [("amount", "of", "part"), ("id", "who")]
    for rest, tree in zip(found, (PLAIN, TURNED, LONGER), strict=True):
        assert schema(rest.tree) == schema(tree)


def test_the_change_of_the_join_is_one_tree_in_all() -> None:
    changed = frozenset({1, 2, 3})
    for rest in apart(PLAIN, keep(TURNED, "d who"), LONGER, grouped(PLAIN, "b amount")):
        [common] = rest.commons
        change = differentiate(common.joined(changed), changed)
        moved = changed | {common.stand_in.source.oid}
        tree = replaced(gather(rest.tree, moved), {common.stand_in: common.joined(changed)})
        assert change in distinct(differentiate(tree, changed))


def test_conditions_that_not_all_have_stay_with_those_that_do() -> None:
    filtered = Filter(PLAIN, (is_positive("b amount"),))
    below = replace(PLAIN, right=Filter(PLAIN.right, (is_positive("b amount"),)))
    assert len(conditions(apart(filtered, PLAIN)[0])) == 1
    for one in apart(filtered, below):
        assert len(conditions(one)) == 2
    rest, other = apart(filtered, PLAIN)
    assert [type(op) for op in distinct(rest.tree)][1:] == [Filter, Scan]
    assert len(distinct(other.tree)) == 2


def test_most_views_decide() -> None:
    filtered = Filter(PLAIN, (is_positive("b amount"),))
    common = {c for rest in apart(filtered, filtered, PLAIN) for c in rest.commons}
    assert len(common) == 1


def test_other_joins_are_left_alone() -> None:
    by_amount = Join(orders("a ", "id"), lines("b ", "amount"), (is_equal("a id", "b amount"),))
    crossed = Join(orders("a ", "id"), lines("b ", "of"))
    for tree in (by_amount, crossed, PARTS, grouped(PARTS, "p part")):
        assert apart(PLAIN, tree) == (Rest(PLAIN), Rest(tree))


def test_copies_must_be_the_same() -> None:
    other = View(TURNED, ((1, "lake/orders"), (2, "lake/other")))
    assert set_apart((View(PLAIN, COPIES), other)) == (Rest(PLAIN), Rest(TURNED))
    assert apart(PLAIN, TURNED, copies=()) == (Rest(PLAIN), Rest(TURNED))


def test_one_view_alone_has_nothing_in_common() -> None:
    union = UnionAll((PLAIN, TURNED_AS_PLAIN), schema(PLAIN))
    assert apart(union) == (Rest(union),)


TURNED_AS_PLAIN = keep(
    rename(
        Join(lines("c ", "of", "amount"), orders("d ", "id"), (is_equal("c of", "d id"),)),
        **{"d id": "f id", "c of": "f of", "c amount": "f amount"},
    ),
    "f id", "f of", "f amount",
)  # fmt: skip


def test_a_view_has_a_join_under_one_name_only() -> None:
    """The branches of a union may be joined alike, but their names differ."""
    union = UnionAll((PLAIN, TURNED_AS_PLAIN), tuple(Column(n, TEXT) for n in "xyz"))
    rest, _ = apart(union, PLAIN)
    assert len(rest.commons) == 1
    assert TURNED_AS_PLAIN in distinct(rest.tree)


def test_an_outer_join_keeps_both_its_parts_alike() -> None:
    matched = Join(PLAIN, PARTS, (is_equal("b amount", "p part"),))
    alone = AntiJoin(PLAIN, PARTS, (is_equal("b amount", "p part"),))
    rest, _ = apart(UnionAll((keep(matched, *names(schema(PLAIN))), alone), schema(PLAIN)), PLAIN)
    assert not [s for s in scans(rest.tree) if s.source.oid in (1, 2)]


def test_self_joins_are_told_apart_by_their_places() -> None:
    def boss(prefix: str, *more: str) -> Join:
        who, of = orders(f"{prefix}1 ", "id", "who"), orders(f"{prefix}2 ", "id", *more)
        return Join(who, of, (is_equal(f"{prefix}1 who", f"{prefix}2 id"),))

    first, second = apart(boss("x"), boss("y", "name"))
    assert first.commons == second.commons
    assert [s.attributes for s in first.commons[0].scans] == [("id", "who"), ("id", "name")]
    twisted = Join(orders("z1 ", "id"), orders("z2 ", "id", "who"), (is_equal("z1 id", "z2 who"),))
    assert apart(boss("x"), twisted)[0].commons == ()


def test_a_relation_without_columns_is_still_counted() -> None:
    pairs = Join(PLAIN, scan(3, "n "))
    rest, _ = apart(pairs, PLAIN)
    assert [s.source.oid for s in scans(put_back(rest, frozenset())) if s.source.oid == 3] == [3]


def test_values_that_are_computed_between_joins_end_a_tree_of_joins() -> None:
    outputs = tuple(
        replace(output, expr=text(column("a id"), " || 'x'")) if refs(output.expr) == {"a id"}
        else output
        for output in keep(PLAIN, "a id", "b of").outputs
    )  # fmt: skip
    shown = replace(keep(PLAIN, "a id", "b of"), outputs=outputs)
    rest, _ = apart(Join(shown, PARTS, (is_equal("a id", "p part"),)), PLAIN)
    assert len(rest.commons) == 1
    assert PARTS in distinct(rest.tree)
