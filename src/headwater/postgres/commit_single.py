"""One touched row, as most transactions have it: found and written by two plain statements.

The statement for any number of rows begins and ends some forty nodes of a plan, which takes longer
than the work that they do for one row.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.algebra.expr import text
from headwater.algebra.ops import After, Empty, Op, Output, Project, Restrict, Single
from headwater.algebra.schema import Schema
from headwater.delta.recomputed import touched_keys
from headwater.delta.simplify import simplify
from headwater.postgres.apply import DeltaReader
from headwater.postgres.immediate_view import XID, View, pending_name, read_pending
from headwater.postgres.quote import identifier, image, listed
from headwater.postgres.render import Renderer

DONE = "__pgt_single"  # whether it was followed so
_COUNT = "__pgt_keys"


@dataclass(frozen=True, slots=True)
class Short:
    """The lines, which say in `DONE` whether they have followed the change; their variables."""

    lines: tuple[str, ...]
    variables: dict[str, str]


def short_document(view: View, oid: int) -> Short | None:
    """Return how a change of one source is followed if it touches one row that stays.

    A row that comes, goes or is as it was is left to the general statement, which finds what was
    collected still there. NULL in a key would need another comparison.
    """
    keys = view.target.key_columns
    found = touched_keys(view.plan.view, view.target.key or (), frozenset({oid}))
    if found is None or isinstance(found, Empty) or any(key.nullable for key in keys):
        return None
    forget = f"DELETE FROM {pending_name(view.pgt_id, oid)} WHERE __xid = {XID};"
    lines = (
        _find(view, oid, found),
        f"{DONE} := FALSE;",
        f"IF {_COUNT} = 1 THEN",
        _write(view, keys),
        f"IF FOUND THEN {DONE} := TRUE; {forget} END IF;",
        "END IF;",
    )
    types = {_variable(n): key.type.name for n, key in enumerate(keys)}
    return Short(lines, {_COUNT: "bigint", **types})


def _variable(number: int) -> str:
    return f"__pgt_key_{number}"


def _find(view: View, oid: int, keys: Op) -> str:
    """Two keys are as good as many."""
    reader = DeltaReader({oid: read_pending(view, oid)})
    made = reader.renderer.render(keys).sql
    names = [identifier(key) for key in view.target.key or ()]
    into = listed([*(_variable(n) for n in range(len(names))), _COUNT])
    few = f"SELECT {listed(names)} FROM ({made}) AS q LIMIT 2"
    return (
        f"{reader.renderer.with_clause()}SELECT {listed(names)}, count(*) OVER ()"
        f" FROM ({few}) AS q LIMIT 1 INTO {into};"
    )


def _write(view: View, keys: Schema) -> str:
    """Compute the row and write it if its image is another; OFFSET: compute it once."""
    target, renderer = view.target, Renderer()
    outputs = (Output(key, text(_variable(n))) for n, key in enumerate(keys))
    wanted = Project(Single(), tuple(outputs))
    names = tuple(key.name for key in keys)
    made = renderer.render(simplify(Restrict(After(view.plan.view), names, wanted)))
    columns = [(identifier(c.name), c) for c in target.columns]
    differs = " OR ".join(
        f"{image(f't.{name}', c)} IS DISTINCT FROM {image(f'q.{name}', c)}" for name, c in columns
    )
    here = " AND ".join(f"t.{identifier(k)} = {_variable(n)}" for n, k in enumerate(names))
    return (
        f"{renderer.with_clause()}UPDATE {target.name} AS t"
        f" SET {listed(f'{name} = q.{name}' for name, _ in columns)}"
        f" FROM (SELECT * FROM ({made.sql}) AS q OFFSET 0) AS q WHERE {here} AND ({differs});"
    )
