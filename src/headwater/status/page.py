"""Turns what boards read into the page. Every value that is shown goes through `escape`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from headwater.status import lags
from headwater.status.board import Reading
from headwater.status.drawing import Node, anchor, draw_narrow, draw_wide
from headwater.status.states import duration, pace, span, state_of, urgency

_SHOWN_REFRESHES = 8
_FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>headwater</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="page.css">
<noscript><meta http-equiv="refresh" content="10"></noscript>
<script src="live.js" defer></script>
</head>
<body>
<p id="stale" role="status">The daemon does not answer. What stands here is old.</p>
<main>
{body}
</main>
</body>
</html>
"""

Row = Mapping[str, Any]


def page(readings: Sequence[Reading]) -> str:
    """Return the whole page."""
    return _FRAME.format(body=body(readings))


def body(readings: Sequence[Reading]) -> str:
    """Return what is between the ends of the page, which a browser asks for again and again."""
    return "\n".join(_database(reading) for reading in readings)


def _database(reading: Reading) -> str:
    name = escape(reading["database"])
    if reading["error"] is not None:
        text = escape(reading["error"])
        return _section(name, "failed", "it does not answer", f'<p class="trouble">{text}</p>')
    findings: Sequence[Row] = reading["findings"]
    refreshes: dict[str, list[Row]] = {}
    for row in reading["refreshes"]:
        refreshes.setdefault(row["name"], []).append(row)
    [counts] = reading["counts"]
    cards = "".join(
        _card(table, refreshes.get(table["name"], []), counts["now"])
        for table in sorted(reading["tables"], key=urgency)
    )
    more = counts["tables"] - len(reading["tables"])
    cards += f"<p>and {more} more: <code>headwater status</code></p>" if more > 0 else ""
    parts = [
        _facts(reading, counts),
        _findings(findings),
        f"<h2>Graph</h2>{_graph(reading)}" if reading["tables"] else "",
        f"<h2>Stream tables</h2>{cards}" if cards else "<p>No stream tables yet.</p>",
    ]
    return _section(name, *_verdict(findings, counts["tables"]), "".join(parts))


def _section(name: str, state: str, verdict: str, inside: str) -> str:
    head = f'<h1>{name}</h1><p class="verdict {state}">{verdict}</p>'
    return f"<section><header>{head}</header>{inside}</section>"


def _verdict(findings: Sequence[Row], tables: int) -> tuple[str, str]:
    if not findings:
        return "fresh", f"All is well: {tables} stream table{'' if tables == 1 else 's'}."
    errors = [f for f in findings if f["severity"] == "error"]
    things = f"{len(findings)} thing{'' if len(findings) == 1 else 's'}"
    return ("failed" if errors else "late"), f"{things} to see to."


def _facts(reading: Reading, counts: Row) -> str:
    [daemon] = reading["daemon"]
    facts = [f"as of {_moment(counts['now'])} UTC"]
    if daemon["is_running"]:
        since = span(counts["now"] - daemon["since"])
        here = "this daemon leads" if reading["leading"] else f"{daemon['host']} leads"
        facts.append(f"{here}, for {since}")
    running = reading["running_refreshes"]
    facts.append("no refresh runs" if not running else f"refreshes that run: {running}")
    if counts["requests"]:
        facts.append(f"requests that wait: {counts['requests']}")
    return f'<p class="facts">{escape(" · ".join(facts))}</p>'


def _findings(findings: Iterable[Row]) -> str:
    items = "".join(
        f'<li class="{"failed" if f["severity"] == "error" else "late"}">'
        f"<strong>{escape(f['subject'] or f['check'])}</strong> {_pieces(f['detail'])}"
        f'<p class="fix">{_pieces(f["fix"])}</p></li>'
        for f in sorted(findings, key=lambda f: str(f["severity"]))  # errors before warnings
    )
    return f'<ul class="findings">{items}</ul>' if items else ""


def _graph(reading: Reading) -> str:
    reads: dict[str, list[str]] = {table["name"]: [] for table in reading["tables"]}
    for edge in reading["edges"]:
        if edge["name"] in reads:
            reads[edge["name"]].append(edge["source"])
    sources = sorted({s for found in reads.values() for s in found} - reads.keys())
    nodes = [Node(name, "source") for name in sources]
    nodes += [
        Node(t["name"], state_of(t), _note(t), tuple(reads[t["name"]])) for t in reading["tables"]
    ]
    return f'<div class="graphs">{draw_wide(nodes)}{draw_narrow(nodes)}</div>'


