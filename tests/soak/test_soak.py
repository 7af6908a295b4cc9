"""`make soak`: fifteen minutes, or HEADWATER_SOAK_MINUTES; HEADWATER_SOAK_SEED repeats a run."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.servers import Server
from tests.soak.story import Soak

MINUTES = float(os.environ.get("HEADWATER_SOAK_MINUTES", "15"))


@pytest.mark.timeout(60 * MINUTES + 1200)
def test_soak(pg18: Server, tmp_path: Path) -> None:
    seed = int(os.environ.get("HEADWATER_SOAK_SEED") or random.randrange(10**6))
    soak = Soak(pg18, tmp_path, 60 * MINUTES, seed)
    soak.run(is_timed=True)
    print("\n".join(soak.story))  # noqa: T201 - for whoever waited for it
