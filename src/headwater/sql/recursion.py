"""WITH RECURSIVE to a query that is computed as a whole, and to its parts where those are enough.

Its text stays the server's own; only the relations that it reads become inputs, so that it can be
computed for the state before a change, too. The parts of a recursion by UNION are lowered as well:
a change is followed by them where the step is linear in what was found so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from headwater.algebra.expr import Ref, column
from headwater.algebra.loops import is_followed
from headwater.algebra.ops import Itself, Loop, Op, Output, Project, Whole, schema
from headwater.algebra.schema import Column, Schema, names
from headwater.errors import UnsupportedQuery
from headwater.sql.clock import has_clock
from headwater.sql.correlate import Outer
from headwater.sql.from_clause import Common, Shared
from headwater.sql.lexer import Tokens, closing, tokenize
from headwater.sql.parse import refuse
from headwater.sql.relations import Relation
from headwater.sql.relocate import has_alias, relation_at
from headwater.sql.scanning import scanned
from headwater.sql.scope import column_at, free_columns
from headwater.sql.syntax import (
    CommonTable,
    SetOperation,
    With,
    expressions_of,
    output_names,
    tables_of,
)

if TYPE_CHECKING:
    from headwater.sql.lower import Lowering


_OUTSIDE = "__outside"
_CLAUSES = ("SELECT", "FROM", "JOIN", "ON", "USING", "WHERE", "BY", "HAVING", "WINDOW", "VALUES")
_SETS = ("UNION", "INTERSECT", "EXCEPT")
_ENDS = ("FROM", "WHERE", "GROUP", "HAVING", "WINDOW", "ORDER", "LIMIT", *_SETS)


def is_recursive(table: CommonTable) -> bool:
    """Tell whether a common table reads itself."""
    return table.name in set(tables_of(table.query))


def lower_whole(low: Lowering, query: With, common: Common, outer: Outer | None) -> Op | None:
    """Return a query as a whole, where its recursion is not enough; None where it is.

    A recursion that reads from outside runs for each row of the domain. The order and path of a
    search are arrays of anonymous records, which no table can hold: only their own query can sort
    by them or take them apart.
    """
    is_outside = outer is not None and any(_reads(t, outer) for t in query.tables)
    if not is_outside and not any(
        _is_read(query, t, name) for t in query.tables for name in _hidden(t)
    ):
        return None
    titles = tuple(low.namer.unique(name) for name in output_names(query))
    params = schema(outer.domain) if outer is not None else ()
    text = _Text(low, _others(common, query.tables), outer)
    text.add_for_each_row(query.tokens, titles)
    made = text.made()
    own = low.whole(made)[len(params) :]
    columns = (Column(title, c.type) for title, c in zip(titles, own, strict=True))
    return Whole(made.inputs, made.sql, (*params, *columns))


def _reads(table: CommonTable, outer: Outer) -> bool:
    return is_recursive(table) and bool(free_columns(expressions_of(table.query), outer.scope))


def _others(common: Common, own: Sequence[CommonTable]) -> Common:
    """Return the common tables of other WITH lists, which become inputs where they are read."""
    names = {table.name for table in own}
    return {name: shared for name, shared in common.items() if name not in names}


def recursive_table(
    low: Lowering,
    tables: Sequence[CommonTable],
    table: CommonTable,
    common: Common,
) -> Shared:
    """Return a common table that reads itself, with all before it in its WITH list."""
    before = tables[: tables.index(table) + 1]
    text = _Text(low, _others(common, tables))
    for number, one in enumerate(before):
        text.add("WITH RECURSIVE " if number == 0 else ", ")
        text.add_tokens(one.tokens)
    titles = _titles(table)
    quoted = ", ".join(map(_quoted, titles))
    text.add(f" SELECT {quoted} FROM {table.tokens[0].text}")
    query = text.made()
    columns = low.whole(query)

    def make() -> Op:
        made = tuple(low.fresh(c.name, c.type) for c in columns)
        return Whole(query.inputs, query.sql, made, _loop(low, table, common, made))

    return Shared(names(columns), table.query, common, make)


def _loop(low: Lowering, table: CommonTable, common: Common, columns: Schema) -> Loop | None:
    """Return the parts of a recursion by UNION, if its change can be told from them."""
    query = table.query
    by_union = isinstance(query, SetOperation) and query.kind == "UNION" and not query.all
    if not by_union or len(_titles(table)) > len(table.columns or output_names(query)):
        return None
    assert isinstance(query, SetOperation)
    try:
        base = low.query(query.left, common)
        loop = _with_step(low, table, common, base)
    except UnsupportedQuery:
        return None  # the text of the whole is taken, of a part it need not be
    return loop if is_followed(loop, columns) else None


def _with_step(low: Lowering, table: CommonTable, common: Common, base: Op) -> Loop:
    """Lower the step over a relation that may have NULLs where the base or the step has some."""
    assert isinstance(table.query, SetOperation)
    nullable = [c.nullable for c in schema(base)]
    while True:
        own = zip(schema(base), nullable, strict=True)
        found = tuple(low.fresh(c.name, c.type, nullable=n) for c, n in own)
        itself = Itself(low.namer.unique(table.name), found)
        shared = Shared(_titles(table), table.query, common, partial(_given, itself))
        step = low.query(table.query.right, {**common, table.name: shared})
        more = [n or c.nullable for n, c in zip(nullable, schema(step), strict=True)]
        if more == nullable:
            return Loop(base, step, itself)
        nullable = more


def _given(op: Op) -> Op:
    return op


def _titles(table: CommonTable) -> tuple[str, ...]:
    """Return the columns of a recursive table that can be kept: its own, and the mark of a cycle.

    SEARCH and CYCLE add arrays of anonymous records, too.
    """
    own = table.columns or output_names(table.query)
    mark = _added(table, "CYCLE", "SET")
    return (*own, mark) if mark else own


def _is_read(query: With, table: CommonTable, name: str) -> bool:
    """Tell whether a column of a common table is named anywhere else."""
    everywhere, inside = (
        sum(token.is_name and token.value == name for token in tokens)
        for tokens in (query.tokens, table.tokens)
    )
    return everywhere > inside


def _hidden(table: CommonTable) -> set[str]:
    """Return the columns that SEARCH and CYCLE add and that cannot be kept."""
    order = _added(table, "SEARCH", "SET")
    path = _added(table, "CYCLE", "USING")
    return {name for name in (order, path) if name}


def _added(table: CommonTable, clause: str, word: str) -> str | None:
    """Return the name behind a word of the SEARCH or CYCLE clause of a common table."""
    said = next(at for at, token in enumerate(table.tokens) if token.is_word("AS"))
    opening = next(at for at in range(said, len(table.tokens)) if table.tokens[at].is_punct("("))
    tail = table.tokens[closing(table.tokens, opening) :]
    start = next((at for at, token in enumerate(tail) if token.is_word(clause)), None)
    if start is None:
        return None
    at = next(at for at, token in enumerate(tail) if at > start and token.is_word(word))
    return tail[at + 1].value


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _is_bare(tokens: Tokens, at: int) -> bool:
    """Tell whether a name stands for itself: not a column's, an alias or part of a longer one."""
    after = tokens[at + 1] if at + 1 < len(tokens) else None
    is_part = tokens[at - 1].is_punct(".") or (after is not None and after.is_punct(".", "("))
    return at > 0 and not is_part and not tokens[at - 1].is_word("AS")


