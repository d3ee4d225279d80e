"""SFN files beside tables that Spark or PyIceberg wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from sfn.sfnfile.document import Document, DocumentState, render
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import IDENTIFIER, ORDINAL, FileOwner, Naming
from tests.support.table_directory import Directory


def published(catalog: Catalog, identifier: str, naming: Naming = IDENTIFIER) -> str:
    """Write the SFN file of a table as it is now, as the service does; the table's directory.

    Args:
        naming: with `ORDINAL` the commit gets a file, too.
    """
    return beside(catalog.load_table(identifier), identifier, naming)


def beside(table: Table, identifier: str, naming: Naming = IDENTIFIER, late: int = 0) -> str:
    """As `published`.

    Args:
        late: milliseconds of its Ordinal after the metadata's own time, as where the one before had the same.
    """
    path = Path(canonical(table.location()).removeprefix("file://"))
    place = Directory(path, naming=naming)
    doc = _document(place, table, identifier)
    doc = replace(doc, ordinal=doc.ordinal + late)
    place.sfn_file(identifier).write_bytes(render(doc))
    if naming is ORDINAL:
        *namespace, name = identifier.split(".")
        file = place.folder / ORDINAL.commit_file_names(FileOwner(tuple(namespace), name), doc.ordinal)[0]
        file.write_bytes(render(doc))
    return str(path)


def dropped(table: Table, identifier: str, naming: Naming = IDENTIFIER) -> None:
    """Write what the service leaves of a dropped table."""
    place = Directory(Path(canonical(table.location()).removeprefix("file://")), naming=naming)
    doc = _document(place, table, identifier, state=DocumentState.DROPPED)
    place.sfn_file(identifier).write_bytes(render(doc))


def _document(
    place: Directory, table: Table, identifier: str, state: DocumentState = DocumentState.CURRENT
) -> Document:
    metadata = table.metadata
    return place.document(
        identifier,
        guid=str(metadata.table_uuid),
        metadata_file_path=table.metadata_location,
        snapshot_id=metadata.current_snapshot_id,
        ordinal=metadata.last_updated_ms,
        state=state,
    )
