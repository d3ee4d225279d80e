"""`sfn release`: let go what a catalog's brake holds."""

from __future__ import annotations

import typer

from sfn.cli import options
from sfn.cli.exits import exit_on_error


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
    from sfn.cli.access import admin_access
    from sfn.cli.pages import pluralise
    from sfn.cli.printing import print_json
    from sfn.cli.service import ServiceClient

    with (
        exit_on_error(),
        ServiceClient(admin_access(options.ServiceOptions(config, url, token_file, ca_file))) as service,
    ):
        service.check_configured(catalog)
        released = service.release(catalog)
    if as_json:
        print_json({"released": released})
    else:
        typer.echo(f"{catalog}: {pluralise(released, 'table')} released")
