"""The operators: bags with integer weights in, one such bag out.

A *view* tree uses the nodes below the first heading. Every other construct of SQL is lowered to
these: DISTINCT, UNION, INTERSECT and EXCEPT to aggregates, outer joins to a join and a NULL-padded
anti-join, subqueries to joins with what they give for each value of their parameters.

A *delta* tree may also use the nodes below the second heading; `Delta`, `Before` and `After` say
which state of a relation is meant, and an engine decides what they read.

Column names are unique in a whole view tree, so a name alone tells where a value comes from.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.algebra.calls import WRITTEN_OUT, Call
from headwater.algebra.checks import check_pair, check_refs
from headwater.algebra.expr import Expr, as_column, column
from headwater.algebra.node import Memo, node
from headwater.algebra.schema import Column, Schema, names
from headwater.errors import bug


@node
class Op(Memo):
    """An operator; its value is a Z-set over the columns of `schema(op)`."""


# --- nodes of view trees ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """A relation that is read: a table or another stream table.

    `keys` holds the column sets that the server keeps unique and not NULL.
    """

    oid: int
    name: str
    keys: tuple[tuple[str, ...], ...] = ()


@node
class Scan(Op):
    """The rows of a source; `attributes` are its own column names, in the order of `columns`."""

    source: Source
    columns: Schema
    attributes: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.columns) != len(self.attributes):
            raise bug("a scan has more names than columns", f"{self.attributes}")


@node
class Single(Op):
    """One row without columns: the input of a SELECT without FROM."""


@dataclass(frozen=True, slots=True)
class Output:
    """One output column of a projection and the expression that computes it."""

    column: Column
    expr: Expr


@node
class Project(Op):
    """π: one output row for each input row; duplicates stay."""

    input: Op
    outputs: tuple[Output, ...]

    def __post_init__(self) -> None:
        check_refs(self, names(schema(self.input)), tuple(o.expr for o in self.outputs))


@node
class Filter(Op):
    """σ: the rows for which every conjunct is true; NULL counts as false."""

    input: Op
    conjuncts: tuple[Expr, ...]

    def __post_init__(self) -> None:
        check_refs(self, names(schema(self.input)), self.conjuncts)


@node
class Timed(Op):
    """σ with a clock in it: rows for which every conjunct is true at the time of the state.

    `conjuncts` ask for the time after the change, `past`, one for each, for that before it.
    """

    input: Op
    conjuncts: tuple[Expr, ...]
    past: tuple[Expr, ...]

    def __post_init__(self) -> None:
        check_refs(self, names(schema(self.input)), self.conjuncts + self.past)


@node
class Repeat(Op):
    """Each row `times` times: its weight is multiplied; NULL and numbers below 1 give none."""

    input: Op
    times: Expr

    def __post_init__(self) -> None:
        check_refs(self, names(schema(self.input)), (self.times,))


@node
class UnionAll(Op):
    """⊎: the rows of all inputs, matched by position; equal rows add up.

    `disjoint` promises that no two inputs share a row and that they share a unique key.
    """

    inputs: tuple[Op, ...]
    columns: Schema
    disjoint: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        widths = {len(schema(op)) for op in self.inputs}
        if widths != {len(self.columns)}:
            raise bug("UNION ALL of inputs of different width", f"{sorted(widths)}")


@node
class Join(Op):
    """⋈: pairs of rows for which every conjunct of `on` is true; weights multiply."""

    left: Op
    right: Op
    on: tuple[Expr, ...] = ()

    def __post_init__(self) -> None:
        check_pair(self, names(schema(self.left)), names(schema(self.right)), self.on)


@node
class SemiJoin(Op):
    """⋉: rows of `left` that have a match in `right`; the right side's weights do not count."""

    left: Op
    right: Op
    on: tuple[Expr, ...]

    def __post_init__(self) -> None:
        check_pair(self, names(schema(self.left)), names(schema(self.right)), self.on)


@node
class AntiJoin(Op):
    """▷: rows of `left` whose matches in `right` have weights that add up to nothing."""

    left: Op
    right: Op
    on: tuple[Expr, ...]

    def __post_init__(self) -> None:
        check_pair(self, names(schema(self.left)), names(schema(self.right)), self.on)


@node
class Aggregate(Op):
    """γ: one row per group of equal `keys`, NULL equal to NULL; without keys always one row.

    `count` is the number of rows of the group; a group whose count is 0 does not exist.
    """

    input: Op
    keys: tuple[str, ...]
    count: Column
    calls: tuple[Call, ...] = ()

    def __post_init__(self) -> None:
        check_refs(self, names(schema(self.input)), tuple(c.expr for c in self.calls))
        missing = set(self.keys) - set(names(schema(self.input)))
        bare = all(as_column(c.expr) for c in self.calls if c.kind not in WRITTEN_OUT)
        if missing or not bare:
            raise bug("malformed aggregate", f"missing keys {sorted(missing)}, calls {self.calls}")


