"""An expression, text with holes, to a small typed tree; what the grammar here lacks stays text.

The grammar is what the server prints, and what headwater writes itself around it. The server puts
most operands in brackets; where there are none, its precedence holds:

    OR < AND < NOT < IS < comparison < IN < other operators < + - < * / % < ^ < unary - < ::
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.algebra.expr import Expr, Ref
from headwater.sql.lexer import Token, tokenize
from headwater.sql.nodes import (
    And,
    Call,
    Case,
    Cast,
    Column,
    IsDistinctFrom,
    IsTest,
    Literal,
    Node,
    Not,
    Operator,
    Or,
    Quantified,
    TooMany,
)


@dataclass(frozen=True, slots=True)
class NotParsed:
    """Why an expression has no tree."""

    reason: str


class _Stop(Exception):
    """Ends the parse with the reason, which `parse` returns."""


def parse(expr: Expr) -> Node | NotParsed:
    """Return the tree of an expression, or what in it the grammar does not know."""
    parser = _Parser(tokens_of(expr))
    try:
        node = parser.disjunction()
        parser.end()
    except _Stop as stop:
        return NotParsed(str(stop))
    return node


def is_null(expr: Expr) -> bool:
    """Tell whether the expression is NULL as a constant, of whatever type."""
    node = parse(expr)
    return isinstance(node, Literal) and node.text is None


def tokens_of(expr: Expr) -> list[Token]:
    """Return the tokens of an expression, with holes for the columns."""
    tokens: list[Token] = []
    for part in expr.parts:
        if isinstance(part, Ref):
            tokens.append(Token("hole", part.name, part.name, False))
        else:
            tokens.extend(tokenize(part))
    return tokens


_COMPARISONS = frozenset({"=", "<>", "!=", "<", "<=", ">", ">="})
_SIGNS = frozenset("+-")
_LOWEST = 1
_LEVELS = {"+": 2, "-": 2, "*": 3, "/": 3, "%": 3, "^": 4}  # every other operator: the lowest
_DEEPEST = 40  # brackets in brackets
_TESTS = ("NULL", "TRUE", "FALSE", "UNKNOWN")
_CONDITIONALS = ("COALESCE", "NULLIF", "GREATEST", "LEAST")
# How the names of types go on after their first word, and which of them take a length before that.
_MORE_WORDS = {
    "character": (("varying",),),
    "bit": (("varying",),),
    "double": (("precision",),),
    "timestamp": (("without", "time", "zone"), ("with", "time", "zone")),
    "time": (("without", "time", "zone"), ("with", "time", "zone")),
}
_END = Token("end", "", "", False)


class _Parser:
    """Recursive descent, one method for each level of precedence."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0

    # --- tokens ---

    def _peek(self, ahead: int = 0) -> Token:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else _END

    def _take(self) -> Token:
        token = self._peek()
        self._at += 1
        return token

    def _took_word(self, *words: str) -> str | None:
        return self._take().value.upper() if self._peek().is_word(*words) else None

    def _took_mark(self, mark: str) -> bool:
        if not self._peek().is_punct(mark):
            return False
        self._at += 1
        return True

    def _expect_word(self, word: str) -> None:
        if not self._took_word(word):
            raise self._unknown()

    def _expect_mark(self, mark: str) -> None:
        if not self._took_mark(mark):
            raise self._unknown()

    def _unknown(self) -> _Stop:
        token = self._peek()
        where = "the end" if token is _END else f"{token.text!r}"
        return _Stop(f"{where} stands where nothing known can")

    def end(self) -> None:
        """Check that nothing is left."""
        if self._peek() is not _END:
            raise self._unknown()

    # --- conditions ---

    def disjunction(self) -> Node:
        """OR, and all that binds tighter."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _Stop("it is nested too deeply")
        args = [self._conjunction()]
        while self._took_word("OR"):
            args.append(self._conjunction())
        self._depth -= 1
        return args[0] if len(args) == 1 else Or(tuple(args))

    def _conjunction(self) -> Node:
        args = [self._negation()]
        while self._took_word("AND"):
            args.append(self._negation())
        return args[0] if len(args) == 1 else And(tuple(args))

    def _negation(self) -> Node:
        return Not(self._negation()) if self._took_word("NOT") else self._test()

    def _test(self) -> Node:
        node = self._comparison()
        while self._took_word("IS"):
            negated = self._took_word("NOT") is not None
            if self._took_word("DISTINCT"):
                self._expect_word("FROM")
                node = IsDistinctFrom(node, self._comparison())
                node = Not(node) if negated else node
                continue
            what = self._took_word(*_TESTS)
            if what is None:
                raise self._unknown()
            node = IsTest(node, what, negated)
        return node

    def _comparison(self) -> Node:
        node = self._membership()
        if not self._at_operator(_COMPARISONS):
            return node
        symbol = self._take().value
        symbol = "<>" if symbol == "!=" else symbol
        quantifier = self._took_word("ANY", "ALL")
        if quantifier is None:
            return Operator(symbol, (node, self._membership()))
        return Quantified(symbol, node, self._array_in_brackets(), quantifier == "ALL")

    def _membership(self) -> Node:
        node = self._operation()
        if not self._took_word("IN"):
            return node
        self._expect_mark("(")
        return Quantified("=", node, self._listed(")"), False)

    def _array_in_brackets(self) -> tuple[Node, ...]:
        """Read the array of ANY; a cast of the array is one of each item."""
        self._expect_mark("(")
        if self._took_mark("("):
            items = self._array()
            self._expect_mark(")")
        else:
            items = self._array()
        while self._took_mark("::"):
            type_name = self._type()
            if not type_name.endswith("[]"):
                raise _Stop(f"an array cast to {type_name}")
            items = tuple(Cast(item, type_name[:-2]) for item in items)
        self._expect_mark(")")
        return items

    def _array(self) -> tuple[Node, ...]:
        self._expect_word("ARRAY")
        self._expect_mark("[")
        return self._listed("]")

    def _listed(self, closing: str) -> tuple[Node, ...]:
        """Read expressions with commas between them, up to the closing mark."""
        items = [self.disjunction()]
        while self._took_mark(","):
            items.append(self.disjunction())
        self._expect_mark(closing)
        return tuple(items)

    # --- operators ---

    def _at_operator(self, symbols: frozenset[str]) -> bool:
        return self._peek().kind == "operator" and self._peek().value in symbols

    def _operation(self, lowest: int = _LOWEST) -> Node:
        """Read operators that bind at least as tight as `lowest`; equals group to the left."""
        node = self._prefixed()
        while (level := self._level()) >= lowest:
            symbol = self._take().value
            node = Operator(symbol, (node, self._operation(level + 1)))
        return node

    def _level(self) -> int:
        """Tell how tight the operator here binds; 0 if there is none or it compares."""
        token = self._peek()
        if token.kind != "operator" or token.value in _COMPARISONS or token.value == ":":
            return 0
        return _LEVELS.get(token.value, _LOWEST)

    def _prefixed(self) -> Node:
        if self._level() == 0:
            return self._cast()
        symbol = self._take().value
        operand = self._prefixed() if symbol in _SIGNS else self._operation()
        return Operator(symbol, (operand,))

    def _cast(self) -> Node:
        is_string = self._peek().kind == "string"
        node = self._atom()
        while self._took_mark("::"):
            type_name = self._type()
            # the server prints a constant as a string or NULL with its type
            unlabelled = isinstance(node, Literal) and node.type is None
            if unlabelled and (is_string or node == Literal(None, None)):
                assert isinstance(node, Literal)
                node = Literal(node.text, type_name)
            else:
                node = Cast(node, type_name)
        if isinstance(node, Literal) and node.text is None and self._took_word("COLLATE"):
            return replace(node, collation=self._dotted())
        return node

    # --- operands ---

    def _atom(self) -> Node:
        token = self._peek()
        if token.kind == "hole":
            return Column(self._take().value)
        if token.kind in ("number", "string"):
            return _literal(self._take())
        if self._took_mark("("):
            node = self._padding() if self._took_word("SELECT") else self.disjunction()
            self._expect_mark(")")
            return node
        if token.is_name:
            return self._named()
        raise self._unknown()

    def _padding(self) -> Node:
        """Read a subquery that is a constant: the NULL of an outer join, or of several rows."""
        node = self._cast()
        if not (isinstance(node, Literal) and node.text is None):
            raise _Stop("a subquery")
        if self._took_word("FROM"):
            self._named()
            return TooMany()
        self._expect_word("WHERE")
        self._expect_word("FALSE")
        return node

    def _named(self) -> Node:
        if not self._peek(1).is_punct("(", "."):
            return self._keyword()
        if self._took_word("EXTRACT"):
            return self._extract()
        if self._took_word("SUBSTRING"):  # a function of that name is printed in quotes
            return self._substring()
        schema = None
        name = self._function_name()
        if self._took_mark("."):
            schema, name = name, self._function_name()
        self._expect_mark("(")
        return Call(schema, name, () if self._took_mark(")") else self._listed(")"))

    def _function_name(self) -> str:
        token = self._take()
        if token.is_word(*_CONDITIONALS):
            return token.value.lower()
        is_keyword = token.kind == "word" and token.value != token.value.lower()
        if is_keyword or not token.is_name:
            raise _Stop(f"{token.text!r} is no function known here")
        return token.value

    def _keyword(self) -> Node:
        if word := self._took_word("TRUE", "FALSE"):
            return Literal(word.lower(), "boolean")
        if self._took_word("NULL"):
            return Literal(None, None)
        if self._took_word("CASE"):
            return self._case()
        raise self._unknown()

    def _case(self) -> Node:
        """Read both forms; `CASE x WHEN y` compares by x = y."""
        subject = None if self._peek().is_word("WHEN") else self.disjunction()
        whens: list[tuple[Node, Node]] = []
        while self._took_word("WHEN"):
            test = self.disjunction()
            self._expect_word("THEN")
            value = self.disjunction()
            whens.append((test if subject is None else Operator("=", (subject, test)), value))
        otherwise = self.disjunction() if self._took_word("ELSE") else None
        self._expect_word("END")
        return Case(tuple(whens), otherwise)

    def _extract(self) -> Node:
        self._expect_mark("(")
        field = self._take()
        if field.kind != "word":
            raise _Stop(f"{field.text!r} is no field that EXTRACT is known to take")
        self._expect_word("FROM")
        node = self.disjunction()
        self._expect_mark(")")
        return Call(None, "extract", (Literal(field.value.lower(), "text"), node))

    def _substring(self) -> Node:
        self._expect_mark("(")
        args = [self.disjunction()]
        for word in ("FROM", "FOR"):
            if self._took_word(word):
                args.append(self.disjunction())
        self._expect_mark(")")
        return Call(None, "substring", tuple(args))

    # --- types ---

    def _type(self) -> str:
        """Read a type's name in the form in which the server prints it."""
        first = self._peek()
        name = self._dotted() + self._length()
        for words in _MORE_WORDS.get(first.text, ()):
            if all(self._peek(i).is_word(w.upper()) for i, w in enumerate(words)):
                self._at += len(words)
                name = " ".join((name, *words)) + self._length()
                break
        while self._took_mark("["):
            self._expect_mark("]")
            name += "[]"
        return name

    def _dotted(self) -> str:
        """Read a name with or without its schema, quotes included."""
        name = self._take()
        if not name.is_name:
            raise _Stop(f"{name.text!r} is no name")
        return f"{name.text}.{self._take().text}" if self._took_mark(".") else name.text

    def _length(self) -> str:
        if not self._took_mark("("):
            return ""
        inside = ""
        while not self._peek().is_punct(")"):
            if self._peek() is _END:
                raise self._unknown()
            inside += self._take().text
        self._expect_mark(")")
        return f"({inside})"


def _literal(token: Token) -> Literal:
    if token.kind == "number":
        is_integer = token.text.isdigit() and int(token.text) < 2**31
        return Literal(token.text, "integer" if is_integer else "numeric")
    if not token.text.startswith("'"):
        raise _Stop(f"the constant {token.text} has an unusual form")
    return Literal(token.text[1:-1].replace("''", "'"), None)
