"""`headwater graph`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from headwater.cli.arguments import json_option
from headwater.cli.output import print_json
from headwater.cli.target import Target

if TYPE_CHECKING:
    from headwater.results import Edge


@click.command()
@click.option("--format", "form", type=click.Choice(["text", "mermaid", "dot"]), default="text",
              show_default=True, help="For people, for Markdown, or for Graphviz.")  # fmt: skip
@json_option
@click.pass_obj
def graph(target: Target, form: str, as_json: bool) -> None:
    """Show which stream table reads what."""
    with target.connect() as hw:
        edges = hw.st_graph()
    if as_json:
        print_json(edges)
    else:
        render = {"text": text_lines, "mermaid": mermaid_lines, "dot": dot_lines}[form]
        click.echo("\n".join(render(edges)))


def text_lines(edges: Sequence[Edge]) -> Iterator[str]:
    """Yield a tree below each stream table that no other reads: what it reads, and so on."""
    read_by_others = {edge.source_name for edge in edges}
    for name in _names(edges):
        if name not in read_by_others:
            yield name
            yield from _branches(name, edges, "")


def _branches(name: str, edges: Sequence[Edge], indent: str) -> Iterator[str]:
    sources = [edge for edge in edges if edge.pgt_name == name]
    for number, edge in enumerate(sources, start=1):
        is_last = number == len(sources)
        yield f"{indent}{'└── ' if is_last else '├── '}{edge.source_name} ({_kind(edge)})"
        yield from _branches(edge.source_name, edges, indent + ("    " if is_last else "│   "))


def mermaid_lines(edges: Sequence[Edge]) -> Iterator[str]:
    """Yield a Mermaid flowchart from sources to stream tables, the latter with rounded ends."""
    numbers = {name: number for number, name in enumerate(_nodes(edges), start=1)}
    stream_tables = set(_names(edges))
    yield "graph LR"
    for name, number in numbers.items():
        label = '"' + name.replace('"', "#quot;") + '"'
        yield f"  n{number}" + (f"([{label}])" if name in stream_tables else f"[{label}]")
    for edge in edges:
        yield f"  n{numbers[edge.source_name]} --> n{numbers[edge.pgt_name]}"


def dot_lines(edges: Sequence[Edge]) -> Iterator[str]:
    """Yield a Graphviz digraph from sources to stream tables, the latter with rounded corners."""
    yield "digraph headwater {"
    yield "  rankdir=LR; node [shape=box];"
    for name in _names(edges):
        yield f"  {json.dumps(name, ensure_ascii=False)} [style=rounded];"
    for edge in edges:
        source, target = (
            json.dumps(name, ensure_ascii=False) for name in (edge.source_name, edge.pgt_name)
        )
        yield f"  {source} -> {target};"
    yield "}"


def _names(edges: Sequence[Edge]) -> tuple[str, ...]:
    """Return the stream tables, each once, in order."""
    return tuple(dict.fromkeys(edge.pgt_name for edge in edges))


def _nodes(edges: Sequence[Edge]) -> tuple[str, ...]:
    """Return everything that is read or reads, sources first."""
    return tuple(dict.fromkeys([edge.source_name for edge in edges] + list(_names(edges))))


def _kind(edge: Edge) -> str:
    return edge.source_type.lower().replace("_", " ")
