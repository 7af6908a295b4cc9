"""Tokens of a canonical query to its structure, by recursive descent.

The grammar is what PostgreSQL's own printer emits, not all that its parser takes. What headwater
cannot maintain is refused here by name.
"""

from __future__ import annotations

import dataclasses

from headwater.errors import UnsupportedQuery, bug
from headwater.sql.grouping_sets import grouping_sets
from headwater.sql.lexer import Token, Tokens, closing, split, tokenize, untokenize
from headwater.sql.syntax import (
    CommonTable,
    FromItem,
    FunctionItem,
    JoinItem,
    Ordered,
    Query,
    Select,
    SetOperation,
    SubqueryItem,
    TableItem,
    Target,
    Values,
    With,
)

_SET_WORDS = ("UNION", "EXCEPT", "INTERSECT")
_CLAUSES = (
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "WINDOW",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "FETCH",
    "FOR",
)
_LIMITS = ("LIMIT", "OFFSET", "FETCH", "FOR")
_JOIN_WORDS = ("JOIN", "CROSS", "LEFT", "RIGHT", "FULL", "INNER")


def parse_query(sql: str) -> Query:
    """Return the structure of a canonical query that stands inside `SELECT * FROM (…) AS q`."""
    reader = _Reader([t for t in tokenize(sql) if not t.is_punct(";")])
    reader.until("FROM")
    reader.take()
    match reader.from_item():
        case SubqueryItem(query=query) if reader.peek() is None:
            return query
    raise bug("the query does not stand where it was put", sql)


def parse_tokens(tokens: Tokens) -> Query:
    """Return the structure of a query that stands inside brackets."""
    return _Reader(tokens).query()


def opens_query(tokens: Tokens) -> bool:
    """Tell whether what a bracket encloses is a query."""
    return bool(tokens) and (tokens[0].is_word("SELECT", "WITH", "VALUES") or _is_query(tokens))


def refuse(what: str, why: str) -> UnsupportedQuery:
    """Return the error for a construct that has no delta rule."""
    return UnsupportedQuery(
        f"{what} cannot be maintained incrementally yet",
        why,
        "create the stream table with refresh_mode => 'FULL', or rewrite the query without it",
    )


