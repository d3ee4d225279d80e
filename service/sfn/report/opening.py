"""Where the report is: a directory, or a table of a configured catalog."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType
from typing_extensions import override

from sfn.domain.identifiers import decode_identifier
from sfn.errors import SfnError, suggest_name
from sfn.report.columns import PARTITIONS, RUN_COLUMN, SCHEMA, SLICE_COLUMN
from sfn.report.directory import DirectoryCatalog
from sfn.report.slices import MAX_SLICES, is_valid_count
from sfn.settings.model import Settings
from sfn.settings.sections import CatalogSettings, StoreSettings
from sfn.settings.sources import ConfigurationError
from sfn.sfnfile.locations import canonical

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
        case "told":
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
