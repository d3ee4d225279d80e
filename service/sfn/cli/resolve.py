"""`sfn resolve`: where a table's current metadata file is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfn.cli import directory as given

if TYPE_CHECKING:
    from sfn.reader.resolve import Resolved

_TOLD = (
    "metadata_location, table_identifier, namespace, name, guid, catalog_id, ref, snapshot_id, Ordinal, written_at, "
    "age_seconds, sfn_file, how, via, lost, requests"
)


def resolve(
    directory: given.Directory,
    table: given.Table = None,
    uuid: given.Uuid = None,
    ref: given.Ref = "main",
    as_of: given.AsOf = None,
    *,
    relative: given.Relative = False,
    allow: given.Allowed = None,
    storage_options: given.StorageOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help=f"Print as JSON: {_TOLD}.")] = False,
) -> None:
    """Print the location of a table's current metadata file, read from its directory alone."""
    from sfn.cli.pages import counted, safe
    from sfn.cli.printing import complain, show_json

    with given.refusals():
        found = given.Given(directory, table, uuid, ref, as_of, relative, allow, storage_options).resolved()
    if as_json:
        show_json(told(found))
        return
    if found.lost:
        complain(f"{counted(found.lost, 'commit')} right after this one can't be known: any may have been current then")
    typer.echo(safe(found.metadata_location) if sys.stdout.isatty() else found.metadata_location)


def told(found: Resolved) -> dict[str, Any]:
    """What was resolved, as JSON has it."""
    from sfn.pointer.document import format_time, render_ordinal

    document = found.document
    return {
        "metadata_location": found.metadata_location,
        "table_identifier": ".".join((*document.namespace, document.name)),
        "namespace": document.namespace,
        "name": document.name,
        "guid": document.guid,
        "catalog_id": document.catalog_id,
        "ref": found.ref,
        "snapshot_id": found.snapshot_id,
        "Ordinal": render_ordinal(document.ordinal),
        "written_at": format_time(document.written_at),
        "age_seconds": round(found.age.total_seconds(), 3),
        "sfn_file": found.sfn_file,
        "how": found.how,
        "via": found.via,
        "lost": found.lost,
        "requests": {"gets": found.requests.gets, "lists": found.requests.lists},
    }
