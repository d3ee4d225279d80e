"""Commands for a catalog: `sfn adopt`, `sfn release` and `sfn retire`. Also `sfn audit-log`, the log of commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sfn.cli import options
from sfn.cli.options import WRONG_USAGE
from sfn.clock import SystemClock, format_ago

if TYPE_CHECKING:
    from sfn.cli.client import ServiceClient


def adopt(
    catalog: options.CatalogArgument,
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="NS.TABLE", help="The tables; default: all of the catalog.", show_default=False),
    ] = None,
    *,
    source: Annotated[
        str, typer.Option("--from", metavar="CATALOG_ID", help="The catalog_id in the files.", show_default=False)
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Adopt even if the files are known to carry another catalog_id.")
    ] = False,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Take over files that carry another catalog_id, for all tables of the catalog or for the given ones.

    Use it after a catalog moved to another URI; `sfn status` shows when. Make sure that no other service writes these
    files: the two would overwrite each other.
    """
    from sfn.admin.schemas import AdoptRequest
    from sfn.cli.client import ConflictingState, open_service
    from sfn.cli.options import parse_table_name
    from sfn.cli.render import confirm, print_error, print_json
    from sfn.errors import pluralise

    named = [parse_table_name(table, catalog=catalog).identifier for table in tables or []] or None
    which = "all tables" if named is None else pluralise(len(named), "table")
    with open_service(options.ServiceOptions(config, url, token_file, ca_file)) as service:
        service.check_configured(catalog)
        confirm(f"{catalog}: take over files of the catalog_id {source}, for {which}?", yes=yes)
        try:
            taken = service.adopt(catalog, AdoptRequest(from_=source, tables=named, force=force))
        except ConflictingState as error:
            print_error(f"--from: {error.found}; pass --force to adopt")
            raise typer.Exit(WRONG_USAGE) from None
    if as_json:
        print_json({"tables": taken})
    else:
        typer.echo(f"{catalog}: {pluralise(taken, 'table')} queued; `sfn status` shows the result")


_MAX_NAMED: Final = 20
"""The most tables that a question names."""


def release(
    catalog: options.CatalogArgument,
    *,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Release the tables that a catalog's drop limit holds: each held drop or rollback passes once.

    Before it asks for confirmation, it shows what passed within the last hour and what is held. `sfn tables --held`
    lists all of it. For a single table use `sfn dead-letters replay ID`.
    """
    from sfn.cli.client import open_service
    from sfn.cli.render import confirm, print_json
    from sfn.errors import pluralise

    with open_service(options.ServiceOptions(config, url, token_file, ca_file)) as service:
        service.check_configured(catalog)
        if not yes:
            for line in _held_lines(service, catalog):
                typer.echo(line, err=True)
            confirm(f"{catalog}: let these drops and rollbacks pass?", yes=yes)
        released = service.release(catalog)
    if as_json:
        print_json({"released": released})
    else:
        typer.echo(f"{catalog}: {pluralise(released, 'table')} released")


def _held_lines(service: ServiceClient, catalog: str) -> Iterator[str]:
    """Yield what the drop limit let pass, and what it holds."""
    from sfn.cli.render import escape
    from sfn.errors import pluralise

    limit, now = service.drop_limit(catalog), SystemClock().now()
    most = f"at most {limit.limit:,} {'drop or rollback' if limit.limit == 1 else 'drops and rollbacks'}"
    yield f"{catalog}: {limit.passed_total:,} passed within the last hour, of {most}"
    for one in limit.passed[-_MAX_NAMED:]:
        yield f"  {one.kind} of {escape(one.table)} {format_ago(one.at, now)}"
    since = "" if limit.held_since is None else f", the first {format_ago(limit.held_since, now)}"
    yield f"{catalog}: {pluralise(limit.held, 'table')} held{since}"
    page = service.tables({"catalog": catalog, "state": "held", "limit": _MAX_NAMED})
    for table in page.tables:
        yield f"  {escape(table.catalog)}:{escape(table.table)}: {escape(table.cause or 'held')}"
    if page.next is not None:
        yield f"  … (sfn tables --held --catalog {catalog})"


def retire(
    catalog: options.CatalogArgument,
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Publish the catalog again.")] = False,
    yes: options.Yes = False,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """Remove all SFN files and version hints of a catalog, and write none until that is undone.

    Readers then find no table in the directories. Do this before you remove a catalog from the configuration, and while
    the catalog answers: each table is queried before its file is removed.
    """
    from sfn.cli.client import open_service
    from sfn.cli.render import confirm, print_error, print_json
    from sfn.errors import pluralise

    with open_service(options.ServiceOptions(config, url, token_file, ca_file)) as service:
        service.check_configured(catalog)
        if not undo:
            confirm(f"remove the files of all tables of {catalog}?", yes=yes)
        tables = service.retire(catalog, undo=undo)
        problems = service.status().verdict.problems
        does_not_answer = any(one.kind == "catalog" and one.catalog == catalog for one in problems)
    if as_json:
        print_json({"tables": tables})
    elif undo:
        typer.echo(f"{catalog}: not retired any more, {pluralise(tables, 'table')} queued")
    else:
        typer.echo(f"{catalog}: retired, {pluralise(tables, 'table')} queued; `sfn status` shows the progress")
    if does_not_answer:
        print_error(f"{catalog}: the catalog does not answer; its tables' files stay unchanged until it does")


def audit_log(
    *,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1_000, metavar="N", help="The most entries to show.")
    ] = 100,
    before: Annotated[
        int | None, typer.Option("--before", metavar="ID", help="Only entries older than this one.", show_default=False)
    ] = None,
    as_json: options.AsJson = False,
    config: options.Config = None,
    url: options.Url = None,
    token_file: options.TokenFile = None,
    ca_file: options.CaFile = None,
) -> None:
    """List the commands of operators, newest first: time, actor, action, number of tables or dead letters, target."""
    from sfn.cli.client import open_service
    from sfn.cli.render import Grid, Line, Tone, escape, format_time, print_error, print_json, print_page

    with open_service(options.ServiceOptions(config, url, token_file, ca_file)) as service:
        found = service.audit(limit, before)
    if as_json:
        print_json(found)
        return
    if not found.entries:
        print_page([Line("no commands" if before is None else "no older commands", Tone.QUIET)])
        return
    rows = [
        (
            str(one.id),
            format_time(one.at),
            *map(escape, (one.actor, one.action, f"{one.count:,}", one.target)),
        )
        for one in found.entries
    ]
    columns = ("ID", "TIME", "ACTOR", "ACTION", "COUNT", "TARGET")
    print_page([Grid(columns, rows, frozenset({"ID", "COUNT"}), "TARGET")])
    if found.next is not None:
        print_error(f"there are more: pass --before {found.entries[-1].id}")
