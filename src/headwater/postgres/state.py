"""The change of a root aggregate's state, as common tables of one statement.

delta_groups   the change per group: sums of weighted values, extrema that came and went, and
               different values that came and went (`different.py`)
old_groups     the stored state of those groups
stale_groups   groups whose extremum may have left, or with an opaque aggregate
fresh_groups   those, recomputed from the sources
new_groups     the new state: old + delta, or fresh
"""

from __future__ import annotations

from headwater.algebra.calls import Call, Kind
from headwater.algebra.ops import After, Aggregate, Scan, Source, schema
from headwater.algebra.schema import Column, Schema, names
from headwater.delta.pushdown import push_keys
from headwater.postgres.maintenance import is_opaque, may_recompute
from headwater.postgres.pieces import aggregated
from headwater.postgres.quote import (
    WEIGHT,
    at_places,
    identifier,
    image,
    is_null,
    listed,
    looked_up,
    same,
)
from headwater.postgres.render import Renderer


def render_state_change(
    renderer: Renderer, root: Aggregate, deltas: str, state: str, *, is_small: bool = False
) -> str:
    """Add the common tables that compute the new state from the change per group.

    Returns the name of the last one, which has the old values beside the new.
    """
    olds = renderer.add("old_groups", _old_groups(root, deltas, state, is_small))
    touched = renderer.add("touched_groups", _touched_groups(root, deltas, olds))
    fresh = None
    if may_recompute(root):
        fresh = renderer.add("fresh_groups", _fresh_groups(renderer, root, touched))
    return renderer.add("new_groups", _new_groups(root, touched, fresh))


def keys_of(root: Aggregate) -> Schema:
    """Return the key columns of the state."""
    of = {c.name: c for c in schema(root.input)}
    return tuple(of[key] for key in root.keys)


def values_of(root: Aggregate) -> tuple[str, ...]:
    """Return the names of the state's values: the count of rows and the calls."""
    return (root.count.name, *(c.column.name for c in root.calls))


def old_name(name: str) -> str:
    """Return the name of the column that holds the old one of a value."""
    return f"__old {name}"


def _old(name: str) -> str:
    return identifier(old_name(name))


def is_there(root: Aggregate, alias: str) -> str:
    """Return the test that a group exists; the one group of no keys always does."""
    return f"{alias}.{identifier(root.count.name)} > 0" if root.keys else "TRUE"


def _gone(call: Call) -> str:
    return identifier(f"__gone {call.column.name}")


def _extrema(root: Aggregate) -> tuple[Call, ...]:
    return tuple(c for c in root.calls if c.kind in (Kind.MIN, Kind.MAX))


def delta_groups(root: Aggregate, change: str) -> str:
    """Return the change per group; `change` is the SELECT of Δ of the root's input."""
    of = {c.name: c for c in schema(root.input)}
    keys = [identifier(key) for key in root.keys]
    outputs = ["row_number() OVER () AS __id", *keys]
    outputs.append(f"coalesce(sum({WEIGHT}), 0)::bigint AS {identifier(root.count.name)}")
    for call in root.calls:
        name = identifier(call.column.name)
        if call.kind is Kind.SUM:
            outputs.append(f"{aggregated(call, of, signed=True)} AS {name}")
        elif call.kind in (Kind.MIN, Kind.MAX):
            value = aggregated(call, of, signed=False)
            outputs.append(f"{value} FILTER (WHERE {WEIGHT} > 0) AS {name}")
            outputs.append(f"{value} FILTER (WHERE {WEIGHT} < 0) AS {_gone(call)}")
    group = f" GROUP BY {listed(keys)}" if keys else ""
    return f"SELECT {listed(outputs)} FROM ({change}) AS q{group}"


def _old_groups(root: Aggregate, deltas: str, state: str, is_small: bool) -> str:
    """Look the touched groups up in the stored state."""
    columns = [identifier(n) for n in (*root.keys, *values_of(root))]
    outputs = listed(["l.__id", "t.ctid AS __row", *(f"t.{c}" for c in columns)])
    sides = _sides(root, "l", "t")
    return looked_up(outputs, deltas, state, sides, is_small=is_small)


def _sides(root: Aggregate, left: str, right: str) -> list[tuple[str, str, Column]]:
    """Both sides of each key comparison between two aliases."""
    named = ((identifier(key.name), key) for key in keys_of(root))
    return [(f"{left}.{name}", f"{right}.{name}", key) for name, key in named]


def _touched_groups(root: Aggregate, deltas: str, olds: str) -> str:
    keys = [identifier(k) for k in root.keys]
    outputs = ["d.__id", "o.__row", *(f"coalesce(o.{k}, d.{k}) AS {k}" for k in keys)]
    outputs += [f"o.{identifier(n)} AS {_old(n)}" for n in values_of(root)]
    outputs += [f"d.{identifier(root.count.name)}"]
    outputs += [f"d.{identifier(c.column.name)}" for c in root.calls if c.kind is not Kind.OPAQUE]
    outputs.append(f"{_stale(root)} AS __stale")
    return f"SELECT {listed(outputs)} FROM {deltas} AS d LEFT JOIN {olds} AS o USING (__id)"


