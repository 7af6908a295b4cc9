"""A recursion is followed by its parts, over data with cycles; wrong ways to do so are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from headwater.algebra.expr import column, text
from headwater.algebra.loops import is_followed
from headwater.algebra.ops import (
    After,
    AntiJoin,
    Empty,
    Filter,
    Fixpoint,
    Itself,
    Join,
    Loop,
    OneWay,
    Op,
    Output,
    Project,
    Scan,
    SemiJoin,
    Source,
    UnionAll,
    Whole,
    schema,
)
from headwater.algebra.schema import Column, Schema, names
from headwater.delta import recursion, rules
from headwater.delta.stored import change_from_stored
from headwater.reference.evaluate import Database, Table, When, evaluate
from headwater.reference.zset import Zset, add
from tests.property.build import INTEGER
from tests.property.data import State, between, histories
from tests.property.trees import Case, named
from tests.scale import scaled

STORED = -3


def columns(*titles: str) -> Schema:
    return tuple(Column(title, INTEGER) for title in titles)


def scan(oid: int, prefix: str) -> Scan:
    relation = {1: ("bag", ("x", "y")), 3: ("pair", ("l", "m"))}[oid]
    made = columns(*(f"{prefix}{a}" for a in relation[1]))
    return Scan(Source(oid, relation[0]), made, relation[1])


def shown(op: Op, titles: tuple[str, str], sources: tuple[str, str]) -> Op:
    pairs = zip(columns(*titles), sources, strict=True)
    return Project(op, tuple(Output(c, column(source)) for c, source in pairs))


ITSELF = Itself("r", columns("ra", "rb"))
STEPS = ("join", "join", "three", "blocked", "only", "branches")


@st.composite
def loops(draw: st.DrawFn) -> Loop:
    """Draw a base and a step: one edge on, two edges on, with conditions on other tables."""
    oids = st.sampled_from((1, 3))
    start, edge = scan(draw(oids), "s"), scan(draw(oids), "e")
    base: Op = start
    if draw(st.booleans()):
        base = Filter(start, (text(column(start.columns[0].name), " = 0"),))
    base = shown(base, ("ba", "bb"), (start.columns[0].name, start.columns[1].name))
    a, b = names(edge.columns)
    joined: Op = Join(ITSELF, edge, (text(column("rb"), " = ", column(a)),))
    match draw(st.sampled_from(STEPS)):
        case "three":
            more = scan(draw(oids), "m")
            c, b = names(more.columns)
            joined = Join(joined, more, (text(column(names(edge.columns)[1]), " = ", column(c)),))
        case "blocked" | "only" as kind:
            other = scan(draw(oids), "o")
            on = (text(column(b), " = ", column(other.columns[0].name)),)
            joined = (AntiJoin if kind == "blocked" else SemiJoin)(joined, other, on)
        case "branches":
            arms = (
                shown(joined, ("ca", "cb"), ("ra", b)),
                shown(scan(1, "z"), ("da", "db"), ("zy", "zx")),
            )
            return Loop(base, UnionAll(arms, columns("ua", "ub")), ITSELF)
    order = ("ra", b) if draw(st.booleans()) else (b, "ra")
    return Loop(base, shown(joined, ("na", "nb"), order), ITSELF)


@st.composite
def cases(draw: st.DrawFn, changes: int = 1) -> Case:
    whole = Whole((), ("",), columns("wa", "wb"), draw(loops()))
    view = named(whole, columns("b", "a")) if draw(st.booleans()) else whole
    return Case(view, draw(histories({1, 3}, changes)))


def computed(view: Op, db: Database, when: When) -> Zset:
    """The rows of the view, straight from the definition of a recursion."""
    whole = view.input if isinstance(view, Project) else view
    assert isinstance(whole, Whole)
    assert whole.loop is not None
    fixpoint = Fixpoint(whole.loop.base, whole.loop.step, whole.loop.itself)
    pairs = zip(whole.columns, names(schema(fixpoint)), strict=True)
    rows: Op = Project(fixpoint, tuple(Output(c, column(name)) for c, name in pairs))
    return evaluate(replace(view, input=rows) if isinstance(view, Project) else rows, db, when)


def followed(case: Case, changed: frozenset[int] | None = None) -> bool:
    """Tell whether the stored rows and the change give the rows after it."""
    before, after = case.states
    db = between(before, after)
    rows, wanted = (computed(case.view, db, when) for when in (When.BEFORE, When.AFTER))
    titles = names(schema(case.view))
    held = {STORED: Table(titles, rows)}
    states = Database({**db.before, **held}, {**db.after, **held})
    stored = Scan(Source(STORED, "stored"), schema(case.view), titles)
    plan = change_from_stored(case.view, stored, changed)
    assert plan is not None, rules.__all__
    return add(rows, evaluate(plan, states)) == wanted


def moved(before: State, after: State) -> frozenset[int]:
    return frozenset(oid for oid in before if before[oid] != after[oid])


@settings(max_examples=scaled(120), suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_stored_rows_and_change_give_the_rows_after_it(case: Case) -> None:
    assert followed(case)


@settings(max_examples=scaled(40), suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_what_did_not_change_is_not_asked(case: Case) -> None:
    assert followed(case, moved(*case.states))


@given(loops())
def test_the_steps_are_linear(loop: Loop) -> None:
    assert is_followed(loop, columns("wa", "wb"))


def test_nothing_changed_is_known_without_data() -> None:
    case = find(cases(), lambda found: isinstance(found.view, Whole))
    stored = Scan(Source(STORED, "stored"), schema(case.view), names(schema(case.view)))
    assert isinstance(change_from_stored(case.view, stored, frozenset()), Empty)


# --- wrong ways ---


def net_losses(op: Op, *, going: bool) -> Op:
    """A derivation that came makes up for none that went: it may come from the row itself."""
    return OneWay(op, going)


def no_losses(loop: Loop, change: Op, before: recursion.Stored) -> Fixpoint:
    """Nothing goes."""
    right = RIGHT_LOSSES(loop, change, before)
    return replace(right, base=Empty(schema(right.base)))


def first_losses(loop: Loop, change: Op, before: recursion.Stored) -> Fixpoint:
    """What a row led to goes with it."""
    right = RIGHT_LOSSES(loop, change, before)
    return replace(right, step=After(right.itself))


def nothing_comes_back(loop: Loop, change: Op, gone: Op, before: recursion.Stored) -> Fixpoint:
    """What has another derivation comes back."""
    return RIGHT_FINDS(loop, change, Empty(schema(gone)), before)


def first_finds(loop: Loop, change: Op, gone: Op, before: recursion.Stored) -> Fixpoint:
    """What comes leads on."""
    right = RIGHT_FINDS(loop, change, gone, before)
    return replace(right, step=After(right.itself))


def all_is_kept(gone: Op, before: recursion.Stored) -> Op:
    """What may have gone derives nothing before it is derived itself."""
    return before.rows()


RIGHT_LOSSES, RIGHT_FINDS = recursion.lost_rows, recursion.found_rows
WRONG: list[tuple[str, Callable[..., Op]]] = [
    ("one_way", net_losses),
    ("lost_rows", no_losses),
    ("lost_rows", first_losses),
    ("found_rows", nothing_comes_back),
    ("found_rows", first_finds),
    ("kept_rows", all_is_kept),
]


@pytest.mark.parametrize(("name", "wrong"), WRONG, ids=[w.__name__ for _, w in WRONG])
def test_a_wrong_way_is_found(
    name: str, wrong: Callable[..., Op], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recursion, name, wrong)
    search = settings(max_examples=3000, phases=[Phase.generate], database=None)
    find(cases(), lambda case: not followed(case), settings=search, random=Random(1))
