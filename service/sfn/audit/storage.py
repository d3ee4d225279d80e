"""The place of the report: a directory, or a table of a configured catalog."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import anyio
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
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
from pyiceberg.types import IcebergType
from typing_extensions import override

from sfn.app.storage import open_store
from sfn.audit.report import MAX_SLICES, PARTITIONS, RUN_COLUMN, SCHEMA, SLICE_COLUMN, is_valid_count
from sfn.clock import SystemClock
from sfn.domain.identifiers import Table as CatalogTable
from sfn.domain.identifiers import decode_identifier
from sfn.domain.jobs import StoredObject
from sfn.errors import SfnError, suggest_name
from sfn.publish.documents import relative_path
from sfn.settings.root import Settings
from sfn.settings.sections import CatalogSettings, StoreSettings
from sfn.settings.sources import ConfigurationError
from sfn.sfnfile import document, version_hint
from sfn.sfnfile.document import LAST_ORDINAL, MAX_HINT_WAS, Document
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import FileLayout, FileOwner
from sfn.storage import PreconditionFailed

REPORT_NAME: Final = ("sfn", "audit")
"""The table's identifier in its SFN file."""
REPORT_CATALOG_ID: Final = "sfn-audit"
REPORT_WRITER: Final = "iceberg-sfn audit"


class DirectoryCatalog(NoopCatalog):
    """A catalog with one table, in a directory; the table's SFN file is the catalog's only state.

    Args:
        location: canonical URL of the directory.
        stores: the configured stores; if none covers the directory, one is made for it.
        properties: PyIceberg's properties to open the table's files.
    """

    def __init__(self, location: str, stores: Mapping[str, StoreSettings], properties: Mapping[str, str]) -> None:
        super().__init__("sfn", **properties)
        self._layout, self._stores = FileLayout(location), stores
        self._key = self._layout.keys(FileOwner(REPORT_NAME[:-1], REPORT_NAME[-1]))[0]

    def load(self) -> Table | None:
        """Return the table; None if there is none yet.

        Raises:
            SfnError: the SFN file is of another table, or the store can't be read.
        """
        stored = anyio.run(self._read)
        return None if stored is None else self._table(_parse_own_document(self._key, stored).metadata_file_path)

    def create(self, schema: Schema, partitions: PartitionSpec, properties: Mapping[str, str]) -> Table:
        """Create the table.

        Raises:
            CommitFailedException: it exists by now.
        """
        metadata = new_table_metadata(schema, partitions, UNSORTED_SORT_ORDER, self._layout.location, dict(properties))
        pointer = self._write_metadata(metadata, 0)
        anyio.run(self._swap, None, pointer, metadata)
        return self._table(pointer)

    @override
    def load_table(self, identifier: str | Identifier) -> Table:
        """Return the table, for any identifier."""
        found = self.load()
        if found is None:
            raise NoSuchTableError(self._layout.location)
        return found

    @override
    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        stored = anyio.run(self._read)
        if stored is None:
            raise NoSuchTableError(self._layout.location)
        pointer = _parse_own_document(self._key, stored).metadata_file_path
        base = self._table(pointer).metadata
        for requirement in requirements:
            requirement.validate(base)
        updated = update_table_metadata(base, updates, metadata_location=pointer)
        after = self._write_metadata(updated, _version_of(pointer) + 1)
        anyio.run(self._swap, stored, after, updated)
        self._delete_old_metadata(self._files(), base, updated)
        return CommitTableResponse.model_validate({"metadata": updated, "metadata-location": after})

    def _table(self, pointer: str) -> Table:
        files = self._files()
        metadata = FromInputFile.table_metadata(files.new_input(pointer))
        return Table(REPORT_NAME, metadata, pointer, files, self)

    def _files(self) -> FileIO:
        return load_file_io(dict(self.properties), self._layout.location)

    def _write_metadata(self, metadata: TableMetadata, number: int) -> str:
        """Write a metadata file that is not current yet, and return its location."""
        provider = load_location_provider(metadata.location, metadata.properties)
        pointer = provider.new_table_metadata_file_location(number)
        ToOutputFile.table_metadata(metadata, self._files().new_output(pointer))
        return pointer

    async def _read(self) -> StoredObject | None:
        async with open_store(self._layout.location, self._stores) as store:
            return await store.read(self._key)

    async def _swap(self, stored: StoredObject | None, pointer: str, metadata: TableMetadata) -> None:
        """Make a metadata file current, if the SFN file has not changed since `stored` was read."""
        before = None if stored is None else _parse_own_document(self._key, stored)
        now = SystemClock().now()
        async with open_store(self._layout.location, self._stores) as store:
            following = _next_document(self._layout, before, pointer, metadata, now)
            await store.probe(self._key)
            written = await store.write(self._key, document.render(following), replacing=stored)
            if isinstance(written, PreconditionFailed):
                raise CommitFailedException(f"another process has changed {self._key}")
            hint = version_hint.content(CatalogTable(str(metadata.table_uuid), metadata.location, pointer))
            if hint is not None:
                key = version_hint.key_of(self._layout.location)
                # If this write is lost, readers of the version hint are late until the next commit.
                await store.write(key, hint, replacing=await store.read(key))


