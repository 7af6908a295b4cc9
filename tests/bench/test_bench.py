"""The targets are judged rightly, and hold where they are measured in little time."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from headwater.bench.capture import Case
from headwater.bench.immediate import Cost, Rate
from headwater.bench.immediate_report import missed as missed_by_immediate
from headwater.bench.refresh import Cell
from headwater.bench.targets import linearity, missed_by_capture, missed_by_refresh, summarise
from headwater.cli import main

GOOD = Cell(
    rows=1_000_000, changed=0.1, shape="scan", differential_ms=10, full_ms=1000, view_ms=1000,
    indexed_view_ms=1200, no_data_ms=1, bulk_insert_ms=8, apply_ms=7, delta_rows=1700,
    written_rows=1000, rows_read=3000, rows_read_by_relation={}, planning_ms=1, execution_ms=6,
    peak_memory_mb=None,
)  # fmt: skip
ALL_GOOD = [GOOD, replace(GOOD, changed=1.0, differential_ms=100)]


def case(write: str, rows: int, ratio: float, sent: str = "text") -> Case:
    return Case("ordinary", write, rows, sent, rows * ratio, rows, ratio, (ratio,))


def test_good_figures_pass() -> None:
    assert missed_by_refresh(ALL_GOOD) == []


@pytest.mark.parametrize(
    ("cell", "faults"),
    [
        (replace(GOOD, shape="join", differential_ms=250),
         ["0.1 % changed, join: speed-up 4.00 < 5"]),
        (replace(GOOD, differential_ms=60), []),
        (replace(GOOD, full_ms=1400), ["scan, 0.1 % changed: FULL / view 1.40 > 1.3"]),
        (replace(GOOD, no_data_ms=3.1), ["scan, 0.1 % changed: NO_DATA 3.10 ms > 3.0 ms"]),
        (replace(GOOD, rows=1000, differential_ms=5000), []),
    ],
)  # fmt: skip
def test_a_bad_cell_is_found(cell: Cell, faults: list[str]) -> None:
    assert missed_by_refresh([*ALL_GOOD, cell, GOOD, GOOD]) == faults


def test_a_bad_mean_is_found() -> None:
    slow = [replace(cell, differential_ms=cell.differential_ms * 6) for cell in ALL_GOOD]
    assert missed_by_refresh(slow) == [
        "0.1 % changed: mean speed-up 16.67 < 20",
        "1 % changed: mean speed-up 1.67 < 4",
    ]


def test_what_was_not_measured_does_not_pass() -> None:
    assert missed_by_refresh([]) == [
        "0.1 % changed of 1,000,000 rows was not measured",
        "1 % changed of 1,000,000 rows was not measured",
    ]
    assert missed_by_capture([]) == [
        "statements of 1 rows were not measured",
        "statements of 10,000 rows were not measured",
    ]


def test_the_mean_is_geometric() -> None:
    (summary,) = summarise([GOOD, replace(GOOD, shape="join", differential_ms=40)])
    assert summary.mean == pytest.approx(50)
    assert (summary.least, summary.least_shape) == (25, "join")


def test_capture_is_judged() -> None:
    cases = [case("INSERT", 1, 1.3), case("UPDATE", 1, 1.5), case("INSERT", 10_000, 1.9)]
    cases.append(case("UPDATE", 1, 1.9, "prepared"))
    assert missed_by_capture(cases) == [
        "UPDATE of 1 rows, ordinary table: ratio 1.50 > 1.4",
        "INSERT of 10,000 rows, ordinary table: ratio 1.90 > 1.8",
    ]
    cases.append(case("INSERT", 100_000, 0.38))
    assert linearity(cases) == {"ordinary INSERT": pytest.approx(2.0)}


def test_immediate_is_judged() -> None:
    def figures(single: float, bulk: float, tps: float) -> list[Cost | Rate]:
        return [
            Cost("groups", "INSERT", 1, {"without": 0.1, "by hand": 0.2, "with": single / 10}),
            Cost("groups", "INSERT", 1000, {"without": 1, "by hand": 2, "with": bulk}),
            Rate("groups", 1, {"without": 1000, "with": 1}),
            Rate("groups", 8, {"without": 1000, "with": tps}),
        ]

    assert missed_by_immediate(figures(2.5, 3, 200)) == []
    assert missed_by_immediate(figures(3, 4, 80)) == [
        "writes of one row cost 3.00 times those without a view, more than 1.3 times the 2.00 of"
        " triggers written by hand",
        "writes of one row cost 3.00 times those without a view, pg_ivm 10.30 times: not 3.5 times"
        " less",
        "writes of more rows cost 4.00 times those without a view, pg_ivm 6.04 times: not 2 times"
        " less",
        "groups, 8 clients: 0.080 of the transactions without a view, pg_ivm 0.016: not 5 times"
        " more",
    ]


def test_immediate_is_judged_by_pg_ivm_of_the_same_run() -> None:
    ways = {"without": 0.1, "by hand": 0.2, "with": 0.2, "without, there": 0.2, "pg_ivm": 1.2}
    rates = {"without": 1000.0, "with": 200.0, "without, there": 100.0, "pg_ivm": 10.0}
    figures = [Cost("groups", "INSERT", rows, ways) for rows in (1, 1000)]
    assert missed_by_immediate([*figures, Rate("groups", 8, rates)]) == [
        "writes of one row cost 2.00 times those without a view, pg_ivm 6.00 times: not 3.5 times"
        " less",
        "groups, 8 clients: 0.200 of the transactions without a view, pg_ivm 0.100: not 5 times"
        " more",
    ]


def test_rows_read_follow_the_change_and_not_the_tables(database: str) -> None:
    small = count_rows_read(database, 20_000, 1)
    large = count_rows_read(database, 200_000, 0.1)
    assert {shape: n / small[shape] for shape, n in large.items() if n > 2 * small[shape]} == {}


def count_rows_read(dsn: str, rows: int, changed: float) -> dict[str, int]:
    arguments = ["--rows", str(rows), "--changed", str(changed), "--repeat", "1", "--json"]
    result = CliRunner().invoke(main, ["--dsn", dsn, "bench", "refresh", *arguments])
    assert result.exit_code == 0, result.output
    return {cell["shape"]: cell["rows_read"] for cell in json.loads(result.stdout)["cells"]}
