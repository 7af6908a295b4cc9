"""A compiled view to the trigger functions that follow its sources inside the writing transaction.

One function for each (source, event) reads the transition tables of its statement. What one
statement changes through several triggers is collected, and followed at the last of them by one
more function, which reads what was collected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.algebra.ops import Empty, Scan
from headwater.catalog.names import quote_identifier
from headwater.delta.differentiate import differentiate
from headwater.postgres.apply import (
    COUNTS,
    DIFFERENCE,
    DeltaReader,
    netted,
    render_difference,
    render_differential,
)
from headwater.postgres.immediate_groups import (
    find_groups,
    hiding_statement,
    upsert_statement,
    variables,
)
from headwater.postgres.immediate_rows import find_change, row_statement
from headwater.postgres.immediate_slots import (
    later_lock_statement,
    lock_statement,
    single_lock_lines,
)
from headwater.postgres.immediate_view import (
    XID,
    View,
    function_name,
    pending_name,
    read_both,
    read_pending,
    read_transition,
)
from headwater.postgres.quote import WEIGHT, dollar_quoted, identifier, listed
from headwater.postgres.render import Renderer
from headwater.postgres.storage import current_query

SMALL = 50  # changed rows up to which a statement keeps the plan of its first call
_VARIABLES = tuple(f"__pgt_{name}" for name in COUNTS)


class InlineReader(DeltaReader):
    """Reads changes where they are used: once is enough."""

    def read(self, scan: Scan) -> str:
        """Return the relation with the changes of a scan's source."""
        return f"({self._selects[scan.source.oid]}) AS c"


def follow_statement(view: View, selects: dict[int, str]) -> str:
    """Return the statement that applies changes of all sources."""
    step = _step(view, DeltaReader(selects), frozenset(selects))
    return step.statement if step else ""


def event_function(view: View, oid: int, event: str) -> str:
    """Return the statement that makes the function of one source and one event."""
    rows = "old_rows" if event == "delete" else "new_rows"
    lines = [f"SELECT count(*) FROM (SELECT FROM {rows} LIMIT {SMALL + 1}) AS q INTO __pgt_rows;"]
    if not view.is_isolated:
        lines += _collecting(view, oid, read_transition(event, view.columns[oid]))
    lines += ["IF __pgt_rows = 0 THEN RETURN NULL; END IF;", *_following(view, oid, event)]
    return _function(view, function_name(view.pgt_id, oid, event), "trigger", lines)


def _collecting(view: View, oid: int, select: str) -> list[str]:
    """Keep the change for later unless this is the only trigger of its statement."""
    opened, held = _setting(view, "open"), _setting(view, "held")
    return [
        f"__pgt_open := coalesce(nullif(current_setting({opened}, true), ''), '1')::int - 1;",
        f"__pgt_text := set_config({opened}, __pgt_open::text, true);",
        f"__pgt_held := coalesce(current_setting({held}, true), '') = 'on';",
        "IF __pgt_held OR (__pgt_open > 0 AND __pgt_rows > 0) THEN",
        f"  {collect_statement(view, oid, select)};",
        f"  __pgt_text := set_config({held}, 'on', true);",
        f"  IF __pgt_open <= 0 THEN PERFORM {function_name(view.pgt_id)}(); END IF;",
        "  RETURN NULL;",
        "END IF;",
        "IF __pgt_open > 0 THEN RETURN NULL; END IF;",
    ]


def collect_statement(view: View, oid: int, select: str) -> str:
    """Return the statement that keeps changes until the last trigger."""
    columns = listed([*(identifier(c.name) for c in view.columns[oid]), WEIGHT])
    return (
        f"INSERT INTO {pending_name(view.pgt_id, oid)} (__xid, {columns})"
        f" SELECT {XID}, {columns} FROM ({select}) AS c"
    )


def _setting(view: View, what: str) -> str:
    return f"'pg_trickle.{what}_{view.pgt_id}'"


@dataclass(frozen=True, slots=True)
class Step:
    """The statement that applies a change, where its results go, and what is done with them."""

    statement: str
    into: tuple[str, ...]
    then: tuple[str, ...]


def _step(view: View, reader: DeltaReader, changed: frozenset[int]) -> Step | None:
    """Return how a change is applied: groups by upserts where their sums add."""
    groups = find_groups(view.plan)
    if groups is None:
        rendered = render_differential(view.plan, view.target, changed, reader)
        return Step(rendered, _VARIABLES, _checked(view)) if rendered is not None else None
    change = differentiate(groups.root.input, changed)
    if isinstance(change, Empty):
        return None
    keys = tuple(variables(groups))
    hide = f"IF {keys[0]} IS NOT NULL THEN\n{hiding_statement(groups, view.target)};\nEND IF;"
    upsert = upsert_statement(groups, view.target, reader.renderer, change)
    return Step(upsert, ("__pgt_damaged", *keys), (*_checked(view), hide))


