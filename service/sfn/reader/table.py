"""Open a table for PyIceberg, and read its rows with PyArrow. Both packages are optional."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from sfn.clock import SystemClock
from sfn.domain.identifiers import is_uuid
from sfn.errors import MalformedMetadata, NotInstalled, NotPermitted, Stale, Unreachable, Unreadable
from sfn.reader import metadata
from sfn.reader.files import FileSystem, run_synchronously
from sfn.reader.metadata import AllowedLocations
from sfn.sfnfile.locations import canonical, scheme_of
from sfn.sfnfile.naming import MAIN_BRANCH

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table import StaticTable
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from sfn.reader.files import FileSystemOptions
    from sfn.reader.resolve import Resolved


def open_static_table(found: Resolved, properties: Mapping[str, str] | None) -> StaticTable:
    """Return the table at the head of the branch or tag that was resolved.

    A branch has the table's present schema, a tag the schema of its snapshot, as in Iceberg's own library. Properties
    of the table itself never decide how files are opened: their writer could name any class there.

    Args:
        properties: PyIceberg's properties for opening files, wherever the metadata says that they lie. If None, local
            files are opened by PyIceberg's defaults, all others through fsspec with the options of `found`, and files
            in places that are not allowed are refused.

    Raises:
        NotInstalled: PyIceberg is missing.
        Stale, WrongTable, MalformedMetadata, RefNotFound: the metadata file has changed, or lacks the ref.
    """
    require_packages("pyiceberg")
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.table import StaticTable

    whole = load_metadata(found)
    return StaticTable(
        identifier=(*found.document.namespace, found.document.name),
        metadata=metadata_at_ref(whole, found.ref, found.metadata_location),
        metadata_location=found.metadata_location,
        io=_io(found, properties),
        catalog=NoopCatalog("sfn"),
    )


def read_rows(
    found: Resolved,
    row_filter: str | BooleanExpression | None,
    selected_fields: tuple[str, ...],
    limit: int | None,
    properties: Mapping[str, str] | None,
) -> pa.Table:
    """Return the rows of the table; arguments as for `sfn.read`.

    Raises:
        NotInstalled: PyIceberg or PyArrow is missing.
        Stale: a file that the metadata names is gone.
        NotPermitted, Unreachable: a file can't be opened.
        MalformedMetadata: a file can't be decoded.
        NotSupported: PyIceberg or PyArrow can't read that kind of file.
        Unsafe: the metadata names a file in a place that is not allowed.
        Unreadable: as for `open_static_table`.
        ValueError: `row_filter` or `selected_fields` do not fit the table.
    """
    require_packages("pyiceberg", "pyarrow")
    from sfn.reader.scan import RowScan

    return RowScan(open_static_table(found, properties), row_filter, selected_fields).rows(limit)


def to_unreadable(where: str, error: Exception) -> Unreadable:
    """Return the reader's error for an exception that PyIceberg or PyArrow raised while it read rows."""
    message = f"{type(error).__name__}: {error}"[:500]
    if isinstance(error, FileNotFoundError):
        remedy = "read again: the table may have changed; `sfn verify --deep` lists missing files"
        return Stale(where, expected="every file that it names", found=message, remedy=remedy)
    if isinstance(error, PermissionError):
        remedy = (
            "give the reader's identity permission to read data files; "
            "credentials go into storage_options (--storage-option KEY=VALUE)"
        )
        return NotPermitted(
            where, expected="the permission to read the files that it names", found=message, remedy=remedy
        )
    remedy = "`sfn verify --deep` names the file, if one is broken"
    if isinstance(error, OSError):
        return Unreachable(where, expected="files that it names and that can be read", found=message, remedy=remedy)
    return MalformedMetadata(where, expected="files that PyIceberg can read", found=message, remedy=remedy)


def require_packages(*packages: str) -> None:
    """Check that optional packages can be imported.

    Raises:
        NotInstalled: one can't.
    """
    for package in packages:
        try:
            import_module(package)
        except ImportError as error:
            remedy = "pip install 'pyiceberg[pyarrow]'"
            raise NotInstalled(package, expected="an installed package", found=str(error), remedy=remedy) from error


def load_metadata(found: Resolved) -> TableMetadata:
    """Load and check the whole metadata file.

    Raises:
        Stale, WrongTable, MalformedMetadata: as for `open_static_table`.
    """
    key = canonical(found.metadata_location)
    body = run_synchronously(metadata.read_metadata_json(found.file_system_options.open_file_system(), key))
    if body is None:
        raise metadata.metadata_gone_error(key, found.document, found.sfn_file, SystemClock().now())
    try:
        whole = _parse_table_metadata(body)
        # PyIceberg invents a uuid if the file has none.
        uuid = str(whole.table_uuid) if "table_uuid" in whole.model_fields_set else None
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - PyIceberg's errors for a wrong shape have no common base
        uuid = metadata.parse_metadata(key, body).table_uuid
        whole = _parse_without_uuid(key, body, uuid, error)
    metadata.check_table_uuid(key, uuid, found.document, found.sfn_file)
    return _check_table_metadata(whole, key)


def _parse_table_metadata(body: bytes) -> TableMetadata:
    from pyiceberg.table.metadata import TableMetadataUtil

    return TableMetadataUtil.parse_raw(body.decode())


