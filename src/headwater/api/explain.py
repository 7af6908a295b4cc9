"""Explain: every stage from the query to the statement that a refresh runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from headwater.algebra.calls import Kind
from headwater.algebra.ops import (
    Aggregate,
    AntiJoin,
    Expand,
    Join,
    Op,
    Scan,
    SemiJoin,
    UnionAll,
    Whole,
    Window,
)
from headwater.algebra.pretty import label, pretty
from headwater.algebra.walk import scans, walk
from headwater.api.create import compile_for, reason
from headwater.api.reconcile import reconcile
from headwater.catalog import history, streams, traces
from headwater.catalog.model import Dependency, Refresh, StreamTable
from headwater.catalog.settings import read_settings
from headwater.catalog.standing import load_standings
from headwater.delta.recursion import stored_columns
from headwater.postgres import immediate
from headwater.postgres.apply import DeltaReader, change_of, render_differential
from headwater.postgres.kept import reading_kept
from headwater.postgres.maintenance import Maintenance
from headwater.postgres.pending import read_changes
from headwater.postgres.session import pin
from headwater.postgres.storage import load_plan, state_names
from headwater.postgres.target import Target
from headwater.postgres.tops import Top
from headwater.results import Explanation, SparkExplanation, TraceSize
from headwater.spark.lake import find_lake

if TYPE_CHECKING:
    from headwater.spark.place import Placed


def explain_st(conn: Connection[Any], name: str) -> Explanation:
    """Explain how a stream table is maintained and what its last refresh cost."""
    reconcile(conn)
    st = streams.get_stream_table(conn, name)
    rows = history.list_history(conn, st.pgt_id, 1)
    lag = conn.execute(
        "SELECT current_lag FROM pgtrickle.stream_tables_info WHERE pgt_id = %s",
        (st.pgt_id,),
        binary=True,
    ).fetchone()
    sources = streams.list_dependencies(conn, st.pgt_id)
    plan, target = load_plan(st)
    on_spark = st.effective_engine == "spark"
    sql = _statement(conn, st, plan, target) if plan and not on_spark else ""
    followed = plan if st.effective_mode != "FULL" else None  # FULL looks at no change
    explanation = Explanation(
        name=st.qualified_name,
        query=st.defining_query,
        canonical=str(st.canonical_query),
        tree=pretty(plan.view) if plan else "",
        delta=pretty(change_of(reading_kept(followed, target.kept), target)) if followed else "",
        sql=sql,
        engine=str(st.effective_engine),
        mode=str(st.effective_mode),
        reason=str(st.reason),
        key_columns=st.key_columns,
        sources=tuple(d.source_name for d in sources),
        state=target.state,
        lag=lag[0] if lag else None,
        last_refresh=rows[0] if rows else None,
        operators=operators(followed, target) + _how(conn, st, sources) if followed else (),
        cost=_costs(conn, st, "" if st.follows_writers else sql),
    )
    return _with_spark(conn, explanation, st, sources) if on_spark else explanation


def _how(
    conn: Connection[Any], st: StreamTable, sources: tuple[Dependency, ...]
) -> tuple[str, ...]:
    """What IMMEDIATE and COMMIT add: locks and the order of triggers."""
    if not st.follows_writers:
        return ()
    return immediate.describe(conn, st, {d.source_relid: d.source_name for d in sources})


def explain_query(conn: Connection[Any], query: str) -> Explanation:
    """Explain how a query would be maintained, without creating anything."""
    compiled, choice = compile_for(conn, query, "AUTO", "auto")
    plan = compiled.incremental
    selects = {s.source.oid: f"SELECT * FROM changes_of({s.source.name})" for s in scans(plan.view)}
    state, kept = state_names(0, plan)
    target = Target("stream_table", plan.columns, plan.key, (), state, kept=kept)
    oids = frozenset(selects)
    explanation = Explanation(
        name=None,
        query=query,
        canonical=compiled.analysis.canonical,
        tree=pretty(plan.view),
        delta=pretty(change_of(reading_kept(plan, kept), target)),
        sql=render_differential(plan, target, oids, DeltaReader(selects)) or "",
        engine=choice.engine,
        mode="DIFFERENTIAL",
        reason=reason(choice, "AUTO"),
        key_columns=plan.key,
        sources=tuple(sorted({s.source.name for s in scans(plan.view)})),
        state=state,
        lag=None,
        last_refresh=None,
        operators=operators(plan, target),
        cost={},
    )
    return _on_spark(conn, explanation, choice.placed, target) if choice.placed else explanation


def _on_spark(
    conn: Connection[Any], explanation: Explanation, placed: Placed, target: Target
) -> Explanation:
    """Add what Spark computes; what PostgreSQL runs is then the last step only."""
    from headwater.spark import explain  # noqa: PLC0415 - an optional package

    is_full = explanation.mode == "FULL"
    statement = explain.state_statement if is_full else explain.change_statement
    publish = "" if is_full else explain.publish_statement(placed, target)
    spark = SparkExplanation(
        boundary=pretty(placed.boundary),
        at_ingest=explain.at_ingest(placed.boundary),
        at_publish=explain.at_publish(placed),
        statement=statement(placed),
        loads=explain.loads(conn, placed.boundary),
    )
    return replace(explanation, sql=publish, spark=spark)


def _with_spark(
    conn: Connection[Any],
    explanation: Explanation,
    st: StreamTable,
    sources: tuple[Dependency, ...],
) -> Explanation:
    """Add what Spark computes, what the lake holds, and the jobs of the last refresh."""
    try:
        from headwater.spark.explain import find_size  # noqa: PLC0415 - an optional package
        from headwater.spark.plans import load_placed  # noqa: PLC0415
    except ImportError:
        return explanation  # what the catalog knows can be told without Spark
    found = _on_spark(conn, explanation, load_placed(st), load_plan(st)[1])
    assert found.spark is not None
    of = {d.source_relid: d.source_name for d in sources} | {st.pgt_relid: st.qualified_name}
    sizes = []
    for row in traces.list_traces(conn, st.pgt_id):
        files, size = find_size(find_lake(conn), row) or (None, None)
        name = of[row.source_relid]
        sizes.append(TraceSize(name, row.url, row.version, row.epoch, files, size))
    jobs = _jobs(explanation.last_refresh)
    sql = found.sql if st.publish else ""  # nothing is left to PostgreSQL
    return replace(found, sql=sql, spark=replace(found.spark, traces=tuple(sizes), jobs=jobs))


def _jobs(refresh: Refresh | None) -> int | None:
    """How many jobs Spark ran in a refresh; None if that is not known."""
    if refresh is None or refresh.status != "COMPLETED":
        return None
    return int((refresh.timings or {}).get("spark_jobs", 0))


def _statement(conn: Connection[Any], st: StreamTable, plan: Maintenance, target: Target) -> str:
    """The statement of a refresh, or of a writer, in which every source changed."""
    if st.follows_writers:
        return immediate.statement_of(conn, st)
    sources = load_standings(conn, [st.pgt_id])[0].sources
    oids = frozenset(t.source_relid for t in sources)
    return render_differential(plan, target, oids, DeltaReader(read_changes(sources))) or ""


def _costs(conn: Connection[Any], st: StreamTable, sql: str) -> dict[str, float]:
    """The planner's estimates of the delta statement and of the whole query."""
    wanted = {"full": str(st.canonical_query)} | ({"delta": sql} if sql else {})
    found: dict[str, float] = {}
    with conn.transaction(force_rollback=True):
        pin(conn, load_standings(conn, [st.pgt_id])[0], read_settings(conn))
        for name, statement in wanted.items():
            row = conn.execute(f"EXPLAIN (FORMAT JSON) {statement}").fetchone()
            assert row is not None
            plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
            found[name] = float(plan[0]["Plan"]["Total Cost"])
    return found


