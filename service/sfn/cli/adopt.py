"""`sfn adopt`: take over the files of another catalog."""

from __future__ import annotations

from typing import Annotated

import typer

from sfn.cli import options
from sfn.cli.exits import WRONG_USAGE, reported


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
    from sfn.admin.schemas import Adopt
    from sfn.cli.access import operators
    from sfn.cli.pages import counted
    from sfn.cli.printing import complain, confirm, show_json
    from sfn.cli.service import Contradicted, Service
    from sfn.cli.tables import table_of
    from sfn.words.table import spelled

    named = [spelled(*table_of(table)) for table in tables or []] or None
    which = "all tables" if named is None else counted(len(named), "table")
    with reported(), Service(operators(options.Flags(config, url, token_file, ca_file))) as service:
        service.check_configured(catalog)
        confirm(f"{catalog}: take over the files of {source}, of {which}?", yes=yes)
        try:
            taken = service.adopt(catalog, Adopt(from_=source, tables=named, force=force))
        except Contradicted as error:
            complain(f"--from: {error.found}; --force if you mean it")
            raise typer.Exit(WRONG_USAGE) from None
    if as_json:
        show_json({"tables": taken})
    else:
        typer.echo(f"{catalog}: {counted(taken, 'table')} to be looked at; `sfn status` tells what comes of it")
