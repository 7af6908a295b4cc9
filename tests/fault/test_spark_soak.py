"""Two minutes of what `make soak` does for fifteen: writers, accidents, both engines.

Other tests run beside it, so it tells lags and memory, and judges only what is stored.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.spark.lake import find_missing
from tests.integration.spark.conftest import NOT_RUN, must_run
from tests.servers import Server
from tests.soak.story import Soak

SECONDS = 120.0


def test_two_minutes(pg18: Server, tmp_path: Path) -> None:
    missing = find_missing()
    if missing is not None and must_run():
        pytest.fail(missing)
    if missing is not None:
        pytest.skip(f"{NOT_RUN}Spark: {missing}")
    soak = Soak(pg18, tmp_path, SECONDS, seed=1)
    soak.run(is_timed=False)
    print("\n".join(soak.story))  # noqa: T201 - shown by `pytest -s`
