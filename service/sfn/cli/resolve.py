"""`sfn resolve`: where a table's current metadata file is."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from sfn.errors import Unreadable
from sfn.pointer.document import moment, render_ordinal
from sfn.reader.blocking import identifier_of
from sfn.reader.blocking import resolve as resolved
from sfn.reader.resolve import Resolved

FAILED = 1


def resolve(
    directory: Annotated[str, typer.Argument(help="The table's directory: a path or a file: URL.", show_default=False)],
    table: Annotated[
        str | None,
        typer.Option(
            metavar="NS.NAME",
            help="Which table, where several share the directory or one was renamed.",
            show_default=False,
        ),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print all that the SFN file says, as JSON.")] = False,
) -> None:
    """Print the location of a table's current metadata file, read from its directory alone."""
    try:
        identifier = None if table is None else identifier_of(table)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--table") from None
    try:
        found = resolved(directory, identifier)
    except Unreadable as refusal:
        typer.echo(str(refusal), err=True)
        raise typer.Exit(FAILED) from None
    typer.echo(json.dumps(_told(found), indent=2, ensure_ascii=False) if as_json else found.metadata_location)


def _told(found: Resolved) -> dict[str, object]:
    document = found.document
    return {
        "metadata_location": found.metadata_location,
        "table_identifier": ".".join((*document.namespace, document.name)),
        "namespace": list(document.namespace),
        "name": document.name,
        "guid": document.guid,
        "catalog_id": document.catalog_id,
        "Ordinal": render_ordinal(document.ordinal),
        "written_at": moment(document.written_at),
        "sfn_file": found.sfn_file,
    }
