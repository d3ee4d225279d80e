"""`PyIcebergClient`: blocking queries to one catalog through PyIceberg. Thread-safe."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, Final
from urllib.parse import unquote

import anyio
from pydantic import ValidationError
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.rest.response import ErrorResponse, ErrorResponseMessage
from pyiceberg.exceptions import (
    BadRequestError,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
)
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table as IcebergTable

from sfn.catalogs import (
    CatalogFailure,
    CatalogRequestFailed,
    Loaded,
    LoadResult,
    NoSuchTable,
    NotModified,
    StagedCreate,
)
from sfn.catalogs.metadata import TableMetadata, UnreadableDocument, decode_json, needed_members, to_table
from sfn.catalogs.partial_json import extract
from sfn.catalogs.pyiceberg import PyIcebergSettings, failure_of
from sfn.catalogs.pyiceberg_open import MetadataLocated, open_catalog, other_catalog_names
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import ErrorScope, Permanent


@dataclass(frozen=True, slots=True)
class OpenedCatalog:
    """One open catalog, and PyIceberg's file access by the scheme of a location."""

    catalog: Catalog
    file_ios: dict[str, FileIO] = field(default_factory=dict)


class CatalogPool:
    """A pool of open catalogs, as many as there are concurrent queries.

    After a failure all idle ones are closed: a connection that a restarted server has forgotten is one of many.

    Args:
        open_: opens another one.
    """

    def __init__(self, open_: Callable[[], Catalog]) -> None:
        self._open = open_
        self._guard = threading.Lock()
        self._idle: list[OpenedCatalog] = []
        self._is_closed = False

    @contextmanager
    def lease(self) -> Iterator[OpenedCatalog]:
        """Lease a catalog for exclusive use until the block ends."""
        with self._guard:
            taken = self._idle.pop() if self._idle else None
        opened = taken or OpenedCatalog(self._open())
        try:
            yield opened
        except (CatalogRequestFailed, Permanent):
            # Raised by our own code, so the catalog itself is intact.
            self._give_back(opened)
            raise
        except BaseException:
            _close([opened, *self._take_all()])
            raise
        self._give_back(opened)

    def close(self) -> None:
        """Close all idle catalogs, and each other one after its query."""
        self._is_closed = True
        _close(self._take_all())

    def _give_back(self, opened: OpenedCatalog) -> None:
        with self._guard:
            if not self._is_closed:
                self._idle.append(opened)
                return
        _close([opened])

    def _take_all(self) -> list[OpenedCatalog]:
        with self._guard:
            idle, self._idle = self._idle, []
        return idle


def _close(some: list[OpenedCatalog]) -> None:
    for opened in some:
        # The catalog may be closed because it is broken.
        with suppress(Exception):
            opened.catalog.close()


_PART_BYTES: Final = 2**20
_LARGE_BYTES: Final = 8 * 2**20
"""Bytes above which a document is cut, one document at a time."""
_GZIP: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31
_EXPECTED: Final = "the metadata file that the catalog names"
_NEEDED_MEMBERS: Final = needed_members(TableMetadata)


