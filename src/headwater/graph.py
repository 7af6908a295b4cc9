"""The dependency graph of stream tables: order, closures and cycles. No input or output."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def upstream_first(reads: Mapping[Node, Iterable[Node]]) -> tuple[Node, ...]:
    """Order nodes so that each follows all that it reads; ties keep the mapping's order."""
    return tuple(TopologicalSorter({n: list(r) for n, r in reads.items()}).static_order())


def find_cycle(reads: Mapping[Node, Iterable[Node]]) -> tuple[Node, ...] | None:
    """Return a cycle as a path that ends where it begins, or None."""
    try:
        upstream_first(reads)
    except CycleError as error:
        return tuple(reversed(error.args[1]))
    return None


def closure(start: Node, reads: Mapping[Node, Iterable[Node]]) -> tuple[Node, ...]:
    """Return `start` and everything that it reads, directly or not, upstream first."""
    found: set[Node] = set()
    waiting = [start]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(reads.get(node, ()))
    return tuple(
        n for n in upstream_first({n: list(reads.get(n, ())) for n in found}) if n in found
    )


def inverted(reads: Mapping[Node, Iterable[Node]]) -> dict[Node, list[Node]]:
    """Return who reads each node."""
    readers: dict[Node, list[Node]] = {}
    for node, sources in reads.items():
        for source in sources:
            readers.setdefault(source, []).append(node)
    return readers
