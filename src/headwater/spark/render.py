"""Operator trees to Spark SQL.

Every relation has a column `__weight`: a trace holds what came and what went, and joins and sums
need no more than the product of weights. Keyed operators consolidate what they look at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headwater.algebra.calls import Call, Kind
from headwater.algebra.expr import Expr, as_column, only_value, refs
from headwater.algebra.ops import (
    After,
    Aggregate,
    AntiJoin,
    Consolidate,
    Delta,
    Empty,
    Expand,
    Filter,
    Join,
    Keys,
    Negate,
    Op,
    Picked,
    Project,
    Repeat,
    Restrict,
    Scan,
    SemiJoin,
    Single,
    UnionAll,
    Window,
    schema,
)
from headwater.algebra.schema import names
from headwater.algebra.walk import children, walk
from headwater.delta.sharing import Sharing
from headwater.errors import bug
from headwater.spark.expanding import expanded_value
from headwater.spark.facts import Facts, Wanted, wanted
from headwater.spark.literals import literal_sql
from headwater.spark.sizes import Sizes
from headwater.spark.sums import weighted
from headwater.spark.translate import Refused, translate
from headwater.spark.windows import window_value
from headwater.spark.wire import Wire
from headwater.spark.wires import called, quoted, wires

WEIGHT = "__weight"

# What holds the rows of a scan: its changes, or its state.
Read = Callable[[Scan, bool], str]
# Keeps the rows of a SELECT that is used more than once, and names what holds them.
Keep = Callable[[str], str]


def all_wires(boundary: Op) -> dict[str, Wire]:
    """Return the form of every column of a tree; names are unique in it."""
    return {name: wire for op in dict.fromkeys(walk(boundary)) for name, wire in wires(op).items()}


class Renderer:
    """Renders trees over columns of known form.

    `read(scan, is_delta)` gives the relation that holds a scan's columns, by their names in the
    tree, and weights. What occurs more than once is kept: Spark inlines common tables, and a tree
    of outer joins would grow beyond all bounds. With `facts`, the small side of a join is sent to
    the other, which stays where it is and is read for the few keys that changed.
    """

    def __init__(
        self, columns: Mapping[str, Wire], read: Read, keep: Keep, facts: Facts | None = None
    ) -> None:
        self._columns, self._read, self._keep, self._facts = columns, read, keep, facts
        self._sizes = Sizes(facts) if facts is not None else None
        self._kept: dict[Op, str] = {}
        self._sharing = Sharing(lambda op: op in self._kept or _is_small_file(op))

    def adopt(self, op: Op, view: str) -> None:
        """Read the rows of a tree, wherever it occurs, from a view that has them."""
        self._kept[op] = view

    def render(self, op: Op) -> str:
        """Return the SELECT of a tree, with weights."""
        self._sharing.count(op)
        return self._render(op)

    def _render(self, op: Op) -> str:
        if op not in self._kept:
            made = self._made(op)
            if not self._sharing.is_shared(op):
                return made
            self._kept[op] = self._keep(made)
        return _select([*_listed(op), WEIGHT], self._kept[op])

    def _made(self, op: Op) -> str:
        table: dict[type[Op], Callable[[Any], str]] = {
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
            Window: self.render_window,
            Expand: self.render_expand,
            Delta: self.render_delta,
            After: self.render_after,
            Empty: self.render_empty,
            Negate: self.render_negate,
            Consolidate: self.render_consolidate,
            Keys: self.render_keys,
            Restrict: self.render_restrict,
            Picked: self.render_picked,
        }
        if type(op) not in table:
            raise bug(f"{type(op).__name__} cannot be rendered", "it should have been simplified")
        return table[type(op)](op)

    # --- linear ---

    def render_scan(self, op: Scan) -> str:
        """The state of a source."""
        return _select([*_listed(op), WEIGHT], self._read(op, False))

    def render_delta(self, op: Delta) -> str:
        """The change of a source."""
        assert isinstance(op.input, Scan)
        return _select([*_listed(op), WEIGHT], self._read(op.input, True))

    def render_after(self, op: After) -> str:
        """A state is what its scans read."""
        return self._render(op.input)

    def render_single(self, op: Single) -> str:
        """One row."""
        return f"SELECT 1 AS {WEIGHT}"

    def render_empty(self, op: Empty) -> str:
        """No row, of the right types."""
        columns = [
            f"CAST(NULL AS {self._columns[c.name].spark}) AS {quoted(c.name)}" for c in op.columns
        ]
        return f"SELECT {', '.join([*columns, f'1 AS {WEIGHT}'])} WHERE FALSE"

    def render_project(self, op: Project) -> str:
        """Values by the whitelist."""
        outputs = [f"{self._value(o.expr)} AS {quoted(o.column.name)}" for o in op.outputs]
        return _select([*outputs, WEIGHT], self._inner(op.input))

    def render_filter(self, op: Filter) -> str:
        """Conditions by the whitelist."""
        select = _select([*_listed(op), WEIGHT], self._inner(op.input))
        return f"{select} WHERE {self._test(op.conjuncts)}"

    def render_repeat(self, op: Repeat) -> str:
        """Weights multiply; NULL and numbers below 1 give no row."""
        times = self._value(op.times)
        columns = [*_listed(op), f"{WEIGHT} * {times} AS {WEIGHT}"]
        return f"{_select(columns, self._inner(op.input))} WHERE {times} > 0"

    def render_union_all(self, op: UnionAll) -> str:
        """Branches by position."""
        arms = []
        for arm in op.inputs:
            pairs = zip(names(schema(arm)), names(op.columns), strict=True)
            outputs = [f"{self._fitted(a, c)} AS {quoted(c)}" for a, c in pairs]
            arms.append(_select([*outputs, WEIGHT], self._inner(arm)))
        return "\nUNION ALL\n".join(arms)

    def _fitted(self, name: str, union: str) -> str:
        """A column that is NULL in one branch takes the type that it has in the others."""
        own, wanted = self._columns[name].spark, self._columns[union].spark
        return quoted(name) if own == wanted else f"CAST({quoted(name)} AS {wanted})"

    def render_negate(self, op: Negate) -> str:
        """The opposite weights."""
        return _select([*_listed(op), f"-{WEIGHT} AS {WEIGHT}"], self._inner(op.input))

    def render_picked(self, op: Picked) -> str:
        """The rows of some keys, or what came of the others; NULL matches nothing anyway."""
        wire, key = self._columns[op.column], quoted(op.column)
        values = ", ".join(str(literal_sql(value, wire)) for value in op.values)
        select = _select([*_listed(op), WEIGHT], self._inner(op.input))
        if op.arrived:
            others = f" AND {key} NOT IN ({values})" if values else ""
            return f"{select} WHERE {WEIGHT} > 0{others}"
        return f"{select} WHERE {key} IN ({values})"

    # --- joins ---

    def render_join(self, op: Join) -> str:
        """Weights multiply."""
        columns = [*_listed(op), f"l.{WEIGHT} * r.{WEIGHT} AS {WEIGHT}"]
        left, right = self._wanted(op, "left", "l"), self._wanted(op, "right", "r")
        hint = self._sent({"l": op.left, "r": op.right})
        return f"{_select(columns, left, hint)} JOIN {right} ON {self._test(op.on)}"

    def _wanted(self, op: Join, side: str, alias: str) -> str:
        """One side of a join; of a state, what the changed keys on the other side can match."""
        inner = self._inner(getattr(op, side), alias)
        tests = [_is_wanted(w) for w in (wanted(op, side, self._facts) if self._facts else ())]
        return f"(SELECT * FROM {inner} WHERE {' AND '.join(tests)}) AS {alias}" if tests else inner

    def render_semi_join(self, op: SemiJoin) -> str:
        """Of a change any match counts, whatever its weight; of a state those that are there."""
        if not _is_change(op.right):
            return self._counted(op, "SEMI")
        columns = [*(f"l.{c}" for c in _listed(op)), f"l.{WEIGHT}"]
        left, right = self._inner(op.left, "l"), self._inner(op.right, "r")
        select = _select(columns, left, self._sent({"r": op.right}))
        return f"{select} LEFT SEMI JOIN {right} ON {self._test(op.on)}"

    def render_anti_join(self, op: AntiJoin) -> str:
        """The rows without a match."""
        return self._counted(op, "ANTI")

    def _counted(self, op: SemiJoin | AntiJoin, kind: str) -> str:
        """Matches are counted by weight, per value of the left columns that the condition reads.

        Values are compared by image, NULL equal to NULL: it is the same row on both sides.
        """
        own = [name for name in names(schema(op.left)) if name in refs(*op.on)]
        keys = [quoted(name) for name in own]
        left = self._render(op.left)
        distinct = f"(SELECT DISTINCT {', '.join(keys) or '1'} FROM ({left}) AS q) AS l"
        shown = ", ".join(f"l.{k}" for k in keys) or "1 AS one"
        group = f" GROUP BY {', '.join(f'l.{k}' for k in keys)}" if keys else ""
        hint, right = self._sent({"l": op.left}), self._inner(op.right, "r")
        matched = (
            f"(SELECT {hint}{shown} FROM {distinct} JOIN {right}"
            f" ON {self._test(op.on)}{group} HAVING sum(r.{WEIGHT}) <> 0) AS m"
        )
        same = " AND ".join(f"l.{k} <=> m.{k}" for k in keys) or "TRUE"
        columns = [*(f"l.{c}" for c in _listed(op)), f"l.{WEIGHT}"]
        select = _select(columns, f"({left}) AS l", self._sent({"m": op.left}))
        return f"{select} LEFT {kind} JOIN {matched} ON {same}"

    def _sent(self, sides: Mapping[str, Op]) -> str:
        """Return the hint that sends the smallest of these sides to the other, if it is small."""
        if self._sizes is None:
            return ""
        sizes = self._sizes
        alias, side = min(sides.items(), key=lambda item: sizes.rows(item[1]))
        return f"/*+ BROADCAST({alias}) */ " if sizes.is_small(side) else ""

    # --- keyed ---

    def render_aggregate(self, op: Aggregate) -> str:
        """Groups that exist, each once."""
        groups = self.grouped(op, self._render(op.input))
        there = f" WHERE {quoted(op.count.name)} <> 0" if op.keys else ""
        return f"{_select([*_listed(op), f'1 AS {WEIGHT}'], f'({groups}) AS q')}{there}"

    def grouped(self, op: Aggregate, source: str) -> str:
        """Return count and sums per group of signed rows; extrema of consolidated ones."""
        if any(call.kind is not Kind.SUM for call in op.calls):
            source = self._consolidated(op.input, source)
        outputs = [quoted(key) for key in op.keys]
        outputs.append(f"CAST(coalesce(sum({WEIGHT}), 0) AS BIGINT) AS {quoted(op.count.name)}")
        outputs += [f"{self._called(call)} AS {quoted(call.column.name)}" for call in op.calls]
        group = f" GROUP BY {', '.join(quoted(key) for key in op.keys)}" if op.keys else ""
        return f"{_select(outputs, f'({source}) AS q')}{group}"

    def _called(self, call: Call) -> str:
        only = only_value(call.expr)
        if only is not None:
            return f"max(CASE WHEN {quoted(only[1])} = 1 THEN {quoted(only[0])} END)"
        column = quoted(str(as_column(call.expr)))
        if call.kind is not Kind.SUM:
            return f"{call.kind.value}({column})"
        wire = called(call, self._columns)
        value = weighted(column, self._columns[str(as_column(call.expr))], wire)
        return f"CAST(coalesce(sum({value}), 0) AS {wire.spark})"

    def render_window(self, op: Window) -> str:
        """Each row as often as it is there, with the values of the window."""
        rows = self._consolidated(op.input, self._render(op.input))
        columns = _listed(op.input)
        copies = _select([*columns, f"explode(array_repeat(1, {WEIGHT})) AS {WEIGHT}"], f"({rows})")
        values = [
            f"{window_value(op, call, self._columns, quoted).sql} AS {quoted(call.column.name)}"
            for call in op.calls
        ]
        return _select([*columns, *values, WEIGHT], f"({copies}) AS q")

    def render_expand(self, op: Expand) -> str:
        """Each row with each item; what is made of a row has its weight."""
        items = expanded_value(op, self._columns, quoted).sql
        made = [quoted(name) for name in names(op.columns)]
        own = [*_listed(op.input), WEIGHT]
        if not op.numbered:
            return _select([*own, f"explode({items}) AS {made[0]}"], self._inner(op.input))
        rows = _select([*own, f"posexplode({items}) AS (__at, __item)"], self._inner(op.input))
        numbered = [f"__item AS {made[0]}", f"CAST(__at + 1 AS BIGINT) AS {made[1]}"]
        return _select([*own, *numbered], f"({rows}) AS q")

    def render_consolidate(self, op: Consolidate) -> str:
        """One row per image."""
        return self._consolidated(op, self._render(op.input))

    def _consolidated(self, op: Op, source: str) -> str:
        return netted(source, _listed(op))

    def render_keys(self, op: Keys) -> str:
        """The distinct keys; of no column, one row or none."""
        columns = [quoted(name) for name in op.columns]
        if not columns:
            return f"SELECT 1 AS {WEIGHT} FROM {self._inner(op.input)} LIMIT 1"
        return f"SELECT DISTINCT {', '.join(columns)}, 1 AS {WEIGHT} FROM {self._inner(op.input)}"

    def render_restrict(self, op: Restrict) -> str:
        """NULL is a key like any other."""
        columns = [*(f"l.{c}" for c in _listed(op)), f"l.{WEIGHT}"]
        pairs = zip(op.columns, names(schema(op.keys)), strict=True)
        on = " AND ".join(f"l.{quoted(a)} <=> k.{quoted(b)}" for a, b in pairs) or "TRUE"
        left, keys = self._inner(op.input, "l"), self._inner(op.keys, "k")
        select = _select(columns, left, self._sent({"k": op.keys}))
        return f"{select} LEFT SEMI JOIN {keys} ON {on}"

    def _inner(self, op: Op, alias: str = "q") -> str:
        return f"({self._render(op)}) AS {alias}"

    def _value(self, expr: Expr) -> str:
        made = translate(expr, self._columns, quoted)
        if isinstance(made, Refused):
            raise bug("an expression without a form in Spark", made.reason)
        return made.sql

    def _test(self, conjuncts: tuple[Expr, ...]) -> str:
        return " AND ".join(f"({self._value(c)})" for c in conjuncts) or "TRUE"


def netted(source: str, columns: list[str]) -> str:
    """Return the SELECT of one row per image."""
    total = f"CAST(sum({WEIGHT}) AS INT) AS {WEIGHT}"
    group = f" GROUP BY {', '.join(columns)}" if columns else ""
    return f"{_select([*columns, total], f'({source}) AS q')}{group} HAVING sum({WEIGHT}) <> 0"


def _is_wanted(wanted: Wanted) -> str:
    name = quoted(wanted.name)
    listed = f"{name} IN ({', '.join(sorted(wanted.values))})" if wanted.values else "FALSE"
    return f"({listed} OR {name} IS NULL)" if wanted.null else listed


def _is_change(op: Op) -> bool:
    """Tell a change from a state, of which only key sets look at changes."""
    match op:
        case Delta():
            return True
        case After():
            return False
        case Restrict():
            return _is_change(op.input)
    return any(map(_is_change, children(op)))


def _is_small_file(op: Op) -> bool:
    """A change is a small file, and to pick rows and values of it costs nothing beside."""
    if isinstance(op, Filter | Project | Picked | Repeat | Negate):
        return _is_small_file(op.input)
    return isinstance(op, Delta)


def _listed(op: Op) -> list[str]:
    return [quoted(name) for name in names(schema(op))]


def _select(columns: list[str], source: str, hint: str = "") -> str:
    return f"SELECT {hint}{', '.join(columns)} FROM {source}"
