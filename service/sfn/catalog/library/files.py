"""A table's metadata file, read where PyIceberg reads it from and parsed as other catalogs' answers are."""

from __future__ import annotations

import threading
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Final

import anyio
from pyiceberg.io import FileIO, load_file_io

from sfn.catalog.excerpt import extract
from sfn.catalog.library.pool import OpenedCatalog
from sfn.catalog.library.settings import PyIcebergSettings
from sfn.catalog.metadata import TableMetadata, UnreadableDocument, decode_json, needed_members, to_table
from sfn.catalog.refusal import CatalogFailure, CatalogRequestFailed
from sfn.domain.identifiers import Table
from sfn.errors import ErrorScope

_PART_BYTES: Final = 2**20
_LARGE_BYTES: Final = 8 * 2**20
"""Bytes of a document; a longer one is cut, and only one at a time."""
_GZIP: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31
_EXPECTED: Final = "the metadata file that the catalog names"
_NEEDED_MEMBERS: Final = needed_members(TableMetadata)


class PyIcebergFiles:
    """The metadata files of one catalog's tables. For several threads.

    Args:
        settings: with PyIceberg's properties of the stores.
    """

    def __init__(self, settings: PyIcebergSettings) -> None:
        self._settings = settings
        # msgspec holds the interpreter's lock while it decodes: between two documents others get their turn.
        self._decoding, self._cutting = threading.Lock(), threading.Lock()
        self._last_readable: str | None = None

    def table(self, opened: OpenedCatalog, location: str) -> Table:
        """The table whose metadata lie there.

        Raises:
            Refused: they can't be read.
        """
        where = f"catalog {self._settings.name}: {location}"
        try:
            table = to_table(self._metadata(self._parts(self._io(opened, location), location)), location)
        except FileNotFoundError:
            remedy = "see whether somebody deleted it, or its store is not mounted here"
            failure = CatalogFailure(where, _EXPECTED, "no such file", remedy, scope=ErrorScope.TABLE)
        except UnreadableDocument as error:
            remedy = "see what wrote it: no Iceberg table is described there"
            failure = CatalogFailure(where, _EXPECTED, str(error), remedy, scope=ErrorScope.TABLE)
        except _MetadataTooLong:
            limit = f"at most {self._settings.body_limit} bytes"
            remedy = "expire the table's snapshots and shorten its metadata-log, or exclude it"
            failure = CatalogFailure(where, limit, "a longer file", remedy, permanent=True, scope=ErrorScope.TABLE)
        except Exception as error:  # noqa: BLE001 - each store's library has errors of its own
            remedy = "let PyIceberg read there, by properties such as s3.access-key-id and a library (pyarrow, s3fs)"
            failure = CatalogFailure(
                where, _EXPECTED, f"{type(error).__name__}: {error}", remedy, scope=self._scope(opened)
            )
        else:
            self._last_readable = location
            return table
        raise CatalogRequestFailed(failure)

    def _scope(self, opened: OpenedCatalog) -> ErrorScope:
        """Whose trouble it is that one file can't be read: the catalog's, until another one can be read now."""
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
        """The document as it is, or decompressed: told by content, as file names differ from engine to engine."""
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
            # The excerpt waits for what arrives, and for other tasks: here there are none, but the loop has its turns.
            return decode_json(anyio.run(extract, body, _arriving(parts), _NEEDED_MEMBERS), TableMetadata)


class _MetadataTooLong(Exception):
    """It is more than a table's metadata may be."""


def _inflated(inflater: zlib._Decompress, part: bytes) -> Iterator[bytes]:
    try:
        piece = inflater.decompress(part, _PART_BYTES)
        while piece:
            yield piece
            piece = inflater.decompress(inflater.unconsumed_tail, _PART_BYTES)
    except zlib.error:
        raise UnreadableDocument("bytes that begin as gzip does and do not go on so") from None


async def _arriving(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
