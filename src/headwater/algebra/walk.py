"""Going through operator trees: children, all nodes, and rebuilding from new children."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from headwater.algebra.ops import Op, Scan


def children(op: Op) -> tuple[Op, ...]:
    """Return the direct inputs of an operator, left to right."""
    found: list[Op] = []
    for field in dataclasses.fields(op):
        value = getattr(op, field.name)
        if isinstance(value, Op):
            found.append(value)
        elif isinstance(value, tuple):
            found.extend(v for v in value if isinstance(v, Op))
    return tuple(found)


def walk(op: Op) -> Iterator[Op]:
    """Yield every node of the tree, a node before its inputs."""
    yield op
    for child in children(op):
        yield from walk(child)


def distinct(op: Op) -> tuple[Op, ...]:
    """Return every different node of the tree once, however often it occurs."""
    found: dict[Op, None] = {}

    def visit(op: Op) -> None:
        if op not in found:
            found[op] = None
            for child in children(op):
                visit(child)

    visit(op)
    return tuple(found)


def rebuild(op: Op, change: Callable[[Op], Op]) -> Op:
    """Return the operator over changed inputs; the same object if no input changed."""
    new: dict[str, object] = {}
    for field in dataclasses.fields(op):
        value = getattr(op, field.name)
        if isinstance(value, Op):
            value_new: object = change(value)
        elif isinstance(value, tuple) and any(isinstance(v, Op) for v in value):
            value_new = tuple(change(v) if isinstance(v, Op) else v for v in value)
        else:
            continue
        if value_new != value:  # tuples and nodes compare by identity first
            new[field.name] = value_new
    return dataclasses.replace(op, **new) if new else op


def replaced(op: Op, others: Mapping[Op, Op]) -> Op:
    """Return the tree with other subtrees in place of some, wherever those occur."""
    known = dict(others)

    def of(op: Op) -> Op:
        if op not in known:
            known[op] = rebuild(op, of)
        return known[op]

    return of(op)


def bottom_up(op: Op, change: Callable[[Op], Op]) -> Op:
    """Apply `change` to every node, inputs first."""
    return change(rebuild(op, lambda child: bottom_up(child, change)))


def scans(op: Op) -> tuple[Scan, ...]:
    """Return the scans of the tree, left to right."""
    return tuple(node for node in walk(op) if isinstance(node, Scan))
