"""Operator trees to SQL.

What stands in a tree more than once and reads changes becomes a common table of the statement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headwater.algebra.calls import Kind
from headwater.algebra.ops import (
    After,
    Aggregate,
    AntiJoin,
    Consolidate,
    Delta,
    Empty,
    Expand,
    Filter,
    Fixpoint,
    Itself,
    Join,
    Keys,
    Negate,
    OneWay,
    Op,
    Project,
    Repeat,
    Restrict,
    Scan,
    SemiJoin,
    Single,
    Timed,
    UnionAll,
    Whole,
    Window,
    schema,
)
from headwater.algebra.outside import Outside
from headwater.delta.sharing import Sharing
from headwater.errors import bug
from headwater.postgres import pieces
from headwater.postgres.quote import (
    WEIGHT,
    condition,
    equal,
    expression,
    identifier,
    is_null,
    listed,
    same,
)
from headwater.postgres.rendered import Rendered, as_arm, consolidated, quoted, select_from
from headwater.postgres.tops import first_rows

ReadDelta = Callable[[Scan], str]


def no_delta(scan: Scan) -> str:
    """Refuse to read changes: for renderings of states."""
    raise bug(f"a state asks for the changes of {scan.source.name}", "only delta trees may")


class Renderer:
    """Renders trees into one statement; what is used twice becomes a common table.

    `read_delta` gives the relation, with a weight column, that holds the changes of a scan's
    source under the source's own column names.
    """

    def __init__(self, read_delta: ReadDelta = no_delta) -> None:
        self._read_delta = read_delta
        self._shared: dict[Op, Rendered] = {}
        self._sharing = Sharing()
        self.common: dict[str, str] = {}
        self.states: dict[int, str] = {}  # relations that stand for sources
        self.signed_states: dict[int, str] = {}  # such with weights

    def render(self, op: Op) -> Rendered:
        """Return the SELECT for a tree."""
        self._sharing.count(op)
        return self._render(op)

    def add(self, name: str, select: str) -> str:
        """Add a common table under a unique name and return the name, quoted."""
        unique, number = name, 1
        while unique in self.common:
            number += 1
            unique = f"{name}_{number}"
        self.common[unique] = select
        return identifier(unique)

    def with_clause(self) -> str:
        """Return the WITH list of all that was added, or nothing."""
        tables = (f"{identifier(n)} AS MATERIALIZED (\n{s}\n)" for n, s in self.common.items())
        text = ",\n".join(tables)
        return f"WITH {text}\n" if text else ""

    def _render(self, op: Op) -> Rendered:
        if self._sharing.is_shared(op):
            return self._share(op)
        return self._renderer(op)(op)

    def _share(self, op: Op) -> Rendered:
        if op not in self._shared:
            made = self._renderer(op)(op)
            name = self.add(type(op).__name__.lower(), made.sql)
            columns = quoted(schema(op)) + ([WEIGHT] if made.signed else [])
            self._shared[op] = Rendered(f"SELECT {listed(columns)} FROM {name}", made.signed)
        return self._shared[op]

    def _renderer(self, op: Op) -> Callable[[Any], Rendered]:
        table: dict[type[Op], Callable[[Any], Rendered]] = {
            Scan: self.render_scan,
            Single: self.render_single,
            Project: self.render_project,
            Filter: self.render_filter,
            Timed: self.render_filter,
            Repeat: self.render_repeat,
            UnionAll: self.render_union_all,
            Join: self.render_join,
            SemiJoin: self.render_semi_join,
            AntiJoin: self.render_anti_join,
            Aggregate: self.render_aggregate,
            Window: self.render_window,
            Expand: self.render_expand,
            Whole: self.render_whole,
            Delta: self.render_delta,
            After: self.render_after,
            Empty: self.render_empty,
            Negate: self.render_negate,
            Consolidate: self.render_consolidate,
            Keys: self.render_keys,
            Restrict: self.render_restrict,
            Fixpoint: self.render_fixpoint,
            Itself: self.render_itself,
            OneWay: self.render_one_way,
            Outside: self.render_outside,
        }
        if type(op) not in table:
            raise bug(f"{type(op).__name__} cannot be rendered", "it should have been simplified")
        return table[type(op)]

    # --- linear ---

    def render_scan(self, op: Scan) -> Rendered:
        signed = self.signed_states.get(op.source.oid)
        if signed is not None:
            return Rendered(f"SELECT {listed([_renamed(op), WEIGHT])} FROM {signed}", True)
        relation = self.states.get(op.source.oid, op.source.name)
        return Rendered(f"SELECT {_renamed(op)} FROM {relation}", False)

    def render_delta(self, op: Delta) -> Rendered:
        assert isinstance(op.input, Scan)
        columns = [_renamed(op.input)] if op.input.columns else []
        return Rendered(
            f"SELECT {listed([*columns, WEIGHT])} FROM {self._read_delta(op.input)}", True
        )

    def render_after(self, op: After) -> Rendered:
        return self._render(op.input)

    def render_single(self, op: Single) -> Rendered:
        return Rendered("SELECT", False)

    def render_empty(self, op: Empty) -> Rendered:
        columns = [f"NULL::{c.type.name} AS {identifier(c.name)}" for c in op.columns]
        return Rendered(f"SELECT {listed([*columns, f'1 AS {WEIGHT}'])} WHERE FALSE", True)

    def render_project(self, op: Project) -> Rendered:
        inner = self._render(op.input)
        outputs = [f"{expression(o.expr)} AS {identifier(o.column.name)}" for o in op.outputs]
        return select_from(outputs, inner)

    def render_filter(self, op: Filter | Timed) -> Rendered:
        first = first_rows(op)
        inner = self.render_window(*first) if first else self._render(op.input)
        return select_from(quoted(schema(op)), inner, f" WHERE {condition(op.conjuncts)}")

    def render_repeat(self, op: Repeat) -> Rendered:
        inner, times = self._render(op.input), expression(op.times)
        columns = quoted(schema(op))
        if not inner.signed:
            series = f" CROSS JOIN LATERAL generate_series(1, {times}) AS repeats"
            return select_from(columns, inner, series)
        weight = f"{WEIGHT} * ({times}) AS {WEIGHT}"
        select = f"SELECT {listed([*columns, weight])} FROM ({inner.sql}) AS q"
        return Rendered(f"{select} WHERE ({times}) > 0", True)

    def render_expand(self, op: Expand) -> Rendered:
        rows = pieces.functions_sql(op.functions, numbered=op.numbered)
        rest = f" CROSS JOIN LATERAL {rows} AS e({listed(quoted(op.columns))})"
        return select_from(quoted(schema(op)), self._render(op.input), rest)

    def render_union_all(self, op: UnionAll) -> Rendered:
        arms = [(arm, self._render(arm)) for arm in op.inputs]
        signed = any(made.signed for _, made in arms)
        selects = [as_arm(op.columns, arm, made, signed) for arm, made in arms]
        return Rendered("\nUNION ALL\n".join(selects), signed)

    def render_negate(self, op: Negate) -> Rendered:
        inner = self._render(op.input)
        weight = f"-{WEIGHT} AS {WEIGHT}" if inner.signed else f"-1 AS {WEIGHT}"
        columns = listed([*quoted(schema(op)), weight])
        return Rendered(f"SELECT {columns} FROM ({inner.sql}) AS q", True)

    # --- joins ---

    def render_join(self, op: Join) -> Rendered:
        left, right = self._render(op.left), self._render(op.right)
        weights = [f"{a}.{WEIGHT}" for a, side in (("l", left), ("r", right)) if side.signed]
        columns = quoted(schema(op))
        if weights:
            columns.append(f"{' * '.join(weights)} AS {WEIGHT}")
        join = f"({left.sql}) AS l JOIN ({right.sql}) AS r ON {pieces.joined(op)}"
        return Rendered(f"SELECT {listed(columns)} FROM {join}", bool(weights))

    def render_semi_join(self, op: SemiJoin) -> Rendered:
        return self._filtering_join(op, "EXISTS")

    def render_anti_join(self, op: AntiJoin) -> Rendered:
        return self._filtering_join(op, "NOT EXISTS")

    def _filtering_join(self, op: SemiJoin | AntiJoin, word: str) -> Rendered:
        """Where the right side is a signed state, count matches by weight: rows can cancel out.

        A semi-join with a change only asks which rows it may touch.
        """
        right = self._render(op.right)
        if right.signed and (isinstance(op, AntiJoin) or not pieces.is_change(op.right)):
            return self._counted_join(op, word)
        left = self._render(op.left)
        test = f"{word} (SELECT FROM ({right.sql}) AS r WHERE {pieces.joined(op)})"
        return select_from(quoted(schema(op)), left, f" WHERE {test}")

    def _counted_join(self, op: SemiJoin | AntiJoin, word: str) -> Rendered:
        left = self._render(op.left)
        numbered = self.add(
            "numbered", f"SELECT row_number() OVER () AS __id, q.* FROM ({left.sql}) AS q"
        )
        arms = op.right.inputs if isinstance(op.right, UnionAll) else (op.right,)
        matches = []
        for arm in arms:
            made = self._render(arm)
            weight = f"r.{WEIGHT}" if made.signed else "1"
            on = pieces.joined(op)
            matches.append(
                f"SELECT l.__id, {weight} AS n FROM {numbered} AS l JOIN ({made.sql}) AS r ON {on}"
            )
        matched = "SELECT __id FROM ({}) AS m GROUP BY __id HAVING sum(n) <> 0".format(
            "\nUNION ALL\n".join(matches)
        )
        source = Rendered(f"SELECT * FROM {numbered}", left.signed)
        test = f" WHERE {word} (SELECT FROM ({matched}) AS m WHERE m.__id = q.__id)"
        return select_from(quoted(schema(op)), source, test)

    # --- keyed ---

    def render_aggregate(self, op: Aggregate) -> Rendered:
        inner = self._render(op.input)
        of = {c.name: c for c in schema(op.input)}
        adds = all(call.kind is Kind.SUM for call in op.calls)
        if inner.signed and not (adds and all(of[key].type.is_image for key in op.keys)):
            inner = self._expanded(op.input, inner)
        keys = [identifier(key) for key in op.keys]
        count, having = "count(*)", ""
        if inner.signed:
            count, having = f"sum({WEIGHT})", f" HAVING sum({WEIGHT}) <> 0" if keys else ""
        outputs = [pieces.shown_key(of[key]) for key in op.keys]
        outputs.append(f"coalesce({count}, 0)::bigint AS {identifier(op.count.name)}")
        calls = ((pieces.aggregated(c, of, inner.signed), c.column.name) for c in op.calls)
        outputs += [f"{value} AS {identifier(name)}" for value, name in calls]
        group = f" GROUP BY {listed(keys)}" if keys else ""
        return Rendered(f"SELECT {listed(outputs)} FROM ({inner.sql}) AS q{group}{having}", False)

    def _expanded(self, op: Op, inner: Rendered) -> Rendered:
        """Turn weights into copies of rows, for aggregates that know no weights."""
        net = consolidated(schema(op), inner)
        series = f" CROSS JOIN LATERAL generate_series(1, {WEIGHT}) AS repeats"
        return select_from(quoted(schema(op)), replace(net, signed=False), series)

    def render_window(self, op: Window, first: str = "") -> Rendered:
        """The rows come sorted, which the server keeps: it sorts no more than the window needs."""
        inner = self._render(op.input)
        if inner.signed:
            inner = self._expanded(op.input, inner)
        source = inner.sql
        if op.order:
            order = [*(identifier(key) for key in op.keys), *map(expression, op.order)]
            source = f"SELECT * FROM ({source}) AS q ORDER BY {listed(order)}"
        if first:
            source = f"SELECT * FROM ({source}) AS q {first}"
        calls = [f"{expression(c.expr)} AS {identifier(c.column.name)}" for c in op.calls]
        return select_from(quoted(schema(op.input)) + calls, Rendered(source, False))

    def render_whole(self, op: Whole) -> Rendered:
        columns = listed(quoted(op.columns))
        named = f"({columns})" if columns else ""
        return Rendered(f"SELECT {columns} FROM ({self.whole_sql(op)}) AS q{named}", False)

    def whole_sql(self, op: Whole) -> str:
        """Return the query over its inputs, as bags without weights."""
        made = [(i, self._render(i)) for i in op.inputs]
        inputs = [self._expanded(i, m).sql if m.signed else m.sql for i, m in made]
        return "".join(f"({inputs[p]})" if isinstance(p, int) else p for p in op.sql)

    def render_fixpoint(self, op: Fixpoint) -> Rendered:
        """The server looks at a row once, however many steps lead to it."""
        base, step = self._render(op.base), self._render(op.step)
        if base.signed or step.signed:
            raise bug("a recursion over a change", "its rows would have to be added up")
        name, columns = identifier(op.itself.name), listed(quoted(op.itself.columns))
        loop = f"WITH RECURSIVE {name} ({columns}) AS (\n{base.sql}\nUNION\n{step.sql}\n)"
        return Rendered(f"{loop} SELECT {columns} FROM {name}{pieces.expected(op.itself)}", False)

    def render_outside(self, op: Outside) -> Rendered:
        known, lost = self._render(op.known), self._render(op.lost)
        outputs = [f"q.{column}" for column in quoted(schema(op))]
        return select_from(outputs, self._render(op.input), pieces.new_to(op, known.sql, lost.sql))

    def render_itself(self, op: Itself) -> Rendered:
        return Rendered(f"SELECT {listed(quoted(op.columns))} FROM {identifier(op.name)}", False)

    def render_one_way(self, op: OneWay) -> Rendered:
        inner, sign = self._render(op.input), "<" if op.going else ">"
        select = select_from(quoted(schema(op)), replace(inner, signed=False))
        return replace(select, sql=f"{select.sql} WHERE {WEIGHT} {sign} 0")

    def render_consolidate(self, op: Consolidate) -> Rendered:
        inner = self._render(op.input)
        return consolidated(schema(op), inner) if inner.signed else inner

    def render_keys(self, op: Keys) -> Rendered:
        inner = self._render(op.input)
        if not op.columns:
            return Rendered(f"SELECT FROM ({inner.sql}) AS q LIMIT 1", False)
        columns = listed(identifier(c) for c in op.columns)
        return Rendered(f"SELECT DISTINCT {columns} FROM ({inner.sql}) AS q", False)

    def render_restrict(self, op: Restrict) -> Rendered:
        """Join with the keys; those that contain a NULL take a second, null-safe join.

        The first join can use an index or hash; the second ends at once when there are none.
        """
        inner, keys = self._render(op.input), self._render(op.keys)
        outputs = [f"q.{c}" for c in quoted(schema(op)) + ([WEIGHT] if inner.signed else [])]
        select = f"SELECT {listed(outputs)} FROM ({inner.sql}) AS q"
        if not op.columns:
            return Rendered(f"{select} WHERE EXISTS ({keys.sql})", inner.signed)
        of = {c.name: c for c in schema(op.input)}
        pairs = [
            (f"q.{identifier(name)}", f"k.{identifier(key.name)}", of[name], key)
            for name, key in zip(op.columns, schema(op.keys), strict=True)
        ]
        plain = " AND ".join(equal(a, b, column) for a, b, column, _ in pairs)
        sql = f"{select} JOIN ({keys.sql}) AS k ON {plain}"
        nullable = [b for _, b, column, key in pairs if column.nullable and key.nullable]
        if nullable:
            safe = " AND ".join(same(a, b, column) for a, b, column, _ in pairs)
            test = " OR ".join(map(is_null, nullable))
            sql += f"\nUNION ALL\n{select} JOIN ({keys.sql}) AS k ON {safe} WHERE {test}"
        return Rendered(sql, inner.signed)


def _renamed(scan: Scan) -> str:
    pairs = zip(scan.attributes, scan.columns, strict=True)
    return listed(f"{identifier(a)} AS {identifier(c.name)}" for a, c in pairs)
