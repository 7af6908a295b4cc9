"""Rows of projections and joins, followed straight from the transition tables.

Where a change only passes through joins, filters and projections, what a statement inserted only
brings rows, and what it deleted only takes rows away: no weights are needed.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.algebra.ops import After, Delta, Filter, Join, Op, Project, Scan, UnionAll
from headwater.algebra.schema import Column
from headwater.algebra.walk import rebuild, walk
from headwater.delta.differentiate import differentiate
from headwater.postgres.immediate_groups import overwriting
from headwater.postgres.maintenance import Maintenance
from headwater.postgres.quote import identifier, listed, looked_up
from headwater.postgres.render import Renderer
from headwater.postgres.target import Target

_PASSING = (After, Delta, Filter, Join, Project, Scan, UnionAll)


def find_change(plan: Maintenance, oid: int, event: str) -> Op | None:
    """Return the change of the view if rows only pass through it; None if not.

    Rows of a bag that go are found by counting copies, which is not done here.
    """
    if plan.root is not None or (plan.key is None and event != "insert"):
        return None
    change = differentiate(plan.view, frozenset({oid}))
    return change if all(isinstance(op, _PASSING) for op in walk(change)) else None


def row_statement(event: str, target: Target, change: Op) -> str:
    """Return the statement that follows one event.

    It returns how many rows it took away and how many it should have; an INSERT returns nothing.
    """
    return {"insert": _insert, "delete": _delete, "update": _update}[event](target, change)


def _insert(target: Target, change: Op) -> str:
    columns = listed(identifier(c.name) for c in target.columns)
    return f"INSERT INTO {target.name} ({columns}) {rows_of(change, 'new_rows')}"


def _delete(target: Target, change: Op) -> str:
    gone = f"SELECT {_key(target)} FROM ({rows_of(change, 'old_rows')}) AS q"
    return (
        f"WITH gone AS MATERIALIZED ({gone}),\ndeleted AS ({_deleted(target, 'gone')})"
        "\nSELECT (SELECT count(*) FROM deleted), (SELECT count(*) FROM gone)"
    )


def _update(target: Target, change: Op) -> str:
    """Delete first: a value may move between rows that a unique index of the user's keeps apart."""
    key, columns = _key(target), listed(identifier(c.name) for c in target.columns)
    key_images = {c.name for c in target.key_columns if c.type.is_image}
    others = tuple(c for c in target.columns if c.name not in key_images)
    gone = (
        f"SELECT {key} FROM ({rows_of(change, 'old_rows')}) AS q EXCEPT SELECT {key} FROM came"
        if key
        else "SELECT WHERE NOT EXISTS (SELECT FROM came)"
    )
    conflict = f"ON CONFLICT ({key}) {overwriting(others)}"
    return (
        f"WITH came AS MATERIALIZED ({rows_of(change, 'new_rows')}),"
        f"\ngone AS MATERIALIZED ({gone}),\ndeleted AS ({_deleted(target, 'gone')}),"
        f"\nwritten AS (INSERT INTO {target.name} AS t ({columns})"
        f" SELECT {columns} FROM came WHERE TRUE {conflict})"
        "\nSELECT (SELECT count(*) FROM deleted), (SELECT count(*) FROM gone)"
    )


def _deleted(target: Target, gone: str) -> str:
    pairs: list[tuple[str, str, Column]] = [
        (f"l.{identifier(k.name)}", f"t.{identifier(k.name)}", k) for k in target.key_columns
    ]
    found = looked_up("t.ctid AS __row", gone, target.name, pairs)
    places = f"ARRAY(SELECT __row FROM ({found}) AS f)"
    return f"DELETE FROM {target.name} AS t WHERE t.ctid = ANY ({places}) RETURNING 1"


def _key(target: Target) -> str:
    return listed(identifier(k.name) for k in target.key_columns)


def rows_of(change: Op, table: str) -> str:
    """Return the rows that a change brings or takes, read from one transition table."""
    renderer = Renderer()
    made = renderer.render(_reading(change, table))
    return f"{renderer.with_clause()}{made.sql}"


def _reading(op: Op, table: str) -> Op:
    match op:
        case Delta(input=Scan() as scan):
            return replace(scan, source=replace(scan.source, name=table))
        case After():
            return op
    return rebuild(op, lambda child: _reading(child, table))
