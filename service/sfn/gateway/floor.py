"""What is seen of a catalog's answer as it passes by: its status, and the metadata location in it."""

from __future__ import annotations

import re
import zlib
from typing import Final

import msgspec

from sfn.formats.event import MAX_LOCATION

MAX_SCANNED: Final = 1 << 20
"""Bytes of an answer that are looked at."""

_LOCATION: Final = re.compile(rb'"metadata-location"\s*:\s*("(?:[^"\\]|\\.){1,%d}")' % MAX_LOCATION)
_OVERLAP: Final = MAX_LOCATION + 64
"""Bytes of the end of what was seen: a match may have begun there."""
_GZIP: Final = 16 + zlib.MAX_WBITS


class ResponseObserver:
    """One answer.

    Attributes:
        status: HTTP status; None until the header is here.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self._scanner: MetadataLocationScanner | None = None

    @property
    def metadata_location(self) -> str | None:
        """The metadata location in its body, as far as that has passed; None for none."""
        return None if self._scanner is None else self._scanner.found

    def on_header(self, status: int, encoding: str | None) -> None:
        """The header is here."""
        self.status, self._scanner = status, MetadataLocationScanner(encoding or "identity")

    def on_part(self, content: bytes) -> None:
        """A part of the body passes."""
        if self._scanner is not None:
            self._scanner.feed(content)


class MetadataLocationScanner:
    """The first `metadata-location` of a JSON text that comes in parts, if it stands within its first `MAX_SCANNED`
    bytes.

    One in the wrong place, such as a table's property of that name, is found too. That costs one look more and no more:
    a floor is what an answer of the catalog is compared with, and never written.

    Args:
        encoding: the answer's `Content-Encoding`; what can't be read is passed over.
    """

    def __init__(self, encoding: str = "identity") -> None:
        self.found: str | None = None
        self._end = b""
        self._left = MAX_SCANNED if encoding in {"identity", "gzip"} else 0
        self._inflate = zlib.decompressobj(_GZIP) if encoding == "gzip" else None

    def feed(self, part: bytes) -> None:
        """Look at the next part of the body."""
        if self.found is not None or self._left <= 0:
            return
        text = self._end + self._plain(part)
        match = _LOCATION.search(text)
        if match is not None:
            self.found = _text(match[1])
        self._end = text[-_OVERLAP:]

    def _plain(self, part: bytes) -> bytes:
        if self._inflate is None:
            plain = part[: self._left]
        else:
            try:
                plain = self._inflate.decompress(part, self._left)
            except zlib.error:
                plain, self._left = b"", 0
        self._left -= len(plain)
        return plain


def _text(quoted: bytes) -> str | None:
    try:
        return msgspec.json.decode(quoted, type=str) or None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
