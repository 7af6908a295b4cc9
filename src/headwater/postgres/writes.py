"""A consolidated change to the common tables that write it into the stream table.

The rows that go are looked up once, then updated or deleted, and new rows are inserted. Where the
result has a key, a row whose key stays is updated; where it is a true bag, exactly as many copies
go as the weight says.
"""

from __future__ import annotations

from headwater.algebra.schema import Column
from headwater.postgres.pairing import going_key
from headwater.postgres.quote import (
    NEVER,
    WEIGHT,
    at_places,
    equal,
    identifier,
    image,
    listed,
    looked_up,
    same,
)
from headwater.postgres.render import Renderer
from headwater.postgres.target import Target

# They are carried out in this order, so that a value which moves from one row to another does not
# collide in a unique index of the user's own.
WRITES = ("deleted", "updated", "inserted", "expected")


def apply_change(renderer: Renderer, target: Target, change: str) -> dict[str, str]:
    """Return the common tables that apply a consolidated change, the last ones by writing."""
    return (write_bag if target.key is None else _write_keyed)(renderer, target, change)


def _write_keyed(renderer: Renderer, target: Target, change: str) -> dict[str, str]:
    """Pair what goes with what comes by key: both together are an update."""
    columns = [identifier(c.name) for c in target.columns]
    keys = target.key_columns
    pairs = [(f"g.{identifier(k.name)}", f"c.{identifier(k.name)}", k) for k in keys]
    on = " AND ".join(same(a, b, k) for a, b, k in pairs) or "TRUE"
    outputs = [
        *(f"g.{identifier(k.name)} AS {going_key(n)}" for n, k in enumerate(keys)),
        *(f"c.{c}" for c in columns),
        f"g.{WEIGHT} IS NOT NULL AS __goes",
        f"c.{WEIGHT} IS NOT NULL AS __comes",
    ]
    paired = renderer.add(
        "paired",
        f"SELECT {listed(outputs)}\nFROM (SELECT * FROM {change} WHERE {WEIGHT} < 0) AS g"
        f"\nFULL JOIN (SELECT * FROM {change} WHERE {WEIGHT} > 0) AS c ON {on}",
    )
    return write_pairs(target, paired)


def write_pairs(target: Target, paired: str) -> dict[str, str]:
    """Write what was paired by key; what goes is found by the index on the key, but in a table that
    is small beside the change."""
    keys = target.key_columns
    if len(keys) == 1 and _can_be_listed(keys[0]) and not target.is_small:
        return _listed_writes(target, paired)
    stored = [(f"l.{going_key(n)}", f"t.{identifier(k.name)}", k) for n, k in enumerate(keys)]
    staying, leaving = (
        looked_up(
            "t.ctid AS __row, l.*",
            f"(SELECT * FROM {paired} WHERE __goes AND {test})",
            target.name,
            stored,
            is_small=target.is_small,
        )
        for test in ("__comes", "NOT __comes")
    )
    return write_at_places(target, paired, f"({staying})", f"({leaving})")


def _can_be_listed(key: Column) -> bool:
    """Tell whether ANY of a list finds the key: not NULL, nor what is in an array of its own, and a
    user's type may compare in ways of its own."""
    return not key.nullable and not key.type.name.endswith("[]") and "." not in key.type.name


def _listed_writes(target: Target, paired: str) -> dict[str, str]:
    """Update and delete by a list of keys, so that the index is read once, and each row once.

    The list keeps the planner from reading the whole table, whatever sizes it believes in; an arm
    that never has rows keeps it from comparing what is found with what is written pair by pair.
    """
    (key,) = target.key_columns
    stored, going = f"t.{identifier(key.name)}", going_key(0)

    def among(test: str) -> str:
        keys = f"SELECT {going} FROM {paired} WHERE __goes AND {test}"
        return f"{stored} {key.type.equality} ANY (ARRAY({keys}))"

    many = (
        f"SELECT * FROM {paired} WHERE __goes AND __comes UNION ALL"
        f" SELECT p.* FROM {paired} AS p CROSS JOIN generate_series(1, 1000) WHERE {NEVER}"
    )
    return _writes(
        target,
        paired,
        f"FROM ({many}) AS l WHERE {among('__comes')} AND {equal(stored, f'l.{going}', key)}",
        f"WHERE {among('NOT __comes')}",
    )


def write_at_places(target: Target, paired: str, staying: str, leaving: str) -> dict[str, str]:
    """Update, delete and insert what was paired by key; `__row` is where the stored row is.

    A row is looked up and written in one go, while its page is at hand.
    """
    return _writes(
        target,
        paired,
        f"FROM {staying} AS l WHERE t.ctid = l.__row AND l.__goes AND l.__comes",
        f"USING {leaving} AS l WHERE t.ctid = l.__row AND l.__goes AND NOT l.__comes",
    )


def _writes(target: Target, paired: str, staying: str, leaving: str) -> dict[str, str]:
    columns = [identifier(c.name) for c in target.columns]
    sets, names = listed(f"{c} = l.{c}" for c in columns), listed(columns)
    return {
        "expected": f"SELECT FROM {paired} WHERE __goes",
        "updated": f"UPDATE {target.name} AS t SET {sets} {staying} RETURNING 1",
        "deleted": f"DELETE FROM {target.name} AS t {leaving} RETURNING 1",
        "inserted": f"INSERT INTO {target.name} ({names}) SELECT {names} FROM {paired}"
        " WHERE NOT __goes RETURNING 1",
    }


def hash_of(alias: str, hashed: tuple[str, ...]) -> str:
    """Return the hash of a row's hashable columns: what the index of a bag is on."""
    values = listed(f"{alias}{identifier(name)}" for name in hashed)
    return f"hash_record_extended(ROW({values}), 0)"


def write_bag(renderer: Renderer, target: Target, change: str) -> dict[str, str]:
    """Delete as many copies of a row as its weight says; the index is on a hash of the row."""
    columns = [identifier(c.name) for c in target.columns]
    going = renderer.add(
        "going", f"SELECT row_number() OVER () AS __id, * FROM {change} WHERE {WEIGHT} < 0"
    )
    tests = (
        [f"{hash_of('t.', target.hashed)} = {hash_of('g.', target.hashed)}"]
        if target.hashed
        else []
    )
    for column in target.columns:
        name = identifier(column.name)
        a, b = image(f"t.{name}", column), image(f"g.{name}", column)
        tests.append(f"{a} IS NOT DISTINCT FROM {b}" if column.nullable else f"{a} = {b}")
    located = renderer.add(
        "located",
        f"SELECT __row FROM (SELECT t.ctid AS __row, -g.{WEIGHT} AS copies,"
        f" row_number() OVER (PARTITION BY g.__id) AS copy FROM {going} AS g"
        f" JOIN {target.name} AS t ON {' AND '.join(tests) or 'TRUE'}) AS q WHERE copy <= copies",
    )
    names = listed(columns)
    return {
        "expected": f"SELECT FROM {going} AS g CROSS JOIN LATERAL generate_series(1, -g.{WEIGHT})",
        "updated": "SELECT WHERE FALSE",
        "deleted": f"DELETE FROM {target.name} AS t WHERE "
        + at_places(f"SELECT __row FROM {located}")
        + " RETURNING 1",
        "inserted": f"INSERT INTO {target.name} ({names}) SELECT {names} FROM {change} AS c"
        f" CROSS JOIN LATERAL generate_series(1, c.{WEIGHT}) AS copies RETURNING 1",
    }
