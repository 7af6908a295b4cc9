"""The graph as a tree, as a Mermaid flowchart and as a Graphviz digraph."""

from __future__ import annotations

from headwater.cli.graph import dot_lines, mermaid_lines, text_lines
from headwater.results import Edge

EDGES = (
    Edge("public.revenue", "public.customers", "TABLE"),
    Edge("public.revenue", "public.orders", "TABLE"),
    Edge("public.totals", 'public."a ""b"""', "FOREIGN_TABLE"),
    Edge("public.totals", "public.revenue", "STREAM_TABLE"),
)


def test_text() -> None:
    assert list(text_lines(EDGES)) == [
        "public.totals",
        '├── public."a ""b""" (foreign table)',
        "└── public.revenue (stream table)",
        "    ├── public.customers (table)",
        "    └── public.orders (table)",
    ]


def test_mermaid() -> None:
    assert list(mermaid_lines(EDGES)) == [
        "graph LR",
        '  n1["public.customers"]',
        '  n2["public.orders"]',
        '  n3["public.#quot;a #quot;#quot;b#quot;#quot;#quot;"]',
        '  n4(["public.revenue"])',
        '  n5(["public.totals"])',
        "  n1 --> n4",
        "  n2 --> n4",
        "  n3 --> n5",
        "  n4 --> n5",
    ]


def test_dot() -> None:
    assert list(dot_lines(EDGES)) == [
        "digraph headwater {",
        "  rankdir=LR; node [shape=box];",
        '  "public.revenue" [style=rounded];',
        '  "public.totals" [style=rounded];',
        '  "public.customers" -> "public.revenue";',
        '  "public.orders" -> "public.revenue";',
        '  "public.\\"a \\"\\"b\\"\\"\\"" -> "public.totals";',
        '  "public.revenue" -> "public.totals";',
        "}",
    ]


def test_nothing_to_draw() -> None:
    assert list(text_lines(())) == []
    assert list(mermaid_lines(())) == ["graph LR"]
