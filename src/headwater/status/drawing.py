"""Turns the dependency graph into SVG: columns for a desk, one line of rows for a phone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from headwater.graph import upstream_first

_WIDTH, _HEIGHT = 196, 46  # of a box
_ACROSS, _DOWN = 64, 14  # between boxes
_MARGIN = 6
_BOX_TEXT = 22  # characters that fit
_ROW, _LANE, _ROW_WIDTH, _ROW_TEXT = 40, 12, 340, 34
_MOST_LANES = 8
WAY = "way"  # the state of what is no node, but the way of an edge through a column

Corner = tuple[int, int]  # of a box: left and top


@dataclass(frozen=True, slots=True)
class Node:
    """A stream table or source: the word for its state, and a note under its name."""

    name: str
    state: str
    note: str = ""
    reads: tuple[str, ...] = ()

    @property
    def is_table(self) -> bool:
        """Whether it is a stream table, which the page tells more of."""
        return self.state != "source"


def anchor(name: str) -> str:
    """Return where on the page a stream table is told of."""
    return "table-" + quote(name, safe="")


def columns_of(nodes: Sequence[Node]) -> list[list[Node]]:
    """Put each node into the column after all that it reads, near to them.

    An edge over several columns has a way of its own in those between.
    """
    by_name = {node.name: node for node in nodes}
    depth: dict[str, int] = {}
    for node in _in_order(nodes):
        depth[node.name] = 1 + max((depth[s] for s in _known(node, by_name)), default=-1)
    columns: list[list[Node]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for node in nodes:
        columns[depth[node.name]].append(node)
        for source in _known(node, by_name):
            for at in range(depth[source] + 1, depth[node.name]):
                columns[at].append(Node(_way(source, node.name), WAY, reads=(source,)))
    places: dict[str, float] = {}
    for column in columns:
        column.sort(key=lambda node: (_middle(node.reads, places), node.name))
        places |= {node.name: place / len(column) for place, node in enumerate(column)}
    return columns


def _way(source: str, reader: str) -> str:
    return f"{source}\0{reader}"


def _in_order(nodes: Sequence[Node]) -> list[Node]:
    by_name = {node.name: node for node in nodes}
    return [by_name[name] for name in upstream_first({n.name: _known(n, by_name) for n in nodes})]


def _known(node: Node, by_name: Mapping[str, object]) -> list[str]:
    return [source for source in node.reads if source in by_name]


def _middle(names: Iterable[str], places: Mapping[str, float]) -> float:
    found = [places[name] for name in names if name in places]
    return sum(found) / len(found) if found else 0.0


def draw_wide(nodes: Sequence[Node]) -> str:
    """Draw boxes in columns, from the sources on the left to what nobody reads on the right."""
    columns = columns_of(nodes)
    corners = {
        (node.name, x): (_MARGIN + x * (_WIDTH + _ACROSS), _MARGIN + y * (_HEIGHT + _DOWN))
        for x, column in enumerate(columns)
        for y, node in enumerate(column)
    }
    boxes = {name: corner for (name, _), corner in corners.items() if "\0" not in name}
    width = 2 * _MARGIN + len(columns) * (_WIDTH + _ACROSS) - _ACROSS
    tallest = max((len(column) for column in columns), default=0)
    height = 2 * _MARGIN + tallest * (_HEIGHT + _DOWN) - _DOWN
    lines = [
        _line([boxes[s], *_between(corners, _way(s, n.name)), boxes[n.name]])
        for n in nodes
        for s in _known(n, boxes)
    ]
    drawn = [_box(node, *boxes[node.name]) for node in nodes]
    return _svg("wide", width, height, [*lines, *drawn])


def _between(corners: Mapping[tuple[str, int], Corner], way: str) -> list[Corner]:
    return [corner for (name, _), corner in corners.items() if name == way]


def _line(corners: Sequence[Corner]) -> str:
    """Lead from box to box, straight through the columns between."""
    x, y = corners[0][0] + _WIDTH, corners[0][1] + _HEIGHT // 2
    drawn = f"M{x} {y}"
    for place, (left, top) in enumerate(corners[1:], start=1):
        middle, bend = top + _HEIGHT // 2, (x + left) // 2
        drawn += f" C{bend} {y} {bend} {middle} {left} {middle}"
        x, y = left + _WIDTH, middle
        drawn += f" H{x}" if place < len(corners) - 1 else ""
    return f'<path class="edge" d="{drawn}"/>'


def _box(node: Node, x: int, y: int) -> str:
    middle = y + (20 if node.note else 28)
    parts = [
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="7"/>',
        f'<text x="{x + 12}" y="{middle}" class="name">{_cut(node.name, _BOX_TEXT)}</text>',
    ]
    if node.note:
        note = _cut(node.note, _BOX_TEXT + 5)
        parts.append(f'<text x="{x + 12}" y="{y + 36}" class="note">{note}</text>')
    return _linked(node, "".join(parts))


def draw_narrow(nodes: Sequence[Node]) -> str:
    """Draw one node a row, each below all that it reads, and the edges in lanes on the left."""
    rows = {node.name: place for place, node in enumerate(_in_order(nodes))}
    edges = [(rows[s], rows[n.name]) for n in nodes for s in n.reads if s in rows]
    lanes = _lanes(sorted(edges))
    left = _MARGIN + _LANE * (1 + max(lanes.values(), default=0)) + 8
    lines = [_bow(edge, left, lane) for edge, lane in lanes.items()]
    labels = [_label(node, left, rows[node.name]) for node in nodes]
    return _svg("narrow", _ROW_WIDTH, _ROW * len(rows), [*lines, *labels])


def _lanes(edges: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Give each edge the first lane in which none overlaps it; at last they share one."""
    ends: list[int] = []
    found: dict[tuple[int, int], int] = {}
    for edge in edges:
        free = next((lane for lane, end in enumerate(ends) if end <= edge[0]), len(ends))
        lane = min(free, _MOST_LANES - 1)
        if lane == len(ends):
            ends.append(edge[1])
        ends[lane] = max(ends[lane], edge[1])
        found[edge] = lane
    return found


