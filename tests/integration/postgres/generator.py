"""Random schemas, changes and expressions over tiny domains, all from one `random.Random`.

Everything generated is valid SQL whose result SQL defines exactly: no float sums that round, no
aggregate whose order is open, no condition that a FULL JOIN refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

# Values by kind, as SQL; NULL is drawn besides. Kinds are what expressions are chosen by.
VALUES: dict[str, tuple[str, ...]] = {
    "int": ("0", "1", "2", "3"),
    "num": ("0.50", "1.50", "2.00", "'NaN'", "1", "1.0"),
    "text": ("'a'", "'b'", "''", "'A'", "'it''s'"),
    "bool": ("true", "false"),
    "date": ("'2024-01-01'", "'2024-01-02'", "'2024-02-29'"),
    "json": ("'1'", "'{\"a\": 1}'", "'[1, null]'", "'1.0'"),
    "list": ("'{1,2}'", "'{}'", "'{NULL}'", "'{1}'"),
    "float": ("0.5", "1", "'NaN'", "'-Infinity'", "-0.0"),
}
# The SQL types that a kind is declared with.
TYPES: dict[str, tuple[str, ...]] = {
    "int": ("int", "smallint", "bigint"),
    "num": ("numeric", "numeric(6, 2)"),
    "text": ("text", "varchar(10)"),
    "bool": ("boolean",),
    "date": ("date",),
    "json": ("jsonb",),
    "list": ("int[]",),
    "float": ("float8", "real"),
}
WEIGHTS = {"int": 6, "num": 2, "text": 4, "bool": 1, "date": 1, "json": 1, "list": 1, "float": 1}


@dataclass(frozen=True)
class Column:
    """A column of a relation: how to write it, and its kind."""

    name: str
    kind: str


@dataclass(frozen=True)
class Table:
    """A source table; `key` is its primary key, if it has one."""

    name: str
    columns: tuple[Column, ...]
    types: tuple[str, ...]
    key: str | None

    def create(self) -> str:
        parts = [f"{c.name} {t}" for c, t in zip(self.columns, self.types, strict=True)]
        parts += [f"PRIMARY KEY ({self.key})"] if self.key else []
        return f"CREATE TABLE {self.name} ({', '.join(parts)})"


@dataclass(frozen=True)
class Query:
    """A SELECT, its columns, and how much it reads."""

    sql: str
    columns: tuple[Column, ...]
    scans: int = 1
    outer_joins: int = 0


def draw_tables(random: Random, schema: str) -> tuple[Table, ...]:
    """Draw two to five tables of two to eight columns."""
    return tuple(_draw_table(random, f"{schema}.t{n}") for n in range(random.randint(2, 5)))


def _draw_table(random: Random, name: str) -> Table:
    columns = [Column("id", "int")]
    for n in range(random.randint(1, 7)):
        [kind] = random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        columns.append(Column(random.choice((f"c{n}", f'"C{n}"', f'"select {n}"')), kind))
    types = tuple(random.choice(TYPES[c.kind]) for c in columns)
    return Table(name, tuple(columns), types, "id" if random.random() < 0.6 else None)


# --- changes ------------------------------------------------------------------------------------


def draw_rows(random: Random, table: Table, ids: range) -> str:
    """Draw an INSERT; a table with a key takes what does not collide."""
    rows = []
    for number in range(random.randint(1, 5)):
        first = str(random.choice(ids)) if table.key or number % 2 else "1"
        rest = (draw_value(random, c.kind) for c in table.columns[1:])
        rows.append(f"({', '.join((first, *rest))})")
    if random.random() < 0.3:
        rows.append(rows[0])
    return f"INSERT INTO {table.name} VALUES {', '.join(rows)} ON CONFLICT DO NOTHING"


def draw_value(random: Random, kind: str) -> str:
    """Draw a value of a kind, or NULL."""
    return "NULL" if random.random() < 0.25 else random.choice(VALUES[kind])


def draw_statement(random: Random, table: Table) -> str:
    """Draw one statement that changes a table."""
    some = random.choice([c for c in table.columns if c.name != table.key])
    other, name, first = random.choice(table.columns), table.name, table.columns[0].name
    where = draw_condition(random, table.columns)
    alike = random.choice([c.name for c in table.columns if c.kind == some.kind])
    one = (
        f"SELECT ctid FROM {name} WHERE {other.name} IS NOT DISTINCT FROM"
        f" {draw_value(random, other.kind)} LIMIT 1"
    )
    weights = {
        draw_rows(random, table, range(1, 12)): 6,
        f"UPDATE {name} SET {some.name} = {draw_value(random, some.kind)} WHERE {where}": 4,
        f"UPDATE {name} SET {some.name} = {alike} WHERE {where}": 3,
        f"DELETE FROM {name} WHERE {where}": 3,
        f"DELETE FROM {name} WHERE ctid = ANY (ARRAY({one}))": 2,
        f"UPDATE {name} SET {first} = -{first}": 1,
        f"TRUNCATE {name}": 1,
        f"DELETE FROM {name}": 1,
        f"INSERT INTO {name} SELECT * FROM {name} ON CONFLICT DO NOTHING": 1,
    }
    return random.choices(list(weights), list(weights.values()))[0]


def draw_round(random: Random, tables: Sequence[Table]) -> tuple[tuple[str, ...], ...]:
    """Draw the transactions of one round; one that begins with ROLLBACK is rolled back."""
    made = []
    for _ in range(random.randint(1, 2)):
        count = random.choice((1, 2, 3, 5))
        statements = [draw_statement(random, random.choice(tables)) for _ in range(count)]
        made.append(("ROLLBACK", *statements) if random.random() < 0.1 else tuple(statements))
    return tuple(made)


# --- expressions --------------------------------------------------------------------------------


def draw_condition(random: Random, columns: Sequence[Column], depth: int = 2) -> str:
    """Draw a condition over columns; each operand stands in brackets of its own."""
    column = random.choice(columns)
    choice = random.randrange(9 if depth else 6)
    match choice:
        case 0:
            return f"({column.name} IS {random.choice(('', 'NOT '))}NULL)"
        case 1 | 2:
            constant = draw_constant(random, column.kind)
            return f"({column.name} {_comparison(random, column)} {constant})"
        case 3:
            other = random.choice([c for c in columns if c.kind == column.kind])
            return f"({column.name} {_comparison(random, column)} {other.name})"
        case 4:
            listed = ", ".join(draw_constant(random, column.kind) for _ in range(2))
            return f"({column.name} {random.choice(('', 'NOT '))}IN ({listed}, NULL))"
        case 5:
            test = random.choice(("IS DISTINCT FROM", "IS NOT DISTINCT FROM"))
            return f"({column.name} {test} {draw_constant(random, column.kind)})"
    left, right = (draw_condition(random, columns, depth - 1) for _ in range(2))
    return f"(NOT {left})" if choice == 6 else f"({left} {random.choice(('AND', 'OR'))} {right})"


def _comparison(random: Random, column: Column) -> str:
    return random.choice(("=", "<>") if column.kind == "bool" else ("=", "<", ">=", "<>"))


def draw_constant(random: Random, kind: str) -> str:
    return f"{random.choice(VALUES[kind])}::{TYPES[kind][0]}"


def draw_expression(random: Random, columns: Sequence[Column], kind: str, depth: int = 2) -> str:
    """Draw an expression of a kind over columns."""
    own = [c.name for c in columns if c.kind == kind]
    if own and (depth == 0 or random.random() < 0.5):
        return random.choice(own)
    if depth == 0 or (not own and random.random() < 0.3):
        return draw_constant(random, kind)

    def part(of: str = kind) -> str:
        return draw_expression(random, columns, of, depth - 1)

    general = (
        f"CASE WHEN {draw_condition(random, columns, 1)} THEN {part()} ELSE {part()} END",
        f"COALESCE({part()}, {part()})",
    )
    forms: dict[str, tuple[str, ...]] = {
        "int": (f"({part()} + {part()})", f"(- {part()})", f"length({part('text')})"),
        "num": (f"({part()} + {part()})", f"{part('int')}::numeric"),
        "text": (
            f"({part()} || {part()})",
            f"upper({part()})",
            f"{part('int')}::text",
            f"{part('num')}::text",
        ),
        "bool": (draw_condition(random, columns, 1),),
        "date": (f"({part()} + {random.choice(VALUES['int'])})",),
    }
    return random.choice((*general, *forms.get(kind, general)))


def draw_aggregate(random: Random, columns: Sequence[Column]) -> tuple[str, str]:
    """Draw an aggregate call and the kind of its result."""
    column = random.choice(columns)
    filtered = ""
    if random.random() < 0.25:
        filtered = f" FILTER (WHERE {draw_condition(random, columns, 1)})"
    options: list[tuple[str, str]] = [("count(*)", "int"), (f"count({column.name})", "int")]
    match column.kind:
        case "int":
            argument = draw_expression(random, columns, "int", 1)
            options += [(f"sum({argument}::int)", "int"), (f"avg({argument})", "num")]
            options += [(f"percentile_disc(0.5) WITHIN GROUP (ORDER BY {argument})", "int")]
            options += [(f"rank(1) WITHIN GROUP (ORDER BY {argument})", "int")]
            options += [(f"bit_xor({argument})", "int"), (f"var_pop({argument})", "num")]
        case "num":
            options += [(f"sum({column.name})", "num"), (f"avg({column.name})", "num")]
        case "float":
            options += [(f"sum({column.name})", "float")]
        case "bool":
            options += [(f"bool_and({column.name})", "bool"), (f"bool_or({column.name})", "bool")]
        case "text":
            options += [(f"string_agg({column.name}, ',' ORDER BY {column.name})", "text")]
    if column.kind not in ("json", "bool"):
        options += [(f"{f}({column.name})", column.kind) for f in ("min", "max")]
    options.append((f"count(DISTINCT {column.name})", "int"))
    call, kind = random.choice(options)
    return call + filtered, kind
