"""`sfn resolve`: where a table's current metadata file is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sfn.reader.resolve import Resolved

FAILED = 1
_TOLD = "metadata_location, table_identifier, namespace, name, guid, catalog_id, Ordinal, written_at, sfn_file"


def resolve(
    directory: Annotated[str, typer.Argument(help="The table's directory: a path or a file: URL.", show_default=False)],
    table: Annotated[
        str | None,
        typer.Option(metavar="NS.NAME", help="Which table, where several share the directory.", show_default=False),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help=f"Print as JSON: {_TOLD}.")] = False,
) -> None:
    """Print the location of a table's current metadata file, read from its directory alone."""
    from sfn.cli.tables import identifier
    from sfn.errors import Unreadable
    from sfn.reader import blocking

    named = None if table is None else identifier(table, "--table")
    try:
        found = blocking.resolve(directory, named)
    except Unreadable as refusal:
        typer.echo(str(refusal), err=True)
        raise typer.Exit(FAILED) from None
    typer.echo(_told(found) if as_json else found.metadata_location)


def _told(found: Resolved) -> str:
    from sfn.pointer.document import moment, render_ordinal

    document = found.document
    told = {
        "metadata_location": found.metadata_location,
        "table_identifier": ".".join((*document.namespace, document.name)),
        "namespace": document.namespace,
        "name": document.name,
        "guid": document.guid,
        "catalog_id": document.catalog_id,
        "Ordinal": render_ordinal(document.ordinal),
        "written_at": moment(document.written_at),
        "sfn_file": found.sfn_file,
    }
    return json.dumps(told, indent=2, ensure_ascii=False)
