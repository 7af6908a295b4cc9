"""The graph as SVG, and the course of a lag."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from headwater.status.drawing import Node, anchor, columns_of, draw_narrow, draw_wide
from headwater.status.lags import course, draw
from headwater.status.states import duration, pace, span, state_of

NODES = [
    Node("orders", "source"),
    Node("customers", "source"),
    Node("totals", "fresh", "1 s old", ("orders",)),
    Node("joined", "late", "9 s old", ("customers", "orders")),
    Node("top", "failed", "failed", ("totals", "joined", "orders")),
]
TABLE: dict[str, Any] = {
    "status": "ACTIVE", "is_populated": True, "effective_mode": "DIFFERENTIAL",
    "lag": 3.0, "asked": 60.0, "target": 60.0, "schedule": "1m",
}  # fmt: skip


def test_each_stands_after_what_it_reads() -> None:
    columns = [[node.name for node in column] for column in columns_of(NODES)]
    assert columns == [
        ["customers", "orders"], ["joined", "orders\0top", "totals"], ["top"],
    ]  # fmt: skip


@pytest.mark.parametrize("draw_graph", [draw_wide, draw_narrow])
def test_everything_is_drawn_once(draw_graph: Any) -> None:
    root = ElementTree.fromstring(draw_graph(NODES))
    names = [text.text for text in root.iter("text") if text.get("class") == "name"]
    assert sorted(names, key=str) == sorted(node.name for node in NODES)
    assert len(list(root.iter("path"))) == 6
    links = {link.get("href") for link in root.iter("a")}
    assert links == {"#table-totals", "#table-joined", "#table-top"}


@pytest.mark.parametrize("draw_graph", [draw_wide, draw_narrow])
def test_names_are_escaped_and_cut(draw_graph: Any) -> None:
    evil = 'public."<script>alert(1)</script>&"'
    drawn = draw_graph([Node(evil, "fresh", "<i>", ())])
    assert "<script" not in drawn
    assert "<i>" not in drawn
    root = ElementTree.fromstring(drawn)
    assert next(root.iter("title")).text == f"{evil}: <i>"
    assert re.fullmatch(r"[\w.%-]+", anchor(evil))


def test_many_edges_share_lanes() -> None:
    sources = [Node(f"s{n}", "source") for n in range(40)]
    top = Node("top", "fresh", "", tuple(node.name for node in sources))
    root = ElementTree.fromstring(draw_narrow([*sources, top]))
    assert root.get("width") == "340"
    assert min(float(c.get("cx", "")) for c in root.iter("circle")) < 130


def test_the_lag_grows_and_falls() -> None:
    def refresh(ended: float | None, data_time: float | None, status: str) -> dict[str, Any]:
        return {"ended": ended, "data_time": data_time, "status": status}

    newest_first = [
        refresh(None, None, "RUNNING"), refresh(30, 29, "COMPLETED"), refresh(25, None, "FAILED"),
        refresh(12, 10, "COMPLETED"),
    ]  # fmt: skip
    points = course(newest_first, 40)
    assert points == [(12, 2), (30, 20), (30, 1), (40, 11)]
    root = ElementTree.fromstring(draw(points, 10))
    assert [line.get("class") for line in root] == ["area", "lag", "target"]
    assert draw(points[:1], 10) == draw([], None) == ""


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ({}, "fresh"),
        ({"lag": 61.0}, "behind"),
        ({"lag": 121.0}, "late"),
        ({"lag": 999.0, "target": None}, "fresh"),
        ({"is_populated": False}, "empty"),
        ({"status": "ERROR"}, "failed"),
        ({"status": "SUSPENDED"}, "suspended"),
        ({"effective_mode": "IMMEDIATE", "target": None}, "immediate"),
        ({"effective_mode": "COMMIT", "target": None}, "immediate"),
    ],
)
def test_states(values: dict[str, Any], state: str) -> None:
    assert state_of({**TABLE, **values}) == state


def test_words() -> None:
    spans = [None, 0.04, 9.94, 59.6, 200, 7300, 1e6]
    assert [span(s) for s in spans] == ["–", "0.0 s", "9.9 s", "60 s", "3 min", "2 h", "12 d"]
    assert [duration(s) for s in (0.0, 0.04, 1.0)] == ["1 ms", "40 ms", "1.0 s"]
    assert pace(TABLE) == "at most 60 s old"
    other = {**TABLE, "asked": None}
    assert pace({**other, "schedule": "*/5 * * * *"}) == "*/5 * * * *"
    assert pace({**other, "schedule": None}) == "what its readers need: at most 60 s old"
    assert pace({**other, "schedule": None, "target": None}) == "what its readers need"