def _note(table: Row) -> str:
    """Say in a few words how a table does; the colour says it too."""
    state = state_of(table)
    if state == "immediate":
        return pace(table)
    if state in ("suspended", "empty"):
        return "suspended" if state == "suspended" else "not filled yet"
    age = f"{span(table['lag'])} old"
    of = f", may be {span(table['target'])}" if table["target"] is not None else ""
    return f"failed, {age}" if state == "failed" else age + of


def _card(table: Row, refreshes: Sequence[Row], now: float) -> str:
    state = state_of(table)
    mode = table["effective_mode"] or table["refresh_mode"]
    running = '<span class="chip running">refreshing</span>' if table["is_running"] else ""
    head = (
        f'<span class="name">{escape(table["name"])}</span><span class="chip">{escape(mode)}</span>'
        f'<span class="chip">{escape(table["engine"])}</span>{running}'
        f'<span class="note">{escape(_note(table))}</span>'
    )
    drawn = "" if state == "immediate" else _lag(table, refreshes, now)
    inside = _error(table) + drawn + _why(table) + _refreshes(refreshes, now)
    name = escape(anchor(table["name"]))
    return (
        f'<details class="card {state}" id="{name}"><summary id="{name}-head">{head}</summary>'
        f"{inside}</details>"
    )


def _error(table: Row) -> str:
    text = table["last_error"] or ""
    rebuild = f"Its next refresh computes it anew: {table['rebuild']}." if table["rebuild"] else ""
    shown = (
        f'<pre class="trouble">{escape(text)}</pre>' if text else "",
        f'<p class="trouble">{escape(rebuild)}</p>' if rebuild else "",
    )
    return "".join(shown)


def _lag(table: Row, refreshes: Sequence[Row], now: float) -> str:
    points = lags.course(refreshes, now)
    drawn = lags.draw(points, table["target"])
    if not drawn:
        return ""
    worst = max(lag for _, lag in points)
    target = f", {span(table['target'])} asked for" if table["target"] is not None else ""
    said = f"Lag in the last {span(now - points[0][0])}: at most {span(worst)}{target}"
    return f"<figure>{drawn}<figcaption>{escape(said)}</figcaption></figure>"


def _why(table: Row) -> str:
    facts = {
        "Asked for": pace(table),
        "Mode": table["refresh_mode"],
        "Why so": table["reason"],
        "Epoch": table["epoch"],
    }
    items = "".join(
        f"<dt>{name}</dt><dd>{escape(str(value))}</dd>"
        for name, value in facts.items()
        if value is not None
    )
    return f"<dl>{items}</dl>"


def _refreshes(refreshes: Sequence[Row], now: float) -> str:
    """Show the last refreshes; what is said of several in a row stands below the first."""
    lines, said = [], None
    for row in refreshes[:_SHOWN_REFRESHES]:
        text = row["error_message"] or row["reason"]
        lines.append(_refresh(row, now))
        if text and text != said:
            lines.append(f'<tr class="told"><td colspan="5">{escape(text)}</td></tr>')
        said = text
    heads = "".join(f"<th>{head}</th>" for head in ("when", "action", "rows", "jobs", "took"))
    body = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f"<table>{body}</table>" if lines else ""


def _refresh(row: Row, now: float) -> str:
    took = duration((row["ended"] or now) - row["started"])
    action = row["action"] if row["status"] == "COMPLETED" else row["status"]
    is_moved = row["status"] == "COMPLETED" and row["action"] != "NO_DATA"
    cells = (
        _moment(row["started"]), action, _rows(row) if is_moved else "",
        "" if row["jobs"] is None else row["jobs"], took,
    )  # fmt: skip
    line = "".join(f"<td>{escape(str(cell))}</td>" for cell in cells)
    return f'<tr class="{escape(row["status"].lower())}">{line}</tr>'


def _rows(row: Row) -> str:
    """Say how many rows came, changed and went; what did not happen is left out."""
    counts = {"+": row["rows_inserted"], "~": row["rows_updated"], "−": row["rows_deleted"]}
    return " ".join(f"{sign}{count:,}" for sign, count in counts.items() if count) or "none"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S")


def _pieces(text: str) -> str:
    """Show a text with its line breaks, which errors have between what, why and fix."""
    return "<br>".join(escape(line.strip()) for line in text.splitlines())