def operators(plan: Maintenance, target: Target) -> tuple[str, ...]:
    """Say for each operator that is not linear how a change goes through it."""
    states: dict[Op, str] = dict(zip(plan.kept, target.kept, strict=False))
    if plan.root is not None and target.state is not None:
        states[plan.root] = target.state
    if stored_columns(plan.view) is not None:
        return _recursion(plan.view)
    reserve = _reserve(plan.top, target.kept[-1]) if plan.top and target.kept else {}
    found = ((op, reserve.get(op) or _strategy(op, states)) for op in walk(plan.view))
    return tuple(f"{label(op)}: {how}" for op, how in found if how)


def _reserve(top: Top, table: str) -> dict[Op, str]:
    """Say how ORDER BY … LIMIT follows, of which more rows are stored than are shown."""
    how = (
        f"the first {top.kept} rows are stored in {table}: others move up from there, and the"
        f" sources are read again when fewer than {top.last} are left"
    )
    return dict.fromkeys(top.windows, how)


def _recursion(view: Op) -> tuple[str, ...]:
    """Say how a recursion follows whose rows are all in the stream table."""
    whole = next(op for op in walk(view) if isinstance(op, Whole))
    inputs = (f"{label(scan)}: {_strategy(scan, {})}" for scan in scans(whole))
    return f"{label(whole)}: {_LEADING_ON}", *inputs


_LEADING_ON = "insertions lead on step by step; what deletions may have taken is rederived"


def _strategy(op: Op, states: dict[Op, str]) -> str | None:  # noqa: C901, PLR0911
    match op:
        case Scan():
            return "changes read once"
        case Join():
            return "bilinear: starts from the changes of each side"
        case SemiJoin() | AntiJoin():
            return "keyed by the left row: only rows that a changed right row matches"
        case Window(keys=keys):
            if not keys:
                return "keyed: one partition, recomputed when its input changed"
            return "keyed: touched partitions are recomputed"
        case Expand():
            return "linear"
        case Whole() if op in states:
            return f"stored in {states[op]}: {_LEADING_ON}"
        case Whole():
            return "recomputed as a whole, before and after, when one of its sources changed"
        case UnionAll():
            return "linear"
        case Aggregate():
            return _aggregate_strategy(op, states.get(op))
    return None


def _aggregate_strategy(op: Aggregate, state: str | None) -> str:
    kinds = {call.kind for call in op.calls}
    if state is None:
        return "keyed: touched groups are recomputed, before and after the change"
    if Kind.OPAQUE in kinds:
        return f"keyed, stored in {state}: touched groups are recomputed"
    if kinds & {Kind.MIN, Kind.MAX}:
        return f"keyed, stored in {state}: a group is recomputed when its extremum leaves"
    if Kind.DISTINCT in kinds:
        return f"keyed, stored in {state}: sums add, each value has a count of its rows"
    return f"keyed, stored in {state}: sums add, no group is recomputed"
