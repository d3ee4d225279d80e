"""`sfn adopt`: take over the files of another catalog."""

from __future__ import annotations

from typing import Annotated

import typer

from sfn.cli import options
from sfn.cli.exits import WRONG_USAGE, exit_on_error


def adopt(
    catalog: options.CatalogArgument,
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="NS.TABLE", help="Which tables; else all of the catalog.", show_default=False),
    ] = None,
    *,
    source: Annotated[
        str, typer.Option("--from", metavar="CATALOG_ID", help="The catalog_id in their files.", show_default=False)
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Also where their files are known to carry another one.")
    ] = False,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Take over files that carry another catalog_id: all tables of the catalog, or those named, are looked at.

    For a catalog that moved to another URI: `sfn status` says so. Make sure that nobody else keeps these files: the two
    would fight.
    """
    from sfn.admin.schemas import AdoptRequest
    from sfn.cli.access import admin_access
    from sfn.cli.pages import pluralise
    from sfn.cli.printing import confirm, print_error, print_json
    from sfn.cli.service import ConflictingState, ServiceClient
    from sfn.cli.tables import parse_table_name
    from sfn.domain.identifiers import encode_identifier

    named = [encode_identifier(*parse_table_name(table)) for table in tables or []] or None
    which = "all tables" if named is None else pluralise(len(named), "table")
    with (
        exit_on_error(),
        ServiceClient(admin_access(options.ServiceOptions(config, url, token_file, ca_file))) as service,
    ):
        service.check_configured(catalog)
        confirm(f"{catalog}: take over the files of {source}, of {which}?", yes=yes)
        try:
            taken = service.adopt(catalog, AdoptRequest(from_=source, tables=named, force=force))
        except ConflictingState as error:
            print_error(f"--from: {error.found}; --force if you mean it")
            raise typer.Exit(WRONG_USAGE) from None
    if as_json:
        print_json({"tables": taken})
    else:
        typer.echo(f"{catalog}: {pluralise(taken, 'table')} to be looked at; `sfn status` tells what comes of it")