def _parse_without_uuid(key: str, body: bytes, uuid: str | None, error: Exception) -> TableMetadata:
    """Parse the metadata of a table with a `table-uuid` that is null or no UUID; PyIceberg refuses it.

    Args:
        uuid: its `table-uuid`.
        error: PyIceberg's error for the whole file.

    Raises:
        MalformedMetadata: something else is wrong as well.
    """
    try:
        if not is_uuid(uuid):
            members = msgspec.json.decode(body, type=dict[str, Raw])
            members.pop("table-uuid", None)
            return _parse_table_metadata(msgspec.json.encode(members))
    except MemoryError:
        raise
    except Exception as other:  # noqa: BLE001 - as above
        error = other
    message = f"{type(error).__name__}: {error}"[:500]
    raise metadata.malformed_metadata_error(key, "metadata that PyIceberg can read", message) from error


def _check_table_metadata(whole: TableMetadata, key: str) -> TableMetadata:
    """Return the metadata if its current schema and partition spec exist.

    Raises:
        MalformedMetadata: one of them does not.
    """
    if whole.schema_by_id(whole.current_schema_id) is None:
        if whole.format_version > 1 or "current_schema_id" in whole.model_fields_set or len(whole.schemas) != 1:
            raise schema_not_found_error(key, whole.current_schema_id, "`current-schema-id`", whole)
        # The only schema of an old table is the current one, whatever its id.
        whole = whole.model_copy(update={"current_schema_id": whole.schemas[0].schema_id})
    if whole.default_spec_id not in whole.specs():
        known = ", ".join(map(str, whole.specs())) or "none"
        expected = f"the partition spec {whole.default_spec_id} (`default-spec-id`) in `partition-specs`"
        raise metadata.malformed_metadata_error(key, expected, f"the specs {known}")
    return whole


def schema_not_found_error(where: str, number: int, of: str, whole: TableMetadata) -> MalformedMetadata:
    """Return the error for metadata that refers to a schema that it does not contain.

    Args:
        where: the metadata file.
        number: the schema's id.
        of: the key that refers to it.
    """
    known = ", ".join(str(one.schema_id) for one in whole.schemas) or "none"
    return metadata.malformed_metadata_error(where, f"the schema {number} ({of}) in `schemas`", f"the schemas {known}")


def schema_of(whole: TableMetadata, snapshot: Snapshot, where: str) -> Schema:
    """Return the schema that a snapshot was written with; for old snapshots, which name none, the table's.

    Args:
        where: the metadata file.

    Raises:
        MalformedMetadata: the schema is not in the metadata.
    """
    if snapshot.schema_id is None:
        return whole.schema()
    schema = whole.schema_by_id(snapshot.schema_id)
    if schema is None:
        raise schema_not_found_error(
            where, snapshot.schema_id, f"`schema-id` of the snapshot {snapshot.snapshot_id}", whole
        )
    return schema


def metadata_at_ref(whole: TableMetadata, ref: str, where: str) -> TableMetadata:
    """Return the metadata as if the head of a branch or tag were the current snapshot.

    Raises:
        RefNotFound: there is no such branch or tag.
        MalformedMetadata: the snapshot or its schema is missing from the metadata; or `main` has two heads.
    """
    from pyiceberg.table.refs import SnapshotRefType

    refs = {name: one.snapshot_id for name, one in whole.refs.items()}
    number = metadata.head_of(ref, whole.current_snapshot_id, refs, [one.snapshot_id for one in whole.snapshots], where)
    if ref == MAIN_BRANCH or number is None:
        return whole
    update: dict[str, Any] = {"current_snapshot_id": number}
    snapshot = whole.snapshot_by_id(number)
    if whole.refs[ref].snapshot_ref_type is SnapshotRefType.TAG and snapshot is not None:
        update["current_schema_id"] = schema_of(whole, snapshot, where).schema_id
    return whole.model_copy(update=update)


def _io(found: Resolved, properties: Mapping[str, str] | None) -> FileIO:
    from pyiceberg.io import load_file_io

    from sfn.reader.pyiceberg_files import CheckedIO

    if properties is not None:
        return CheckedIO(load_file_io(dict(properties), found.metadata_location))
    return open_allowed_io(found.metadata_location, found.allowed_locations, found.file_system_options)


def open_allowed_io(metadata_location: str, allowed_locations: AllowedLocations, options: FileSystemOptions) -> FileIO:
    """Return PyIceberg's access to the files that a metadata file names; it can be sent to other processes.

    Local files are opened by PyIceberg's defaults, all others through fsspec. Files in places that are not allowed are
    refused.
    """
    from pyiceberg.io import load_file_io

    from sfn.reader.pyiceberg_files import BoundedIO, OpenedIO

    is_here = scheme_of(canonical(metadata_location)) == "file"
    inner = load_file_io({}, metadata_location) if is_here else OpenedIO({}, scheme_of(options.url), options.options)
    return BoundedIO(inner, allowed_locations, metadata_location)


@dataclass(frozen=True, slots=True)
class AllowedFiles:
    """A file system with methods that never suspend, limited to the places where a table's files may lie."""

    file_system: FileSystem
    allowed_locations: AllowedLocations

    def read(self, location: str, most: int, named_by: str) -> bytes | None:
        """Return a file's first bytes; None if there is no file.

        Raises:
            Unreadable: the location is not allowed (Unsafe), or the file system reports an error.
        """
        return run_synchronously(self.file_system.read(self.allowed_locations.check_file(location, named_by), most))

    def size(self, location: str, named_by: str) -> int | None:
        """Return a file's size in bytes; None if there is no file.

        Raises:
            Unreadable: the location is not allowed (Unsafe), or the file system reports an error.
        """
        return run_synchronously(self.file_system.size(self.allowed_locations.check_file(location, named_by)))
