"""`sfn adopt`: take over the files of another catalog."""

from __future__ import annotations

from typing import Annotated

import typer

from sfn.cli import options
from sfn.cli.options import WRONG_USAGE, exit_on_error

# ── adopt: `sfn adopt`


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
    from sfn.cli.client import ConflictingState, ServiceClient, admin_access
    from sfn.cli.options import parse_table_name
    from sfn.cli.render import confirm, pluralise, print_error, print_json
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


# ── release: `sfn release`


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
    from sfn.cli.client import ServiceClient, admin_access
    from sfn.cli.render import pluralise, print_json

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


# ── retire: `sfn retire`


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
    from sfn.cli.client import ServiceClient, admin_access
    from sfn.cli.render import confirm, pluralise, print_error, print_json
    from sfn.cli.status import is_unreachable

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


# ── audit: `sfn audit`


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
    from sfn.cli.client import ServiceClient, admin_access
    from sfn.cli.render import Grid, escape, format_time, print_error, print_json, print_page

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
