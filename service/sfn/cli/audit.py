"""`sfn audit`: what operators did."""

from __future__ import annotations

from typing import Annotated

import typer

from sfn.cli import options
from sfn.cli.exits import reported


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
    from sfn.cli.access import operators
    from sfn.cli.pages import Grid, moment, safe
    from sfn.cli.printing import complain, show, show_json
    from sfn.cli.service import Service

    with reported(), Service(operators(options.Flags(config, url, token_file, ca_file))) as service:
        found = service.audit(limit, before)
    if as_json:
        show_json(found)
        return
    rows = [
        (
            str(one.id),
            moment(one.at),
            *map(safe, (one.actor, one.action, f"{one.count:,}", one.subject)),
        )
        for one in found.entries
    ]
    show([Grid(("ID", "AT", "WHO", "DID", "COUNT", "TO"), rows, frozenset({"ID", "COUNT"}), "TO")])
    if found.next is not None:
        complain(f"there are more: --before {found.entries[-1].id}")
