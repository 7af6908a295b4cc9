"""The planner, with a simulated clock: no server, no waiting."""

from __future__ import annotations

import math
import sys
from collections import Counter
from dataclasses import replace
from random import Random
from types import FrameType
from typing import Any

import pytest

from headwater.schedule.periods import Pace, next_due, period_of, stretched
from headwater.schedule.plan import Plan, Snapshot, Table, make_plan, paces_of, retry_after

NOW = 1_800_000_000.0 - 1_800_000_000.0 % 3072


def plan(*tables: Table, now: float = NOW, **settings: Any) -> Plan:
    return make_plan(Snapshot(now, tables, **settings))


def names(found: Plan) -> list[str]:
    return [start.name for start in found.starts]


def table(pgt_id: int, *reads: int, **facts: Any) -> Table:
    """A table that stands where it was filled at NOW - 1, under a lag of one minute."""
    given: dict[str, Any] = {"lag": 60.0, "data_time": NOW - 1, **facts}
    return Table(pgt_id=pgt_id, name=f"t{pgt_id}", reads=reads, **given)


# --- periods ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lag", "period"),
    [(1, 0.75), (1.5, 0.75), (3, 1.5), (5, 1.5), (6, 3), (11, 3), (12, 6), (60, 24), (95, 24),
     (96, 48), (191, 48), (192, 96), (300, 96), (3600, 1536), (86400, 24576)],
)  # fmt: skip
def test_period_is_the_largest_within_half_the_lag(lag: float, period: float) -> None:
    assert period_of(lag) == period


def test_moments_of_longer_periods_are_moments_of_shorter_ones() -> None:
    for lag in (6, 60, 300, 3600):
        moment = next_due(Pace(lag=3600 * 4), NOW + 17)
        assert next_due(Pace(lag=float(lag)), moment - 0.001) == moment


def test_a_refresh_that_takes_longer_than_its_period_comes_less_often() -> None:
    assert stretched(24, 24) == 24
    assert stretched(24, 25) == 48
    assert stretched(24, 200) == 384
    slow = table(1, data_time=NOW + 1, duration=30.0)
    assert plan(slow, now=NOW + 2).look_again == NOW + 48
    assert plan(slow, now=NOW + 2, auto_backoff=False).look_again == NOW + 24
    assert plan(replace(slow, duration=1.0), now=NOW + 2).look_again == NOW + 24


# --- what is due --------------------------------------------------------------------------------


def test_due_at_the_moment_of_its_period_and_not_before() -> None:
    assert names(plan(table(1), now=NOW)) == ["t1"]
    fresh = table(1, data_time=NOW + 0.5)
    assert plan(fresh, now=NOW + 23.9) == Plan(look_again=NOW + 24)
    assert names(plan(fresh, now=NOW + 24)) == ["t1"]


def test_never_filled_is_due_at_once() -> None:
    assert names(plan(table(1, data_time=None, status="INITIALIZING"))) == ["t1"]


def test_cron() -> None:
    nightly = table(1, lag=None, cron="0 3 * * *", data_time=NOW)
    due = plan(nightly).look_again
    assert due % 86400 == 3 * 3600
    assert names(plan(nightly, now=due - 1)) == []
    assert names(plan(nightly, now=due)) == ["t1"]
    assert names(plan(replace(nightly, data_time=due + 1), now=due + 2)) == []


def test_what_another_due_table_reads_is_covered_by_it() -> None:
    diamond = (table(1), table(2, 1), table(3, 1), table(4, 2, 3))
    found = plan(*diamond)
    assert names(found) == ["t4"]
    assert found.starts[0].moves == frozenset({1, 2, 3, 4})


def test_different_lags_meet() -> None:
    """A table of a longer lag moves its source along, at a moment of both periods."""
    source, reader = table(1, data_time=NOW + 1), table(2, 1, lag=300.0, data_time=NOW + 1)
    assert names(plan(source, reader, now=NOW + 24)) == ["t1"]
    assert names(plan(source, reader, now=NOW + 96)) == ["t2"]


def test_oldest_first_then_upstream_first() -> None:
    tables = (table(3), table(2), table(1, data_time=NOW - 100))
    assert names(plan(*tables)) == ["t1", "t3", "t2"]


def test_an_immediate_table_is_never_started_and_never_moved() -> None:
    tables = (table(1), table(2, 1, is_immediate=True, lag=None), table(3, 2))
    assert names(plan(*tables)) == ["t3"]
    assert plan(*tables).starts[0].moves == frozenset({1, 3})


def test_spark_is_named() -> None:
    found = plan(table(1, on_spark=True), table(2, 1), table(3))
    assert {start.name: start.on_spark for start in found.starts} == {"t2": True, "t3": False}


def test_switched_off() -> None:
    found = plan(table(1), table(2, status="SUSPENDED"), enabled=False)
    assert found.starts == ()
    assert found.held == {1: "pg_trickle.enabled is off", 2: "it is suspended"}


