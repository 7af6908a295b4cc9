"""A table in FROM to a scan, with virtual generated columns and row-level security above it.

The server computes a virtual column whenever it is read, and triggers do not see it: so it is its
expression, over the columns that are stored. Likewise it hides rows from the reader alone.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.algebra.expr import Expr, column
from headwater.algebra.ops import Op, Output, Project, Scan
from headwater.algebra.schema import Column
from headwater.sql.parse import parse_query
from headwater.sql.policies import visible
from headwater.sql.relations import Attribute, Relation
from headwater.sql.scope import Scope, to_expr
from headwater.sql.syntax import Select


def scanned(relation: Relation, name: Callable[[Attribute], Column]) -> Op:
    """Return the rows of a table that are seen, with all its columns in order, each under the name
    it is given."""
    made = {a: name(a) for a in relation.attributes}
    own = {a.name: c.name for a, c in made.items()}
    return visible(relation.policy, _rows(relation, made), own)


def _rows(relation: Relation, made: dict[Attribute, Column]) -> Op:
    stored = [a for a in relation.attributes if a.generated is None]
    columns = tuple(made[a] for a in stored)
    scan = Scan(relation.source, columns, tuple(a.name for a in stored))
    if relation.virtual is None:
        return scan
    computed = dict(zip(_computed(relation), _expressions(relation, made), strict=True))
    outputs = (Output(c, computed[a] if a in computed else column(c.name)) for a, c in made.items())
    return Project(scan, tuple(outputs))


def _computed(relation: Relation) -> list[Attribute]:
    return [a for a in relation.attributes if a.generated is not None]


def _expressions(relation: Relation, made: dict[Attribute, Column]) -> list[Expr]:
    own = {a.name: column(c.name) for a, c in made.items()}
    query = parse_query(str(relation.virtual))
    assert isinstance(query, Select)
    return [to_expr(target.tokens, Scope({"source": own}, {}, ())) for target in query.targets]
