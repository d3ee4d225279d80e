"""A table that needs no catalog to be written: its SFN file is what says which metadata file is current.

A commit is a compare-and-swap of that file, as safe as the store's conditional writes are.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import anyio
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import Identifier
from typing_extensions import override

from sfn.app.storage import open_store
from sfn.clock import SystemClock
from sfn.domain.identifiers import Table as Said
from sfn.domain.jobs import StoredObject
from sfn.errors import SfnError
from sfn.publish.commit_files import relative_path
from sfn.settings.sections import StoreSettings
from sfn.sfnfile import document, version_hint
from sfn.sfnfile.document import LAST_ORDINAL, MAX_HINT_WAS, Document
from sfn.sfnfile.naming import FileLayout, FileOwner
from sfn.storage import PreconditionFailed

REPORT_NAME: Final = ("sfn", "audit")
"""What the SFN file calls the table."""
REPORT_CATALOG_ID: Final = "sfn-audit"
REPORT_WRITER: Final = "iceberg-sfn audit"


class DirectoryCatalog(NoopCatalog):
    """A catalog of the one table in a directory.

    Args:
        location: canonical URL of the directory.
        stores: the configured ones; one is made for the directory where none covers it.
        properties: how PyIceberg opens the table's files.
    """

    def __init__(self, location: str, stores: Mapping[str, StoreSettings], properties: Mapping[str, str]) -> None:
        super().__init__("sfn", **properties)
        self._site, self._stores = FileLayout(location), stores
        self._key = self._site.keys(FileOwner(REPORT_NAME[:-1], REPORT_NAME[-1]))[0]

    def load(self) -> Table | None:
        """The table; None where there is none yet.

        Raises:
            SfnError: the SFN file is of something else, or the store can't be asked.
        """
        held = anyio.run(self._read)
        return None if held is None else self._table(_parse_own_document(self._key, held).metadata_file_path)

    def create(self, schema: Schema, partitions: PartitionSpec, properties: Mapping[str, str]) -> Table:
        """Make the table where there is none.

        Raises:
            CommitFailedException: there is one by now.
        """
        metadata = new_table_metadata(schema, partitions, UNSORTED_SORT_ORDER, self._site.location, dict(properties))
        pointer = self._write_metadata(metadata, 0)
        anyio.run(self._swap, None, pointer, metadata)
        return self._table(pointer)

    @override
    def load_table(self, identifier: str | Identifier) -> Table:
        """As `Catalog.load_table`; every name is the table's."""
        found = self.load()
        if found is None:
            raise NoSuchTableError(self._site.location)
        return found

    @override
    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """As `Catalog.commit_table`."""
        held = anyio.run(self._read)
        if held is None:
            raise NoSuchTableError(self._site.location)
        pointer = _parse_own_document(self._key, held).metadata_file_path
        base = self._table(pointer).metadata
        for requirement in requirements:
            requirement.validate(base)
        updated = update_table_metadata(base, updates, metadata_location=pointer)
        after = self._write_metadata(updated, _version_of(pointer) + 1)
        anyio.run(self._swap, held, after, updated)
        self._delete_old_metadata(self._files(), base, updated)
        return CommitTableResponse.model_validate({"metadata": updated, "metadata-location": after})

    def _table(self, pointer: str) -> Table:
        files = self._files()
        metadata = FromInputFile.table_metadata(files.new_input(pointer))
        return Table(REPORT_NAME, metadata, pointer, files, self)

    def _files(self) -> FileIO:
        return load_file_io(dict(self.properties), self._site.location)

    def _write_metadata(self, metadata: TableMetadata, number: int) -> str:
        """Write a metadata file that is current for nobody yet; where."""
        provider = load_location_provider(metadata.location, metadata.properties)
        pointer = provider.new_table_metadata_file_location(number)
        ToOutputFile.table_metadata(metadata, self._files().new_output(pointer))
        return pointer

    async def _read(self) -> StoredObject | None:
        async with open_store(self._site.location, self._stores) as store:
            return await store.read(self._key)

    async def _swap(self, held: StoredObject | None, pointer: str, metadata: TableMetadata) -> None:
        before = None if held is None else _parse_own_document(self._key, held)
        now = SystemClock().now()
        async with open_store(self._site.location, self._stores) as store:
            said = _next_document(self._site, before, pointer, metadata, now)
            await store.probe(self._key)
            written = await store.write(self._key, document.render(said), replacing=held)
            if isinstance(written, PreconditionFailed):
                raise CommitFailedException(f"{self._key} was written by somebody else meanwhile")
            hint = version_hint.content(Said(str(metadata.table_uuid), metadata.location, pointer))
            if hint is not None:
                key = version_hint.key_of(self._site.location)
                # A reader that goes by it alone is late until the next commit where this is lost.
                await store.write(key, hint, replacing=await store.read(key))


def _parse_own_document(key: str, held: StoredObject) -> Document:
    doc = document.parse(held.body)
    if doc.catalog_id != REPORT_CATALOG_ID or (*doc.namespace, doc.name) != REPORT_NAME or not doc.is_live:
        remedy = "give another directory, an empty one: --report DIRECTORY"
        raise SfnError(key, expected="the SFN file of a report", found=f"one of {doc.catalog_id}", remedy=remedy)
    return doc


def _version_of(pointer: str) -> int:
    """How many commits the name of a metadata file of ours says were before it."""
    return int(pointer.rpartition("/")[2].partition("-")[0])


def _next_document(
    site: FileLayout, before: Document | None, pointer: str, metadata: TableMetadata, now: datetime
) -> Document:
    ordinal = max(min(metadata.last_updated_ms, LAST_ORDINAL), 0 if before is None else before.ordinal + 1)
    was = () if before is None else (version_hint.text_for(before.metadata_file_path) or "", *before.hint_was)
    return Document(
        catalog_id=REPORT_CATALOG_ID,
        namespace=REPORT_NAME[:-1],
        name=REPORT_NAME[-1],
        guid=str(metadata.table_uuid),
        metadata_file_path=pointer,
        metadata_file_relative=relative_path(site, pointer),
        ordinal=ordinal,
        snapshot_id=metadata.current_snapshot_id,
        asked_at=now,
        written_at=now,
        hint_was=tuple(text for text in was if text)[:MAX_HINT_WAS],
        writer=REPORT_WRITER,
    )
