"""What a refresh on Spark would do, in words and SQL; nothing here starts a virtual machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from psycopg import Connection

from headwater.algebra.ops import After, Consolidate, Empty, Keys, Op, Scan, schema
from headwater.algebra.pretty import pretty
from headwater.algebra.schema import names
from headwater.algebra.walk import bottom_up
from headwater.catalog.model import TraceRow
from headwater.delta.pushdown import push_keys
from headwater.errors import ServerResources, StreamTableDamaged
from headwater.postgres.apply import DeltaReader, render_differential, render_groups
from headwater.postgres.maintenance import may_recompute, plan_maintenance, root_aggregate
from headwater.postgres.target import Target
from headwater.spark.ingest import needs, size_of
from headwater.spark.lake import Lake
from headwater.spark.landing import GROUPS, read_landed
from headwater.spark.loading import plan_load
from headwater.spark.place import LANDED_OID, Placed, change_of, ordered_for_files, summed
from headwater.spark.render import WEIGHT, Read, Renderer, all_wires
from headwater.spark.traces import physical
from headwater.spark.wires import quoted, wires

HANDED_OVER = "what Spark hands over"
_INDENT = "  "
_QUOTED = r"'(?:[^'\\]|\\.|'')*'|`(?:[^`]|``)*`"
_MARKS = re.compile(rf"{_QUOTED}|.", re.DOTALL)


def at_ingest(boundary: Op) -> tuple[str, ...]:
    """Return the expressions that PostgreSQL evaluates for each row that enters a trace."""
    return tuple(
        f"{need.name}: {text}"
        for need in needs(boundary).values()
        for text, _ in need.columns
        if not text.startswith('"')  # else it is a column as it stands
    )


def loads(conn: Connection[Any], boundary: Op) -> tuple[str, ...]:
    """Return by whom each source would be read in full, for a first fill or a rebuild, and why."""
    found = needs(boundary).values()
    return tuple(f"{need.name}: {plan_load(conn, need.relid).words}" for need in found)


def at_publish(placed: Placed) -> str:
    """Return the operators that PostgreSQL applies to what Spark hands over."""

    def renamed(op: Op) -> Op:
        if isinstance(op, Scan) and op.source.oid == LANDED_OID:
            return replace(op, source=replace(op.source, name=HANDED_OVER))
        return op

    return pretty(bottom_up(placed.rest, renamed))


def change_statement(placed: Placed) -> str:
    """Return the statement for Spark of a refresh in which every source changed.

    Where groups must be recomputed there is a second one, for all rows of those that are touched.
    """
    boundary, root = placed.boundary, root_aggregate(placed.rest)
    change = ordered_for_files(change_of(boundary, frozenset(needs(boundary))), boundary)
    if isinstance(change, Empty):
        return ""
    trees: list[Op] = [change]
    if root is not None and may_recompute(root):
        touched = Keys(change, root.keys)
        trees.append(Consolidate(After(push_keys(boundary, root.keys, touched))))
    return _statements(placed, trees)


def state_statement(placed: Placed) -> str:
    """Return the statement for Spark of a refresh that computes everything anew."""
    state = After(placed.boundary)
    return _statements(placed, [state if summed(placed) else Consolidate(state)])


def _statements(placed: Placed, trees: list[Op]) -> str:
    """Return the statements for trees over the traces; sums per group where Spark makes those."""
    boundary, aggregate = placed.boundary, summed(placed)
    columns = {**all_wires(boundary), **(wires(aggregate) if aggregate else {})}
    kept: list[str] = []

    def keep(statement: str) -> str:
        kept.append(f"-- kept_{len(kept)}, used more than once\n{laid_out(statement)}")
        return f"kept_{len(kept) - 1}"

    renderer = Renderer(columns, _reader(boundary), keep)
    if aggregate is not None:
        made = [laid_out(renderer.grouped(aggregate, renderer.render(tree))) for tree in trees]
        return ";\n\n".join([*kept, *made])
    made = [laid_out(renderer.render(tree)) for tree in trees]
    return ";\n\n".join([*kept, *made])


def publish_statement(placed: Placed, target: Target) -> str:
    """Return the statement with which PostgreSQL applies what Spark handed over."""
    rest = plan_maintenance(placed.rest)
    if summed(placed) is not None:
        return render_groups(rest, target, GROUPS)
    reader = DeltaReader({LANDED_OID: read_landed(schema(placed.boundary))})
    return render_differential(rest, target, frozenset({LANDED_OID}), reader) or ""


def find_size(lake: Lake | None, row: TraceRow) -> tuple[int, int] | None:
    """Return how many files and bytes a trace has; None where the lake cannot be read."""
    if lake is None:
        return None
    try:
        return size_of(lake, row)
    except (StreamTableDamaged, ServerResources):
        return None


def laid_out(sql: str) -> str:
    """Return a statement with a line for each SELECT, indented by its depth in brackets."""
    return "".join(_pieces(sql))


def _pieces(sql: str) -> Iterator[str]:
    depths: list[bool] = []  # for each open bracket, whether a SELECT stands in it
    for match in _MARKS.finditer(sql):
        mark = match[0]
        if mark == "(":
            depths.append(sql.startswith("SELECT", match.end()))
            yield mark + (_line(depths) if depths[-1] else "")
        elif mark == ")":
            is_select = depths.pop()
            yield (_line(depths) if is_select else "") + mark
        else:
            yield _line(depths) if mark == "\n" else mark


def _line(depths: list[bool]) -> str:
    return "\n" + _INDENT * sum(depths)


def _reader(boundary: Op) -> Read:
    """Return what names the views that a refresh opens over the traces."""
    places = {
        oid: {text: physical(i) for i, (text, _) in enumerate(need.columns)}
        for oid, need in needs(boundary).items()
    }

    def read(scan: Scan, is_delta: bool) -> str:
        place = places[scan.source.oid]
        pairs = zip(scan.attributes, names(scan.columns), strict=True)
        columns = [f"{place[text]} AS {quoted(name)}" for text, name in pairs]
        view = f"trace_{scan.source.oid}_{'change' if is_delta else 'state'}"
        return f"(SELECT {', '.join([*columns, WEIGHT])} FROM {view}) AS q"

    return read