class PyIcebergFiles:
    """The metadata files of one catalog's tables. Thread-safe.

    Args:
        settings: the catalog's settings, with PyIceberg's properties of the stores.
    """

    def __init__(self, settings: PyIcebergSettings) -> None:
        self._settings = settings
        # msgspec holds the interpreter lock while it decodes. One document at a time lets other threads run in between.
        self._decoding, self._cutting = threading.Lock(), threading.Lock()
        self._last_readable: str | None = None

    def table(self, opened: OpenedCatalog, location: str) -> Table:
        """Return the table that a metadata file describes.

        Raises:
            CatalogRequestFailed: the file cannot be read.
        """
        where = f"catalog {self._settings.name}: {location}"
        try:
            table = to_table(self._metadata(self._parts(self._io(opened, location), location)), location)
        except FileNotFoundError:
            remedy = "check whether the file was deleted, or its store is not mounted here"
            failure = CatalogFailure(where, _EXPECTED, "no such file", remedy, scope=ErrorScope.TABLE)
        except UnreadableDocument as error:
            remedy = "check which program wrote it: it describes no Iceberg table"
            failure = CatalogFailure(where, _EXPECTED, str(error), remedy, scope=ErrorScope.TABLE)
        except _MetadataTooLong:
            limit = f"at most {self._settings.body_limit} bytes"
            remedy = "expire the table's snapshots and shorten its metadata-log, or exclude it"
            failure = CatalogFailure(where, limit, "a longer file", remedy, permanent=True, scope=ErrorScope.TABLE)
        except Exception as error:  # noqa: BLE001 - each store's library has errors of its own
            remedy = (
                "let PyIceberg read it: a library (pyarrow, s3fs), and the store's keys and address in `properties`; "
                "on S3 s3.access-key-id, s3.secret-access-key, s3.region and, if it is not Amazon's, s3.endpoint"
            )
            failure = CatalogFailure(
                where, _EXPECTED, f"{type(error).__name__}: {error}", remedy, scope=self._scope(opened)
            )
        else:
            self._last_readable = location
            return table
        raise CatalogRequestFailed(failure)

    def _scope(self, opened: OpenedCatalog) -> ErrorScope:
        """Return the scope of an unreadable file: the catalog, unless another file can be read now."""
        known = self._last_readable
        if known is None:
            return ErrorScope.CATALOG
        try:
            with suppress(FileNotFoundError):
                next(self._parts(self._io(opened, known), known), None)
        except Exception:  # noqa: BLE001 - as above
            return ErrorScope.CATALOG
        return ErrorScope.TABLE

    def _io(self, opened: OpenedCatalog, location: str) -> FileIO:
        scheme = location.partition("://")[0]
        if scheme not in opened.file_ios:
            opened.file_ios[scheme] = load_file_io(dict(self._settings.properties), location)
        return opened.file_ios[scheme]

    def _parts(self, io: FileIO, location: str) -> Iterator[bytes]:
        """Yield the document, decompressed if its content is: file names differ from engine to engine."""
        left = self._settings.body_limit
        with io.new_input(location).open(seekable=False) as stream:
            part = stream.read(_PART_BYTES)
            inflater = zlib.decompressobj(_GZIP_WINDOW) if part.startswith(_GZIP) else None
            while part:
                for piece in [part] if inflater is None else _inflated(inflater, part):
                    left -= len(piece)
                    if left < 0:
                        raise _MetadataTooLong
                    yield piece
                part = stream.read(_PART_BYTES)

    def _metadata(self, parts: Iterator[bytes]) -> TableMetadata:
        body = bytearray()
        for part in parts:
            body += part
            if len(body) > _LARGE_BYTES:
                break
        else:
            with self._decoding:
                return decode_json(body, TableMetadata)
        with self._cutting:
            # `extract` is a coroutine, so this thread gives it a loop of its own.
            return decode_json(anyio.run(extract, body, _arriving(parts), _NEEDED_MEMBERS), TableMetadata)


class _MetadataTooLong(Exception):
    """A document that is longer than a table's metadata may be."""


def _inflated(inflater: zlib._Decompress, part: bytes) -> Iterator[bytes]:
    try:
        piece = inflater.decompress(part, _PART_BYTES)
        while piece:
            yield piece
            piece = inflater.decompress(inflater.unconsumed_tail, _PART_BYTES)
    except zlib.error:
        raise UnreadableDocument("bytes that begin like gzip, but are not") from None


