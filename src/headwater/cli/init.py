"""`headwater init`."""

from __future__ import annotations

import click

from headwater.cli.arguments import json_option
from headwater.cli.output import print_json, print_table, warn, working
from headwater.cli.target import Target


@click.command()
@click.option(
    "--in-database",
    is_flag=True,
    help="Let the server run the SQL functions itself, with PL/Python, and install pgivm.",
)
@click.option(
    "--python-path",
    "paths",
    multiple=True,
    metavar="DIRECTORY",
    help="Where the server imports headwater from.  [default: where this process does]",
)
@click.option("--no-pgivm", is_flag=True, help="Leave the functions of pg_ivm out.")
@click.option(
    "--restore",
    is_flag=True,
    help="After a dump was restored here: find everything by name, put triggers back.",
)
@json_option
@click.pass_obj
def init(  # noqa: PLR0913, PLR0917 - one for each option
    target: Target,
    in_database: bool,
    paths: tuple[str, ...],
    no_pgivm: bool,
    restore: bool,
    as_json: bool,
) -> None:
    """Install the catalog in the database, or bring it up to date.

    It needs the right to create schemas and nothing in the server but PostgreSQL 15 or newer.
    Every other command does the same first, so this one is for scripts and for a first look.

    With --in-database, which needs a superuser and the extension plpython3u, the functions of the
    schema pgtrickle run in the server, in the transaction that calls them, and the schema pgivm
    offers the functions of pg_ivm.

    With --restore a catalog that came here by pg_dump, or with a copy of its database, is made to
    fit: IMMEDIATE tables are rebuilt at once, the others by their next refresh.
    """
    if (paths or no_pgivm) and not in_database:
        raise click.UsageError("--python-path and --no-pgivm are for --in-database")
    with working("installing the catalog"), target.open() as hw:
        applied, dsn = hw.init(), hw.dsn
        found = _set_up(dsn, paths, no_pgivm) if in_database else None
        restored = hw.restore_stream_tables() if restore else ()
        is_at_home = hw.is_at_home()
    if as_json:
        print_json({
            "dsn": dsn, "applied": applied, "python_path": found, "restored": restored,
            "is_at_home": is_at_home,
        })  # fmt: skip
        return
    steps = ", ".join(map(str, applied))
    click.echo(f"catalog brought to version {steps}" if applied else "catalog up to date")
    if found is not None:
        click.echo(f"the server runs headwater itself, from {', '.join(found)}")
    if restored:
        rows = [(r.name, r.outcome, r.detail) for r in restored]
        print_table(("stream table", "outcome", "detail"), rows)
    if not is_at_home:
        warn("the catalog came from another database: run `headwater init --restore`")


def _set_up(dsn: str, paths: tuple[str, ...], no_pgivm: bool) -> tuple[str, ...]:
    from headwater.api.facade import open_connection  # noqa: PLC0415 - drivers load long
    from headwater.database.pgivm import install_pgivm  # noqa: PLC0415
    from headwater.database.setup import install_inside  # noqa: PLC0415

    with open_connection(dsn) as conn:
        found = install_inside(conn, paths)
        if not no_pgivm:
            install_pgivm(conn)
        return found
