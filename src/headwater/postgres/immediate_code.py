"""A compiled view to the trigger functions that follow its sources inside the writing transaction.

One function for each (source, event) reads the transition tables of its statement. What one
statement changes through several triggers is collected, and followed at the last of them by one
more function, which reads what was collected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headwater.algebra.loops import cannot_fail, loops_of
from headwater.algebra.ops import Empty, Op, Scan
from headwater.catalog.names import quote_identifier
from headwater.delta.differentiate import differentiate
from headwater.postgres.apply import (
    COUNTS,
    DeltaReader,
    netted,
    render_difference_at_once,
    render_differential,
)
from headwater.postgres.immediate_groups import (
    find_groups,
    hiding_statement,
    upsert_statement,
    variables,
)
from headwater.postgres.immediate_rows import find_change, row_statement
from headwater.postgres.immediate_single import Short, short_group, short_rows, state_variables
from headwater.postgres.immediate_slots import (
    later_lock_statements,
    lock_statements,
    look_at_slots,
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
from headwater.postgres.immediate_whole import (
    collecting_lines,
    fresh_lines,
    open_setting,
    released_line,
    truncating_lines,
    unaltered_lines,
)
from headwater.postgres.maintenance import recomputing
from headwater.postgres.quote import WEIGHT, dollar_quoted, identifier, listed, literal
from headwater.postgres.storage import current_query, state_queries

SMALL = 50  # changed rows up to which a statement keeps the plan of its first call
VARIABLES = tuple(f"__pgt_{name}" for name in COUNTS)
_ALLOWING = "'pg_trickle.refreshing'"
_WAS = f"coalesce(current_setting({_ALLOWING}, true), '')"
_NOW = f"__pgt_text := set_config({_ALLOWING}, 'on', true);"
_LATER = f"__pgt_text := set_config({_ALLOWING}, __pgt_was, true);"
_FAULTS_OF_ROWS = (
    "data_exception OR cardinality_violation OR raise_exception"
    " OR check_violation OR not_null_violation"
)
_OWN = {
    "rows": "int",
    "single": "boolean",
    "open": "int",
    "held": "boolean",
    "text": "text",
    "was": "text",
}


class InlineReader(DeltaReader):
    """Reads changes where they are used: once is enough."""

    def read(self, scan: Scan) -> str:
        """Return the relation with the changes of a scan's source."""
        return f"({self._selects[scan.source.oid]}) AS c"


def follow_statement(view: View, selects: dict[int, str]) -> str:
    """Return the statement that applies changes of all sources."""
    step = make_step(view, lambda: DeltaReader(selects), frozenset(selects))
    return step.statement if step else ""


def event_function(view: View, oid: int, event: str) -> str:
    """Return the statement that makes the function of one source and one event."""
    step, selects = _event_step(view, oid, event)
    table = "old_rows" if event == "delete" else "new_rows"
    count = f"SELECT count(*) FROM (SELECT FROM {table} LIMIT {SMALL + 1}) AS q INTO __pgt_rows;"
    lines, look = [count], dict[str, tuple[str, str]]()
    if step is not None and step.short is not None:
        look = look_at_slots(view, oid, event) | step.short.look
        lines = _shortly(view, (oid, event), step.short, look)
        lines.append(f"IF __pgt_single THEN __pgt_rows := 1; ELSE {count} END IF;")
    lines += fresh_lines(view)
    if not view.is_isolated:
        lines += collecting_lines(view, oid, read_transition(event, view.columns[oid]))
    lines.append("IF __pgt_rows = 0 THEN RETURN NULL; END IF;")
    if step is not None:
        lines += _following(view, event, step, selects)
    types = {name: type for name, (_, type) in look.items()}
    return make_function(view, function_name(view.pgt_id, oid, event), "trigger", lines, types)