def _event_step(view: View, oid: int, event: str) -> tuple[Step | None, dict[int, str]]:
    """Return how the change of one event is applied, and where locks read it."""
    columns = view.columns[oid]
    passing = find_change(view.plan, oid, event)
    if passing is not None:
        into = ("__pgt_deleted", "__pgt_expected")
        step = Step(row_statement(event, view.target, passing), into, _checked(view))
        return step, {oid: read_both(event, columns)}
    if find_groups(view.plan) is not None:
        selects = {oid: read_both(event, columns)}
        return _step(view, InlineReader(selects), frozenset(selects)), selects
    selects = {oid: read_transition(event, columns)}
    return _step(view, DeltaReader(selects), frozenset(selects)), selects


def _following(view: View, oid: int, event: str) -> list[str]:
    """Take the locks, then apply the change; few rows by a plan that is kept, many by a new one."""
    step, selects = _event_step(view, oid, event)
    if step is None:
        return []
    locking = [lock_statement(view, selects)]
    if event != "insert" or not view.locks.images:
        locking.append(later_lock_statement(view, selects))
    steps = [s for s in locking if s is not None]
    into = f"INTO {listed(step.into)}"
    anew = [
        "__pgt_text := set_config('enable_seqscan', 'on', true);",
        *(f"EXECUTE {dollar_quoted(s)};" for s in steps),
        f"EXECUTE {dollar_quoted(step.statement)} {into};",
    ]
    kept = [*_kept_locks(view, selects, steps), f"{step.statement} {into};"]
    lines = [f"IF __pgt_rows <= {SMALL} THEN", *kept, "ELSE", *anew, "END IF;", *step.then]
    return _allowed(lines)


def _allowed(lines: Sequence[str]) -> list[str]:
    """Tell the guard that these lines may write, and after them no longer.

    Not by a setting of the function: only a superuser may give it one that no module has defined.
    """
    setting = "'pg_trickle.refreshing'"
    return [
        f"__pgt_was := coalesce(current_setting({setting}, true), '');",
        f"__pgt_text := set_config({setting}, 'on', true);",
        *lines,
        f"__pgt_text := set_config({setting}, __pgt_was, true);",
    ]


def _kept_locks(view: View, selects: dict[int, str], steps: list[str]) -> list[str]:
    """Return the lines that take locks by kept plans; one changed row has the shorter way."""
    lines = [f"{s};" for s in steps]
    single = single_lock_lines(view, selects)
    if single is None:
        return lines
    return ["IF __pgt_rows = 1 THEN", *single, "ELSE", lines[0], "END IF;", *lines[1:]]


def _checked(view: View) -> tuple[str, ...]:
    fault = (
        f"RAISE EXCEPTION '% does not hold the rows that it should', {_literal(view.target.name)}"
        " USING ERRCODE = 'HW203', DETAIL = format('%s rows should go, %s were found; %s groups"
        " would have a negative count', __pgt_expected, __pgt_deleted + __pgt_updated,"
        " __pgt_damaged), HINT = 'Refresh the stream table: that computes it anew.';"
    )
    test = "__pgt_expected <> __pgt_deleted + __pgt_updated OR __pgt_damaged <> 0"
    return f"IF {test} THEN", fault, "END IF;"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def pending_function(view: View) -> str:
    """Return the statement that makes the function which follows all that was collected."""
    pending = {oid: read_pending(view, oid) for oid in view.columns}
    locking = [lock_statement(view, pending), later_lock_statement(view, pending)]
    step = _pending_step(view)
    lines = [
        f"__pgt_text := set_config({_setting(view, 'held')}, '', true);",
        "__pgt_text := set_config('enable_seqscan', 'on', true);",
        *(f"EXECUTE {dollar_quoted(s)};" for s in locking if s is not None),
        f"EXECUTE {dollar_quoted(step.statement)} INTO {listed(step.into)};",
        *step.then,
    ]
    return _function(view, function_name(view.pgt_id), "void", _allowed(lines))


def _pending_step(view: View) -> Step:
    """Take away what was collected and follow it, in one statement: nested ones find it gone."""
    taken, selects = {}, {}
    for oid, columns in view.columns.items():
        outputs = listed([*(identifier(c.name) for c in columns), WEIGHT])
        taken[f"taken_{oid}"] = (
            f"DELETE FROM {pending_name(view.pgt_id, oid)} WHERE __xid = {XID} RETURNING {outputs}"
        )
        selects[oid] = f"SELECT {outputs} FROM taken_{oid}"
    reader = DeltaReader(netted(selects, view.plan.view))
    for name, statement in taken.items():
        reader.renderer.add(name, statement)
    step = _step(view, reader, frozenset(selects))
    assert step is not None
    return step