# --- DOWNSTREAM ---------------------------------------------------------------------------------


def test_downstream_is_the_tightest_of_those_that_read_it() -> None:
    chain = [table(1, lag=None), table(2, 1, lag=None), table(3, 2, lag=300.0), table(4, 2)]
    assert paces_of(chain, 60.0) == {
        1: Pace(60.0), 2: Pace(60.0), 3: Pace(300.0), 4: Pace(60.0)
    }  # fmt: skip


def test_downstream_without_readers_is_the_minimum() -> None:
    assert paces_of([table(1, lag=None)], 45.0) == {1: Pace(45.0)}
    below_immediate = [table(1, lag=None), table(2, 1, lag=None, is_immediate=True)]
    assert paces_of(below_immediate, 45.0) == {1: Pace(45.0), 2: Pace()}


def test_downstream_of_a_cron_line_and_of_a_lag() -> None:
    nightly = table(2, 1, lag=None, cron="0 3 * * *")
    assert paces_of([table(1, lag=None), nightly], 60.0)[1] == Pace(None, frozenset(["0 3 * * *"]))
    both = [table(1, lag=None), nightly, table(3, 1, lag=300.0)]
    assert paces_of(both, 60.0)[1] == Pace(300.0, frozenset(["0 3 * * *"]))


# --- held, failed, running ----------------------------------------------------------------------


def test_what_reads_a_suspended_table_is_held_and_says_so() -> None:
    tables = (table(1), table(2, 1, status="SUSPENDED"), table(3, 2), table(4, 3))
    found = plan(*tables)
    assert names(found) == ["t1"]
    assert found.held == {
        2: "it is suspended",
        3: "t2, which it reads, is suspended",
        4: "t3, which it reads, is held",
    }


def test_a_failure_that_may_pass_is_tried_again_after_a_growing_while() -> None:
    assert [retry_after(n) for n in (0, 1, 2, 3, 9, 10, 5000)] == [1, 1, 2, 4, 256, 300, 300]
    failed = table(1, lag=3600.0, failed_at=NOW + 10, may_pass=True, errors=3, status="ERROR")
    found = plan(failed, now=NOW + 13)
    assert (names(found), found.look_again) == ([], NOW + 14)
    assert found.held == {1: "its last refresh failed; it is tried again later"}
    assert names(plan(failed, now=NOW + 14)) == ["t1"]


def test_any_other_failure_waits_for_the_next_moment_of_the_schedule() -> None:
    failed = table(1, failed_at=NOW + 1, errors=1, status="ERROR")
    assert (names(plan(failed, now=NOW + 23)), plan(failed, now=NOW + 23).look_again) == (
        [], NOW + 24,
    )  # fmt: skip
    assert names(plan(failed, now=NOW + 24)) == ["t1"]


def test_what_a_failing_table_reads_goes_on_without_it() -> None:
    tables = (table(1), table(2, 1, failed_at=NOW + 1, errors=1, status="ERROR"))
    assert names(plan(*tables, now=NOW + 2)) == ["t1"]


def test_what_reads_a_failing_table_waits_for_it() -> None:
    source = table(1, failed_at=NOW + 1, may_pass=True, errors=4, status="ERROR")
    found = plan(source, table(2, 1), now=NOW + 5)
    assert names(found) == []
    assert found.held[2] == "t1, which it reads, failed and is tried again later"
    assert found.look_again == NOW + 9
    assert names(plan(source, table(2, 1), now=NOW + 9)) == ["t2"]


def test_due_while_its_refresh_runs_is_skipped_once_and_the_next_covers_it() -> None:
    running = table(1, started_at=NOW + 1)
    assert plan(running, now=NOW + 23).skips == ()
    found = plan(running, now=NOW + 24)
    assert (found.skips, found.starts) == ((1,), ())
    skipped = replace(running, skipped_at=NOW + 24.1)
    assert plan(skipped, now=NOW + 25).skips == ()
    ended = replace(skipped, started_at=None, data_time=NOW + 1)
    assert names(plan(ended, now=NOW + 47)) == []
    assert names(plan(ended, now=NOW + 48)) == ["t1"]


def test_late_by_more_than_a_period() -> None:
    behind = table(1, data_time=NOW - 30)
    assert plan(behind, now=NOW + 10).late == {1: 34.0}
    assert plan(table(1), now=NOW + 10).late == {}
    assert plan(replace(behind, status="SUSPENDED"), now=NOW + 10).late == {}


def test_one_that_runs_on_and_on_becomes_late_however_often_it_is_skipped() -> None:
    running = table(1, started_at=NOW + 1, skipped_at=NOW + 48)
    assert plan(running, now=NOW + 24).late == {}
    assert plan(running, now=NOW + 49).late == {1: 49.0}


# --- refresh groups -----------------------------------------------------------------------------