def _bow(edge: tuple[int, int], left: int, lane: int) -> str:
    x = left - _LANE * (lane + 1)
    y1, y2 = (_ROW * row + _ROW // 2 for row in edge)
    return (
        f'<path class="edge" d="M{left} {y1} C{x} {y1} {x} {y1} {x} {y1 + 14}'
        f' V{y2 - 14} C{x} {y2} {x} {y2} {left} {y2}"/>'
    )


def _label(node: Node, left: int, row: int) -> str:
    y = _ROW * row + _ROW // 2
    fits = _ROW_TEXT - (left - 20) // 8
    parts = [
        f'<circle cx="{left}" cy="{y}" r="6"/>',
        f'<text x="{left + 14}" y="{y - 1 if node.note else y + 4}" class="name">'
        f"{_cut(node.name, fits)}</text>",
    ]
    if node.note:
        note = _cut(node.note, fits + 6)
        parts.append(f'<text x="{left + 14}" y="{y + 13}" class="note">{note}</text>')
    return _linked(node, "".join(parts))


def _linked(node: Node, drawn: str) -> str:
    title = f"<title>{escape(node.name)}: {escape(node.note or node.state)}</title>"
    group = f'<g class="node {escape(node.state)}">{title}{drawn}</g>'
    return f'<a href="#{escape(anchor(node.name))}">{group}</a>' if node.is_table else group


def _svg(kind: str, width: int, height: int, parts: Iterable[str]) -> str:
    return (
        f'<svg class="graph {kind}" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" role="img" aria-label="What reads what">{"".join(parts)}</svg>'
    )


def _cut(text: str, length: int) -> str:
    return escape(text if len(text) <= length else text[: length - 1] + "…")