def anew_function(view: View, sources: Sequence[str], canonical: str) -> str:
    """Return the statement that makes the function which computes the whole table anew.

    It waits for the writers of the sources: what they did not commit would be missed.
    """
    state, root = view.target.state, view.plan.root
    lines = [f"LOCK TABLE {listed(sources)} IN SHARE ROW EXCLUSIVE MODE;"]
    lines.append("__pgt_text := set_config('enable_seqscan', 'on', true);")
    if state is not None and root is not None:
        lines.append(f"DELETE FROM {state};")
        select = Renderer().render(root).sql
        lines.append(f"EXECUTE {dollar_quoted(f'INSERT INTO {state} {select}')};")
    query = current_query(view.plan, view.target, canonical)
    create, apply = render_difference(view.target, query)
    lines += [
        f"EXECUTE {dollar_quoted(create)};",
        f"EXECUTE {dollar_quoted(apply)} INTO {listed(_VARIABLES)};",
        f"DROP TABLE {DIFFERENCE};",
    ]
    return _function(view, function_name(view.pgt_id, "anew"), "void", _allowed(lines))


def opening_function(view: View) -> str:
    """Return the statement that makes the function which counts the statements under way."""
    opened = _setting(view, "open")
    code = (
        "BEGIN\n"
        f"PERFORM pg_catalog.set_config({opened}, (coalesce(nullif("
        f"pg_catalog.current_setting({opened}, true), ''), '0')::pg_catalog.int4"
        " OPERATOR(pg_catalog.+) 1)::pg_catalog.text, true);\n"
        "RETURN NULL;\nEND"
    )
    return (
        f"CREATE OR REPLACE FUNCTION {function_name(view.pgt_id, 'open')}() RETURNS trigger"
        f" LANGUAGE plpgsql AS {dollar_quoted(code)}"
    )


def truncate_functions(view: View, oid: int) -> list[str]:
    """Return the statements that make the functions before and after TRUNCATE.

    Before it the rows are there to be collected; after it they are followed. Under a frozen
    snapshot TRUNCATE also removes rows that its transaction cannot see.
    """
    columns = view.columns[oid]
    own = [identifier(c.name) for c in columns]
    select = f"SELECT {listed([*own, f'-1 AS {WEIGHT}'])} FROM ONLY %s"
    copy = collect_statement(view, oid, select).replace("%", "%%").replace("ONLY %%s", "ONLY %s")
    opened, held = _setting(view, "open"), _setting(view, "held")
    shown = _literal(view.target.name)
    before = [
        "IF current_setting('transaction_isolation') <> 'read committed' THEN",
        f"RAISE EXCEPTION '% cannot be truncated in this transaction', TG_RELID::regclass"
        " USING ERRCODE = 'feature_not_supported',"
        f" DETAIL = format('The stream table %s follows it, and TRUNCATE also removes rows that"
        f" a transaction of this isolation level cannot see.', {shown}),"
        " HINT = 'Use READ COMMITTED, or DELETE.';",
        "END IF;",
        f"__pgt_open := coalesce(nullif(current_setting({opened}, true), ''), '0')::int + 1;",
        f"__pgt_text := set_config({opened}, __pgt_open::text, true);",
        f"__pgt_text := set_config({held}, 'on', true);",
        f"EXECUTE format({dollar_quoted(copy)}, TG_RELID::regclass);",
        "RETURN NULL;",
    ]
    after = [
        f"__pgt_open := coalesce(nullif(current_setting({opened}, true), ''), '1')::int - 1;",
        f"__pgt_text := set_config({opened}, __pgt_open::text, true);",
        f"IF __pgt_open <= 0 THEN PERFORM {function_name(view.pgt_id)}(); END IF;",
    ]
    return [
        _function(view, function_name(view.pgt_id, oid, "truncate"), "trigger", before),
        _function(view, function_name(view.pgt_id, oid, "truncated"), "trigger", after),
    ]


def _function(view: View, name: str, returns: str, lines: Sequence[str]) -> str:
    """Run as the owner of the stream table, under settings that the writer cannot choose."""
    body = "\n".join([*lines, "RETURN NULL;"] if returns == "trigger" else lines)
    groups = find_groups(view.plan)
    types = {name: "bigint := 0" for name in _VARIABLES} | (variables(groups) if groups else {})
    declared = "".join(f"{name} {type};\n" for name, type in types.items())
    own = "rows int", "open int", "low int", "high int", "held boolean", "text text", "was text"
    declared += "".join(f"__pgt_{variable};\n" for variable in own)
    code = f"#variable_conflict use_column\nDECLARE\n{declared}BEGIN\n{body}\nEND"
    sets = "".join(
        f" SET {quote_name(name)} = {_literal(value)}" for name, value in view.settings.items()
    )
    return (
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS {returns}"
        " LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp"
        f"{sets} AS {dollar_quoted(code)}"
    )


def quote_name(setting: str) -> str:
    """Return the name of a setting as SQL."""
    return ".".join(quote_identifier(part) for part in setting.split("."))