def _is_item(tokens: Tokens, at: int) -> bool:
    """Tell whether an item of FROM starts here."""
    before = tokens[at - 1]
    listed = before.is_punct(",") and _clause(tokens, at) in ("FROM", "JOIN", "ON", "USING")
    return listed or before.is_word("FROM", "JOIN")


def _is_output(tokens: Tokens, start: int, end: int) -> bool:
    """Tell whether all of an output of SELECT stands here, without a name of its own."""
    before, after = tokens[start - 1], tokens[end] if end < len(tokens) else None
    begins = before.is_word("SELECT", "DISTINCT", "ALL") or before.is_punct(",")
    ends = after is None or after.is_punct(",", ")") or after.is_word(*_ENDS)
    return begins and ends and _clause(tokens, start) == "SELECT"


def _clause(tokens: Tokens, at: int) -> str:
    """Return the keyword of the clause that stands here; of none: an empty text."""
    depth = 0
    for token in reversed(tokens[:at]):
        depth += token.is_punct(")") - token.is_punct("(")
        if depth < 0:
            return ""
        if depth == 0 and token.is_word(*_CLAUSES):
            return token.value.upper()
    return ""


class _Text:
    """The text of a query, with inputs where relations and the domain of what is outside stand."""

    def __init__(self, low: Lowering, others: Common, outer: Outer | None = None) -> None:
        self._low, self._others, self._outer = low, others, outer
        self._common: dict[str, Op] = {}  # those of the others that were met
        self._parts: list[str | int] = []
        self._inputs: list[Op] = []

    def made(self) -> Whole:
        """Return the query; its columns are not known yet."""
        return Whole(tuple(self._inputs), tuple(self._parts), ())

    def add(self, text: str) -> None:
        """Add text."""
        if self._parts and isinstance(self._parts[-1], str):
            self._parts[-1] += text
        else:
            self._parts.append(text)

    def add_for_each_row(self, tokens: Tokens, titles: Sequence[str]) -> None:
        """Add a query, which runs for each row of the domain, under the titles for its columns."""
        self.add("SELECT * FROM ")
        if self._outer is not None:
            self._parts.append(len(self._inputs))
            self._inputs.append(self._outer.domain)
            self.add(f" AS {_OUTSIDE} CROSS JOIN LATERAL ")
        self.add("(")
        self.add_tokens(tokens)
        named = f"({', '.join(map(_quoted, titles))})" if titles else ""
        self.add(f") AS q{named}")

    def _add_outside(self, tokens: Tokens, at: int) -> int:
        """Add a column of what is outside, if one stands here, and return how many tokens it is."""
        if self._outer is None:
            return 0
        found, taken = column_at(tokens, at, self._outer.scope)
        if found is None:
            return 0
        self.add(" ")
        for part in found.parts:
            self.add(f"{_OUTSIDE}.{_quoted(part.name)}" if isinstance(part, Ref) else part)
        if _is_output(tokens, at, at + taken):
            self.add(f" AS {tokens[at + taken - 1].text}")
        return taken

    def add_tokens(self, tokens: Tokens) -> None:
        """Add tokens; a relation in FROM is an input, a view its query."""
        if has_clock(tokens):
            raise refuse("now() or one of its kin inside recursion", "it is computed as a whole")
        at = 0
        while at < len(tokens):
            found = relation_at(tokens, at, self._low.analysis.relations)
            read = 0 if found else self._add_other(tokens, at) or self._add_outside(tokens, at)
            if read:
                at += read
                continue
            if found is None:
                self.add((" " if tokens[at].spaced else "") + tokens[at].text)
                at += 1
                continue
            relation, taken = found
            if tokens[at - 1].is_word("ONLY"):
                name = relation.source.name
                raise refuse(f"ONLY {name}", "capture follows a table with its children")
            self.add(" ")
            self._add_relation(relation)
            at += taken
            if not has_alias(tokens, at):
                self.add(f" AS {tokens[at - 1].text}")

    def _add_other(self, tokens: Tokens, at: int) -> int:
        """Add a common table of another WITH list, if one is read here; return 1 then."""
        token = tokens[at]
        if not token.is_name or token.value not in self._others or not _is_bare(tokens, at):
            return 0
        first = at
        while tokens[first - 1].is_punct("("):
            first -= 1
        if not _is_item(tokens, first):
            raise refuse(
                f"recursion with the name {token.value} of a common table of another WITH",
                "what it means at this place cannot be told",
            )
        self.add(" ")
        self._parts.append(self._number_of(token.value))
        if not has_alias(tokens, at + 1):
            self.add(f" AS {token.text}")
        return 1

    def _number_of(self, name: str) -> int:
        """Return the input that a common table is, under the names of its columns."""
        shared = self._others[name]
        if name not in self._common:
            op = shared.make() if shared.make else self._low.query(shared.query, shared.common)
            pairs = zip(shared.names, schema(op), strict=True)
            named = tuple(Output(Column(n, c.type, c.nullable), column(c.name)) for n, c in pairs)
            self._common[name] = Project(op, named)
            self._inputs.append(self._common[name])
        return self._inputs.index(self._common[name])

    def _add_relation(self, relation: Relation) -> None:
        if relation.query is not None:
            self.add("(")
            self.add_tokens([t for t in tokenize(relation.query) if not t.is_punct(";")])
            self.add(")")
            return
        if relation.obstacle is not None:
            raise UnsupportedQuery(*relation.obstacle)
        scan = scanned(relation, lambda a: Column(a.name, a.type, not a.not_null))
        if scan not in self._inputs:
            self._inputs.append(scan)
        self._parts.append(self._inputs.index(scan))
