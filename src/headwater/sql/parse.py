"""Tokens of a canonical query to its structure, by recursive descent.

The grammar is what PostgreSQL's own printer emits, not all that its parser takes. What headwater
cannot maintain is refused here by name.
"""

from __future__ import annotations

import dataclasses

from headwater.errors import UnsupportedQuery, bug
from headwater.sql.lexer import Token, Tokens, closing, split, tokenize, untokenize
from headwater.sql.syntax import (
    CommonTable,
    FromItem,
    JoinItem,
    Query,
    Select,
    SetOperation,
    SubqueryItem,
    TableItem,
    Target,
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
        tables = self._with() if self.accept("WITH") else ()
        body = self._set_operations()
        self._ending()
        return With(tables, body) if tables else body

    def _with(self) -> tuple[CommonTable, ...]:
        if self.accept("RECURSIVE"):
            raise refuse("WITH RECURSIVE", "recursion has no delta rule here")
        tables = [self._common_table()]
        while self.at_mark(","):
            self.take()
            tables.append(self._common_table())
        return tuple(tables)

    def _common_table(self) -> CommonTable:
        name, columns = self.take().value, self.names()
        self.accept("AS")
        self.accept("NOT")
        self.accept("MATERIALIZED")
        return CommonTable(name, columns, _Reader(self.bracketed()).query())

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
        if self.at_word("VALUES"):
            raise refuse("VALUES", "a list of rows is no relation that changes are captured from")
        if not self.accept("SELECT"):
            raise bug("expected SELECT", untokenize(self.rest()))
        return self._select()

    def _select(self) -> Select:
        distinct = self.accept("DISTINCT")
        if distinct and self.at_word("ON"):
            raise refuse("DISTINCT ON", "it keeps one row of each group by an order")
        targets = tuple(map(_target, split(self.until(*_CLAUSES, *_SET_WORDS), mark=",")))
        items = self._from() if self.accept("FROM") else ()
        where = self.until(*_CLAUSES, *_SET_WORDS) if self.accept("WHERE") else None
        group_by = self._group_by() if self.accept("GROUP", "BY") else None
        having = self.until(*_CLAUSES, *_SET_WORDS) if self.accept("HAVING") else None
        if self.at_word("WINDOW"):
            raise refuse("WINDOW", "window functions have no delta rule here")
        return Select(targets, distinct, items, where, group_by, having)

    def _group_by(self) -> tuple[Tokens, ...]:
        pieces = split(self.until(*_CLAUSES, *_SET_WORDS), mark=",")
        if any(p[0].is_word("GROUPING", "ROLLUP", "CUBE", "DISTINCT") for p in pieces):
            raise refuse("GROUP BY with several grouping sets", "one row feeds several groups")
        if any(len(p) == len("()") and p[0].is_punct("(") for p in pieces):
            raise refuse("an empty grouping set", "it is a case of GROUPING SETS")
        return tuple(pieces)

    def _ending(self) -> None:
        """ORDER BY alone means nothing in a table and is dropped; LIMIT is not."""
        if self.accept("ORDER", "BY"):
            self.until("LIMIT", "OFFSET", "FETCH", "FOR")
        if self.at_word("LIMIT", "OFFSET", "FETCH"):
            raise refuse("LIMIT and OFFSET", "which rows they keep depends on all the others")
        if self.at_word("FOR"):
            raise refuse("FOR UPDATE and FOR SHARE", "a stream table locks no rows of its sources")

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
        if self.at_word("LATERAL"):
            raise refuse("LATERAL", "its rows are computed for each row to its left")
        if self.at_mark("("):
            return self._bracketed_item()
        only = self.accept("ONLY")
        first = self.take()
        if first.is_word("ROWS") and self.at_word("FROM"):
            raise refuse("ROWS FROM", "set-returning functions in FROM have no delta rule here")
        schema, name = None, first.value
        if self.at_mark("."):
            self.take()
            schema, name = name, self.take().value
        if self.at_mark("("):
            raise refuse(
                f"the function {name}() in FROM", "functions in FROM have no delta rule here"
            )
        alias, columns = self._alias(name)
        if self.at_word("TABLESAMPLE"):
            raise refuse("TABLESAMPLE", "it picks rows at random")
        return TableItem(schema, name, alias, columns, only)

    def _bracketed_item(self) -> FromItem:
        inside = self.bracketed()
        if inside[0].is_word("SELECT", "WITH", "VALUES") or _is_query(inside):
            query = _Reader(inside).query()
            alias, columns = self._alias("")
            return SubqueryItem(query, alias, columns)
        item = _Reader(inside).from_item()
        alias, columns = self._alias("")
        if alias and isinstance(item, JoinItem):
            return dataclasses.replace(item, alias=alias, columns=columns)
        return item

    def _alias(self, default: str) -> tuple[str, tuple[str, ...]]:
        self.accept("AS")
        token = self.peek()
        stops = (*_JOIN_WORDS, "ON", "USING", "TABLESAMPLE", "NATURAL")
        if token is None or not token.is_name or token.is_word(*stops):
            return default, ()
        return self.take().value, self.names()


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
