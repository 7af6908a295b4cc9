from __future__ import annotations

import pickle
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.spark import compute
from headwater.spark.loading import LoadPlan, cut, load_counts
from headwater.spark.reading import Reading, SourceRows
from headwater.spark.session import executors_python
from headwater.spark.wire import INTEGER


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(1, 9))
def test_ranges_have_every_block_once(sizes: list[int], parts: int) -> None:
    ranges = cut(sizes, parts)
    assert len(ranges) <= parts
    assert ranges[0][0] == 0
    assert ranges[-1][1] is None
    for (_, end), (start, _) in pairwise(ranges):
        assert end == start
    assert all(end is None or start < end for start, end in ranges)


def test_ranges_are_alike_in_size_though_tables_are_not() -> None:
    assert cut([100], 4) == ((0, 25), (25, 50), (50, 75), (75, None))
    assert cut([100, 20], 3) == ((0, 20), (20, 60), (60, None))
    assert cut([3], 8) == ((0, 1), (1, 2), (2, None))
    assert cut([0], 8) == ((0, None),)


def test_history_counts_ways_of_loading() -> None:
    plans = [LoadPlan("small", ""), LoadPlan("parallel", ""), LoadPlan("small", "")]
    assert load_counts(plans) == {"load_small": 2.0, "load_parallel": 1.0}


def test_what_a_task_needs_travels_and_does_not_print_secrets() -> None:
    source = SourceRows("SELECT 1 FROM t", [("a", INTEGER)], "lake/t", 3)
    reading = Reading({"password": "geheim"}, "1-2-3", {}, "me", {"KEY": "geheim"}, source)
    assert pickle.loads(pickle.dumps(reading)) == reading
    assert "geheim" not in repr(reading)


@pytest.mark.parametrize(
    ("rows_of_partitions", "expected"),
    [((), False), ((100,), False), ((101,), True), ((100, 50, 33), False), ((100, 51), True)],
)
def test_results_that_were_cut_off_are_known(
    monkeypatch: pytest.MonkeyPatch, rows_of_partitions: tuple[int, ...], expected: bool
) -> None:
    monkeypatch.setattr(compute, "MANY_ROWS", 100)
    places = [(p << 33) + row for p, rows in enumerate(rows_of_partitions) for row in range(rows)]
    kept = [place for place in places if (place & (2**33 - 1)) * (1 + (place >> 33)) <= 100]
    assert compute.are_cut_off(pa.chunked_array([kept], pa.int64())) is expected


@pytest.mark.parametrize(
    ("settings", "environment", "expected"),
    [
        ({"spark.master": "spark://head:7077"}, {}, "python3"),
        ({"spark.master": "local[2]"}, {"PYSPARK_PYTHON": "/opt/python"}, "/opt/python"),
        ({"spark.master": "yarn", "spark.pyspark.python": "/a/python"}, {}, "/a/python"),
    ],
)
def test_executors_run_the_python_that_is_named(
    settings: dict[str, str], environment: dict[str, str], expected: str
) -> None:
    assert executors_python(settings, environment) == expected
