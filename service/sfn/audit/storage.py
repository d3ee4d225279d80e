"""Where the report is: a directory, or a table of a configured catalog."""

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
from sfn.domain.identifiers import Table as Said
from sfn.domain.identifiers import decode_identifier
from sfn.domain.jobs import StoredObject
from sfn.errors import SfnError, suggest_name
from sfn.publish.commit_files import relative_path
from sfn.settings.model import Settings
from sfn.settings.sections import CatalogSettings, StoreSettings
from sfn.settings.sources import ConfigurationError
from sfn.sfnfile import document, version_hint
from sfn.sfnfile.document import LAST_ORDINAL, MAX_HINT_WAS, Document
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import FileLayout, FileOwner
from sfn.storage import PreconditionFailed

# ── directory: A table that needs no catalog to be written

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


# ── opening: Where the report is

SLICES_PROPERTY: Final = "sfn.slices"
"""The table property that says how many slices its runs have."""

_CATALOG_AND_TABLE: Final = re.compile(r"([A-Za-z0-9_-]+):(?![/\\])(.+)")
REPORT_PROPERTIES: Final = {
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "commit.manifest-merge.enabled": "true",
    # Snapshots say what there is of a run: whoever maintains the table leaves them for ten years.
    "history.expire.max-snapshot-age-ms": "315360000000",
    # What is to be committed is looked at anew before each try.
    "commit.retry.num-retries": "0",
}
"""Of the table."""


@dataclass(frozen=True, slots=True)
class ReportLocation:
    """A report's place.

    Attributes:
        directory: canonical URL; None for one in a catalog.
        catalog: its name in the configuration, and the table's identifier in it.
        identifier: levels and name.
        stores: the configured ones.
        properties: how PyIceberg opens it.
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
    """What `--report` means.

    Args:
        text: a path, a URL, or `CATALOG:NAMESPACE.TABLE`.
        options: more of PyIceberg's properties.

    Raises:
        Misconfigured: no such catalog, or no such form.
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
        raise _option_error("a namespace and a name behind the colon, such as ops.sfn_audit", identifier)
    return ReportLocation(
        None, catalog, parts, properties={**pyiceberg_properties(settings.catalogs[catalog], catalog), **options}
    )


def _option_error(expected: str, found: str, remedy: str = "") -> ConfigurationError:
    return ConfigurationError([SfnError("--report", expected=expected, found=repr(found), remedy=remedy)])


def pyiceberg_properties(catalog: CatalogSettings, name: str) -> dict[str, Any]:
    """A catalog of ours, by PyIceberg's own names of properties; secrets are among them.

    Raises:
        Misconfigured: nobody can write into it this way.
    """
    match catalog.type:
        case "pyiceberg":
            return {key: value.get_secret_value() for key, value in catalog.properties.items()}
        case "events":
            raise _option_error("a catalog that can be asked", f"{name}, which is only told of")
        case _:
            return _rest_properties(catalog, name)


def _rest_properties(catalog: CatalogSettings, name: str) -> dict[str, Any]:
    if catalog.role_arn is not None:
        raise _option_error("a catalog that PyIceberg can ask, or a directory", f"{name}, which a role is assumed for")
    token, credential = catalog.token, catalog.credential
    said = {
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
    return {key: value for key, value in said.items() if value} | headers | _nested_properties(catalog)


def _nested_properties(catalog: CatalogSettings) -> dict[str, Any]:
    """Those that PyIceberg has as tables, not as texts."""
    said: dict[str, Any] = {}
    if catalog.ca_file is not None:
        said["ssl"] = {"cabundle": str(catalog.ca_file)}
    if catalog.auth == "google":
        key = catalog.google_credentials_file
        scopes = (catalog.scope or "https://www.googleapis.com/auth/cloud-platform").split()
        said["auth"] = {"type": "google", "google": {"credentials_path": key and str(key), "scopes": scopes}}
    return said


def _first_secret(file: Path | None) -> str | None:
    """The first line of a file of secrets that is one."""
    if file is None:
        return None
    lines = (line.strip() for line in file.read_text("utf-8").splitlines())
    return next((line for line in lines if line and not line.startswith("#")), None)


def find_report(where: ReportLocation) -> Table | None:
    """The report; None where there is none yet.

    Raises:
        SfnError: what is there is no report, or can't be asked.
    """
    if where.directory is not None:
        return DirectoryCatalog(where.directory, where.stores, where.properties).load()
    try:
        return _load_catalog(where).load_table(where.identifier)
    except NoSuchTableError:
        return None


def open_report(where: ReportLocation, slices: int) -> Table:
    """The report, made where there is none, and with all columns that this version writes.

    Args:
        slices: of a new one.

    Raises:
        SfnError: what is there is no report.
    """
    found = find_report(where)
    if found is None:
        found = _create_report(where, slices)
    return upgrade_report(found, str(where))


def report_slices(table: Table, where: str) -> int:
    """How many slices the runs of a report have.

    Raises:
        SfnError: that is no number that there may be.
    """
    said = table.properties.get(SLICES_PROPERTY, "")
    if said.isdigit() and is_valid_count(int(said)):
        return int(said)
    raise _no_report_error(
        where, f"the table property {SLICES_PROPERTY}, a power of two up to {MAX_SLICES}", said or "none"
    )


def upgrade_report(table: Table, where: str) -> Table:
    """A report with the columns and properties that an older version did not write.

    Raises:
        SfnError: it has other columns of these names, or other partitions.
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
    unsaid = {key: value for key, value in REPORT_PROPERTIES.items() if key not in table.properties}
    if unsaid:
        with table.transaction() as transaction:
            transaction.set_properties(unsaid)
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
    return SfnError(where, expected=f"a report of ours: {expected}", found=found, remedy=remedy)


# ── theirs: What PyIceberg

_MAX_SHOWN: Final = 500
"""Characters of what was raised that are told."""


@contextmanager
def map_report_errors(where: str, remedy: str) -> Iterator[None]:
    """Whatever is raised inside of a report that cannot be had, or not be written, as an error of ours.

    Args:
        where: what the report is called.
        remedy: what to do about it.

    Raises:
        SfnError: in place of theirs.
    """
    try:
        yield
    except Exception as error:
        if not _is_external(error):
            raise
        said = " ".join(str(error).split())[:_MAX_SHOWN]
        found = f"{type(error).__name__}: {said}" if said else type(error).__name__
        raise SfnError(
            f"report {where}", expected="a catalog or store that takes it", found=found, remedy=remedy
        ) from error


def _is_external(error: Exception) -> bool:
    """Whether it is not an error of this program: PyIceberg's, and those of SQL and of stores, have no common base."""
    package = type(error).__module__.partition(".")[0]
    return package not in {"builtins", "sfn"} or (package == "builtins" and isinstance(error, OSError | ValueError))