def test_a_group_moves_as_a_whole_at_the_pace_of_its_tightest_member() -> None:
    """Minute by minute for an hour, members of 1m and 1h stand where they stood: together."""
    tables = {
        t.pgt_id: t
        for t in (table(1), table(2, group=1), table(3, 1, lag=3600.0, group=1), table(4))
    }
    now, moved = NOW, Counter[int]()
    while now < NOW + 3600:
        found = plan(*tables.values(), now=now)
        assert [start.moves for start in found.starts if start.pgt_id != 4] in (
            [], [frozenset({1, 2, 3})],
        )  # fmt: skip
        for start in found.starts:
            for pgt_id in start.moves:
                tables[pgt_id] = replace(tables[pgt_id], data_time=now + 0.1)
                moved[pgt_id] += 1
        assert tables[2].data_time == tables[3].data_time
        now = max(found.look_again, now + 1)
    assert moved[1] == moved[2] == moved[3] == moved[4] == 150


def test_what_reads_a_member_moves_the_group_and_what_that_reads() -> None:
    tables = (table(1), table(2, 1, group=7), table(3, lag=3600.0), table(4, 3, group=7),
              table(5, 2), table(6, 4))  # fmt: skip
    found = plan(*tables)
    assert [sorted(start.moves) for start in found.starts] == [[1, 2, 3, 4, 5], [1, 2, 3, 4, 6]]
    chained = (table(1, group=1), table(2, group=1), table(3, 2, group=2), table(4, group=2))
    assert [sorted(start.moves) for start in plan(*chained).starts] == [[1, 2, 3, 4]]


def test_of_a_group_with_a_reader_in_it_one_refresh_is_started() -> None:
    """2 reads 1 and both are of one group, through 3, which is of none."""
    found = plan(table(1, group=1), table(3, 1), table(2, 3, group=1))
    assert [sorted(start.moves) for start in found.starts] == [[1, 2, 3]]


def test_a_suspended_member_holds_its_group() -> None:
    found = plan(table(1, group=1), table(2, group=1, status="SUSPENDED"), table(3, 1), table(4))
    assert names(found) == ["t4"]
    assert found.held == {
        1: "t2, which moves with its group, is suspended",
        2: "it is suspended",
        3: "t1, which it reads, is held",
    }


def test_a_failing_member_is_waited_for() -> None:
    failed = table(2, group=1, failed_at=NOW + 1, may_pass=True, errors=4, status="ERROR")
    found = plan(table(1, group=1), failed, now=NOW + 5)
    assert (names(found), found.look_again) == ([], NOW + 9)
    assert found.held[1] == "t2, which moves with its group, failed and is tried again later"
    assert [start.moves for start in plan(table(1, group=1), failed, now=NOW + 9).starts] == [
        frozenset({1, 2})
    ]


# --- many ---------------------------------------------------------------------------------------


def test_half_an_hour_of_two_thousand_of_tables_keeps_every_lag() -> None:
    """Random graphs and lags; eight refreshes at once, a second each."""
    random = Random(7)
    tables = {}
    for pgt_id in range(2000):
        reads = tuple({random.randrange(pgt_id) for _ in range(random.choice((0, 0, 0, 1)))
                       if pgt_id}) if pgt_id % 4 == 3 else ()  # fmt: skip
        lag = random.choice((None, 1200.0, 3600.0, 7200.0))
        tables[pgt_id] = table(pgt_id, *reads, lag=lag, data_time=NOW - random.random() * 600)
    paces, moved = paces_of(list(tables.values()), 1200.0), Counter[int]()
    now, end = NOW, NOW + 1800
    while now < end:
        found = make_plan(Snapshot(now, tuple(tables.values()), 1200.0))
        waiting = list(found.starts)
        while waiting:
            batch, waiting = waiting[:8], waiting[8:]
            for start in batch:
                for pgt_id in start.moves:
                    tables[pgt_id] = replace(tables[pgt_id], data_time=now)
                    moved[pgt_id] += 1
            now += 1
        now = max(now, min(found.look_again, end))
    for pgt_id, own in tables.items():
        lag = paces[pgt_id].lag
        assert lag is not None
        assert own.data_time is not None
        assert now - own.data_time <= lag
        assert moved[pgt_id] >= 1


def test_planning_costs_a_fixed_number_of_calls_per_table() -> None:
    """A thousand tables with nothing to do, in chains of ten: counted, not timed."""
    small, large = (_calls(count) for count in (100, 1000))
    assert large < 200 * 1000
    assert large < 11 * small


def _calls(count: int) -> int:
    tables = tuple(table(i, *([i - 1] if i % 10 else [])) for i in range(count))
    snapshot, calls = Snapshot(NOW, tables), 0

    def tally(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(tally)
    try:
        found = make_plan(snapshot)
    finally:
        sys.setprofile(before)
    assert len(found.starts) == count // 10
    return calls


def test_nothing_to_do_at_all() -> None:
    assert plan() == Plan(look_again=math.inf)