def _parse_own_document(key: str, stored: StoredObject) -> Document:
    doc = document.parse(stored.body)
    if doc.catalog_id != REPORT_CATALOG_ID or (*doc.namespace, doc.name) != REPORT_NAME or not doc.is_live:
        remedy = "give another, empty directory: --report DIRECTORY"
        raise SfnError(key, expected="the SFN file of a report", found=f"one of {doc.catalog_id}", remedy=remedy)
    return doc


def _version_of(pointer: str) -> int:
    """Return the number of commits before a metadata file of the report, as in its name."""
    return int(pointer.rpartition("/")[2].partition("-")[0])


def _next_document(
    layout: FileLayout, before: Document | None, pointer: str, metadata: TableMetadata, now: datetime
) -> Document:
    ordinal = max(min(metadata.last_updated_ms, LAST_ORDINAL), 0 if before is None else before.ordinal + 1)
    was = () if before is None else (version_hint.text_for(before.metadata_file_path) or "", *before.hint_was)
    return Document(
        catalog_id=REPORT_CATALOG_ID,
        namespace=REPORT_NAME[:-1],
        name=REPORT_NAME[-1],
        guid=str(metadata.table_uuid),
        metadata_file_path=pointer,
        metadata_file_relative=relative_path(layout, pointer),
        ordinal=ordinal,
        snapshot_id=metadata.current_snapshot_id,
        asked_at=now,
        written_at=now,
        hint_was=tuple(text for text in was if text)[:MAX_HINT_WAS],
        writer=REPORT_WRITER,
    )


SLICES_PROPERTY: Final = "sfn.slices"
"""The table property with the number of slices of the report's runs."""

_CATALOG_AND_TABLE: Final = re.compile(r"([A-Za-z0-9_-]+):(?![/\\])(.+)")
REPORT_PROPERTIES: Final = {
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "commit.manifest-merge.enabled": "true",
    # Snapshots record the progress of runs, so maintenance jobs should leave them for ten years.
    "history.expire.max-snapshot-age-ms": "315360000000",
    # Each try has to read the report again first, see `sfn.audit.writer.commit_slices`.
    "commit.retry.num-retries": "0",
}
"""Properties of the report's table."""


@dataclass(frozen=True, slots=True)
class ReportLocation:
    """The place of a report.

    Attributes:
        directory: canonical URL; None for a report in a catalog.
        catalog: the catalog's name in the configuration.
        identifier: levels and name of the table in the catalog.
        stores: the configured stores.
        properties: PyIceberg's properties to open the report.
    """

    directory: str | None
    catalog: str = ""
    identifier: tuple[str, ...] = ()
    stores: Mapping[str, StoreSettings] = field(default_factory=dict, repr=False)
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @override
    def __str__(self) -> str:
        return self.directory or f"{self.catalog}:{'.'.join(self.identifier)}"


