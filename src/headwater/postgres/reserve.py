"""ORDER BY … LIMIT with a reserve: more of the first rows than are shown, as private state.

The stored rows P are the first ones of an order: everything that sorts up to the last of P is in P.
So a change is followed without a look at the sources, until fewer rows are left than are shown:

met_rows     P and the change, one entry for each row image, with its copies before and after
known_rows   those up to the last row of P; what sorts behind it stays unknown
spent        whether too few are left
fresh_rows   then, and only then, the first rows once more, from the sources
moved_rows   the known rows, with the copies that are kept of each

A second table of one row says whether P is everything there is: then no row sorts behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.algebra.ops import After, Op, schema
from headwater.postgres.quote import (
    WEIGHT,
    at_places,
    expression,
    identifier,
    image,
    listed,
    restored,
)
from headwater.postgres.render import Renderer
from headwater.postgres.tops import Top


def whole_name(table: str) -> str:
    """Return the table that says whether a reserve holds everything."""
    return f"{table}_1"


def reserve_queries(top: Top, table: str) -> dict[str, str]:
    """Return both tables with the query of what they hold when the reserve is full."""
    held = f"SELECT count(*) < {top.kept} AS is_whole FROM {table}"
    return {table: _first(top, Renderer().render(top.input).sql), whole_name(table): held}


def _columns(top: Top) -> str:
    return listed(identifier(c.name) for c in schema(top.input))


def _first(top: Top, rows: str) -> str:
    """Return the first rows of a SELECT; the server sorts no more than it must without peers."""
    end = f"FETCH FIRST {top.kept} ROWS WITH TIES" if top.has_peers else f"LIMIT {top.kept}"
    return f"SELECT {_columns(top)} FROM ({rows}) AS q ORDER BY {expression(top.order)} {end}"


@dataclass(frozen=True, slots=True)
class Moved:
    """A reserve as a change leaves it: its change, its rows, its writes, and what cannot be."""

    change: str
    after: str
    writes: dict[str, str]
    damaged: str


def follow_reserve(renderer: Renderer, top: Top, table: str, change: Op) -> Moved:
    """Add the common tables that move a reserve; `change` is Δ of its input."""
    columns, whole = _columns(top), f"(SELECT is_whole FROM {whole_name(table)})"
    met = renderer.add("met_rows", _met(top, table, renderer.render(change).sql))
    known = renderer.add("known_rows", _known(top, met, whole))
    spent = renderer.add(
        "spent",
        f"SELECT coalesce(sum(__after), 0) < {top.last} AND NOT {whole} AS is_spent FROM {known}",
    )
    is_spent = f"(SELECT is_spent FROM {spent})"
    first = _first(top, renderer.render(After(top.input)).sql)
    fresh = renderer.add("fresh_rows", f"SELECT {columns} FROM ({first}) AS q WHERE {is_spent}")
    kept = f"CASE WHEN {is_spent} OR __ahead >= {top.kept} THEN 0 ELSE __after END"
    moved = renderer.add("moved_rows", f"SELECT *, {kept} AS __now FROM {known}")
    fewer = f"SELECT {columns}, __now - __before AS {WEIGHT} FROM {moved} WHERE __now <> __before"
    changed = f"{fewer}\nUNION ALL\nSELECT {columns}, 1 FROM {fresh}"
    return Moved(
        renderer.add("reserve_change", changed),
        f"({_copies(columns, moved, '__now', fresh)}) AS s",
        {
            "deleted": f"DELETE FROM {table} AS t WHERE "
            + at_places(f"SELECT unnest(__places[(__now + 1)::int :]) FROM {moved}"),
            "inserted": f"INSERT INTO {table} ({columns}) "
            + _copies(columns, moved, "__now - __before", fresh),
            "whole": _told(top, table, (moved, fresh), is_spent),
        },
        f"(SELECT count(*) FROM {known} WHERE __after < 0)",
    )


def _met(top: Top, table: str, change: str) -> str:
    """Return the stored rows and the change by row image; `__places` is where copies are stored."""
    own = schema(top.input)
    columns = _columns(top)
    both = (
        f"SELECT {columns}, ctid AS __place, 0 AS {WEIGHT} FROM {table}\nUNION ALL\n"
        f"SELECT {columns}, NULL, {WEIGHT} FROM ({change}) AS c"
    )
    outputs = [f"{restored(identifier(c.name), c)} AS {identifier(c.name)}" for c in own]
    outputs += ["array_agg(__place) FILTER (WHERE __place IS NOT NULL) AS __places"]
    outputs += ["count(__place) AS __before"]
    outputs += [f"(count(__place) + sum({WEIGHT}))::bigint AS __after"]
    images = listed(image(identifier(c.name), c) for c in own)
    return f"SELECT {listed(outputs)} FROM ({both}) AS q GROUP BY {images}"


def _known(top: Top, met: str, whole: str) -> str:
    """Return the rows up to the last stored one, each with how many stay before it."""
    order = expression(top.order)
    placed = f"SELECT *, rank() OVER (ORDER BY {order}) AS __rank FROM {met}"
    marked = (
        f"SELECT *, max(__rank) FILTER (WHERE __before > 0) OVER () AS __last FROM ({placed}) AS q"
    )
    before = f"ORDER BY {order} GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    return (
        f"SELECT *, coalesce(sum(__after) OVER ({before}), 0) AS __ahead FROM ({marked}) AS q"
        f" WHERE {whole} OR __rank <= __last"
    )


def _copies(columns: str, moved: str, count: str, fresh: str) -> str:
    return (
        f"SELECT {columns} FROM {moved} CROSS JOIN LATERAL generate_series(1, {count}) AS copies"
        f"\nUNION ALL\nSELECT {columns} FROM {fresh}"
    )


def _told(top: Top, table: str, rows: tuple[str, str], is_spent: str) -> str:
    """Return the statement that says whether the reserve holds everything, if that changed."""
    moved, fresh = rows
    cut = f"EXISTS (SELECT FROM {moved} WHERE __ahead >= {top.kept} AND __after > 0)"
    now = (
        f"CASE WHEN {is_spent} THEN (SELECT count(*) < {top.kept} FROM {fresh})"
        f" ELSE w.is_whole AND NOT {cut} END"
    )
    return f"UPDATE {whole_name(table)} AS w SET is_whole = {now} WHERE w.is_whole <> {now}"