def _shortly(
    view: View, what: tuple[int, str], short: Short, look: dict[str, tuple[str, str]]
) -> list[str]:
    """Follow a single row the short way; the rest of the function is for all else.

    One statement finds what is wanted of the first row, whether there is no other, and the
    settings: a line less is time saved, since each is made ready anew in every transaction.
    """
    oid, event = what
    test = "__pgt_single AND current_setting('transaction_isolation') = 'read committed'"
    first = [_NOW]
    if not view.is_isolated:
        test, first = f"{test} AND {open_setting(view)} = 'x'", [released_line(view), _NOW]
    if "__pgt_same" in look:
        test = f"{test} AND __pgt_same"
    if short.idle:
        first.insert(0, f"IF {short.idle} THEN RETURN NULL; END IF;")
    first += single_lock_lines(view, oid, look)
    done = [*short.then, _LATER, "RETURN NULL;"]
    if not short.is_certain:
        done = ["IF FOUND THEN", *done, "END IF;", _LATER]
    looking = _looking(event, short, look)
    return [looking, f"IF {test} THEN", *first, f"{short.statement};", *done, "END IF;"]


def _looking(event: str, short: Short, look: dict[str, tuple[str, str]]) -> str:
    tables = {"insert": "new_rows AS n", "delete": "old_rows AS o"}
    rows = short.source or tables.get(event, "old_rows AS o, new_rows AS n")
    table = "old_rows" if event == "delete" else "new_rows"
    wanted = {"__pgt_single": f"NOT EXISTS (SELECT FROM {table} OFFSET 1)", "__pgt_was": _WAS}
    wanted |= {name: f"({value})" for name, (value, _) in look.items()}
    return f"SELECT {listed(wanted.values())} FROM {rows} LIMIT 1 INTO {listed(wanted)};"


@dataclass(frozen=True, slots=True)
class Step:
    """The statement that applies a change, where its results go, and what is done with them.

    `short` does it for one changed row, if it finds what it looks for. `instead` does it where the
    statement may fail of rows that the query never looks at.
    """

    statement: str
    into: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    short: Short | None = None
    instead: str | None = None

    @property
    def by_kept_plan(self) -> str:
        """The line that runs the statement by the plan of its first call."""
        return self._tried(f"{self.statement}{self._target}")

    @property
    def by_new_plan(self) -> str:
        """The line that has the statement planned each time."""
        return self._tried(f"EXECUTE {dollar_quoted(self.statement)}{self._target}")

    @property
    def _target(self) -> str:
        return f" INTO {listed(self.into)}" if self.into else ""

    def _tried(self, line: str) -> str:
        if self.instead is None:
            return line
        instead = f"EXECUTE {dollar_quoted(self.instead)}{self._target}"
        return f"BEGIN\n{line};\nEXCEPTION WHEN {_FAULTS_OF_ROWS} THEN\n{instead};\nEND"


def make_step(
    view: View, make_reader: Callable[[], DeltaReader], changed: frozenset[int]
) -> Step | None:
    """Return how a change is applied: groups by upserts where their sums add."""
    groups = find_groups(view.plan)
    if groups is None:
        return _general_step(view, make_reader, changed)
    change = differentiate(groups.root.input, changed)
    if isinstance(change, Empty):
        return None
    keys = tuple(variables(groups))
    hide = f"IF {keys[0]} IS NOT NULL THEN\n{hiding_statement(groups, view.target)};\nEND IF;"
    upsert = upsert_statement(groups, view.target, make_reader().renderer, change)
    return Step(upsert, ("__pgt_damaged", *keys), (*_checked(view, "__pgt_damaged <> 0"), hide))


def _general_step(
    view: View, make_reader: Callable[[], DeltaReader], changed: frozenset[int]
) -> Step | None:
    """Apply a change by the statement of a refresh.

    What a recursion lost may meet what came; if that fails, the recursion is computed as a whole.
    """
    rendered = render_differential(view.plan, view.target, changed, make_reader())
    if rendered is None:
        return None
    instead = None
    if not all(map(cannot_fail, loops_of(view.plan.view))):
        whole = recomputing(view.plan)
        instead = render_differential(whole, view.target, changed, make_reader())
    test = "__pgt_expected <> __pgt_deleted + __pgt_updated OR __pgt_damaged <> 0"
    then = _checked(view, test, "__pgt_expected", "__pgt_deleted + __pgt_updated")
    return Step(rendered, VARIABLES, then, instead=instead)


