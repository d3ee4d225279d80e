"""`sfn resolve`: where a table's current metadata file is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfn.cli import directory as given

if TYPE_CHECKING:
    from sfn.reader.resolve import Resolved

_FIELD_NAMES = (
    "metadata_location, table_identifier, namespace, name, guid, catalog_id, ref, snapshot_id, Ordinal, written_at, "
    "age_seconds, sfn_file, how, via, lost, requests"
)


def resolve(
    directory: given.DirectoryArgument,
    table: given.TableNameOption = None,
    uuid: given.UuidOption = None,
    ref: given.RefOption = "main",
    as_of: given.AsOfOption = None,
    *,
    relative: given.RelativeOption = False,
    allow: given.AllowOption = None,
    storage_options: given.StorageOptionsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help=f"Print as JSON: {_FIELD_NAMES}.")] = False,
) -> None:
    """Print the location of a table's current metadata file, read from its directory alone."""
    from sfn.cli.pages import escape, pluralise
    from sfn.cli.printing import print_error, print_json

    with given.report_unreadable():
        found = given.DirectoryOptions(directory, table, uuid, ref, as_of, relative, allow, storage_options).resolve()
    if as_json:
        print_json(resolved_fields(found))
        return
    if found.missing_commits:
        print_error(
            f"{pluralise(found.missing_commits, 'commit')} right after this one can't be known: "
            "any may have been current then"
        )
    typer.echo(escape(found.metadata_location) if sys.stdout.isatty() else found.metadata_location)


def resolved_fields(found: Resolved) -> dict[str, Any]:
    """What was resolved, as JSON has it."""
    from sfn.sfnfile.document import format_time, render_ordinal

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
        "how": found.found_by,
        "via": found.via,
        "lost": found.missing_commits,
        "requests": {"gets": found.requests.gets, "lists": found.requests.lists},
    }
