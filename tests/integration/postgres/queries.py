"""Random queries over tables: each is valid SQL whose result SQL defines exactly."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.integration.postgres.constructs import (
    draw_correlation,
    draw_function,
    draw_grouping,
    draw_limit,
    draw_subquery_test,
    draw_subquery_value,
    draw_total_order,
    draw_values,
    draw_window,
)
from tests.integration.postgres.generator import (
    Column,
    Query,
    Table,
    draw_aggregate,
    draw_condition,
    draw_constant,
    draw_expression,
)

MOST_SCANS = 5
MOST_OUTER_JOINS = 4
MOST_SUBQUERIES = 3


class QueryMaker:
    """Draws queries over tables; names of columns are unique within each SELECT."""

    def __init__(self, random: Random, tables: Sequence[Table]) -> None:
        self._random, self._tables, self._count = random, tables, 0
        self._subqueries = 0

    def draw(self, depth: int = 3) -> Query:
        """Draw a query whose result is defined by SQL exactly."""
        while True:
            self._subqueries = 0
            made = self._query(depth)
            few = made.outer_joins <= MOST_OUTER_JOINS and self._subqueries <= MOST_SUBQUERIES
            if few and made.scans <= MOST_SCANS:
                return made

    def _name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def _query(self, depth: int) -> Query:
        forms = [self._select, self._select, self._grouped, self._grouped]
        forms += [self._distinct_on, self._limited, self._recursive]
        if depth > 1:
            forms += [self._distinct, self._set_operation, self._common_table]
        return self._random.choice(forms)(depth)

    def _select(self, depth: int) -> Query:
        source = self._source(depth - 1)
        targets, columns = self._targets(source.columns, self._random.randint(1, 4))
        if self._random.random() < 0.35:
            more, column = self._special(source.columns)
            targets, columns = f"{targets}, {more}", (*columns, column)
        return Query(f"SELECT {targets} FROM {source.sql}{self._where(source)}", columns,
                     source.scans, source.outer_joins)  # fmt: skip

    def _where(self, source: Query) -> str:
        choice = self._random.random()
        if choice < 0.4:
            return ""
        if choice < 0.75:
            return f" WHERE {draw_condition(self._random, source.columns)}"
        test = draw_subquery_test(self._random, source.columns, self._inner())
        more = f" AND {draw_condition(self._random, source.columns, 1)}" if choice < 0.8 else ""
        return f" WHERE {test}{more}"

    def _inner(self) -> Query:
        """Draw what a subquery reads."""
        self._subqueries += 1
        return self._source(self._random.choice((0, 0, 0, 1)))

    def _special(self, columns: Sequence[Column]) -> tuple[str, Column]:
        """Draw an output that is more than an expression of one row."""
        choice = self._random.random()
        if choice < 0.5:
            call, kind = draw_window(self._random, columns)
        elif choice < 0.85:
            call, kind = draw_subquery_value(self._random, columns, self._inner())
        else:
            number = draw_expression(self._random, columns, "int", 1)
            call, kind = f"generate_series(1, LEAST({number}, 3))", "int"
        made = Column(self._name("x"), kind)
        return f"{call} AS {made.name}", made

    def _targets(self, columns: Sequence[Column], count: int) -> tuple[str, tuple[Column, ...]]:
        targets, made = [], []
        for _ in range(count):
            kind = self._random.choice(columns).kind
            made.append(Column(self._name("x"), kind))
            expression = draw_expression(self._random, columns, kind, self._random.randint(0, 2))
            targets.append(f"{expression} AS {made[-1].name}")
        return ", ".join(targets), tuple(made)

    def _grouped(self, depth: int) -> Query:
        source = self._source(depth - 1)
        keys = [self._key(source) for _ in range(self._random.choice((0, 1, 1, 2)))]
        shown = keys[self._random.random() < 0.2 :]  # a key may be grouped by and not shown
        wanted = [(key.name, key.kind) for key in shown]
        wanted += [draw_aggregate(self._random, source.columns) for _ in range(len(keys) or 1)]
        if self._random.random() < 0.2:
            wanted.append(self._window_over(keys, source))
        bare = [key for key in keys if key in source.columns]
        if bare:
            kind = self._random.choice(bare).kind
            wanted.append((draw_expression(self._random, bare, kind, 2), kind))
        columns = tuple(Column(self._name("a"), kind) for _, kind in wanted)
        targets = [f"{sql} AS {c.name}" for (sql, _), c in zip(wanted, columns, strict=True)]
        group = f" GROUP BY {', '.join(key.name for key in keys)}" if keys else ""
        names = list(dict.fromkeys(key.name for key in keys))
        is_plain = not any(key.name.startswith("unnest") for key in keys)
        if keys and is_plain and self._random.random() < 0.25:
            group = f" GROUP BY {draw_grouping(self._random, names)}"
            mask = Column(self._name("a"), "int")
            targets.append(f"GROUPING({', '.join(names)}) AS {mask.name}")
            columns = (*columns, mask)
        if self._random.random() < 0.3:
            group += f" HAVING count(*) > {self._random.randint(0, 2)}"
        elif bare and self._random.random() < 0.2:
            group += f" HAVING {draw_subquery_test(self._random, bare, self._inner())}"
        sql = f"SELECT {', '.join(targets)} FROM {source.sql}{self._where(source)}{group}"
        return Query(sql, columns, source.scans, source.outer_joins)

    def _window_over(self, keys: Sequence[Column], source: Query) -> tuple[str, str]:
        """Draw a window over groups."""
        call, _ = draw_aggregate(self._random, [c for c in source.columns if c.kind != "json"])
        order = self._random.choice(("count(*)", call, *(key.name for key in keys)))
        part = f"PARTITION BY {self._random.choice(keys).name}" if len(keys) > 1 else ""
        form = self._random.choice(("rank() OVER (", "sum(count(*)) OVER ("))
        return f"{form}{part} ORDER BY {order})", "int"

    def _key(self, source: Query) -> Column:
        """Draw what to group by: a column, an expression of one, or a row for each of a list."""
        key = self._random.choice(source.columns)
        if key.kind == "list" and self._random.random() < 0.4:
            return Column(f"unnest({key.name})", "int")
        if key.kind in ("int", "text", "bool") and self._random.random() < 0.3:
            constant = draw_constant(self._random, key.kind)
            return Column(f"COALESCE({key.name}, {constant})", key.kind)
        return key

    def _distinct(self, depth: int) -> Query:
        inner = self._select(depth)
        return Query(inner.sql.replace("SELECT", "SELECT DISTINCT", 1), inner.columns, inner.scans,
                     inner.outer_joins)  # fmt: skip

    def _distinct_on(self, depth: int) -> Query:
        source = self._source(depth - 1)
        keys = self._random.sample(source.columns, min(len(source.columns), 2))
        targets, columns = self._targets(source.columns, self._random.randint(1, 3))
        on = ", ".join(key.name for key in keys)
        order = f"{on}, {draw_total_order(self._random, source.columns)}"
        sql = f"SELECT DISTINCT ON ({on}) {targets} FROM {source.sql}{self._where(source)}"
        return Query(f"({sql} ORDER BY {order})", columns, source.scans, source.outer_joins)

    def _limited(self, depth: int) -> Query:
        source = self._source(depth - 1)
        targets, columns = self._targets(source.columns, self._random.randint(1, 3))
        tail = f"{self._where(source)} {draw_limit(self._random, source.columns)}"
        sql = f"(SELECT {targets} FROM {source.sql}{tail})"
        return Query(sql, columns, source.scans, source.outer_joins)

    def _recursive(self, depth: int) -> Query:
        """What can be reached from some rows: UNION ends it, since values are only carried on."""
        start, step = self._source(0), self._source(0)
        name = self._name("r")
        titles = (self._name("x"), self._name("x"))
        first = [draw_expression(self._random, start.columns, "int", 0) for _ in titles]
        onward, joined = (draw_expression(self._random, step.columns, "int", 0) for _ in range(2))
        base = f"SELECT {first[0]}::bigint, {first[1]}::bigint FROM {start.sql}{self._where(start)}"
        following = (
            f"SELECT {name}.{titles[0]}, {onward}::bigint FROM {name}"
            f" JOIN {step.sql} ON {joined} = {name}.{titles[1]}"
        )
        body = f"{base} UNION {following}"
        sql = f"WITH RECURSIVE {name}({', '.join(titles)}) AS ({body}) SELECT * FROM {name}"
        columns = tuple(Column(title, "int") for title in titles)
        return Query(sql, columns, start.scans + step.scans, 0)

    def _set_operation(self, depth: int) -> Query:
        left, right = self._source(depth - 2), self._source(depth - 2)
        kinds = [self._random.choice(left.columns).kind for _ in range(self._random.randint(1, 2))]
        columns = tuple(Column(self._name("u"), kind) for kind in kinds)
        arms = []
        for side in (left, right):
            shown = (draw_expression(self._random, side.columns, kind, 1) for kind in kinds)
            named = ", ".join(f"{e} AS {c.name}" for e, c in zip(shown, columns, strict=True))
            arms.append(f"(SELECT {named} FROM {side.sql}{self._where(side)})")
        word = self._random.choice(("UNION", "INTERSECT", "EXCEPT"))
        word += self._random.choice(("", " ALL"))
        return Query(f"{arms[0]} {word} {arms[1]}", columns, left.scans + right.scans,
                     left.outer_joins + right.outer_joins)  # fmt: skip

    def _common_table(self, depth: int) -> Query:
        """A common table that is read twice."""
        inner = self._query(depth - 2)
        name, a, b = self._name("w"), self._name("a"), self._name("b")
        columns = tuple(
            Column(f"{alias}.{c.name}", c.kind) for alias in (a, b) for c in inner.columns
        )
        targets, made = self._targets(columns, 2)
        on = self._condition(columns[: len(inner.columns)], columns[len(inner.columns) :], "LEFT")
        kind = self._random.choice(("JOIN", "LEFT JOIN"))
        joined = f"{name} {a} {kind} {name} {b} ON {on}"
        sql = f"WITH {name} AS ({inner.sql}) SELECT {targets} FROM {joined}"
        return Query(sql, made, 2 * inner.scans, 2 * inner.outer_joins + 1)

    # --- FROM ---

    def _source(self, depth: int) -> Query:
        """Draw a FROM item with an alias; its columns are written with the alias."""
        choice = self._random.random()
        if depth > 0 and choice < 0.35:
            return self._join(depth)
        if depth > 0 and choice < 0.45:
            return self._lateral(depth)
        if depth > 0 and choice < 0.65:
            inner = self._query(depth - 1)
            alias = self._name("q")
            columns = tuple(Column(f"{alias}.{c.name}", c.kind) for c in inner.columns)
            return Query(f"({inner.sql}) AS {alias}", columns, inner.scans, inner.outer_joins)
        if choice > 0.96:
            return draw_values(self._random, (), self._name("v"))
        table, alias = self._random.choice(self._tables), self._name("t")
        columns = tuple(Column(f"{alias}.{c.name}", c.kind) for c in table.columns)
        return Query(f"{table.name} AS {alias}", columns)

    def _join(self, depth: int) -> Query:
        left, right = self._source(depth - 1), self._source(depth - 1)
        kind = self._random.choice(("INNER", "INNER", "LEFT", "LEFT", "RIGHT", "FULL"))
        on = self._condition(left.columns, right.columns, kind)
        outer = left.outer_joins + right.outer_joins + (kind != "INNER")
        return Query(f"({left.sql} {kind} JOIN {right.sql} ON {on})", left.columns + right.columns,
                     left.scans + right.scans, outer)  # fmt: skip

    def _lateral(self, depth: int) -> Query:
        """Draw a FROM item with one to its right that reads from it."""
        left, alias = self._source(depth - 1), self._name("l")
        join = self._random.choice(("CROSS JOIN", "LEFT JOIN"))
        outer = left.outer_joins + (join == "LEFT JOIN")
        choice = self._random.random()
        if choice < 0.4:
            sql, made = draw_function(self._random, left.columns, alias)
            right = Query(sql, made, 0)
        elif choice < 0.55:
            right = draw_values(self._random, left.columns, alias)
        else:
            right = self._lateral_query(left, alias)
        on = ""
        if join == "LEFT JOIN":
            is_free = self._random.random() < 0.5
            on = " ON true" if is_free else f" ON {draw_condition(self._random, right.columns, 1)}"
        sql = f"({left.sql} {join} LATERAL {right.sql}{on})"
        return Query(sql, left.columns + right.columns, left.scans + right.scans, outer)

    def _lateral_query(self, left: Query, alias: str) -> Query:
        inner = self._source(0) if self._random.random() < 0.8 else self._join_inside(left)
        where = draw_correlation(self._random, left.columns, inner.columns)
        choice = self._random.random()
        if choice < 0.35:
            call, kind = draw_aggregate(self._random, inner.columns)
            targets, columns = f"{call} AS y", tuple([Column("y", kind)])
            if choice < 0.1:
                key = self._random.choice(inner.columns)
                targets, columns = f"{targets}, {key.name} AS z", (*columns, Column("z", key.kind))
                where += f" GROUP BY {draw_grouping(self._random, [key.name])}"
        else:
            read = (*inner.columns, *left.columns) if choice < 0.6 else inner.columns
            targets, columns = self._targets(read, 2)
            if choice > 0.7:
                where += f" {draw_limit(self._random, inner.columns)}"
        made = tuple(Column(f"{alias}.{c.name}", c.kind) for c in columns)
        return Query(f"(SELECT {targets} FROM {inner.sql}{where}) AS {alias}", made, inner.scans)

    def _join_inside(self, left: Query) -> Query:
        """Draw an outer join whose condition reads from outside."""
        a, b = self._source(0), self._source(0)
        kind = self._random.choice(("LEFT", "RIGHT", "FULL"))
        equality = self._condition(a.columns, b.columns, "FULL")
        more = draw_condition(self._random, (*left.columns, *b.columns), 1)
        on = equality if equality == "true" else f"{equality} AND {more}"
        return Query(f"({a.sql} {kind} JOIN {b.sql} ON {on})", a.columns + b.columns, 2, 1)

    def _condition(self, left: Sequence[Column], right: Sequence[Column], kind: str) -> str:
        pairs = [(a, b) for a in left for b in right if a.kind == b.kind]
        if not pairs:
            return "true"
        a, b = self._random.choice(pairs)
        equality = f"{a.name} = {b.name}"
        if kind == "FULL":
            return equality
        more = draw_condition(self._random, (*left, *right), 1)
        c, d = self._random.choice(pairs)
        return self._random.choice(
            (
                equality,
                f"{equality} AND {c.name} = {d.name}",
                f"{equality} AND {more}",
                f"{equality} OR {more}",
                f"{a.name} < {b.name}",
                more,
            )
        )