def _event_step(view: View, oid: int, event: str) -> tuple[Step | None, dict[int, str]]:
    """Return how the change of one event is applied, and where locks read it."""
    columns = view.columns[oid]
    passing = find_change(view.plan, oid, event)
    groups = find_groups(view.plan)
    step: Step | None
    if passing is not None:
        selects = {oid: read_both(event, columns)}
        step = _row_step(view, oid, event, passing)
    elif groups is None:
        selects = {oid: read_transition(event, columns)}
        step = make_step(view, lambda: DeltaReader(selects), frozenset(selects))
    else:
        selects = {oid: read_both(event, columns)}
        step = make_step(view, lambda: InlineReader(selects), frozenset(selects))
        short = short_group(groups, view.target, event, step.then) if step else None
        step = replace(step, short=short) if step else None
    return _with_short(view, oid, event, step) if step else None, selects


def _row_step(view: View, oid: int, event: str, change: Op) -> Step:
    statement = row_statement(event, view.target, change)
    short = short_rows(view.plan, view.target, oid, event)
    if event == "insert":
        return Step(statement, short=short)
    then = _checked(view, "__pgt_expected <> __pgt_deleted", "__pgt_expected", "__pgt_deleted")
    return Step(statement, ("__pgt_deleted", "__pgt_expected"), then, short)


def _with_short(view: View, oid: int, event: str, step: Step) -> Step:
    """Leave out the short way where it takes too few locks; let it take those of values always.

    Locks of groups and images come from the change, which the short way does not compute.
    """
    locks = view.locks
    later = locks.groups or (locks.images and event != "insert")
    if later or locks.in_hand(oid) is None:
        return replace(step, short=None)
    if step.short is not None or not look_at_slots(view, oid, event):
        return step
    short = Short(step.by_kept_plan, step.then, is_certain=True)
    return replace(step, short=short)


def _following(view: View, event: str, step: Step, selects: dict[int, str]) -> list[str]:
    """Take the locks, then apply the change; few rows by a plan that is kept, many by a new one."""
    locks = lock_statements(view, selects)
    if event != "insert" or not view.locks.images:
        locks += later_lock_statements(view, selects)
    anew = [
        "__pgt_text := set_config('enable_seqscan', 'on', true);",
        *(f"EXECUTE {dollar_quoted(s)};" for s in locks),
        f"{step.by_new_plan};",
    ]
    kept = [*(f"{s};" for s in locks), f"{step.by_kept_plan};"]
    return allowed([f"IF __pgt_rows <= {SMALL} THEN", *kept, "ELSE", *anew, "END IF;", *step.then])


def allowed(lines: Sequence[str]) -> list[str]:
    """Tell the guard that these lines may write, and after them no longer.

    Not by a setting of the function: only a superuser may give it one that no module has defined.
    """
    return [f"__pgt_was := {_WAS};", _NOW, *lines, _LATER]


def _checked(view: View, test: str, expected: str = "0", found: str = "0") -> tuple[str, ...]:
    damaged = "__pgt_damaged" if "__pgt_damaged" in test else "0"
    fault = (
        f"RAISE EXCEPTION '% does not hold the rows that it should', {literal(view.target.name)}"
        " USING ERRCODE = 'HW203', DETAIL = format('%s rows should go, %s were found; %s groups"
        f" would have a negative count', {expected}, {found}, {damaged}),"
        " HINT = 'Refresh the stream table: that computes it anew.';"
    )
    return f"IF {test} THEN", fault, "END IF;"


def pending_function(view: View) -> str:
    """Return the statement that makes the function which follows all that was collected."""
    pending = {oid: read_pending(view, oid) for oid in view.columns}
    locking = [*lock_statements(view, pending), *later_lock_statements(view, pending)]
    oids = tuple(view.columns)
    step = make_step(view, lambda: pending_reader(view, oids), frozenset(oids))
    assert step is not None
    lines = [
        released_line(view),
        "__pgt_text := set_config('enable_seqscan', 'on', true);",
        *(f"EXECUTE {dollar_quoted(s)};" for s in locking),
        f"{step.by_new_plan};",
        *step.then,
    ]
    return make_function(view, function_name(view.pgt_id), "void", allowed(lines))


