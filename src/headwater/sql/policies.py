"""The row-level security of a source, as far as it applies to the reader, to a condition on rows.

The server hides rows whenever the owner of a stream table reads a source, but triggers capture the
changes of all rows. So the condition stands above every scan, like a view over the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.algebra.expr import Expr, column
from headwater.algebra.ops import Filter, Op
from headwater.sql.clock import has_clock
from headwater.sql.lexer import Token, Tokens, tokenize, untokenize
from headwater.sql.parse import parse_query
from headwater.sql.scope import Scope, to_expr
from headwater.sql.syntax import Select

_READER = ("CURRENT_USER", "CURRENT_ROLE", "USER")


@dataclass(frozen=True, slots=True)
class Policy:
    """What of a table a role sees; the SELECT reads the table as `source`."""

    recorded: Mapping[str, str]  # as pgtrickle.policy_of tells it
    select: str | None  # of the condition; None: it cannot be followed


def condition_for(recorded: Mapping[str, str]) -> str:
    """Return the condition with the name of the reader, who is the same at every refresh."""
    name = recorded["reader"].replace("'", "''")
    reader = tokenize(f"'{name}'::name")
    made: list[Token] = []
    for token in tokenize(recorded["visible"]):
        made += _spaced(reader, token) if token.is_word(*_READER) else [token]
    return untokenize(made)


def _spaced(tokens: Tokens, like: Token) -> list[Token]:
    first, *rest = tokens
    return [Token(first.kind, first.value, first.text, like.spaced), *rest]


def passes_with_time(condition: str) -> bool:
    """Tell whether a condition asks for the time: then rows would come and go without a write."""
    return has_clock(tokenize(condition))


def visible(policy: Policy | None, op: Op, own: Mapping[str, str]) -> Op:
    """Return the rows of a scan that the reader sees; `own` names its columns in the tree."""
    if policy is None or policy.select is None:
        return op
    query = parse_query(policy.select)
    assert isinstance(query, Select)
    columns: dict[str, Expr] = {name: column(made) for name, made in own.items()}
    [target] = query.targets
    return Filter(op, (to_expr(target.tokens, Scope({"source": columns}, {}, ())),))
