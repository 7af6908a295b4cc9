"""Random subqueries, windows, grouping sets and FROM items, over columns that others have drawn.

Where SQL leaves an order open, what is drawn does not depend on it: it sorts by all columns as
text, which leaves only rows equal that are the same, or asks what equal rows do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.integration.postgres.generator import (
    VALUES,
    Column,
    Query,
    draw_aggregate,
    draw_condition,
    draw_constant,
    draw_expression,
)

Columns = Sequence[Column]


def total_order(columns: Columns) -> str:
    """Return what sorts rows so that only the same ones are equal."""
    return ", ".join(f'{c.name}::text COLLATE "C"' for c in columns)


def draw_order(random: Random, columns: Columns) -> str:
    """Draw what sorts rows, with ties."""
    chosen = random.sample(list(columns), min(len(columns), random.randint(1, 2)))
    ways = ("", " DESC", " NULLS FIRST", " DESC NULLS LAST")
    return ", ".join(f"{c.name}{random.choice(ways)}" for c in chosen)


def draw_total_order(random: Random, columns: Columns) -> str:
    """Draw what sorts rows without ties; what stands first may be anything."""
    total = total_order(columns)
    return f"{draw_order(random, columns)}, {total}" if random.random() < 0.6 else total


def draw_limit(random: Random, columns: Columns) -> str:
    """Draw ORDER BY with LIMIT, OFFSET or both; with ties the order may leave some."""
    if random.random() < 0.3:
        count = random.randint(1, 3)
        return f"ORDER BY {draw_order(random, columns)} FETCH FIRST {count} ROWS WITH TIES"
    order = f"ORDER BY {draw_total_order(random, columns)}"
    ranges = ("LIMIT 1", "LIMIT 3", "LIMIT 2 OFFSET 1", "OFFSET 2", "LIMIT 0", "LIMIT 2.5")
    return f"{order} {random.choice(ranges)}"


# --- subqueries ---------------------------------------------------------------------------------


def draw_correlation(random: Random, outer: Columns, inner: Columns) -> str:
    """Draw a WHERE clause of a subquery; most read from outside, often by an equality."""
    pairs = [(a, b) for a in outer for b in inner if a.kind == b.kind]
    choice = random.random()
    if pairs and choice < 0.5:
        a, b = random.choice(pairs)
        more = f" AND {draw_condition(random, (*outer, *inner), 1)}" if choice < 0.15 else ""
        return f" WHERE {b.name} = {a.name}{more}"
    if choice < 0.7:
        return f" WHERE {draw_condition(random, (*outer, *inner), 1)}"
    return f" WHERE {draw_condition(random, inner, 1)}" if choice < 0.85 else ""


def draw_subquery_test(random: Random, outer: Columns, inner: Query) -> str:
    """Draw a condition with a subquery over `inner`."""
    made = _draw_test(random, outer, inner)
    choice = random.random()
    if choice < 0.2:
        return f"(NOT {made})"
    if choice < 0.35:
        return f"({made} OR {draw_condition(random, outer, 1)})"
    return f"({made} AND {draw_condition(random, outer, 1)})" if choice < 0.45 else made


def _draw_test(random: Random, outer: Columns, inner: Query) -> str:
    where = draw_correlation(random, outer, inner.columns)
    pairs = [(a, b) for a in outer for b in inner.columns if a.kind == b.kind]
    tail = f"FROM {inner.sql}{where}"
    choice = random.random()
    if not pairs or choice < 0.35:
        grouped = f"{tail} HAVING count(*) > {random.randint(0, 1)}"
        return f"(EXISTS (SELECT {random.choice(('1', '*'))} {tail}))" if choice < 0.3 else (
            f"(EXISTS (SELECT count(*) {grouped}))"
        )  # fmt: skip
    (a, b), (c, d) = random.choice(pairs), random.choice(pairs)
    ours = draw_expression(random, outer, a.kind, 1) if random.random() < 0.3 else a.name
    if choice < 0.6:
        word = random.choice(("IN", "NOT IN"))
        return f"({ours} {word} ({_draw_column(random, b, inner, tail)}))"
    if choice < 0.7:
        word = random.choice(("IN", "NOT IN"))
        return f"(({a.name}, {c.name}) {word} (SELECT {b.name}, {d.name} {tail}))"
    if choice < 0.85:
        operators = ("=", "<>") if a.kind == "bool" else ("=", "<", ">=", "<>")
        word = random.choice(("ANY", "ALL"))
        test = f"{random.choice(operators)} {word}"
        return f"({ours} {test} ({_draw_column(random, b, inner, tail)}))"
    value, kind = draw_subquery_value(random, outer, inner)
    return f"({value} {random.choice(('=', '<>'))} {draw_constant(random, kind)})"


def _draw_column(random: Random, column: Column, inner: Query, tail: str) -> str:
    """Draw a subquery of one column of what `tail` reads: plain, or with more inside."""
    name = column.name
    forms = (
        f"SELECT DISTINCT {name} {tail}",
        f"SELECT {name} {tail} GROUP BY {name} HAVING count(*) > 1",
        f"SELECT {name} {tail} ORDER BY {total_order(inner.columns)} LIMIT 2",
        f"SELECT {name} {tail} EXCEPT ALL SELECT {draw_constant(random, column.kind)}",
        f"SELECT first_value({name}) OVER (ORDER BY {total_order(inner.columns)}) {tail}",
    )
    return random.choice(forms) if random.random() < 0.4 else f"SELECT {name} {tail}"


def draw_subquery_value(random: Random, outer: Columns, inner: Query) -> tuple[str, str]:
    """Draw a subquery that gives one value, and the kind of that."""
    where = draw_correlation(random, outer, inner.columns)
    tail, total = f"FROM {inner.sql}{where}", total_order(inner.columns)
    choice = random.random()
    if choice < 0.4:
        call, kind = draw_aggregate(random, inner.columns)
        return f"(SELECT {call} {tail})", kind
    if choice < 0.65:
        kind = random.choice(inner.columns).kind
        read = (*inner.columns, *outer) if random.random() < 0.3 else inner.columns
        value = draw_expression(random, read, kind, 1)
        offset = random.choice(("", "", " OFFSET 1"))
        return f"(SELECT {value} {tail} ORDER BY {total} LIMIT 1{offset})", kind
    if choice < 0.8:
        shown = random.choice(inner.columns)
        listed = f"ARRAY(SELECT {shown.name}::text {tail} ORDER BY {total})"
        return f"array_to_string({listed}, ',', 'none')", "text"
    if choice < 0.9:
        return f"(EXISTS (SELECT 1 {tail}))", "bool"
    return _draw_test(random, outer, inner), "bool"


# --- windows ------------------------------------------------------------------------------------


def draw_window(random: Random, columns: Columns) -> tuple[str, str]:
    """Draw a call of a window function, and the kind of its result."""
    keys = random.sample(list(columns), min(len(columns), random.choice((0, 1, 1, 1, 2))))
    partition = f"PARTITION BY {', '.join(c.name for c in keys)}" if keys else ""
    own, number = random.choice(columns), draw_expression(random, columns, "int", 1)
    if random.random() < 0.5:
        order = f" ORDER BY {draw_total_order(random, columns)}"
        frames = (
            "",
            " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
            " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            " GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW",
            " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE TIES",
        )
        calls: tuple[tuple[str, str], ...] = (
            ("row_number()", "int"),
            (f"lag({own.name})", own.kind),
            (f"lead({own.name}, 2)", own.kind),
            (f"first_value({own.name})", own.kind),
            (f"nth_value({own.name}, 2)", own.kind),
            ("ntile(2)", "int"),
            (f"sum({number})", "int"),
            (f"count({own.name}) FILTER (WHERE {draw_condition(random, columns, 1)})", "int"),
        )
        call, kind = random.choice(calls)
        framed = call.startswith(("first", "nth", "sum", "count"))
        return f"{call} OVER ({partition}{order}{random.choice(frames) if framed else ''})", kind
    if random.random() < 0.2:
        near = "RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING"
        near += random.choice(("", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP"))
        return f"count(*) OVER ({partition} ORDER BY {number} {near})", "int"
    order = f" ORDER BY {draw_order(random, columns)}" if random.random() < 0.6 else ""
    calls = (
        ("rank()", "int"),
        ("dense_rank()", "int"),
        ("count(*)", "int"),
        (f"sum({number})", "int"),
        (f"count({own.name})", "int"),
        (f"max({number})", "int"),
    )
    call, kind = random.choice(calls)
    return f"{call} OVER ({partition}{order})", kind


# --- grouping sets ------------------------------------------------------------------------------


def draw_grouping(random: Random, keys: Sequence[str]) -> str:
    """Draw a GROUP BY list of several sets over some keys."""
    listed = ", ".join(keys)
    at = random.randint(0, len(keys))
    sets = [", ".join(keys[:at]), ", ".join(keys[at:])]  # each key in one of them
    return random.choice(
        (
            f"ROLLUP ({listed})",
            f"CUBE ({listed})",
            f"GROUPING SETS (({listed}), ())",
            f"GROUPING SETS (({sets[0]}), ({sets[1]}))",
            f"DISTINCT {keys[0]}, ROLLUP ({listed})",
            f"{keys[0]}, GROUPING SETS (({listed}), ())",
        )
    )


# --- FROM ---------------------------------------------------------------------------------------


def draw_function(random: Random, columns: Columns, alias: str) -> tuple[str, tuple[Column, ...]]:
    """Draw a set-returning function over columns to its left, and the columns that it makes."""
    number, listed, document = (
        draw_expression(random, columns, kind, 1) for kind in ("int", "list", "json")
    )
    series = f"generate_series(1, LEAST({number}, 3))"
    value, place = (Column(f"{alias}.{name}", "int") for name in ("v", "n"))
    calls = (
        (f"{series} AS {alias}(v)", (value,)),
        (f"unnest({listed}) AS {alias}(v)", (value,)),
        (f"unnest({listed}) WITH ORDINALITY AS {alias}(v, n)", (value, place)),
        (f"ROWS FROM ({series}, unnest({listed})) AS {alias}(v, n)", (value, place)),
        (f"unnest({listed}, ARRAY[{number}]) AS {alias}(v, n)", (value, place)),
        (f"jsonb_path_query({document}, '$[*]') AS {alias}(j)", (Column(f"{alias}.j", "json"),)),
    )
    return random.choice(calls)


def draw_values(random: Random, columns: Columns, alias: str) -> Query:
    """Draw a VALUES list; its rows may read columns to its left."""
    kinds = [random.choice(list(VALUES)) for _ in range(random.randint(1, 2))]
    rows = []
    for _ in range(random.randint(1, 3)):
        row = (
            draw_expression(random, columns, kind, 1) if columns else draw_constant(random, kind)
            for kind in kinds
        )
        rows.append(f"({', '.join(row)})")
    made = tuple(Column(f"{alias}.v{n}", kind) for n, kind in enumerate(kinds))
    titles = ", ".join(f"v{n}" for n, _ in enumerate(kinds))
    return Query(f"(VALUES {', '.join(rows)}) AS {alias}({titles})", made, 0)
