"""`headwater explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headwater.cli.arguments import QUERY_FORM, json_option, read_query
from headwater.cli.history import milliseconds
from headwater.cli.output import (
    print_facts,
    print_json,
    print_section,
    print_table,
    show,
    show_bytes,
)
from headwater.cli.target import Target

if TYPE_CHECKING:
    from headwater.results import Explanation, SparkExplanation


@click.command()
@click.argument("name", required=False)
@click.option("--query", callback=read_query, metavar=QUERY_FORM,
              help="Explain a query that is no stream table yet.")  # fmt: skip
@json_option
@click.pass_obj
def explain(target: Target, name: str | None, query: str | None, as_json: bool) -> None:
    """Show how a stream table or a query is maintained.

    Stage by stage, from the query to the operators, the change of the operators, and the SQL that
    a refresh runs; with the engine, the mode, the reason for both, and the last refresh. On Spark
    also which part Spark computes, what PostgreSQL evaluates before and after it, and what the lake
    holds. Nothing here starts Spark.
    """
    if (name is None) == (query is None):
        raise click.UsageError("name a stream table or give --query, but not both")
    with target.connect() as hw:
        explanation = hw.explain_st(name) if name is not None else hw.explain_query(query or "")
    if as_json:
        print_json(explanation)
    else:
        print_explanation(explanation)


def print_explanation(explanation: Explanation) -> None:
    """Print what is known of it, and every stage from the query to the SQL."""
    click.secho(explanation.name or "a query that is no stream table yet", bold=True)
    print_facts(
        {
            "mode": explanation.mode,
            "engine": explanation.engine,
            "reason": explanation.reason,
            "key": explanation.key_columns,
            "sources": explanation.sources,
            "state": explanation.state,
            "lag": explanation.lag,
            "last refresh": last_refresh(explanation),
            "planner's cost": costs(explanation),
        }
    )
    print_stages(explanation)
    if explanation.spark is not None:
        print_spark(explanation.spark)
        print_section("SQL of a refresh, on Spark", explanation.spark.statement)
        print_section("SQL of a refresh, in PostgreSQL with what Spark hands over", explanation.sql)
    else:
        print_section("SQL of a refresh", explanation.sql)


def print_stages(explanation: Explanation) -> None:
    """Print every stage before the SQL."""
    print_section("query", explanation.query)
    if explanation.canonical.split() != explanation.query.split():
        print_section("as PostgreSQL reads it", explanation.canonical)
    print_section("operators", explanation.tree)
    print_section("how a change goes through them", "\n".join(explanation.operators))
    print_section("change of the operators", explanation.delta)


def print_spark(spark: SparkExplanation) -> None:
    """Print who computes what, and the copies of the sources in the lake."""
    print_section("what Spark computes", spark.boundary)
    print_section("what PostgreSQL evaluates at ingest", "\n".join(spark.at_ingest))
    print_section("what PostgreSQL makes of the result", spark.at_publish)
    print_section("who would load the sources anew", "\n".join(spark.loads))
    if not spark.traces:
        return
    click.echo()
    click.secho("traces in the lake", bold=True)
    print_table(("source", "epoch", "version", "files", "size", "url"), [
        (t.source, t.epoch, t.version, t.files, show_bytes(t.bytes), t.url) for t in spark.traces
    ])  # fmt: skip


def costs(explanation: Explanation) -> str:
    """Return PostgreSQL's estimates, by what they are of."""
    return ", ".join(f"{name} {show(value)}" for name, value in explanation.cost.items())


def last_refresh(explanation: Explanation) -> str | None:
    """Return the last refresh in one line; None if there was none."""
    refresh = explanation.last_refresh
    if refresh is None:
        return None
    took = milliseconds(refresh)
    jobs = explanation.spark.jobs if explanation.spark else None
    return (
        f"{show(refresh.start_time)} {refresh.action}"
        + (f", {took:,.1f} ms" if took else "")
        + (f", {show(jobs)} Spark jobs" if jobs is not None else "")
    )
