"""GROUP BY to the Aggregate operator, one for each grouping set.

What is computed becomes columns of the aggregate; the expressions of the SELECT get holes for them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from headwater.algebra.expr import Expr, as_column, column, text
from headwater.algebra.ops import Aggregate, Filter, Op, Output, Project, UnionAll, passing, schema
from headwater.algebra.schema import Column, SqlType
from headwater.errors import UnsupportedQuery
from headwater.sql.aggregates import Calls
from headwater.sql.blanks import null_of
from headwater.sql.calls import find_aggregates, hole
from headwater.sql.correlate import Outer
from headwater.sql.expanding import expanded_first
from headwater.sql.from_clause import Bound, Common
from headwater.sql.lexer import (
    Token,
    Tokens,
    closing,
    outside,
    spliced,
    split,
    stripped,
    swapped,
    untokenize,
)
from headwater.sql.scope import Scope, free_columns, has_subquery, to_expr
from headwater.sql.subquery_values import without_subqueries
from headwater.sql.syntax import Select

if TYPE_CHECKING:
    from headwater.sql.lower import Lowering

_BOOLEAN = SqlType("boolean")
_INTEGER = SqlType("integer")


def lower_grouped(
    low: Lowering,
    bound: Bound,
    select: Select,
    runs: list[Tokens],
    around: tuple[Common, Outer | None],
) -> tuple[Op, list[Tokens], Tokens | None]:
    """Return the grouped input, and expressions and HAVING with holes for what it computes.

    In a correlated query all groups are per row of the domain. A group of no keys is there for each
    of them, even if nothing is in it: the domain pads the input, and calls leave the padding out.
    """
    (op, scope), (common, outer) = bound, around
    sets = select.group_by if select.group_by is not None else ((),)
    _check_number(low, len(sets))
    every = [*runs, *([select.having] if select.having is not None else [])]
    op, every, sets = _plain(low, (op, scope), every, sets, common)
    op, every, sets = _expanded(low, (op, scope), every, sets)
    there = None
    if outer is not None and () in sets:
        op, there = _padded(low, op, outer)
    calls = Calls(low, op, scope, there, is_keyed=() not in sets)
    grouping = _Grouping(low, op, scope, outer.params if outer else (), calls)
    grouping.there = there
    different = {untokenize(stripped(t)): t for one in sets for t in one}
    for tokens in sorted(different.values(), key=len, reverse=True):
        grouping.add_key(tokens)
    every = [grouping.replaced(tokens) for tokens in every]
    grouping.add_dependents(free_columns(every, scope))
    made = grouping.build([grouping.names_of(one) for one in sets])
    return made, every[: len(runs)], every[-1] if select.having is not None else None


def _check_number(low: Lowering, count: int) -> None:
    """Each grouping set is an aggregate of its own, and CUBE doubles them with each key."""
    if count > 1 and count > low.describe.max_grouping_sets:
        raise UnsupportedQuery(
            f"GROUP BY has {count} grouping sets",
            f"each is maintained by itself; pg_trickle.max_grouping_sets is"
            f" {low.describe.max_grouping_sets}",
            "group by fewer expressions, or raise pg_trickle.max_grouping_sets",
        )


def _plain(
    low: Lowering,
    bound: Bound,
    runs: list[Tokens],
    sets: tuple[tuple[Tokens, ...], ...],
    common: Common,
) -> tuple[Op, list[Tokens], tuple[tuple[Tokens, ...], ...]]:
    """Compute the subqueries that aggregate calls and keys read, before there are groups."""
    op, scope = bound
    aggregates = low.analysis.aggregates
    values = [t for one in sets for t in one]
    calls = [find_aggregates(tokens, aggregates, scope) for tokens in runs]
    values += [t[c.start : c.end] for t, own in zip(runs, calls, strict=True) for c in own]
    if not any(map(has_subquery, values)):
        return op, runs, sets
    op, plain = without_subqueries(low, op, scope, values, common)
    rest = iter(plain)
    keys = [t for one in sets for t in one]
    sets = tuple(tuple(next(rest) for _ in one) for one in sets)
    computed = [t for one in sets for t in one]
    replaced = [
        spliced(tokens, [(c.start, c.end, next(rest)) for c in own])
        for tokens, own in zip(runs, calls, strict=True)
    ]
    for old, new in zip(keys, computed, strict=True):
        if has_subquery(old):
            replaced = [swapped(tokens, stripped(old), new) for tokens in replaced]
    return op, replaced, sets


def _expanded(
    low: Lowering, bound: Bound, runs: list[Tokens], sets: tuple[tuple[Tokens, ...], ...]
) -> tuple[Op, list[Tokens], tuple[tuple[Tokens, ...], ...]]:
    """Make the rows of set-returning calls in keys before there are groups."""
    keys = [t for one in sets for t in one]
    op, made = expanded_first(low, bound, keys, [*runs, *keys])
    rest = iter(made[len(runs) :])
    return op, made[: len(runs)], tuple(tuple(next(rest) for _ in one) for one in sets)


def _padded(low: Lowering, op: Op, outer: Outer) -> tuple[Op, str]:
    """Add a row of NULLs for each row of the domain, and a column that tells it from the others."""
    there = low.fresh("there", _BOOLEAN, nullable=False)
    own = [c for c in schema(op) if c.name not in outer.params]
    params = passing(schema(outer.domain))
    rows = Project(op, (*params, *passing(tuple(own)), Output(there, text("TRUE"))))
    blanks = (Output(low.fresh(c.name, c.type), null_of(c)) for c in own)
    absent = Output(low.fresh("there", _BOOLEAN, nullable=False), text("FALSE"))
    pad = Project(outer.domain, (*params, *blanks, absent))
    columns = tuple(Column(c.name, c.type, c.nullable or c in own) for c in schema(rows))
    return UnionAll((rows, pad), columns), there.name


@dataclasses.dataclass(frozen=True)
class _Pattern:
    """How a grouped expression looks where the SELECT repeats it, and the name of its column.

    Brackets around it stay where they are, since they may be those of a call.
    """

    texts: list[str]
    name: str
    is_bracketed: bool


class _Grouping:
    """Collects keys and calls while the SELECT is rewritten, then builds the operators."""

    def __init__(
        self, low: Lowering, op: Op, scope: Scope, params: tuple[str, ...], calls: Calls
    ) -> None:
        self._low, self._op, self._scope = low, op, scope
        self._params, self._calls = params, calls
        self._of = {c.name: c for c in schema(op)}
        self._keys: list[tuple[str, Expr]] = []  # name, expression over the input
        self._patterns: list[_Pattern] = []
        self._masks: dict[str, tuple[str, tuple[str, ...]]] = {}  # GROUPING(): its name, its keys
        self._by_text: dict[str, str] = {}  # text of a key -> its name
        self._dependents: list[str] = []
        self.there: str | None = None  # tells rows from padding

    # --- keys ---

    def add_key(self, tokens: Tokens) -> None:
        """Group by an expression, and know it again where the SELECT repeats it."""
        expr = to_expr(tokens, self._scope)
        bare = as_column(expr)
        known = next((n for n, e in self._keys if e == expr), None)
        name = known or bare or self._low.namer.unique("key")
        if known is None:
            self._keys.append((name, expr))
        self._by_text[untokenize(stripped(tokens))] = name
        inner = [t.text for t in stripped(tokens)]
        self._patterns.append(_Pattern(["(", *inner, ")"], name, True))
        if _is_atomic(stripped(tokens)):
            self._patterns.append(_Pattern(inner, name, False))

    def names_of(self, keys: tuple[Tokens, ...]) -> frozenset[str]:
        """Return the names of the keys of one grouping set."""
        return frozenset(self._by_text[untokenize(stripped(tokens))] for tokens in keys)

    def add_dependents(self, read: frozenset[str]) -> None:
        """Columns that a grouped primary key determines: grouping by them too changes no group."""
        keys = {name for name, _ in self._keys} | set(self._params)
        for name in sorted(read & self._of.keys() - keys):
            if self._of[name].type.equality is None:
                raise UnsupportedQuery(
                    f"column {name} is selected beside GROUP BY but is not grouped",
                    f"values of type {self._of[name].type.name} cannot be compared or grouped",
                    f"select it through an aggregate, such as (array_agg({name}))[1]",
                )
            self._dependents.append(name)

    # --- calls ---

    def replaced(self, tokens: Tokens) -> Tokens:
        """Put a hole for each aggregate call and each grouped expression."""
        tokens = self._masks_replaced(tokens)
        out: list[Token] = []
        at = 0
        for call in find_aggregates(tokens, self._low.analysis.aggregates, self._scope):
            out += self._keys_replaced(tokens[at : call.start])
            out.append(hole(self._calls.final(call, tokens), spaced=tokens[call.start].spaced))
            at = call.end
        return out + self._keys_replaced(tokens[at:])

    def _masks_replaced(self, tokens: Tokens) -> Tokens:
        """Put a hole for each GROUPING(), whose value is known for each grouping set."""
        out: list[Token] = []
        at = 0
        while at < len(tokens):
            token = tokens[at]
            if not (token.is_word("GROUPING") and tokens[at + 1].is_punct("(")):
                out.append(token)
                at += 1
                continue
            end = closing(tokens, at + 1) + 1
            said = untokenize(tokens[at:end])
            if said not in self._masks:
                keys = split(tokens[at + 2 : end - 1], mark=",")
                named = tuple(self._by_text[untokenize(stripped(key))] for key in keys)
                self._masks[said] = (self._low.namer.unique("grouping"), named)
            out.append(hole(self._masks[said][0], spaced=token.spaced))
            at = end
        return out

    def _keys_replaced(self, tokens: Tokens) -> list[Token]:
        out: list[Token] = []
        at = 0
        while at < len(tokens):
            pattern = self._pattern_at(tokens, at)
            if pattern is None:
                out.append(tokens[at])
                at += 1
            else:
                end = at + len(pattern.texts)
                key = hole(pattern.name, spaced=tokens[at].spaced)
                out += [tokens[at], key, tokens[end - 1]] if pattern.is_bracketed else [key]
                at = end
        return out

    def _pattern_at(self, tokens: Tokens, at: int) -> _Pattern | None:
        if at and tokens[at - 1].is_punct(".", "::"):
            return None
        for pattern in self._patterns:
            size = len(pattern.texts)
            following = tokens[at + size] if at + size < len(tokens) else None
            if following is not None and following.is_punct(".", "("):
                continue
            if [t.text for t in tokens[at : at + size]] == pattern.texts:
                return pattern
        return None

    # --- the operators ---

    def build(self, sets: list[frozenset[str]]) -> Op:
        """π(values over sums) over γ over π(keys and values); several sets side by side."""
        if len(sets) == 1:
            return self._arm(sets[0], sets[0])
        every = frozenset(name for name, _ in self._keys)
        arms = tuple(self._arm(one, every) for one in sets)
        of = schema(arms[0])
        padded = (Column(c.name, c.type, c.nullable or c.name not in self._params) for c in of)
        return UnionAll(arms, tuple(padded))

    def _arm(self, keys: frozenset[str], every: frozenset[str]) -> Op:
        """One grouping set, with NULL for the keys of the others."""
        of = {n: Column(n, self._calls.type_of(e), self._key_null(e)) for n, e in self._keys}
        more = [*self._params, *self._dependents]
        below = [Output(self._of[name], column(name)) for name in more]
        below += [Output(of[n], e) for n, e in self._keys if n in keys and n not in more]
        seen = {o.column.name for o in below}
        below += [Output(c, v) for v, c in self._calls.values.items() if c.name not in seen]
        own = [*more, *(n for n, _ in self._keys if n in keys and n not in more)]
        source = self._op
        if keys and self.there is not None:
            source = Filter(source, (column(self.there),))
        grouped = Aggregate(
            Project(source, tuple(below)),
            tuple(own),
            self._calls.count,
            tuple(self._calls.calls.values()),
        )
        return self._shown(grouped, [of[n] for n in sorted(every - keys)], keys)

    def _shown(self, grouped: Aggregate, absent: list[Column], keys: frozenset[str]) -> Op:
        """The columns in one order for all sets: keys by name, then what is computed."""
        of = {c.name: c for c in schema(grouped)}
        shown = {n: Output(c, column(n)) for n, c in of.items()}
        shown |= {c.name: Output(c, null_of(c)) for c in absent}
        for made, expr in self._calls.finals.values():
            shown.setdefault(made.name, Output(made, expr))
        for name, named in self._masks.values():
            mask = sum(1 << n for n, key in enumerate(reversed(named)) if key not in keys)
            shown[name] = Output(Column(name, _INTEGER, nullable=False), text(str(mask)))
        first = sorted(n for n, _ in self._keys if n in shown)
        order = [*dict.fromkeys([*self._params, *self._dependents, *first, *shown])]
        return Project(grouped, tuple(shown[name] for name in order))

    def _key_null(self, expr: Expr) -> bool:
        bare = as_column(expr)
        return self._of[bare].nullable if bare else True


def _is_atomic(tokens: Tokens) -> bool:
    """Tell whether an expression binds as one without brackets: a name, call, cast or CASE."""
    if tokens[0].is_word("CASE"):
        return True
    loose = ("AND", "OR", "NOT", "IS", "AT", "COLLATE", "LIKE", "IN", "SIMILAR")
    own = (tokens[at] for at in outside(tokens))
    return not any(token.kind == "operator" or token.is_word(*loose) for token in own)