def _stale(root: Aggregate) -> str:
    """An extremum survives if nothing at or beyond it went; a group new in old is recomputed."""
    if is_opaque(root):
        return "TRUE"
    tests = []
    for call in _extrema(root):
        old, sign = f"o.{identifier(call.column.name)}", "<=" if call.kind is Kind.MIN else ">="
        gone = f"d.{_gone(call)}"
        tests.append(f"NOT {is_null(gone)} AND ({is_null(old)} OR {gone} {sign} {old})")
    return f"({' OR '.join(tests)})" if tests else "FALSE"


def _fresh_groups(renderer: Renderer, root: Aggregate, touched: str) -> str:
    keys = keys_of(root)
    wanted = listed(identifier(k) for k in root.keys)
    stale = renderer.add("stale_groups", f"SELECT {wanted} FROM {touched} WHERE __stale")
    scan = Scan(Source(-1, stale), keys, names(keys))
    restricted = push_keys(root.input, root.keys, scan)
    calls = tuple(c for c in root.calls if c.kind is not Kind.DISTINCT)
    fresh = Aggregate(After(restricted), root.keys, root.count, calls)
    return renderer.render(fresh).sql


def _new_groups(root: Aggregate, touched: str, fresh: str | None) -> str:
    keys = [f"t.{identifier(k)}" for k in root.keys]
    olds = [f"t.{_old(n)}" for n in values_of(root)]
    outputs = ["t.__id", "t.__row", *keys, *olds]
    outputs.append(_chosen(root.count.name, _added(root.count.name), fresh, "coalesce({}, 0)"))
    for call in root.calls:
        source = None if call.kind is Kind.DISTINCT else fresh
        outputs.append(_chosen(call.column.name, _followed(call), source, "{}"))
    source = f"{touched} AS t"
    if fresh is not None:
        on = " AND ".join(["t.__stale", *(same(a, b, k) for a, b, k in _sides(root, "t", "f"))])
        source += f" LEFT JOIN {fresh} AS f ON {on}"
    return f"SELECT {listed(outputs)} FROM {source}"


def _chosen(name: str, followed: str, fresh: str | None, wrapped: str) -> str:
    value = followed
    if fresh is not None:
        taken = wrapped.format(f"f.{identifier(name)}")
        value = f"CASE WHEN t.__stale THEN {taken} ELSE {followed} END"
    return f"{value} AS {identifier(name)}"


def _added(name: str) -> str:
    return f"coalesce(t.{_old(name)}, 0) + t.{identifier(name)}"


def _followed(call: Call) -> str:
    name = call.column.name
    if call.kind in (Kind.SUM, Kind.DISTINCT):
        return _added(name)
    if call.kind is Kind.OPAQUE:
        return f"t.{_old(name)}"
    function = "LEAST" if call.kind is Kind.MIN else "GREATEST"
    return f"{function}(t.{_old(name)}, t.{identifier(name)})"


def signed_groups(root: Aggregate, new_groups: str) -> str:
    """Return the change of the state as a Z-set: old groups −1, new groups +1."""
    keys = [identifier(k) for k in root.keys]
    olds = [f"{_old(n)} AS {identifier(n)}" for n in values_of(root)]
    news = [identifier(n) for n in values_of(root)]
    return (
        f"SELECT {listed([*keys, *olds, f'-1 AS {WEIGHT}'])} FROM {new_groups}"
        f" WHERE __row IS NOT NULL\nUNION ALL\n"
        f"SELECT {listed([*keys, *news, f'1 AS {WEIGHT}'])} FROM {new_groups} AS n"
        f" WHERE {is_there(root, 'n')}"
    )


def state_writes(root: Aggregate, state: str, new_groups: str) -> dict[str, str]:
    """Return the data-modifying common tables that store the new state."""
    names_ = [identifier(n) for n in values_of(root)]
    count = identifier(root.count.name)
    there = is_there(root, "n")
    differs = _differs(root)
    sets = listed(f"{n} = n.{n}" for n in names_)
    columns = listed([*(identifier(k) for k in root.keys), *names_])
    writes = {
        "state_updated": f"UPDATE {state} AS t SET {sets} FROM {new_groups} AS n"
        f" WHERE t.ctid = n.__row AND {there} AND ({differs})"
        f" AND {at_places(f'SELECT __row FROM {new_groups}')}",
        "state_inserted": f"INSERT INTO {state} ({columns}) SELECT {columns} FROM {new_groups} AS n"
        f" WHERE n.__row IS NULL AND {there}",
    }
    if root.keys:
        writes["state_deleted"] = (
            f"DELETE FROM {state} AS t"
            f" WHERE {at_places(f'SELECT __row FROM {new_groups} WHERE {count} = 0')}"
        )
    return writes


def _differs(root: Aggregate) -> str:
    """Tell the groups whose state changed; values are compared by their images."""
    columns = (root.count, *(c.column for c in root.calls))
    pairs = ((image(f"n.{identifier(c.name)}", c), image(f"n.{_old(c.name)}", c)) for c in columns)
    return " OR ".join(f"{new} IS DISTINCT FROM {old}" for new, old in pairs)
