"""Window functions in Spark SQL, where they mean the same there.

Spark's window needs an ORDER BY for whatever numbers rows, knows no FILTER, and sorts NULLs to the
other end: all of that is written out. Rows that ORDER BY leaves equal are told apart by what
PostgreSQL sorts them by before: `verify` has it compute the same tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from headwater.algebra.expr import Expr, as_column, refs, template
from headwater.algebra.ops import Output, Window
from headwater.algebra.schema import Column
from headwater.spark.translate import Refused, Translated, translate
from headwater.spark.values import Refusal
from headwater.spark.wire import BIGINT, INTEGER, OPAQUE, Wire, sum_wire
from headwater.sql.expression import NotParsed, parse
from headwater.sql.nodes import Literal
from headwater.sql.window_call import (
    FIRST,
    LAST,
    Bound,
    Frame,
    Sort,
    WindowCall,
    parse_sort,
    parse_window,
    sorting,
    spelled,
)
from headwater.sql.windows import is_row_image

_BY_VALUE = {"rank": BIGINT, "dense_rank": BIGINT, "percent_rank": OPAQUE, "cume_dist": OPAQUE}
_SHIFTS = ("lag", "lead")
_PICKS = ("first_value", "last_value", "nth_value")
_SUMS = ("count", "sum", "min", "max")


def window_value(
    op: Window, output: Output, columns: Mapping[str, Wire], name: Callable[[str], str]
) -> Translated:
    """Return a call of a window in Spark SQL; raises Refusal if it may differ from PostgreSQL's."""
    return _Translation(op, _parsed(output), columns, name).value(output.column)


