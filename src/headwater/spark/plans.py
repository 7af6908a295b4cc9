"""The plans for Spark as the catalog keeps them."""

from __future__ import annotations

import json
from functools import lru_cache

from headwater.algebra.codec import decode_op, encode
from headwater.catalog.model import StreamTable
from headwater.spark.place import Placed


def stored_placed(placed: Placed) -> dict[str, str]:
    """Return what the catalog keeps of a plan for Spark."""
    return {
        "boundary": json.dumps(encode(placed.boundary)),
        "rest": json.dumps(encode(placed.rest)),
    }


def load_placed(st: StreamTable) -> Placed:
    """Return the plan for Spark of a stream table."""
    stored = st.plan["spark"]
    return _decoded(stored["boundary"], stored["rest"])


@lru_cache(maxsize=256)
def _decoded(boundary: str, rest: str) -> Placed:
    return Placed(decode_op(json.loads(boundary)), decode_op(json.loads(rest)))
