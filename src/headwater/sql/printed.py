"""What the server prints and would not read again, to what it reads.

The marks of CYCLE must be constants, but are printed as casts: TO 'y'::text DEFAULT 'n'::text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headwater.sql.lexer import Token, Tokens, spliced, tokenize, untokenize


def mended(printed: str) -> str:
    """Return the text of a query as the server reads it; untouched, if it is that already."""
    if " CYCLE " not in printed:
        return printed
    tokens = tokenize(printed)
    marks = [mark for at in range(len(tokens)) for mark in _marks(tokens, at)]
    return untokenize(spliced(tokens, marks)) if marks else printed


def _marks(tokens: Tokens, at: int) -> Iterator[tuple[int, int, Tokens]]:
    """Yield where the casts of the marks behind a TO stand, and the constants that they are."""
    for word, end in (("TO", "DEFAULT"), ("DEFAULT", "USING")):
        match tokens[at : at + 3]:
            case [start, Token(kind="string") as said, cast] if start.is_word(
                word
            ) and cast.is_punct("::"):
                behind = next(n for n in range(at, len(tokens)) if tokens[n].is_word(end))
                first, *rest = tokens[at + 3 : behind]
                yield at + 1, behind, [replace(first, spaced=True), *rest, said]
                at = behind
            case _:
                return
