"""A compiled view to the functions that follow its sources once, at the end of the transaction.

The functions of the triggers collect what changed, and queue the stream table. One more function
nets all that was collected, and follows it as one change of all sources.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.algebra.expr import as_column
from headwater.algebra.ops import Aggregate, Empty, Filter, Keys, Op, Project, schema
from headwater.algebra.prune import prune
from headwater.algebra.schema import names
from headwater.algebra.walk import walk
from headwater.delta.differentiate import differentiate
from headwater.delta.recomputed import change_by_key
from headwater.postgres.apply import DeltaReader, netted, render_change, stored_scan
from headwater.postgres.commit_single import DONE, Short, short_document
from headwater.postgres.immediate_code import (
    SMALL,
    VARIABLES,
    Step,
    allowed,
    anew_lines,
    make_function,
    make_step,
    pending_reader,
)
from headwater.postgres.immediate_slots import (
    every_lock,
    later_lock_statements,
    lock_statements,
)
from headwater.postgres.immediate_view import (
    XID,
    View,
    function_name,
    pending_name,
    read_both,
    read_pending,
)
from headwater.postgres.immediate_whole import (
    collect_rows,
    collect_statement,
    fresh_lines,
    refuse_truncate,
    unaltered_lines,
)
from headwater.postgres.quote import dollar_quoted, identifier, listed, literal

_QUEUE = "'pg_trickle.queued'"
RATIO = "pg_trickle.commit_full_ratio"
DEFAULT_RATIO = 0.15  # of the rows: from about there on it should be cheaper to compute all
_SHOWN = 5  # keys in the message of an error
# For few rows: a merge walks an index from its beginning, and to plan for each key takes longer
# than to look it up.
_KEPT = {"enable_mergejoin": "off", "plan_cache_mode": "force_generic_plan"}


def commit_functions(view: View, canonical: str) -> list[str]:
    """Return the statements that make the functions of a COMMIT table."""
    made = [_follow_function(view), _keys_function(view)]
    if not view.locks.upserts:
        made.append(_recompute_function(view, canonical))
    bare = replace(view, settings={})  # to collect is to copy: no setting changes that
    for oid, columns in view.columns.items():
        for event in ("insert", "update", "delete"):
            lines = [f"{collect_statement(view, oid, read_both(event, columns))};", *_queued(view)]
            made.append(make_function(bare, _name(view, oid, event), "trigger", lines))
        lines = [*refuse_truncate(view), collect_rows(view, oid), *_queued(view)]
        made.append(make_function(view, _name(view, oid, "truncate"), "trigger", lines))
    return made


def _name(view: View, oid: int, event: str) -> str:
    return function_name(view.pgt_id, oid, event)


def _queued(view: View) -> list[str]:
    """Queue the stream table once; whoever is first in the transaction has it called at its end.

    The queue comes before the marker, which a user may have made to call at once.
    """
    return [
        f"__pgt_text := coalesce(current_setting({_QUEUE}, true), '');",
        f"IF strpos(__pgt_text, ' {view.pgt_id} ') = 0 THEN",
        f"  __pgt_was := set_config({_QUEUE}, CASE __pgt_text WHEN '' THEN ' ' ELSE __pgt_text END"
        f" || '{view.pgt_id} ', true);",
        "  IF __pgt_text = '' THEN",
        f"    INSERT INTO pgtrickle.pgt_commits (xid) VALUES ({XID});",
        "  END IF;",
        "END IF;",
    ]


def _follow_function(view: View) -> str:
    """Follow what was collected: of one source by a statement for that one, else of all."""
    counted = {oid: f"__pgt_of_{oid}" for oid in view.columns}
    lines = [*unaltered_lines(view, "RETURN;"), *fresh_lines(view), _count(view, counted)]
    alone = ((oid, [n for other, n in counted.items() if other != oid]) for oid in counted)
    branches: list[str] = []
    if len(counted) > 1:
        for oid, others in alone:
            test = f"{' + '.join(others)} = 0"
            branches += [f"{'ELSIF' if branches else 'IF'} {test} THEN", *_follow(view, (oid,))]
        branches += ["ELSE", *_follow(view, tuple(counted)), "END IF;"]
    else:
        branches = _follow(view, tuple(counted))
    lines += [
        f"__pgt_rows := {' + '.join(counted.values())};",
        "IF __pgt_rows = 0 THEN RETURN; END IF;",
        *(() if view.locks.upserts else _crossing(view)),
        *allowed(branches),
    ]
    types = dict.fromkeys(counted.values(), "int")
    for oid in counted:
        short = _short(view, oid)
        types |= short.variables if short else {}
    kept = replace(view, settings=view.settings | _KEPT)
    return make_function(kept, function_name(view.pgt_id), "void", lines, types)


def _crossing(view: View) -> list[str]:
    """Compute the table anew if a large share of the rows of its sources changed.

    Under all locks of the table nobody follows meanwhile what meets these rows: what is stored
    differs from the query by this transaction's changes alone. Groups that add up are locked by
    writing them, which is too late for that, and there Δ adds anyway.
    """
    collected = "\nUNION ALL ".join(
        f"SELECT __weight FROM {pending_name(view.pgt_id, oid)} WHERE __xid = {XID}"
        for oid in view.columns
    )
    rows = "greatest(count(*) FILTER (WHERE __weight > 0), count(*) FILTER (WHERE __weight < 0))"
    sources = ", ".join(map(str, view.columns))
    known = (
        "SELECT CASE WHEN min(reltuples) >= 0 THEN sum(reltuples) END FROM pg_class"
        f" WHERE oid IN ({sources})"
    )
    share = f"coalesce(nullif(current_setting('{RATIO}', true), ''), '{DEFAULT_RATIO}')::float8"
    test = f"SELECT {rows} > {share} * ({known}) FROM ({collected}) AS c INTO __pgt_held;"
    return [
        f"IF __pgt_rows > {SMALL} THEN",
        test,
        "IF __pgt_held THEN",
        f"PERFORM {function_name(view.pgt_id, 'recompute')}();",
        "RETURN;",
        "END IF;",
        "END IF;",
    ]


def _recompute_function(view: View, canonical: str) -> str:
    locks = [f"{s};" for s in every_lock(view)]
    lines = allowed([*locks, *anew_lines(view, canonical)])
    return make_function(view, function_name(view.pgt_id, "recompute"), "void", lines)


def _follow(view: View, oids: tuple[int, ...]) -> list[str]:
    """Take the locks, then apply the change; few rows by a plan that is kept, many by a new one."""
    pending = {oid: read_pending(view, oid) for oid in oids}
    step = _step(view, oids)
    if step is None:
        return [
            f"DELETE FROM {pending_name(view.pgt_id, oid)} WHERE __xid = {XID};" for oid in oids
        ]
    locks = [*lock_statements(view, pending), *later_lock_statements(view, pending)]
    general = [f"{step.by_kept_plan};"]
    short = _short(view, oids[0]) if len(oids) == 1 else None
    if short is not None:
        general = [*short.lines, f"IF NOT {DONE} THEN", *general, "END IF;"]
    kept = [*(f"{s};" for s in locks), *general]
    anew = [
        "__pgt_text := set_config('enable_seqscan', 'on', true);",
        "__pgt_text := set_config('enable_mergejoin', 'on', true);",
        *(f"EXECUTE {dollar_quoted(s)};" for s in locks),
        f"{step.by_new_plan};",
    ]
    return [f"IF __pgt_rows <= {SMALL} THEN", *kept, "ELSE", *anew, "END IF;", *step.then]


def _step(view: View, oids: tuple[int, ...]) -> Step | None:
    """Return how collected changes are applied.

    Where an aggregate stands inside, the touched rows are computed anew and compared with those
    that are stored: their values before the change are not wanted.
    """
    changed = frozenset(oids)
    plan, key = view.plan, view.target.key
    change = None
    if _is_nested(view) and key:
        change = change_by_key(plan.view, key, stored_scan(view.target), changed)
    if change is None:
        return make_step(view, lambda: pending_reader(view, oids), changed)
    if isinstance(change, Empty):
        return None
    statement = render_change(view.target, pending_reader(view, oids), change)
    return Step(statement, VARIABLES)


def _is_nested(view: View) -> bool:
    plan = view.plan
    return plan.root is None and any(isinstance(op, Aggregate) for op in walk(plan.view))


def _short(view: View, oid: int) -> Short | None:
    return short_document(view, oid) if _is_nested(view) else None


def _count(view: View, counted: dict[int, str]) -> str:
    """Count the collected rows of each source, as far as it matters."""
    counts = (
        f"(SELECT count(*) FROM (SELECT FROM {pending_name(view.pgt_id, oid)}"
        f" WHERE __xid = {XID} LIMIT {SMALL + 1}) AS q)"
        for oid in counted
    )
    return f"SELECT {listed(counts)} INTO {listed(counted.values())};"


def _keys_function(view: View) -> str:
    """Return the statement that makes the function which names the first of the touched keys."""
    body = "RETURN NULL;"
    if view.target.key:
        op, key = touched(view.plan.view, view.target.key)
        pending = {oid: read_pending(view, oid) for oid in view.columns}
        reader = DeltaReader(netted(pending, view.plan.view))
        made = reader.renderer.render(Keys(differentiate(op), key)).sql
        label = literal(f"({', '.join(view.target.key)}) = ")
        values = f"concat_ws(', ', {listed(f'q.{identifier(k)}::text' for k in key)})"
        shown = f"{label} || '(' || {values} || ')' AS shown"
        few = f"SELECT {shown} FROM ({made}) AS q ORDER BY 1 LIMIT {_SHOWN}"
        clause = reader.renderer.with_clause()
        body = f"RETURN ({clause}SELECT string_agg(shown, ', ') FROM ({few}) AS q);"
    return make_function(view, function_name(view.pgt_id, "keys"), "text", [body])


def touched(op: Op, key: tuple[str, ...]) -> tuple[Op, tuple[str, ...]]:
    """Return the lowest operator whose change tells the touched keys, and their columns there.

    What stands above it computes values of the row alone, and is perhaps what failed.
    """
    match op:
        case Project():
            of = {o.column.name: as_column(o.expr) for o in op.outputs}
            below = tuple(b for k in key if (b := of[k]) is not None)
            if len(below) == len(key):
                return touched(op.input, below)
        case Filter():
            return touched(op.input, key)
        case Aggregate() if set(key) <= set(op.keys):
            return touched(op.input, key)
    return prune(op, frozenset(key)) if set(key) <= set(names(schema(op))) else op, key