def parse_report_location(text: str, settings: Settings, options: Mapping[str, str]) -> ReportLocation:
    """Parse the option `--report`.

    Args:
        text: a path, a URL, or `CATALOG:NAMESPACE.TABLE`.
        options: further properties for PyIceberg.

    Raises:
        ConfigurationError: the catalog is unknown, or the identifier is not valid.
    """
    named = _CATALOG_AND_TABLE.fullmatch(text)
    if named is None:
        url = text if "://" in text else f"file://{Path(text).resolve()}"
        return ReportLocation(canonical(url), stores=settings.stores, properties=dict(options))
    catalog, identifier = named[1], named[2]
    if catalog not in settings.catalogs:
        known = ", ".join(settings.catalogs) or "none"
        raise _option_error(
            f"a configured catalog before the colon ({known})", catalog, suggest_name(catalog, list(settings.catalogs))
        )
    try:
        parts = decode_identifier(identifier)
    except ValueError:
        parts = ()
    if len(parts) < 2:  # noqa: PLR2004 - a namespace and a name
        raise _option_error("a namespace and a name after the colon, such as ops.sfn_audit", identifier)
    return ReportLocation(
        None, catalog, parts, properties={**pyiceberg_properties(settings.catalogs[catalog], catalog), **options}
    )


def _option_error(expected: str, found: str, remedy: str = "") -> ConfigurationError:
    return ConfigurationError([SfnError("--report", expected=expected, found=repr(found), remedy=remedy)])


def pyiceberg_properties(catalog: CatalogSettings, name: str) -> dict[str, Any]:
    """Return PyIceberg's properties for a configured catalog, including secrets.

    Raises:
        ConfigurationError: PyIceberg can't write to the catalog.
    """
    match catalog.type:
        case "pyiceberg":
            return {key: value.get_secret_value() for key, value in catalog.properties.items()}
        case "events":
            raise _option_error("a catalog that can be queried", f"{name}, which is event-only")
        case _:
            return _rest_properties(catalog, name)


def _rest_properties(catalog: CatalogSettings, name: str) -> dict[str, Any]:
    if catalog.role_arn is not None:
        raise _option_error("a catalog that PyIceberg can open, or a directory", f"{name}, which needs an assumed role")
    token, credential = catalog.token, catalog.credential
    properties = {
        "type": "rest",
        "uri": catalog.uri,
        "warehouse": catalog.warehouse,
        "token": token.get_secret_value() if token is not None else _first_secret(catalog.token_file),
        "credential": credential.get_secret_value()
        if credential is not None
        else _first_secret(catalog.credential_file),
        "scope": catalog.scope,
        "oauth2-server-uri": catalog.oauth2_uri,
        "rest.sigv4-enabled": "true" if catalog.auth == "sigv4" else None,
        "rest.signing-region": catalog.signing_region,
        "rest.signing-name": catalog.signing_name,
        "client.profile-name": catalog.aws_profile,
    }
    headers = {f"header.{key}": value.get_secret_value() for key, value in catalog.headers.items()}
    return {key: value for key, value in properties.items() if value} | headers | _nested_properties(catalog)


def _nested_properties(catalog: CatalogSettings) -> dict[str, Any]:
    """Return the properties that are mappings in PyIceberg."""
    properties: dict[str, Any] = {}
    if catalog.ca_file is not None:
        properties["ssl"] = {"cabundle": str(catalog.ca_file)}
    if catalog.auth == "google":
        key = catalog.google_credentials_file
        scopes = (catalog.scope or "https://www.googleapis.com/auth/cloud-platform").split()
        properties["auth"] = {"type": "google", "google": {"credentials_path": key and str(key), "scopes": scopes}}
    return properties


def _first_secret(file: Path | None) -> str | None:
    """Return the first line of a file that is neither empty nor a comment."""
    if file is None:
        return None
    lines = (line.strip() for line in file.read_text("utf-8").splitlines())
    return next((line for line in lines if line and not line.startswith("#")), None)


def find_report(where: ReportLocation) -> Table | None:
    """Return the report; None if there is none yet.

    Raises:
        SfnError: the place holds something else, or can't be read.
    """
    if where.directory is not None:
        return DirectoryCatalog(where.directory, where.stores, where.properties).load()
    try:
        return _load_catalog(where).load_table(where.identifier)
    except NoSuchTableError:
        return None


