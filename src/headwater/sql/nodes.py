"""The tree of a scalar expression, for the few questions that text with holes cannot answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A hole: the column of that name."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: its text without quotes, None for NULL; its type, None if only context tells.

    Only a NULL may have a collation, that of the column which it pads.
    """

    text: str | None
    type: str | None
    collation: str | None = None


@dataclass(frozen=True, slots=True)
class Cast:
    """A value turned into a type, which is named as the server prints it."""

    node: Node
    type: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function call; COALESCE and its kin by their names in lower case, EXTRACT by its field."""

    schema: str | None
    name: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """A built-in operator with one operand, before which it stands, or two."""

    symbol: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class And:
    """All of the conditions, in three-valued logic."""

    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of the conditions, in three-valued logic."""

    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; NULL stays NULL."""

    node: Node


@dataclass(frozen=True, slots=True)
class IsTest:
    """IS NULL, TRUE, FALSE or UNKNOWN, or with `negated` the opposite; never NULL itself."""

    node: Node
    what: str
    negated: bool


@dataclass(frozen=True, slots=True)
class IsDistinctFrom:
    """Not the same value, where NULL is the same as NULL."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Quantified:
    """A comparison with any, or all, of the items: how the server prints IN and NOT IN."""

    symbol: str
    left: Node
    items: tuple[Node, ...]
    is_all: bool


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first condition that is true; NULL where nothing applies."""

    whens: tuple[tuple[Node, Node], ...]
    otherwise: Node | None


@dataclass(frozen=True, slots=True)
class TooMany:
    """The error of a subquery that gives several rows where one value is wanted."""


Node = (
    Column | Literal | Cast | Call | Operator | And | Or | Not | IsTest | IsDistinctFrom
    | Quantified | Case | TooMany
)  # fmt: skip
