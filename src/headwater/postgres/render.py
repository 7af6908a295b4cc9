"""Operator trees to SQL.

A relation is rendered as a SELECT. If it is *signed* it has a column `__weight`; a plain one has
weight 1 everywhere and no such column, so that states stay as cheap as the user's own query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from headwater.algebra.expr import as_column
from headwater.algebra.ops import (
    After,
    Aggregate,
    AntiJoin,
    Call,
    Consolidate,
    Delta,
    Empty,
    Filter,
    Join,
    Keys,
    Kind,
    Negate,
    Op,
    Project,
    Repeat,
    Restrict,
    Scan,
    SemiJoin,
    Single,
    UnionAll,
    schema,
)
from headwater.algebra.schema import Column, Schema
from headwater.delta.sharing import Sharing
from headwater.errors import bug
from headwater.postgres.quote import (
    WEIGHT,
    condition,
    equal,
    expression,
    identifier,
    image,
    is_null,
    listed,
    restored,
    same,
)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A SELECT and whether it has a weight column."""

    sql: str
    signed: bool


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
            columns = _columns(schema(op)) + ([WEIGHT] if made.signed else [])
            self._shared[op] = Rendered(f"SELECT {listed(columns)} FROM {name}", made.signed)
        return self._shared[op]

    def _renderer(self, op: Op) -> Callable[[Any], Rendered]:
        table: dict[type[Op], Callable[[Any], Rendered]] = {
            Scan: self.render_scan,
            Single: self.render_single,
            Project: self.render_project,
            Filter: self.render_filter,
            Repeat: self.render_repeat,
            UnionAll: self.render_union_all,
            Join: self.render_join,
            SemiJoin: self.render_semi_join,
            AntiJoin: self.render_anti_join,
            Aggregate: self.render_aggregate,
            Delta: self.render_delta,
            After: self.render_after,
            Empty: self.render_empty,
            Negate: self.render_negate,
            Consolidate: self.render_consolidate,
            Keys: self.render_keys,
            Restrict: self.render_restrict,
        }
        if type(op) not in table:
            raise bug(f"{type(op).__name__} cannot be rendered", "it should have been simplified")
        return table[type(op)]

    # --- linear ---

    def render_scan(self, op: Scan) -> Rendered:
        return Rendered(f"SELECT {_renamed(op)} FROM {op.source.name}", False)

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
        return _select(outputs, inner)

    def render_filter(self, op: Filter) -> Rendered:
        inner = self._render(op.input)
        return _select(_columns(schema(op)), inner, f" WHERE {condition(op.conjuncts)}")

    def render_repeat(self, op: Repeat) -> Rendered:
        inner, times = self._render(op.input), expression(op.times)
        columns = _columns(schema(op))
        if not inner.signed:
            series = f" CROSS JOIN LATERAL generate_series(1, {times}) AS repeats"
            return _select(columns, inner, series)
        weight = f"{WEIGHT} * ({times}) AS {WEIGHT}"
        select = f"SELECT {listed([*columns, weight])} FROM ({inner.sql}) AS q"
        return Rendered(f"{select} WHERE ({times}) > 0", True)

    def render_union_all(self, op: UnionAll) -> Rendered:
        arms = [(arm, self._render(arm)) for arm in op.inputs]
        signed = any(made.signed for _, made in arms)
        selects = [_arm(op.columns, arm, made, signed) for arm, made in arms]
        return Rendered("\nUNION ALL\n".join(selects), signed)

    def render_negate(self, op: Negate) -> Rendered:
        inner = self._render(op.input)
        weight = f"-{WEIGHT} AS {WEIGHT}" if inner.signed else f"-1 AS {WEIGHT}"
        columns = listed([*_columns(schema(op)), weight])
        return Rendered(f"SELECT {columns} FROM ({inner.sql}) AS q", True)

    # --- joins ---

    def render_join(self, op: Join) -> Rendered:
        left, right = self._render(op.left), self._render(op.right)
        weights = [f"{a}.{WEIGHT}" for a, side in (("l", left), ("r", right)) if side.signed]
        columns = _columns(schema(op))
        if weights:
            columns.append(f"{' * '.join(weights)} AS {WEIGHT}")
        join = f"({left.sql}) AS l JOIN ({right.sql}) AS r ON {condition(op.on)}"
        return Rendered(f"SELECT {listed(columns)} FROM {join}", bool(weights))

    def render_semi_join(self, op: SemiJoin) -> Rendered:
        left, right = self._render(op.left), self._render(op.right)
        test = f"EXISTS (SELECT FROM ({right.sql}) AS r WHERE {condition(op.on)})"
        return _select(_columns(schema(op)), left, f" WHERE {test}")

    def render_anti_join(self, op: AntiJoin) -> Rendered:
        """Where the right side is signed, count matches by weight: old rows can cancel out."""
        right = self._render(op.right)
        if right.signed:
            return self._counted_anti_join(op)
        left = self._render(op.left)
        test = f"NOT EXISTS (SELECT FROM ({right.sql}) AS r WHERE {condition(op.on)})"
        return _select(_columns(schema(op)), left, f" WHERE {test}")

    def _counted_anti_join(self, op: AntiJoin) -> Rendered:
        left = self._render(op.left)
        numbered = self.add(
            "numbered", f"SELECT row_number() OVER () AS __id, q.* FROM ({left.sql}) AS q"
        )
        arms = op.right.inputs if isinstance(op.right, UnionAll) else (op.right,)
        matches = []
        for arm in arms:
            made = self._render(arm)
            weight = f"r.{WEIGHT}" if made.signed else "1"
            on = condition(op.on)
            matches.append(
                f"SELECT l.__id, {weight} AS n FROM {numbered} AS l JOIN ({made.sql}) AS r ON {on}"
            )
        matched = "SELECT __id FROM ({}) AS m GROUP BY __id HAVING sum(n) <> 0".format(
            "\nUNION ALL\n".join(matches)
        )
        source = Rendered(f"SELECT * FROM {numbered}", left.signed)
        test = f" WHERE NOT EXISTS (SELECT FROM ({matched}) AS m WHERE m.__id = q.__id)"
        return _select(_columns(schema(op)), source, test)

    # --- keyed ---

    def render_aggregate(self, op: Aggregate) -> Rendered:
        inner = self._render(op.input)
        of = {c.name: c for c in schema(op.input)}
        adds = all(call.kind is Kind.SUM for call in op.calls)
        if inner.signed and not (adds and all(of[key].type.is_image for key in op.keys)):
            inner = self._expanded(op.input, inner)
        keys = [identifier(key) for key in op.keys]
        if inner.signed:
            count = f"sum({WEIGHT})"
            having = " HAVING sum(__weight) <> 0" if keys else ""
        else:
            count, having = "count(*)", ""
        outputs = [_shown_key(of[key]) for key in op.keys]
        outputs.append(f"coalesce({count}, 0)::bigint AS {identifier(op.count.name)}")
        outputs += [
            f"{aggregated(c, of, inner.signed)} AS {identifier(c.column.name)}" for c in op.calls
        ]
        group = f" GROUP BY {listed(keys)}" if keys else ""
        return Rendered(f"SELECT {listed(outputs)} FROM ({inner.sql}) AS q{group}{having}", False)

    def _expanded(self, op: Op, inner: Rendered) -> Rendered:
        """Turn weights into copies of rows, for aggregates that know no weights."""
        net = consolidated(schema(op), inner)
        series = f" CROSS JOIN LATERAL generate_series(1, {WEIGHT}) AS repeats"
        return _select(_columns(schema(op)), replace(net, signed=False), series)

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
        outputs = [f"q.{c}" for c in _columns(schema(op)) + ([WEIGHT] if inner.signed else [])]
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


