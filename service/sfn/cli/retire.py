"""`sfn retire`: withdraw all our files of a catalog."""

from __future__ import annotations

from typing import Annotated

import typer

from sfn.cli import options
from sfn.cli.exits import exit_on_error


def retire(
    catalog: options.CatalogArgument,
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Keep files for it again.")] = False,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Withdraw all our files of a catalog, and write none until that is undone.

    Readers of its tables' directories find nothing any more. Do so before a catalog leaves the configuration, and while
    it still answers: each table is asked for before its file goes.
    """
    from sfn.cli.access import admin_access
    from sfn.cli.overview import is_unreachable
    from sfn.cli.pages import pluralise
    from sfn.cli.printing import confirm, print_error, print_json
    from sfn.cli.service import ServiceClient

    with (
        exit_on_error(),
        ServiceClient(admin_access(options.ServiceOptions(config, url, token_file, ca_file))) as service,
    ):
        service.check_configured(catalog)
        if not undo:
            confirm(f"withdraw the files of all tables of {catalog}?", yes=yes)
        tables = service.retire(catalog, undo=undo)
        away = is_unreachable(service.status(), catalog)
    if as_json:
        print_json({"tables": tables})
    elif undo:
        typer.echo(f"{catalog}: kept again, {pluralise(tables, 'table')} queued")
    else:
        typer.echo(f"{catalog}: retired, {pluralise(tables, 'table')} queued; `sfn status` tells how far it is")
    if away:
        print_error(f"{catalog}: it does not answer just now; nothing happens to its tables' files until it does")
