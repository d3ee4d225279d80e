"""`sfn audit`: what operators did."""

from __future__ import annotations

from typing import Annotated

import typer

from sfn.cli import options
from sfn.cli.exits import exit_on_error


def audit(
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many entries at most.")] = 100,
    before: Annotated[
        int | None, typer.Option("--before", metavar="ID", help="Only entries before that one.", show_default=False)
    ] = None,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """List what operators did, newest first: when, who, what, to how many."""
    from sfn.cli.access import admin_access
    from sfn.cli.pages import Grid, escape, format_time
    from sfn.cli.printing import print_error, print_json, print_page
    from sfn.cli.service import ServiceClient

    with (
        exit_on_error(),
        ServiceClient(admin_access(options.ServiceOptions(config, url, token_file, ca_file))) as service,
    ):
        found = service.audit(limit, before)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            str(one.id),
            format_time(one.at),
            *map(escape, (one.actor, one.action, f"{one.count:,}", one.target)),
        )
        for one in found.entries
    ]
    print_page([Grid(("ID", "AT", "WHO", "DID", "COUNT", "TO"), rows, frozenset({"ID", "COUNT"}), "TO")])
    if found.next is not None:
        print_error(f"there are more: --before {found.entries[-1].id}")