def _shown_key(key: Column) -> str:
    """Return what stands for a group: the same of its equal values whenever it is computed."""
    name = identifier(key.name)
    if key.type.is_image:
        return name
    return f"(min(({name})::text))::{key.type.name} AS {name}"


# The least value of a type has no opposite in it: −1 times that would overflow.
_WIDER = {"smallint": "bigint", "integer": "bigint", "bigint": "numeric"}


def aggregated(call: Call, of: dict[str, Column], signed: bool) -> str:
    """Return the SQL of one aggregate call; a sum over signed rows weighs them."""
    value = expression(call.expr)
    if call.kind is Kind.OPAQUE:
        return value
    if call.kind is not Kind.SUM:
        return f"{call.kind.value}({value})"
    if signed:
        column = of[str(as_column(call.expr))]
        wide = _WIDER.get(column.type.name)
        value = f"{value}::{wide} * {WEIGHT}" if wide else f"{value} * {WEIGHT}"
    return f"coalesce(sum({value}), 0)::{call.column.type.name}"


def _columns(columns: Schema) -> list[str]:
    return [identifier(c.name) for c in columns]


def _renamed(scan: Scan) -> str:
    pairs = zip(scan.attributes, scan.columns, strict=True)
    return listed(f"{identifier(a)} AS {identifier(c.name)}" for a, c in pairs)


def _select(columns: list[str], inner: Rendered, rest: str = "") -> Rendered:
    outputs = columns + ([WEIGHT] if inner.signed else [])
    return Rendered(f"SELECT {listed(outputs)} FROM ({inner.sql}) AS q{rest}", inner.signed)


def _arm(columns: Schema, arm: Op, made: Rendered, signed: bool) -> str:
    pairs = zip(schema(arm), columns, strict=True)
    outputs = [f"{identifier(a.name)} AS {identifier(c.name)}" for a, c in pairs]
    if signed:
        outputs.append(WEIGHT if made.signed else f"1 AS {WEIGHT}")
    return f"SELECT {listed(outputs)} FROM ({made.sql}) AS q"


def consolidated(columns: Schema, inner: Rendered) -> Rendered:
    """Sum weights per row image; the image stands for the value where equality is too coarse."""
    outputs = [f"{restored(identifier(c.name), c)} AS {identifier(c.name)}" for c in columns]
    outputs.append(f"sum({WEIGHT})::bigint AS {WEIGHT}")
    images = [image(identifier(c.name), c) for c in columns]
    group = f" GROUP BY {listed(images)}" if images else ""
    select = f"SELECT {listed(outputs)} FROM ({inner.sql}) AS q{group}"
    return Rendered(f"{select} HAVING sum({WEIGHT}) <> 0", True)
