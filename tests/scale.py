"""How many random cases the generated tests draw."""

from __future__ import annotations

import os


def scaled(count: int) -> int:
    """Return `count` times HEADWATER_TEST_SCALE (1 unless set; `make generated` sets 50)."""
    return count * int(os.environ.get("HEADWATER_TEST_SCALE", "1"))