def pending_reader(view: View, oids: tuple[int, ...]) -> DeltaReader:
    """Take away what was collected of these sources and read it, net, in one statement: nested ones
    find it gone."""
    taken, selects = {}, {}
    for oid in oids:
        outputs = listed([*(identifier(c.name) for c in view.columns[oid]), WEIGHT])
        taken[f"taken_{oid}"] = (
            f"DELETE FROM {pending_name(view.pgt_id, oid)} WHERE __xid = {XID} RETURNING {outputs}"
        )
        selects[oid] = f"SELECT {outputs} FROM taken_{oid}"
    reader = DeltaReader(netted(selects, view.plan.view))
    for name, statement in taken.items():
        reader.renderer.add(name, statement)
    return reader


def anew_function(view: View, sources: Sequence[str], canonical: str) -> str:
    """Return the statement that makes the function which computes the whole table anew.

    It waits for the writers of the sources: what they did not commit would be missed. What this
    transaction collected is in the sources already.
    """
    lock = f"LOCK TABLE {listed(sources)} IN SHARE ROW EXCLUSIVE MODE;"
    lines = allowed([lock, *anew_lines(view, canonical)])
    return make_function(view, function_name(view.pgt_id, "anew"), "void", lines)


def anew_lines(view: View, canonical: str) -> list[str]:
    """Return the lines that compute the whole table anew, and forget what was collected."""
    lines = [
        f"DELETE FROM {pending_name(view.pgt_id, oid)} WHERE __xid = {XID};" for oid in view.columns
    ]
    lines.append("__pgt_text := set_config('enable_seqscan', 'on', true);")
    for table, select in state_queries(view.plan, view.target).items():
        lines.append(f"DELETE FROM {table};")
        lines.append(f"EXECUTE {dollar_quoted(f'INSERT INTO {table} {select}')};")
    query = current_query(view.plan, view.target, canonical)
    apply = render_difference_at_once(view.target, query)
    return [*lines, f"EXECUTE {dollar_quoted(apply)} INTO {listed(VARIABLES)};"]


def truncate_functions(view: View, oid: int) -> list[str]:
    """Return the statements that make the functions before and after TRUNCATE."""
    before, after = truncating_lines(view, oid)
    return [
        make_function(view, function_name(view.pgt_id, oid, "truncate"), "trigger", before),
        make_function(view, function_name(view.pgt_id, oid, "truncated"), "trigger", after),
    ]


def make_function(
    view: View, name: str, returns: str, lines: Sequence[str], own: dict[str, str] | None = None
) -> str:
    """Run as the owner of the stream table, under settings that the writer cannot choose."""
    if returns == "trigger":
        lines = [*unaltered_lines(view), *lines, "RETURN NULL;"]
    body = "\n".join(lines)
    types = {name: "bigint" for name in VARIABLES} | _group_variables(view)
    types |= {f"__pgt_{name}": type for name, type in _OWN.items()} | (own or {})
    # Each variable takes time at each call, so only those in use are declared.
    used = {name: type for name, type in types.items() if re.search(rf"\b{name}\b", body)}
    declared = "".join(f"{name} {type};\n" for name, type in used.items())
    code = f"#variable_conflict use_column\nDECLARE\n{declared}BEGIN\n{body}\nEND"
    sets = "".join(
        f" SET {quote_name(name)} = {literal(value)}" for name, value in view.settings.items()
    )
    return (
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS {returns}"
        " LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp"
        f"{sets} AS {dollar_quoted(code)}"
    )


def _group_variables(view: View) -> dict[str, str]:
    groups = find_groups(view.plan)
    return variables(groups) | state_variables(groups) if groups else {}


def quote_name(setting: str) -> str:
    """Return the name of a setting as SQL."""
    return ".".join(quote_identifier(part) for part in setting.split("."))
