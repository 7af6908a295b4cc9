"""Relations in the text of a query, found and put elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.sql.lexer import Token, Tokens, tokenize
from headwater.sql.relations import Analysis, Relation

Name = tuple[str | None, str]


def relation_at(
    tokens: Tokens, at: int, relations: Mapping[Name, Relation]
) -> tuple[Relation, int] | None:
    """Return the relation in FROM that starts here, and how many tokens its name takes."""
    if at == 0:
        return None
    before = tokens[at - 1]
    if not (before.is_word("FROM", "JOIN", "ONLY") or before.is_punct(",", "(")):
        return None
    dotted = at + 2 < len(tokens) and tokens[at + 1].is_punct(".")
    if not dotted:
        return None
    found = relations.get((tokens[at].value, tokens[at + 2].value))
    return (found, len("a.b")) if found is not None else None


def has_alias(tokens: Tokens, at: int) -> bool:
    """Tell whether a name stands here, not a keyword, which the server prints in capitals."""
    return at < len(tokens) and _is_alias(tokens[at])


def _is_alias(token: Token) -> bool:
    return token.kind == "quoted" or (token.kind == "word" and token.text == token.text.lower())


def with_relations(analysis: Analysis, names: Mapping[Name, str]) -> str:
    """Return the canonical query with other relations in the place of some, under their aliases."""
    moved = {name: analysis.relations[name] for name in names}
    tokens, out, at = tokenize(analysis.canonical), "", 0
    while at < len(tokens):
        found = relation_at(tokens, at, moved)
        space = " " if tokens[at].spaced else ""
        if found is None:
            out += space + tokens[at].text
            at += 1
            continue
        last = tokens[at + 2]
        out += f"{space}{names[tokens[at].value, last.value]}"
        at += found[1]
        out += "" if has_alias(tokens, at) else f" AS {last.text}"
    return out
