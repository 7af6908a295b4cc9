"""`headwater serve-requests`."""

from __future__ import annotations

import signal
from types import FrameType
from typing import TYPE_CHECKING

import click

from headwater.cli.arguments import json_option
from headwater.cli.output import print_json
from headwater.cli.target import Target

if TYPE_CHECKING:
    from headwater.catalog.requests import Request


@click.command("serve-requests")
@click.option("--once", is_flag=True, help="Carry out what waits now, and end.")
@json_option
@click.pass_obj
def serve_requests(target: Target, once: bool, as_json: bool) -> None:
    """Carry out what was asked for by SQL functions.

    A server without PL/Python cannot compile queries itself: there the functions of the schema
    pgtrickle leave a request, and so does, on every server, what needs Spark. This command carries
    requests out once the transaction that made them has committed, one after the other, as the role
    that asked; so connect as a role that is a member of those. It ends on SIGINT or SIGTERM, after
    the request that it is at.
    """
    from headwater.database.serve import serve_forever, serve_waiting, serving  # noqa: PLC0415

    stop = _Stop()

    def report(request: Request, error: Exception | None) -> None:
        if as_json:
            print_json({"request_id": request.request_id, "verb": request.verb,
                        "error": None if error is None else str(error)})  # fmt: skip
        else:
            state = "done" if error is None else f"failed: {error}"
            click.echo(f"request {request.request_id}, {request.verb}: {state}")

    with target.connect() as hw, serving(hw.connection):
        if once:
            serve_waiting(hw.connection, report)
            return
        signal.signal(signal.SIGTERM, stop.ask)
        signal.signal(signal.SIGINT, stop.ask)
        if not as_json:
            click.echo("serving requests", err=True)
        serve_forever(hw.connection, report, lambda: stop.asked)


class _Stop:
    """Remembers that a signal asked for the end."""

    asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Take note of a signal."""
        self.asked = True
