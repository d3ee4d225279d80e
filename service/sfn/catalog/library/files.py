"""A table's metadata file, read where PyIceberg reads it from and parsed as other catalogs' answers are."""

from __future__ import annotations

import threading
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Final

import anyio
from pyiceberg.io import FileIO, load_file_io

from sfn.catalog.excerpt import excerpt
from sfn.catalog.library.pool import Opened
from sfn.catalog.library.settings import LibrarySettings
from sfn.catalog.metadata import Metadata, Unintelligible, decoded, needed, table_of
from sfn.catalog.refusal import Refusal, Refused
from sfn.errors import Scope
from sfn.words import Table

_PART: Final = 2**20
_LARGE: Final = 8 * 2**20
"""Bytes of a document; a longer one is cut, and only one at a time."""
_GZIP: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31
_EXPECTED: Final = "the metadata file that the catalog names"
_NEEDED: Final = needed(Metadata)


class Files:
    """The metadata files of one catalog's tables. For several threads.

    Args:
        settings: with PyIceberg's properties of the stores.
    """

    def __init__(self, settings: LibrarySettings) -> None:
        self._settings = settings
        # msgspec holds the interpreter's lock while it decodes: between two documents others get their turn.
        self._decoding, self._cutting = threading.Lock(), threading.Lock()
        self._readable: str | None = None

    def table(self, opened: Opened, location: str) -> Table:
        """The table whose metadata lie there.

        Raises:
            Refused: they can't be read.
        """
        where = f"catalog {self._settings.name}: {location}"
        try:
            table = table_of(self._metadata(self._parts(self._io(opened, location), location)), location)
        except FileNotFoundError:
            remedy = "see whether somebody deleted it, or its store is not mounted here"
            refusal = Refusal(where, _EXPECTED, "no such file", remedy, reach=Scope.TABLE)
        except Unintelligible as error:
            remedy = "see what wrote it: no Iceberg table is described there"
            refusal = Refusal(where, _EXPECTED, str(error), remedy, reach=Scope.TABLE)
        except _TooLong:
            limit = f"at most {self._settings.body_limit} bytes"
            remedy = "expire the table's snapshots and shorten its metadata-log, or exclude it"
            refusal = Refusal(where, limit, "a longer file", remedy, permanent=True, reach=Scope.TABLE)
        except Exception as error:  # noqa: BLE001 - each store's library has errors of its own
            remedy = "let PyIceberg read there, by properties such as s3.access-key-id and a library (pyarrow, s3fs)"
            refusal = Refusal(where, _EXPECTED, f"{type(error).__name__}: {error}", remedy, reach=self._reach(opened))
        else:
            self._readable = location
            return table
        raise Refused(refusal)

    def _reach(self, opened: Opened) -> Scope:
        """Whose trouble it is that one file can't be read: the catalog's, until another one can be read now."""
        known = self._readable
        if known is None:
            return Scope.CATALOG
        try:
            with suppress(FileNotFoundError):
                next(self._parts(self._io(opened, known), known), None)
        except Exception:  # noqa: BLE001 - as above
            return Scope.CATALOG
        return Scope.TABLE

    def _io(self, opened: Opened, location: str) -> FileIO:
        scheme = location.partition("://")[0]
        if scheme not in opened.files:
            opened.files[scheme] = load_file_io(dict(self._settings.properties), location)
        return opened.files[scheme]

    def _parts(self, io: FileIO, location: str) -> Iterator[bytes]:
        """The document as it is, or decompressed: told by content, as file names differ from engine to engine."""
        left = self._settings.body_limit
        with io.new_input(location).open(seekable=False) as stream:
            part = stream.read(_PART)
            inflater = zlib.decompressobj(_GZIP_WINDOW) if part.startswith(_GZIP) else None
            while part:
                for piece in [part] if inflater is None else _inflated(inflater, part):
                    left -= len(piece)
                    if left < 0:
                        raise _TooLong
                    yield piece
                part = stream.read(_PART)

    def _metadata(self, parts: Iterator[bytes]) -> Metadata:
        body = bytearray()
        for part in parts:
            body += part
            if len(body) > _LARGE:
                break
        else:
            with self._decoding:
                return decoded(body, Metadata)
        with self._cutting:
            # The excerpt waits for what arrives, and for other tasks: here there are none, but the loop has its turns.
            return decoded(anyio.run(excerpt, body, _arriving(parts), _NEEDED), Metadata)


class _TooLong(Exception):
    """It is more than a table's metadata may be."""


def _inflated(inflater: zlib._Decompress, part: bytes) -> Iterator[bytes]:
    try:
        piece = inflater.decompress(part, _PART)
        while piece:
            yield piece
            piece = inflater.decompress(inflater.unconsumed_tail, _PART)
    except zlib.error:
        raise Unintelligible("bytes that begin as gzip does and do not go on so") from None


async def _arriving(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