@dataclass(frozen=True)
class _Translation:
    """One call over rows of known form."""

    op: Window
    call: WindowCall
    columns: Mapping[str, Wire]
    name: Callable[[str], str]

    def value(self, column: Column) -> Translated:
        """Return the call, as a value of the column's type."""
        function = self.call.name
        if function in _BY_VALUE:
            wire = _BY_VALUE[function]
            return self._made(f"{function}()", self._sorted(), wire, cast=True)
        if function == "row_number":
            return self._made("row_number()", self._sorted(tied=True), BIGINT, cast=True)
        if function == "ntile":
            tiles = self._number(0, lowest=1)
            return self._made(f"ntile({tiles})", self._sorted(tied=True), INTEGER)
        if function in _SHIFTS:
            return self._shifted()
        if function in _PICKS:
            return self._picked()
        if function in _SUMS:
            return self._summed(column)
        raise Refusal(f"{function} over a window is not known to be the same in Spark")

    def _made(self, call: str, over: str, wire: Wire, *, cast: bool = False) -> Translated:
        keys = ", ".join(map(self.name, self.op.keys))
        partition = f"PARTITION BY {keys} " if keys else ""
        sql = f"{call} OVER ({partition}{over})"
        return Translated(f"CAST({sql} AS {wire.spark})" if cast else sql, wire)

    # --- functions ---

    def _shifted(self) -> Translated:
        """LAG and LEAD: no frame; what stands in for a missing row is of the value's own form."""
        value, *rest = self.call.arguments
        made = self._value(value)
        offset = self._number(1, lowest=0) if rest else 1
        arguments = [made.sql, str(offset)]
        if len(rest) > 1:
            other = self._value(rest[1])
            if other.wire.kind != made.wire.kind or refs(rest[1]):
                raise Refusal(f"{self.call.name} with a default that is no constant of its type")
            arguments.append(f"CAST({other.sql} AS {made.wire.spark})")
        call = f"{self.call.name}({', '.join(arguments)})"
        return self._made(call, self._sorted(tied=True), made.wire)

    def _picked(self) -> Translated:
        made = self._value(self.call.arguments[0])
        arguments = made.sql
        if self.call.name == "nth_value":
            arguments += f", {self._number(1, lowest=1)}"
        over = self._framed(self._pick_frame(), tied=True)
        return self._made(f"{self.call.name}({arguments})", over, made.wire)

    def _pick_frame(self) -> Frame:
        """A frame to pick one row from: among equal rows it must be said which is the first."""
        frame = self._frame()
        if frame.unit == "ROWS" or not self.op.order:
            return frame
        here = Bound(0, is_start=False)
        if self.call.name == "first_value" and frame.start == FIRST:
            return Frame("ROWS", FIRST, here)
        if self.call.name == "last_value" and frame.end == LAST:
            return Frame("ROWS", here, LAST)
        if (frame.start, frame.end) == (FIRST, LAST):
            return Frame("ROWS", FIRST, LAST)
        raise Refusal(f"{self.call.name} picks one of rows that ORDER BY leaves equal")

    def _summed(self, column: Column) -> Translated:
        """NULLs do not count, so a condition is one for the value."""
        over = self._framed(self._frame(), tied=self._frame().unit == "ROWS")
        argument = self.call.arguments[0]
        if self.call.name == "count":
            counted = "1" if template(argument) == "*" else self._value(argument).sql
            return self._made(f"count({self._where(counted)})", over, BIGINT)
        made = self._value(argument)
        if self.call.name == "sum":
            wire = sum_wire(made.wire, column)
            if wire is None:
                raise Refusal("a sum over a window of values that have no exact sum in Spark")
            wide = f"CAST({made.sql} AS {wire.spark})"
            return self._made(f"sum({self._where(wide)})", over, wire)
        if not made.wire.ordered:
            raise Refusal(f"{self.call.name} over an order that Spark does not share")
        return self._made(f"{self.call.name}({self._where(made.sql)})", over, made.wire)

    def _where(self, sql: str) -> str:
        if self.call.condition is None:
            return sql
        return f"CASE WHEN {self._value(self.call.condition).sql} THEN {sql} END"

    # --- order and frame ---

    def _sorted(self, *, tied: bool = False) -> str:
        """ORDER BY; of nothing if all rows are equal, which Spark must be told."""
        sorts = [*self.call.order, *(_ties(self.op) if tied else ())]
        return f"ORDER BY {', '.join(map(self._sort, dict.fromkeys(sorts))) or 'NULL'}"

    def _sort(self, sort: Sort) -> str:
        made = self._value(sort.expr)
        if not made.wire.ordered:
            raise Refusal("a window over an order that Spark does not share")
        way = "DESC" if sort.descending else "ASC"
        return f"{made.sql} {way} NULLS {'FIRST' if sort.nulls_first else 'LAST'}"

    def _frame(self) -> Frame:
        """Without an order all rows are equal, and each is where the others are."""
        frame = self.call.frame
        if frame.unit == "RANGE" and not self.call.order:
            return Frame("RANGE", FIRST, LAST)
        if frame.unit == "RANGE" and not {frame.start.offset, frame.end.offset} <= {None, 0}:
            raise Refusal("a frame that counts by distance")
        return frame

    def _framed(self, frame: Frame, *, tied: bool) -> str:
        offsets = frame.start.offset, frame.end.offset
        if None not in offsets and offsets[0] > offsets[1]:  # type: ignore[operator]
            raise Refusal("a frame that ends before it starts")
        over = self._sorted(tied=tied and frame.unit == "ROWS")
        return f"{over} {frame.unit} BETWEEN {frame.start} AND {frame.end}"

    # --- values ---

    def _value(self, expr: Expr) -> Translated:
        bare = as_column(expr)
        if bare is not None:
            return Translated(self.name(bare), self.columns[bare])
        made = translate(expr, self.columns, self.name)
        if isinstance(made, Refused):
            raise Refusal(made.reason)
        return made

    def _number(self, at: int, *, lowest: int) -> int:
        """Return an argument that Spark wants as a constant."""
        node = parse(self.call.arguments[at])
        if isinstance(node, Literal) and node.type == "integer" and int(node.text or -1) >= lowest:
            return int(node.text or -1)
        raise Refusal(f"{self.call.name} with a number that is no constant from {lowest} on")


def _ties(op: Window) -> Iterator[Sort]:
    for expr in op.order:
        sort = parse_sort(expr)
        if isinstance(sort, NotParsed):
            raise Refusal(sort.reason)
        yield sort


def moved_images(
    op: Window, move: Callable[[Expr], Expr]
) -> tuple[tuple[Expr, ...], tuple[Output, ...]]:
    """Return order and calls with what sorts rows by all that they show replaced.

    Raises Refusal where they are not understood.
    """

    def sort(sort: Sort) -> Sort:
        return replace(sort, expr=move(sort.expr)) if is_row_image(sort.expr) else sort

    def call(output: Output) -> Output:
        parsed = _parsed(output)
        moved = replace(parsed, order=tuple(map(sort, parsed.order)))
        return replace(output, expr=spelled(moved, op.keys))

    order = tuple(sorting(sort(item)) for item in _ties(op))
    return order, tuple(map(call, op.calls))


def _parsed(output: Output) -> WindowCall:
    call = parse_window(output.expr)
    if isinstance(call, NotParsed):
        raise Refusal(f"the window function is not understood: {call.reason}")
    return call
