"""A view cut in two: what Spark computes from the traces, and what PostgreSQL makes of that.

The *boundary* is the part for Spark: the input of the root aggregate where there is one, else the
view without the projections and filters on top that Spark cannot evaluate. Inside it, an expression
that is not in the whitelist but reads one source only moves down to that scan, where PostgreSQL
evaluates it at ingest. The *rest* is the view over the rows that Spark hands over.

Scans of the boundary name SQL text over a row of their source as attributes, not only columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from headwater.algebra.expr import Expr, as_column, column, refs, show, substitute, text
from headwater.algebra.ops import (
    Aggregate,
    AntiJoin,
    Expand,
    Filter,
    Join,
    Op,
    Output,
    Project,
    Repeat,
    Scan,
    SemiJoin,
    Single,
    Source,
    Timed,
    UnionAll,
    Whole,
    Window,
    schema,
)
from headwater.algebra.prune import prune
from headwater.algebra.schema import BIGINT, Column, Schema, SqlType, names
from headwater.algebra.sink import sink
from headwater.algebra.walk import children, rebuild, scans
from headwater.delta.differentiate import differentiate
from headwater.delta.factoring import factored
from headwater.delta.ordering import connect, gather, start_from_change
from headwater.delta.verify import check_delta_plan
from headwater.postgres.maintenance import is_additive, may_recompute, root_aggregate
from headwater.postgres.quote import identifier
from headwater.spark.naming import unambiguous
from headwater.spark.nans import without_nans
from headwater.spark.render import Renderer, all_wires
from headwater.spark.values import Refusal
from headwater.spark.windows import moved_images
from headwater.spark.wire import MAX_PRECISION
from headwater.spark.wires import NotOnSpark, Wires, expression_fault, wires
from headwater.sql.scales import never_fails, shape

LANDED_OID = -2  # the rows that Spark hands over, as a source of the rest
BOOLEAN = SqlType("boolean")
MIXED = "rows that a window leaves equal, and that are not of one source, have only their text"
IMAGE = SqlType("text", 'pg_catalog."C"')
MAX_SCANS = 100  # in one statement
MAX_PLANNED = 1000  # the same, with everything that is kept in full: Spark looks through that
MAX_SUMMED_SCALE = 12  # which leaves a sum at least 26 digits before the point
MAX_WINDOWS = 4  # one above the other: what Spark keeps of each is planned again for the next


@dataclass(frozen=True, slots=True)
class Placed:
    """A view that runs on Spark: what Spark computes, and the view over what it hands over."""

    boundary: Op
    rest: Op


def place(view: Op, landed: Callable[[Schema], str]) -> Placed:
    """Cut a view in two; `landed` names the relation that will hold what Spark hands over.

    Raises NotOnSpark with the reason if no cut leaves Spark only what it can do exactly.
    """
    view = sink(view)
    root = root_aggregate(view)
    faults: list[NotOnSpark] = []
    cuts = [(cut, top) for top in (False, True) for cut in _chain(root.input if root else view)]
    for candidate, moves_top in cuts:
        try:
            fixed = frozenset[Op]() if moves_top else frozenset(_chain(candidate))
            placer = _Placer(fixed, is_summed=root is not None)
            boundary = _narrowed(prune(placer.placed(candidate)), schema(candidate))
            _check_root(root, candidate, wires(boundary))
            boundary = unambiguous(connect(boundary))
            _check_size(boundary)
            scan = _handed_over(schema(candidate), landed)
            return Placed(boundary, _replaced(view, candidate, scan))
        except NotOnSpark as fault:
            faults.append(fault)
    raise faults[0]


def place_whole(view: Op, landed: Callable[[Schema], str]) -> Placed:
    """Place a view of which Spark does everything; what it hands over is the result.

    Raises NotOnSpark if there is something that it cannot do, or not hold.
    """
    view = sink(view)
    faults: list[NotOnSpark] = []
    for fixed in (frozenset(_chain(view)), frozenset[Op]()):
        try:
            boundary = _narrowed(prune(_Placer(fixed).placed(view)), schema(view))
            boundary = unambiguous(connect(boundary))
            _check_size(boundary)
            return Placed(boundary, _handed_over(schema(view), landed))
        except NotOnSpark as fault:
            faults.append(fault)
    raise faults[0]


def _handed_over(columns: Schema, landed: Callable[[Schema], str]) -> Scan:
    return Scan(Source(LANDED_OID, landed(columns)), columns, names(columns))


def _check_root(root: Aggregate | None, boundary: Op, columns: Wires) -> None:
    """Groups that are recomputed are read by their keys, which Spark must be able to find."""
    if root is None or not may_recompute(root):
        return
    if not root.keys:
        raise NotOnSpark("an aggregate over all rows would be recomputed from all rows")
    if boundary is not root.input or not all(columns[key].comparable for key in root.keys):
        raise NotOnSpark("Spark cannot find the rows of a group that must be recomputed")


def _check_size(boundary: Op) -> None:
    """Refuse what Spark would plan longer than it would run: every outer join doubles the tree."""
    stacked = _stacked(boundary)
    if stacked > MAX_WINDOWS:
        raise NotOnSpark(f"its change would go through {stacked} windows, one above the other")
    counted: list[Scan] = []

    def read(scan: Scan, is_delta: bool) -> str:
        counted.append(scan)
        return "t"

    change = change_of(boundary, frozenset(scan.source.oid for scan in scans(boundary)))
    Renderer(all_wires(boundary), read, lambda statement: "t").render(change)
    if len(counted) > MAX_SCANS:
        raise NotOnSpark(f"its change would read the sources {len(counted)} times")
    planned = _spelt_out(change, {})
    if planned > MAX_PLANNED:
        raise NotOnSpark(f"Spark would plan its change as {planned} reads of the sources")


def _spelt_out(op: Op, known: dict[Op, int]) -> int:
    """Return how many scans a tree has if nothing is shared; there may be thousands of times as
    many as nodes, so each node is counted once."""
    if op not in known:
        known[op] = isinstance(op, Scan) + sum(_spelt_out(c, known) for c in children(op))
    return known[op]


def _stacked(op: Op) -> int:
    """Return how many windows stand one above the other."""
    return isinstance(op, Window) + max(map(_stacked, children(op)), default=0)


def _chain(op: Op) -> Iterator[Op]:
    """The operator, then what is below each projection and filter on top of it."""
    yield op
    if isinstance(op, Project | Filter | Repeat):
        yield from _chain(op.input)


def _replaced(op: Op, old: Op, new: Op) -> Op:
    return new if op is old else rebuild(op, lambda child: _replaced(child, old, new))


class _Placer:
    """Moves what Spark cannot evaluate down to the scans.

    The values of projections in `fixed` stay where they are: PostgreSQL evaluates them for the rows
    that are left in the end, and at a scan they might fail for a row that a join leaves out.
    Those that never fail move if they are to be summed: else Spark would hand over every row.
    Conditions may always move, since SQL promises no order among them.
    """

    def __init__(self, fixed: frozenset[Op], *, is_summed: bool = False) -> None:
        self._fixed, self._is_summed = fixed, is_summed
        self._number = 0

    def placed(self, op: Op) -> Op:  # noqa: C901, PLR0911 - one case per node
        """Return the same relation, of which Spark can evaluate every expression."""
        match op:
            case Scan():
                return replace(op, attributes=tuple(map(identifier, op.attributes)))
            case Single():
                return op
            case Project():
                return self._project(op)
            case Filter():
                return self._filter(op)
            case Repeat():
                return self._repeat(op)
            case Join() | SemiJoin() | AntiJoin():
                return self._join(op)
            case Aggregate() | UnionAll() | Expand():
                return rebuild(op, self.placed)
            case Window():
                return self._window(op)
            case Whole():
                raise NotOnSpark("recursion is computed by PostgreSQL")
            case Timed():
                raise NotOnSpark("a condition on the time that passes is followed by PostgreSQL")
        raise NotOnSpark(f"{type(op).__name__} has no form in Spark")

    def _project(self, op: Project) -> Op:
        below, outputs = self.placed(op.input), []
        for output in (self._possible(below, output) for output in op.outputs):
            fault = self._fault(below, output.expr)
            if fault is not None and op in self._fixed:
                below, expr = self._argument(below, output, fault)
            else:
                below, expr = self._value(below, output.expr, output.column.type, guarded=True)
            outputs.append(replace(output, expr=expr))
        return Project(below, tuple(outputs))

    def _possible(self, below: Op, output: Output) -> Output:
        """Leave out what a value cannot be on Spark, if it could not be evaluated there."""
        fault = self._fault(below, output.expr)
        return output if fault is None else replace(output, expr=without_nans(output.expr, below))

    def _argument(self, below: Op, output: Output, fault: str) -> tuple[Op, Expr]:
        """Move a value that never fails, of a numeric as many digits as a sum has.

        A value with more of them, which none but the largest can have, fails the ingest.
        """
        types = {c.name: c.type for c in schema(below)}
        if not self._is_summed or not never_fails(output.expr, types):
            raise NotOnSpark(fault)
        type, fixed = output.column.type, shape(output.expr, types)
        if type.name == "numeric" and fixed is not None and fixed[1] <= MAX_SUMMED_SCALE:
            type = SqlType(f"numeric({min(fixed[0], MAX_PRECISION)},{fixed[1]})")
        return self._down(below, output.expr, (type, fault))

    def _filter(self, op: Filter) -> Op:
        below, tests = self.placed(op.input), []
        for conjunct in op.conjuncts:
            below, test = self._value(below, conjunct, BOOLEAN)
            tests.append(test)
        return _narrowed(Filter(below, tuple(tests)), schema(op))

    def _repeat(self, op: Repeat) -> Op:
        below, times = self._value(self.placed(op.input), op.times, BIGINT)
        return _narrowed(Repeat(below, times), schema(op))

    def _window(self, op: Window) -> Op:
        """Rows that are sorted by all that they show have that as a column of their source."""
        below, moved_to = self.placed(op.input), dict[Expr, Expr]()

        def move(image: Expr) -> Expr:
            nonlocal below
            if image not in moved_to:
                below, moved_to[image] = self._down(below, image, (IMAGE, MIXED))
            return moved_to[image]

        try:
            order, calls = moved_images(op, move)
        except Refusal as refusal:
            raise NotOnSpark(str(refusal)) from None
        return _narrowed(Window(below, op.keys, order, calls), schema(op))

    def _join(self, op: Join | SemiJoin | AntiJoin) -> Op:
        left, right, on = self.placed(op.left), self.placed(op.right), []
        for conjunct in op.on:
            fault = expression_fault(conjunct, {**wires(left), **wires(right)})
            if fault is None:
                on.append(conjunct)
                continue
            left, right, test = self._moved(left, right, conjunct, fault)
            on.append(test)
        return _narrowed(replace(op, left=left, right=right, on=tuple(on)), schema(op))

    def _moved(self, left: Op, right: Op, conjunct: Expr, fault: str) -> tuple[Op, Op, Expr]:
        """Move a condition on one side of a join into that side."""
        if refs(conjunct) <= set(names(schema(left))):
            below, test = self._down(left, conjunct, (BOOLEAN, fault))
            return below, right, test
        if refs(conjunct) <= set(names(schema(right))):
            below, test = self._down(right, conjunct, (BOOLEAN, fault))
            return left, below, test
        raise NotOnSpark(fault)

    def _fault(self, below: Op, expr: Expr) -> str | None:
        return None if as_column(expr) is not None else expression_fault(expr, wires(below))

    def _value(
        self, below: Op, expr: Expr, type: SqlType, *, guarded: bool = False
    ) -> tuple[Op, Expr]:
        """Return an expression that Spark can evaluate, over an input that may have grown."""
        fault = self._fault(below, expr)
        if fault is None:
            return below, expr
        return self._down(below, expr, (type, fault), guarded=guarded)

    def _down(
        self, below: Op, expr: Expr, why: tuple[SqlType, str], *, guarded: bool = False
    ) -> tuple[Op, Expr]:
        type, fault = why
        self._number += 1
        made = Column(f"__placed {self._number}", type)
        grown = _pushed(below, expr, made, guarded=guarded)
        if grown is None:
            raise NotOnSpark(fault)
        return grown, column(made.name)


def _narrowed(op: Op, wanted: Schema) -> Op:
    """Leave out what was added below for a condition."""
    if names(schema(op)) == names(wanted):
        return op
    return Project(op, tuple(Output(c, column(c.name)) for c in wanted))


def _pushed(  # noqa: C901, PLR0911 - one case per node
    op: Op, expr: Expr, made: Column, *, guarded: bool
) -> Op | None:
    """Return the operator with one more column, computed at a scan; None if no one scan will do.

    A value that stood above a filter is looked at only where the filter holds.
    """
    push = partial(_pushed, made=made, guarded=guarded)
    match op:
        case Scan():
            return _computed(op, expr, made)
        case Filter() if guarded:
            below = push(op.input, text("CASE WHEN ", _all(op.conjuncts), " THEN ", expr, " END"))
            return below and replace(op, input=below)
        case Filter() | Repeat():
            below = push(op.input, expr)
            return below and replace(op, input=below)
        case Window() | Expand() if refs(expr) <= set(names(schema(op.input))):
            below = push(op.input, expr)
            return below and replace(op, input=below)
        case Project():
            below = push(op.input, substitute(expr, {o.column.name: o.expr for o in op.outputs}))
            output = Output(made, column(made.name))
            return below and replace(op, input=below, outputs=(*op.outputs, output))
        case Join():
            for side in ("left", "right"):
                if refs(expr) <= set(names(schema(getattr(op, side)))):
                    below = push(getattr(op, side), expr)
                    return below and replace(op, **{side: below})  # type: ignore[arg-type]
        case SemiJoin() | AntiJoin():
            below = push(op.left, expr)
            return below and replace(op, left=below)
    return None


def _all(conjuncts: tuple[Expr, ...]) -> Expr:
    joined: list[str | Expr] = []
    for conjunct in conjuncts:
        joined += [" AND " if joined else "", "(", conjunct, ")"]
    return text(*joined)


def _computed(scan: Scan, expr: Expr, made: Column) -> Scan:
    """Add SQL over a row of the source; a numeric of certain scale is as good as numeric(p, s)."""
    of = dict(zip(names(scan.columns), scan.attributes, strict=True))
    fixed = shape(expr, {c.name: c.type for c in scan.columns})
    if made.type.name == "numeric" and fixed is not None:
        made = replace(made, type=SqlType("numeric({},{})".format(*fixed)))
    shown = f"({show(expr, lambda name: of[name])})"
    return replace(scan, columns=(*scan.columns, made), attributes=(*scan.attributes, shown))


def summed(placed: Placed) -> Aggregate | None:
    """Return the root aggregate over the boundary if Spark sums its groups."""
    root = root_aggregate(placed.rest)
    if root is None or not is_additive(root) or not isinstance(root.input, Scan):
        return None
    aggregate = replace(root, input=placed.boundary)
    try:
        wires(aggregate)
    except NotOnSpark:
        return None
    return aggregate


@lru_cache(maxsize=256)
def change_of(boundary: Op, changed: frozenset[int]) -> Op:
    """Return the change of a boundary by these sources."""
    return differentiate(gather(boundary, changed), changed)


def ordered_for_files(change: Op, boundary: Op) -> Op:
    """Return the change of a boundary in the order that suits files."""
    plan = start_from_change(factored(change))
    check_delta_plan(plan, boundary)
    return plan