@node
class Window(Op):
    """ω: each row with values that are computed over the rows of equal `keys`, its partition.

    A call is whole, with its OVER. `order` sorts the rows before, so that ties fall the same way
    whenever the partition is computed.
    """

    input: Op
    keys: tuple[str, ...]
    order: tuple[Expr, ...]
    calls: tuple[Output, ...]

    def __post_init__(self) -> None:
        check_refs(
            self, names(schema(self.input)), (*self.order, *(c.expr for c in self.calls)), self.keys
        )


@node
class Expand(Op):
    """Each row with each of the rows that set-returning functions make of it, side by side.

    If `numbered`, the last of `columns` counts those rows.
    """

    input: Op
    functions: tuple[Expr, ...]
    columns: Schema
    numbered: bool = False

    def __post_init__(self) -> None:
        check_refs(self, names(schema(self.input)), self.functions)


@node
class Itself(Op):
    """What a recursion has found so far."""

    name: str
    columns: Schema


@dataclass(frozen=True, slots=True)
class Loop:
    """The two parts of a recursion R = δ(base ⊎ step(R)); `step` is linear in R, `itself`."""

    base: Op
    step: Op
    itself: Itself


@node
class Whole(Op):
    """A query computed as a whole: SQL with numbers for the inputs; `loop` says how it recurs."""

    inputs: tuple[Op, ...]
    sql: tuple[str | int, ...]
    columns: Schema
    loop: Loop | None = None


# --- nodes of delta trees -----------------------------------------------------------------------


@node
class Delta(Op):
    """Δ: the change of a relation between the two epochs."""

    input: Op


@node
class Before(Op):
    """The relation as it was before the change."""

    input: Op


@node
class After(Op):
    """The relation as it is after the change."""

    input: Op


@node
class Empty(Op):
    """No rows."""

    columns: Schema


@node
class Negate(Op):
    """The same rows with opposite weights."""

    input: Op


@node
class Consolidate(Op):
    """The same Z-set with one entry per row image, entries of weight 0 left out."""

    input: Op


@node
class Keys(Op):
    """The distinct values of `columns` among the rows of `input`, whatever their weights."""

    input: Op
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        check_refs(self, names(schema(self.input)), (), self.columns)


@node
class Restrict(Op):
    """⋉K: rows of `input` whose `columns` are among `keys`, NULL equal to NULL."""

    input: Op
    columns: tuple[str, ...]
    keys: Op

    def __post_init__(self) -> None:
        check_refs(self, names(schema(self.input)), (), self.columns)
        if len(schema(self.keys)) != len(self.columns):
            raise bug("a restriction compares different numbers of columns", f"{self.columns}")


@node
class OneWay(Op):
    """Of a change the rows that come, or, if `going`, those that go; each once."""

    input: Op
    going: bool


@node
class Fixpoint(Op):
    """μ: the smallest set R with R = δ(base ⊎ step(R)); `step` is linear in R, `itself`."""

    base: Op
    step: Op
    itself: Itself


@node
class Picked(Op):
    """Of a change the rows of certain keys: `column` is one of `values`, as text.

    Or, if `arrived`, all rows of positive weight whose `column` is not one of them.
    """

    input: Op
    column: str
    values: tuple[str, ...]
    arrived: bool

    def __post_init__(self) -> None:
        check_refs(self, names(schema(self.input)), (), (self.column,))


def passing(columns: Schema) -> tuple[Output, ...]:
    """Return outputs that keep columns as they are."""
    return tuple(Output(c, column(c.name)) for c in columns)


def schema(op: Op) -> Schema:
    """Return the output columns of an operator."""
    try:
        return op._schema  # type: ignore[attr-defined, no-any-return]
    except AttributeError:
        found = _schema(op)
        object.__setattr__(op, "_schema", found)
        return found


def _schema(op: Op) -> Schema:  # noqa: C901, PLR0911 - one line per node
    match op:
        case Scan() | UnionAll() | Empty() | Whole() | Itself():
            return op.columns
        case Fixpoint():
            return op.itself.columns
        case Single():
            return ()
        case Project():
            return tuple(o.column for o in op.outputs)
        case Join():
            return schema(op.left) + schema(op.right)
        case SemiJoin() | AntiJoin():
            return schema(op.left)
        case Aggregate():
            of = {c.name: c for c in schema(op.input)}
            return (*(of[k] for k in op.keys), op.count, *(c.column for c in op.calls))
        case Window():
            return schema(op.input) + tuple(c.column for c in op.calls)
        case Expand():
            return schema(op.input) + op.columns
        case Keys():
            of = {c.name: c for c in schema(op.input)}
            return tuple(of[name] for name in op.columns)
    below = getattr(op, "input", None)  # the rest gives some of the rows of its input
    if not isinstance(below, Op):
        raise bug(f"{type(op).__name__} has no schema", "the node is not known to `schema`")
    return schema(below)
