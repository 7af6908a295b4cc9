"""now() and its kin: the data timestamp of the epoch, which passes from refresh to refresh.

In a condition on rows they are followed as time passes (the operator Timed). The condition is kept
twice, with the clock of the new epoch and with that of the one before, as settings of the refresh.
"""

from __future__ import annotations

from headwater.sql.lexer import Token, Tokens, tokenize

NOW, BEFORE = "pg_trickle.clock", "pg_trickle.clock_before"
FUNCTIONS = frozenset({"now", "transaction_timestamp", "statement_timestamp"})
_WORDS = {
    "CURRENT_TIMESTAMP": "timestamp with time zone",
    "CURRENT_DATE": "date",
    "CURRENT_TIME": "time with time zone",
    "LOCALTIMESTAMP": "timestamp without time zone",
    "LOCALTIME": "time without time zone",
}


def has_clock(tokens: Tokens) -> bool:
    """Tell whether an expression asks what time it is."""
    return any(_taken(tokens, at) for at in range(len(tokens)))


def read_clock(tokens: Tokens, setting: str) -> Tokens:
    """Return an expression that asks a setting what time it is."""
    out: list[Token] = []
    at = 0
    while at < len(tokens):
        taken = _taken(tokens, at)
        if taken:
            out += _value(tokens[at : at + taken], setting)
        else:
            out.append(tokens[at])
        at += taken or 1
    return out


def _taken(tokens: Tokens, at: int) -> int:
    """Return how many tokens a call for the time takes; 0 if none is here."""
    token = tokens[at]
    if token.kind != "word" or (at and tokens[at - 1].is_punct(".", "::")):
        return 0
    opens = at + 1 < len(tokens) and tokens[at + 1].is_punct("(")
    if token.value in FUNCTIONS and opens:
        return len("f()")
    if token.value not in _WORDS:
        return 0
    return len(("word", "(", "digits", ")")) if opens else 1


def _value(call: Tokens, setting: str) -> Tokens:
    wanted = _WORDS.get(call[0].value, _WORDS["CURRENT_TIMESTAMP"])
    if len(call) > len("f()"):  # with a number of digits
        first, _, rest = wanted.partition(" ")
        wanted = f"{first}({call[2].text}) {rest}"
    space = " " if call[0].spaced else ""
    zoned = f"(current_setting('{setting}')::timestamp with time zone)"
    return tokenize(f"{space}({zoned}::{wanted})")