async def _arriving(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


_NOT_FOUND_TYPES: Final = frozenset({"NoSuchTableException", "NoSuchIcebergTableException", "NoSuchNamespaceException"})
"""Error types of Iceberg's REST API for a missing Iceberg table."""

_NEEDED_FIELDS: Final = {
    "format_version",
    "location",
    "last_updated_ms",
    "table_uuid",
    "current_snapshot_id",
    "metadata_log",
    "properties",
    "refs",
}


class PyIcebergClient:
    """Queries to one catalog.

    Args:
        settings: the catalog's settings.
    """

    def __init__(self, settings: PyIcebergSettings) -> None:
        self._settings = settings
        self._pool = CatalogPool(partial(open_catalog, settings))
        self._files = PyIcebergFiles(settings)

    def load(self, table: TableIdentifier, known_etag: str | None) -> LoadResult:
        """Return the current state of a table.

        The metadata file is not read if the catalog still names the one that the caller knows.

        Args:
            known_etag: etag of that file, a digest of its location: a metadata file never changes.

        Raises:
            CatalogRequestFailed: there is no valid answer.
            Permanent: scope table; the table's name cannot be used in a query.
        """
        with self._connection(f"load {table.dotted}", "the table, or that it does not exist", loading=True) as one:
            identifier = (*self._checked_namespace(one.catalog, table.namespace), self._checked_name(table.name))
            try:
                found = one.catalog.load_table(identifier)
            except MetadataLocated as located:
                location = located.location
            except (NoSuchTableError, NoSuchNamespaceError, NoSuchPropertyException, ValueError) as error:
                return _missing_or_unwritten(one.catalog, identifier, error)
            else:
                return _loaded(found, known_etag)
            if not location:
                return StagedCreate()
            etag = _etag(location)
            return NotModified() if etag == known_etag else Loaded(self._files.table(one, location), etag)

    def tables(self, namespace: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
        """Return namespace and name of each Iceberg table of a namespace, none if it is missing; raises as `load`."""
        with self._connection(f"list {'.'.join(namespace)}", "a listing") as one:
            found = _list_tables(one.catalog, self._checked_namespace(one.catalog, namespace))
        return [(identifier[:-1], identifier[-1]) for identifier in found]

    def namespaces(self, parent: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Return the children of a namespace, or the outermost ones, none if it is missing; raises as `load`."""
        with self._connection(f"list below {'.'.join(parent) or 'all'}", "a listing") as one:
            try:
                return list(one.catalog.list_namespaces(self._checked_namespace(one.catalog, parent) if parent else ()))
            except (NoSuchNamespaceError, BadRequestError) as error:
                if parent and (isinstance(error, BadRequestError) or _is_gone(one.catalog, parent, error)):
                    return []
                raise

    def namesakes(self) -> list[str]:
        """Return the other catalogs in a SQL catalog's database if it is not among them itself; raises as `load`."""
        with self._connection("list the catalogs", "the names of all in that database") as one:
            return other_catalog_names(one.catalog)

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    @contextmanager
    def _connection(self, what: str, expected: str, *, loading: bool = False) -> Iterator[OpenedCatalog]:
        try:
            with self._pool.lease() as one:
                yield one
        except (CatalogRequestFailed, Permanent):
            raise
        except Exception as error:  # noqa: BLE001 - each catalog's library has errors of its own
            where = f"catalog {self._settings.name}: {what}"
            failure = failure_of(where, error, expected=expected, loading=loading)
        else:
            return
        raise CatalogRequestFailed(failure)

    def _checked_namespace(self, catalog: Catalog, namespace: tuple[str, ...]) -> tuple[str, ...]:
        """Return a namespace if PyIceberg can express it. It joins the levels to one text and strips their white space.

        Raises:
            Permanent: scope table; the namespace would be taken for another one.
        """
        if not namespace:
            raise self._name_refused("a table outside every namespace")
        separator = "." if isinstance(catalog, MetastoreCatalog) else _separator(catalog)
        for level in namespace:
            self._checked_name(level)
            if separator in level:
                raise self._name_refused(
                    f"namespace level {level!r}, which contains the catalog's separator {separator!r}"
                )
            if level != level.strip():
                raise self._name_refused(f"namespace level {level!r}, with white space around it")
        return namespace

    def _checked_name(self, part: str) -> str:
        if not part:
            raise self._name_refused("an empty name")
        if re.search("[\0\ud800-\udfff]", part):
            raise self._name_refused(f"name {part!r}, which is no Unicode text")
        if self._settings.kind in {"glue", "hive"} and part != part.lower():
            # These catalogs find a table by any spelling, and list it in lower case.
            raise self._name_refused(f"name {part!r}, which the catalog lists as {part.lower()!r}")
        return part

    def _name_refused(self, found: str) -> Permanent:
        return Permanent(
            f"catalog {self._settings.name}",
            scope=ErrorScope.TABLE,
            expected="a name that PyIceberg can query",
            found=found,
            remedy=f"exclude it (catalogs.{self._settings.name}.exclude) or rename it",
        )


def _missing_or_unwritten(
    catalog: Catalog, identifier: tuple[str, ...], error: Exception
) -> NoSuchTable | StagedCreate:
    """Return the meaning of a failed load; raise the error again if it has another meaning.

    A table of another kind, which Hive and Glue may hold, counts as missing: Iceberg's table of that name is gone, and
    no listing names it either. But PyIceberg raises the same error for a row without a metadata file (yet).
    """
    if isinstance(error, ValueError) and type(error) is not ValueError:
        raise error
    if isinstance(error, NoSuchIcebergTableError):
        return NoSuchTable()
    if error.__cause__ is not None:
        # If the type of the error is none of Iceberg's, the listing must agree.
        if _is_catalog_answer(error) or (
            _is_iceberg_error(error) and identifier not in _list_tables(catalog, identifier[:-1])
        ):
            return NoSuchTable()
        raise error
    if identifier not in _list_tables(catalog, identifier[:-1]):
        return NoSuchTable()
    if isinstance(error, ValueError):
        raise error
    return StagedCreate()


def _list_tables(catalog: Catalog, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
    try:
        return catalog.list_tables(namespace)
    except NoSuchNamespaceError as error:
        if _is_gone(catalog, namespace, error):
            return []
        raise


def _is_gone(catalog: Catalog, namespace: tuple[str, ...], error: NoSuchNamespaceError) -> bool:
    """Return True if a namespace is missing, by the error's type or by the listing of its parent."""
    if _is_catalog_answer(error):
        return True
    return _is_iceberg_error(error) and tuple(namespace) not in map(tuple, catalog.list_namespaces(namespace[:-1]))


def _is_iceberg_error(error: Exception) -> bool:
    """Return True if the catalog answered with an error in Iceberg's shape, of any type: no proxy does."""
    response: Any = getattr(error.__cause__, "response", None)
    error_in = _error_in(response) if hasattr(response, "status_code") else None
    return error_in is not None and error_in.code == response.status_code


def _error_in(response: Any) -> ErrorResponseMessage | None:  # noqa: ANN401 - of requests
    try:
        return ErrorResponse.model_validate_json(response.text).error
    except ValidationError:
        return None


def _is_catalog_answer(error: Exception) -> bool:
    """Return True if the catalog itself says that the queried table or namespace does not exist."""
    cause = error.__cause__
    response: Any = getattr(cause, "response", None)
    if hasattr(response, "status_code"):
        # PyIceberg takes every 404 for an answer of the catalog, even a proxy's.
        found = _error_in(response)
        return found is not None and found.code == response.status_code and found.type in _NOT_FOUND_TYPES
    # PyIceberg raises the same for a missing row in DynamoDB and for a missing table that holds the catalog.
    return not (isinstance(cause, ValueError) and cause.__cause__ is not None)


def _loaded(found: IcebergTable, known_etag: str | None) -> LoadResult:
    """Return the answer of a catalog that sends the metadata together with their location."""
    if not found.metadata_location:
        return StagedCreate()
    etag = _etag(found.metadata_location)
    if etag == known_etag:
        return NotModified()
    metadata = found.metadata
    # PyIceberg invents a UUID for metadata of version 1 without one, and another one each time.
    fields = _NEEDED_FIELDS if "table_uuid" in metadata.model_fields_set else _NEEDED_FIELDS - {"table_uuid"}
    body = metadata.model_dump_json(include=fields).encode()
    return Loaded(to_table(decode_json(body, TableMetadata), found.metadata_location), etag)


def _separator(catalog: Catalog) -> str:
    """Return the separator of namespace levels (Iceberg's REST specification, `namespace-separator`)."""
    return unquote(catalog.properties.get("namespace-separator", "%1F"))


def _etag(location: str) -> str:
    return f'"{sha256(location.encode()).hexdigest()[:16]}"'
