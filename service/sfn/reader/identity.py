"""The `table-uuid` of a metadata file of any size, compressed or not, without holding more than a small part of it."""

from __future__ import annotations

import json
import re
import zlib
from typing import Final

from sfn.errors import MalformedMetadata
from sfn.reader.files import FIRST_READ_SIZE, PART_SIZE, FileReader, read_parts
from sfn.sfnfile.locations import decompress

MAX_SCANNED_SIZE: Final = 1 << 30
"""Bytes of JSON that are looked through: what inflates to more is no metadata."""

MAX_SCAN_STEPS: Final = 8_000_000
"""Signs that are looked at one by one, in some seconds; metadata of 256 MiB takes 5 million where it is but schemas."""

_KEY: Final = "table-uuid"
_MAX_VALUE_LENGTH: Final = 400
"""Bytes of a string that are kept: no uuid is longer, however it is escaped."""

_SIGN: Final = re.compile(rb'["{}\[\],:]')
_STRING_SIGN: Final = re.compile(rb'["\\]')
_IN_STRING: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_TEXT: Final = rb'[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+"'
_FLAT: Final = re.compile(rb"(?:%b|\{(?:%b)*+\}|\[(?:%b)*+\])*+" % (_TEXT, _TEXT, _TEXT), re.DOTALL)
"""Whole strings, whatever else neither opens nor closes anything, and what holds nothing but these."""

_NEAR: Final = re.compile(
    rb"""
    \s*+ \{ \s*+
    (?> "(?!table-uuid")[^"\\]*+" \s*+ : \s*+ (?: "[^"\\]*+" | [-+.0-9A-Za-z]++ ) \s*+ , \s*+ )*+
    "table-uuid" \s*+ : \s*+ "([-0-9A-Za-z]++)"
    """,
    re.VERBOSE,
)
"""A file that has it behind nothing but plain numbers and texts, as nearly all have."""


async def read_table_uuid(files: FileReader, key: str, first: bytes, most: int = MAX_SCANNED_SIZE) -> str | None:
    """The file's `table-uuid`; None where it has none, or is no metadata.

    Args:
        files: how to read the rest, as far as it is needed.
        key: the file's canonical URL.
        first: its first `FIRST_READ_SIZE` bytes.
        most: bytes of JSON that are looked through, to the end of their part.

    Raises:
        MalformedMetadata: it was not found in so many bytes, or in `MAX_SCAN_STEPS`. That is not to say that it has
            none: who takes the file for another table's would be misled.
    """
    if (near := _NEAR.match(first)) is not None:
        return near[1].decode()
    search = _UuidScanner()
    left = most
    try:
        async for part in decompress(read_parts(files, key, first, FIRST_READ_SIZE), PART_SIZE):
            search.feed(part)
            left -= len(part)
            if search.over:
                break
            if left <= 0 or search.is_exhausted:
                raise _uuid_not_found_error(key, most)
    except zlib.error:
        return None
    return search.value


def _uuid_not_found_error(key: str, most: int) -> MalformedMetadata:
    return MalformedMetadata(
        key,
        expected=f"a table-uuid in {most >> 20:,} MiB of JSON, and within {MAX_SCAN_STEPS:,} signs of it",
        found="none by then",
        remedy="ask the catalog which file is current: engines write it at the beginning",
    )


class _UuidScanner:
    """Looks for one key of the outermost object, and knows just as much JSON as that takes.

    Attributes:
        value: what was found, if it is a string.
        over: nothing that follows can change it.
    """

    def __init__(self) -> None:
        self.value: str | None = None
        self.over = False
        self._left = MAX_SCAN_STEPS
        self._depth = 0
        self._text: bytearray | None = None
        self._is_escaped = False
        self._last: str | None = None
        self._is_ours = False

    @property
    def is_exhausted(self) -> bool:
        """Whether it has taken as many steps as it may."""
        return self._left <= 0

    def feed(self, part: bytes) -> None:
        """Look at the next part, as far as steps are left."""
        at = 0
        while at < len(part) and not self.over and self._left > 0:
            self._left -= 1
            at = self._outside(part, at) if self._text is None else self._inside(self._text, part, at)

    def _outside(self, part: bytes, at: int) -> int:
        """Go to behind the next sign that means something."""
        if self._depth > 1 and (flat := _FLAT.match(part, at)) is not None:
            at = flat.end()
        sign = _SIGN.search(part, at)
        if sign is None:
            return len(part)
        match sign[0]:
            case b'"':
                self._text = bytearray()
            case b"{" | b"[":
                self._depth += 1
            case b"}" | b"]":
                self._depth -= 1
                self.over = self._depth <= 0
            case b":":
                self._is_ours = self._last == _KEY
            case b"," if self._depth == 1:
                self._is_ours = False
            case _:
                pass
        return sign.end()

    def _inside(self, text: bytearray, part: bytes, at: int) -> int:
        """Go to behind the next sign in a string."""
        if self._is_escaped:
            self._is_escaped = False
            self._keep(text, part[at : at + 1])
            return at + 1
        if (self._depth != 1 or len(text) == _MAX_VALUE_LENGTH) and (rest := _IN_STRING.match(part, at)) is not None:
            # Nothing of it is kept.
            at = rest.end()
        sign = _STRING_SIGN.search(part, at)
        if sign is None:
            self._keep(text, part[at:])
            return len(part)
        self._keep(text, part[at : sign.start()])
        if sign[0] == b"\\":
            self._is_escaped = True
            self._keep(text, b"\\")
        else:
            self._text = None
            self._closed(text)
        return sign.end()

    @staticmethod
    def _keep(text: bytearray, some: bytes) -> None:
        text += some[: _MAX_VALUE_LENGTH - len(text)]

    def _closed(self, text: bytearray) -> None:
        if self._depth != 1:
            return
        try:
            self._last = str(json.loads(f'"{text.decode()}"'))
        except ValueError:
            self._last = None
        if self._is_ours:
            self.value, self.over = self._last, True
