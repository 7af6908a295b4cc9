"""Canonical SQL text, as PostgreSQL prints it, to tokens.

The server prints no comments and no dollar quotes, folds unquoted names, and quotes every name
that is a reserved word: so an unquoted reserved word is always a keyword.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from headwater.errors import bug

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<string>[eE]'(?:[^'\\]|\\.|'')*' | [bBxXnN]?'(?:[^']|'')*')
  | (?P<quoted>(?:U&)?"(?:[^"]|"")*")
  | (?P<word>[^\W\d][\w$]*)
  | (?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
  | (?P<punct>::|=>|:=|[()\[\],.;])
  | (?P<operator>[-+*/<>=~!@\#%^&|`?]+|:)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `value` is a name without its quotes or the text of anything else."""

    kind: str
    value: str
    text: str
    spaced: bool  # white space stands before it

    def is_word(self, *words: str) -> bool:
        """Tell whether this is one of the keywords, written in upper case here."""
        return self.kind == "word" and self.value.upper() in words

    def is_punct(self, *marks: str) -> bool:
        """Tell whether this is one of the punctuation marks."""
        return self.kind == "punct" and self.value in marks

    @property
    def is_name(self) -> bool:
        """Tell whether this can be an identifier."""
        return self.kind in ("word", "quoted")


Tokens = Sequence[Token]


def tokenize(sql: str) -> tuple[Token, ...]:
    """Return the tokens of canonical SQL text."""
    tokens: list[Token] = []
    at, spaced = 0, False
    while at < len(sql):
        found = _TOKEN.match(sql, at)
        if found is None:
            raise bug(f"cannot read the server's text at {sql[at : at + 20]!r}", "unknown token")
        at, kind, text = found.end(), str(found.lastgroup), found.group()
        if kind == "space":
            spaced = True
            continue
        tokens.append(Token(kind, _value(kind, text), text, spaced))
        spaced = False
    return tuple(tokens)


def _value(kind: str, text: str) -> str:
    return text[1:-1].replace('""', '"') if kind == "quoted" else text


def untokenize(tokens: Tokens) -> str:
    """Return the text of the tokens with white space folded to single blanks."""
    return "".join((" " if t.spaced and i else "") + t.text for i, t in enumerate(tokens))


def closing(tokens: Tokens, start: int) -> int:
    """Return the index of the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(tokens)):
        if tokens[at].is_punct("(", "["):
            depth += 1
        elif tokens[at].is_punct(")", "]"):
            depth -= 1
            if depth == 0:
                return at
    raise bug("unbalanced brackets in the server's text", untokenize(tokens))


def split(tokens: Tokens, *, mark: str | None = None, word: str | None = None) -> list[Tokens]:
    """Split at a punctuation mark or keyword outside all brackets."""
    pieces: list[Tokens] = []
    start = depth = 0
    for at, token in enumerate(tokens):
        if token.is_punct("(", "["):
            depth += 1
        elif token.is_punct(")", "]"):
            depth -= 1
        elif depth == 0 and ((mark and token.is_punct(mark)) or (word and token.is_word(word))):
            pieces.append(tokens[start:at])
            start = at + 1
    pieces.append(tokens[start:])
    return pieces


def outside(tokens: Tokens) -> Iterator[int]:
    """Yield the places outside all brackets."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += token.is_punct("(", "[") - token.is_punct(")", "]")
        if depth == 0:
            yield at


def spliced(tokens: Tokens, pieces: Iterable[tuple[int, int, Tokens]]) -> Tokens:
    """Put other tokens in the place of some ranges, which are given from left to right."""
    out: list[Token] = []
    at = 0
    for start, end, new in pieces:
        out += [*tokens[at:start], *new]
        at = end
    return [*out, *tokens[at:]]


def swapped(tokens: Tokens, old: Tokens, new: Tokens) -> Tokens:
    """Put other tokens wherever some are repeated."""
    wanted = [token.text for token in old]
    out: list[Token] = []
    at = 0
    while at < len(tokens):
        same = [token.text for token in tokens[at : at + len(wanted)]] == wanted
        out += [replace(new[0], spaced=tokens[at].spaced), *new[1:]] if same else [tokens[at]]
        at += len(wanted) if same else 1
    return out


def stripped(tokens: Tokens) -> Tokens:
    """Remove parentheses that enclose the whole."""
    while len(tokens) > 1 and tokens[0].is_punct("(") and closing(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return tokens
