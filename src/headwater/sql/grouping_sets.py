"""GROUP BY as a list of grouping sets: ROLLUP, CUBE and GROUPING SETS multiplied out."""

from __future__ import annotations

from itertools import chain, combinations, product

from headwater.sql.lexer import Tokens, split, stripped, untokenize

GroupingSet = tuple[Tokens, ...]


def grouping_sets(tokens: Tokens) -> tuple[GroupingSet, ...]:
    """Return the sets of a GROUP BY clause; a plain one is a single set."""
    is_distinct = tokens[0].is_word("DISTINCT")
    items = split(tokens[1:] if is_distinct else tokens, mark=",")
    sets = [tuple(chain(*choice)) for choice in product(*map(_sets, items))]
    return tuple({_said(one): one for one in sets}.values()) if is_distinct else tuple(sets)


def _sets(item: Tokens) -> list[GroupingSet]:
    """Return the sets of one item, any of which may be combined with any of the others'."""
    if item[0].is_word("ROLLUP") and item[1].is_punct("("):
        parts = _listed(item[1:])
        return [tuple(chain(*parts[:n])) for n in range(len(parts), -1, -1)]
    if item[0].is_word("CUBE") and item[1].is_punct("("):
        parts = _listed(item[1:])
        chosen = chain(*(combinations(parts, n) for n in range(len(parts), -1, -1)))
        return [tuple(chain(*some)) for some in chosen]
    if item[0].is_word("GROUPING") and item[1].is_word("SETS"):
        return [one for part in split(item[3:-1], mark=",") for one in _sets_inside(part)]
    return [()] if not _inside(item) else [(item,)]


def _sets_inside(part: Tokens) -> list[GroupingSet]:
    """Return the sets of an item of GROUPING SETS, where brackets enclose a set."""
    nested = part[0].is_word("ROLLUP", "CUBE", "GROUPING")
    return _sets(part) if nested else [_expressions(part)]


def _listed(bracketed: Tokens) -> list[GroupingSet]:
    return [_expressions(part) for part in split(bracketed[1:-1], mark=",")]


def _expressions(part: Tokens) -> GroupingSet:
    """Return the expressions of one or several, in brackets or not; a query keeps its own."""
    inside = _inside(part)
    if inside and inside[0].is_word("SELECT", "WITH", "VALUES"):
        return (part,)
    return tuple(split(inside, mark=",")) if inside else ()


def _inside(part: Tokens) -> Tokens:
    empty = len(part) == len("()") and part[0].is_punct("(")
    return () if empty else stripped(part)


def _said(one: GroupingSet) -> frozenset[str]:
    return frozenset(untokenize(stripped(tokens)) for tokens in one)
