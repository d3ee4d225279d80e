"""`sfn release`: let go what a catalog's brake holds."""

from __future__ import annotations

import typer

from sfn.cli import options
from sfn.cli.exits import reported


def release(
    catalog: options.CatalogArgument,
    *,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Let go what a catalog's brake holds: each held table may take its step, a drop or one back, once.

    Look first: `sfn dead-letters list --reason held-drop`. One table alone: `sfn dead-letters replay ID`.
    """
    from sfn.cli.access import operators
    from sfn.cli.pages import counted
    from sfn.cli.printing import show_json
    from sfn.cli.service import Service

    with reported(), Service(operators(options.Flags(config, url, token_file, ca_file))) as service:
        service.check_configured(catalog)
        released = service.release(catalog)
    if as_json:
        show_json({"released": released})
    else:
        typer.echo(f"{catalog}: {counted(released, 'table')} released")
