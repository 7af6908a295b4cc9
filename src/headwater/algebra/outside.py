"""The operator for what is new to a set of which a part was taken away."""

from __future__ import annotations

from headwater.algebra.node import node
from headwater.algebra.ops import Op


@node
class Outside(Op):
    """Rows of `input` that are not in the set `known`, or are in `lost`, a part of that set.

    input ▷ (known ▷ lost), with each of both looked up once; rows are matched by position, NULL
    equal to NULL.
    """

    input: Op
    known: Op
    lost: Op