class _Reader:
    """A position in a list of tokens."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens, self._at = tokens, 0

    def peek(self, ahead: int = 0) -> Token | None:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def rest(self) -> Tokens:
        return self._tokens[self._at :]

    def at_word(self, *words: str, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return token is not None and token.is_word(*words)

    def at_mark(self, mark: str) -> bool:
        token = self.peek()
        return token is not None and token.is_punct(mark)

    def take(self) -> Token:
        token = self.peek()
        if token is None:
            raise bug("the server's text ends too early", untokenize(self._tokens))
        self._at += 1
        return token

    def accept(self, *words: str) -> bool:
        """Consume the words if they stand here in this order."""
        if all(self.at_word(word, ahead=i) for i, word in enumerate(words)):
            self._at += len(words)
            return True
        return False

    def bracketed(self) -> Tokens:
        """Consume a bracketed group and return what it encloses."""
        end = closing(self._tokens, self._at)
        inside = self._tokens[self._at + 1 : end]
        self._at = end + 1
        return inside

    def until(self, *words: str) -> Tokens:
        """Consume up to one of the keywords outside all brackets, or the end.

        The GROUP of `WITHIN GROUP (…)` is no clause.
        """
        start = self._at
        while (token := self.peek()) is not None and not token.is_word(*words):
            if token.is_punct("(", "["):
                self._at = closing(self._tokens, self._at)
            self._at += 2 if self._at_within_group() else 1
        return self._tokens[start : self._at]

    def _at_within_group(self) -> bool:
        opening = self.peek(2)
        within_group = self.at_word("WITHIN") and self.at_word("GROUP", ahead=1)
        return within_group and opening is not None and opening.is_punct("(")

    def names(self) -> tuple[str, ...]:
        """Consume a bracketed list of names, if there is one."""
        if not self.at_mark("("):
            return ()
        return tuple(piece[0].value for piece in split(self.bracketed(), mark=","))

    # --- queries ---

    def query(self) -> Query:
        start = self._at
        recursive, tables = self._with() if self.accept("WITH") else (False, ())
        body = self._ending(self._set_operations())
        said = self._tokens[start : self._at] if recursive else ()
        return With(tables, body, recursive, said) if tables else body

    def _with(self) -> tuple[bool, tuple[CommonTable, ...]]:
        recursive = self.accept("RECURSIVE")
        tables = [self._common_table()]
        while self.at_mark(","):
            self.take()
            tables.append(self._common_table())
        return recursive, tuple(tables)

    def _common_table(self) -> CommonTable:
        start = self._at
        name, columns = self.take().value, self.names()
        self.accept("AS")
        self.accept("NOT")
        self.accept("MATERIALIZED")
        query = _Reader(self.bracketed()).query()
        for word, last in (("SEARCH", "SET"), ("CYCLE", "USING")):
            if self.at_word(word):
                self.until(last)
                self._at += 2  # with the name of the column
        return CommonTable(name, columns, query, self._tokens[start : self._at])

    def _set_operations(self) -> Query:
        left = self._intersections()
        while self.at_word("UNION", "EXCEPT"):
            kind = self.take().value.upper()
            left = SetOperation(kind, self.accept("ALL"), left, self._intersections())
        return left

    def _intersections(self) -> Query:
        left = self._term()
        while self.accept("INTERSECT"):
            left = SetOperation("INTERSECT", self.accept("ALL"), left, self._term())
        return left

    def _term(self) -> Query:
        if self.at_mark("("):
            return _Reader(self.bracketed()).query()
        if self.accept("VALUES"):
            rows = split(self.until("ORDER", *_SET_WORDS, *_LIMITS), mark=",")
            return Values(tuple(tuple(split(row[1:-1], mark=",")) for row in rows))
        if not self.accept("SELECT"):
            raise bug("expected SELECT", untokenize(self.rest()))
        return self._select()

    def _select(self) -> Select:
        distinct = self.accept("DISTINCT")
        on: tuple[Tokens, ...] = ()
        if distinct and self.accept("ON"):
            distinct, on = False, tuple(split(self.bracketed(), mark=","))
        outputs = self.until(*_CLAUSES, *_SET_WORDS)
        targets = tuple(map(_target, split(outputs, mark=","))) if outputs else ()
        items = self._from() if self.accept("FROM") else ()
        where = self.until(*_CLAUSES, *_SET_WORDS) if self.accept("WHERE") else None
        grouped = self.until(*_CLAUSES, *_SET_WORDS) if self.accept("GROUP", "BY") else None
        sets = grouping_sets(grouped) if grouped is not None else None
        having = self.until(*_CLAUSES, *_SET_WORDS) if self.accept("HAVING") else None
        windows = self._windows() if self.accept("WINDOW") else ()
        return Select(targets, distinct, items, where, sets, having, on, windows)

    def _windows(self) -> tuple[tuple[str, Tokens], ...]:
        pieces = split(self.until(*_CLAUSES, *_SET_WORDS), mark=",")
        return tuple((piece[0].value, piece[3:-1]) for piece in pieces)  # name AS ( … )

    def _ending(self, query: Query) -> Query:
        """ORDER BY, OFFSET, LIMIT or FETCH; the server prints LIMIT NULL as ALL."""
        order: tuple[Tokens, ...] = ()
        limit = offset = None
        ties = False
        if self.accept("ORDER", "BY"):
            order = tuple(split(self.until(*_LIMITS), mark=","))
        while self.at_word("LIMIT", "OFFSET", "FETCH"):
            if self.accept("OFFSET"):
                offset = self.until(*_LIMITS)
            elif self.accept("LIMIT"):
                limit = self.until(*_LIMITS)
            else:
                self.accept("FETCH", "FIRST")
                limit, ties = self.until("ROWS", "ROW"), True
                self.until(*_LIMITS)
        if self.at_word("FOR"):
            raise refuse("FOR UPDATE and FOR SHARE", "a stream table locks no rows of its sources")
        is_all = limit is not None and limit[0].is_word("ALL", "NULL")
        limit = None if is_all else limit
        is_plain = not order and limit is None and offset is None
        return query if is_plain else Ordered(query, order, limit, offset, ties)

    # --- FROM ---

    def _from(self) -> tuple[FromItem, ...]:
        tokens = self.until(*(w for w in _CLAUSES if w != "FROM"), *_SET_WORDS)
        return tuple(_Reader(piece).from_item() for piece in split(tokens, mark=","))

    def from_item(self) -> FromItem:
        left = self._primary()
        while self.at_word(*_JOIN_WORDS):
            left = self._join(left)
        return left

    def _join(self, left: FromItem) -> JoinItem:
        if self.accept("CROSS", "JOIN"):
            return JoinItem("INNER", left, self._primary())
        kind = "INNER" if self.at_word("JOIN") else self.take().value.upper()
        self.accept("OUTER")
        self.accept("JOIN")
        right = self._primary()
        if self.accept("USING"):
            using = self.names()
            alias = self.take().value if self.accept("AS") else None
            return JoinItem(kind, left, right, None, using, alias)
        if not self.accept("ON"):
            raise bug("a join without a condition", untokenize(self.rest()))
        return JoinItem(kind, left, right, self.until(*_JOIN_WORDS))

    def _primary(self) -> FromItem:
        self.accept("LATERAL")
        if self.at_mark("("):
            return self._bracketed_item()
        if self.accept("ROWS", "FROM"):
            return self._functions(tuple(split(self.bracketed(), mark=",")))
        only, start = self.accept("ONLY"), self._at
        schema, name = None, self.take().value
        if self.at_mark("."):
            self.take()
            schema, name = name, self.take().value
        if self.at_mark("("):
            inside = self.bracketed()
            if schema is None and name == "UNNEST":  # of several arrays, side by side
                arrays = split(inside, mark=",")
                calls = ([*tokenize("unnest("), *array, *tokenize(")")] for array in arrays)
                return self._functions(tuple(calls), "unnest")
            return self._functions((self._tokens[start : self._at],), name)
        alias, columns = self._alias(name)
        if self.at_word("TABLESAMPLE"):
            raise refuse("TABLESAMPLE", "it picks rows at random")
        return TableItem(schema, name, alias, columns, only)

    def _functions(self, functions: tuple[Tokens, ...], name: str = "") -> FunctionItem:
        numbered = self.accept("WITH", "ORDINALITY")
        alias = self._alias_name(name)
        columns: tuple[str, ...] = ()
        if self.at_mark("("):
            start = self._at
            pieces = split(self.bracketed(), mark=",")
            columns = tuple(piece[0].value for piece in pieces)
            if any(len(piece) > 1 for piece in pieces):  # the columns of a record, with types
                definitions = (*tokenize(" AS "), *self._tokens[start : self._at])
                functions = ((*functions[0], *definitions),)
        return FunctionItem(functions, alias, columns, numbered)

    def _bracketed_item(self) -> FromItem:
        inside = self.bracketed()
        if opens_query(inside):
            query = _Reader(inside).query()
            alias, columns = self._alias("")
            return SubqueryItem(query, alias, columns)
        item = _Reader(inside).from_item()
        alias, columns = self._alias("")
        if alias and isinstance(item, JoinItem):
            return dataclasses.replace(item, alias=alias, columns=columns)
        return item

    def _alias(self, default: str) -> tuple[str, tuple[str, ...]]:
        return self._alias_name(default), self.names()

    def _alias_name(self, default: str) -> str:
        self.accept("AS")
        token = self.peek()
        stops = (*_JOIN_WORDS, "ON", "USING", "TABLESAMPLE", "NATURAL")
        is_alias = token is not None and token.is_name and not token.is_word(*stops)
        return self.take().value if is_alias else default


def _is_query(tokens: Tokens) -> bool:
    """Tell whether a bracketed group that opens with a bracket is a query, not a join."""
    at = 0
    while tokens[at].is_punct("("):
        at += 1
    return tokens[at].is_word("SELECT", "WITH", "VALUES") and any(
        len(split(tokens, word=word)) > 1 for word in _SET_WORDS
    )


def _target(tokens: Tokens) -> Target:
    if len(tokens) > len(("AS", "name")) and tokens[-2].is_word("AS"):
        return Target(tokens[:-2], tokens[-1].value)
    return Target(tokens, tokens[-1].value)