def open_report(where: ReportLocation, slices: int) -> Table:
    """Return the report; create it if it does not exist, and add columns and properties of this version.

    Args:
        slices: the number of slices of a new report.

    Raises:
        SfnError: the place holds something else.
    """
    found = find_report(where)
    if found is None:
        found = _create_report(where, slices)
    return upgrade_report(found, str(where))


def report_slices(table: Table, where: str) -> int:
    """Return the number of slices of a report's runs.

    Raises:
        SfnError: the table property is missing or not valid.
    """
    text = table.properties.get(SLICES_PROPERTY, "")
    if text.isdigit() and is_valid_count(int(text)):
        return int(text)
    raise _no_report_error(
        where, f"the table property {SLICES_PROPERTY}, a power of two up to {MAX_SLICES}", text or "none"
    )


def upgrade_report(table: Table, where: str) -> Table:
    """Add the columns and properties that an older version did not write.

    Raises:
        SfnError: the table has columns of these names with other types, or other partitions.
    """
    report_slices(table, where)
    schema = table.schema()
    names = [field.name for field in table.spec().fields]
    if names != [RUN_COLUMN, SLICE_COLUMN]:
        raise _no_report_error(where, f"partitions by {RUN_COLUMN} and {SLICE_COLUMN}", ", ".join(names) or "none")
    lacking: list[tuple[str, IcebergType]] = []
    for column in SCHEMA.fields:
        there = _column_type(schema, column.name)
        if there is None:
            lacking.append((column.name, column.field_type))
        elif there != column.field_type:
            raise _no_report_error(where, f"a column {column.name} of type {column.field_type}", f"{there}")
    if lacking:
        with table.update_schema() as update:
            for name, kind in lacking:
                update.add_column(name, kind)
    unset = {key: value for key, value in REPORT_PROPERTIES.items() if key not in table.properties}
    if unset:
        with table.transaction() as transaction:
            transaction.set_properties(unset)
    return table


def _column_type(schema: Schema, name: str) -> IcebergType | None:
    try:
        return schema.find_field(name).field_type
    except ValueError:
        return None


def _create_report(where: ReportLocation, slices: int) -> Table:
    properties = {**REPORT_PROPERTIES, SLICES_PROPERTY: str(slices)}
    if where.directory is not None:
        return DirectoryCatalog(where.directory, where.stores, where.properties).create(SCHEMA, PARTITIONS, properties)
    catalog = _load_catalog(where)
    with suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(where.identifier[:-1])
    try:
        return catalog.create_table(where.identifier, SCHEMA, partition_spec=PARTITIONS, properties=properties)
    except TableAlreadyExistsError:
        return catalog.load_table(where.identifier)


def _load_catalog(where: ReportLocation) -> Catalog:
    return load_catalog(where.catalog, **where.properties)


def _no_report_error(where: str, expected: str, found: str) -> SfnError:
    remedy = "give another place for the report: --report"
    return SfnError(where, expected=f"a report of this program: {expected}", found=found, remedy=remedy)


_MAX_SHOWN: Final = 500
"""The maximum number of characters of a message."""


@contextmanager
def map_report_errors(where: str, remedy: str) -> Iterator[None]:
    """Turn errors from outside of this program into errors about the report.

    Args:
        where: the report's place.
        remedy: advice for the message.

    Raises:
        SfnError: in place of any other error.
    """
    try:
        yield
    except Exception as error:
        if not _is_external(error):
            raise
        message = " ".join(str(error).split())[:_MAX_SHOWN]
        found = f"{type(error).__name__}: {message}" if message else type(error).__name__
        raise SfnError(
            f"report {where}", expected="a catalog or store that accepts it", found=found, remedy=remedy
        ) from error


def _is_external(error: Exception) -> bool:
    """Return whether an error comes from outside: errors of PyIceberg, SQL and stores have no common base."""
    package = type(error).__module__.partition(".")[0]
    return package not in {"builtins", "sfn"} or (package == "builtins" and isinstance(error, OSError | ValueError))
