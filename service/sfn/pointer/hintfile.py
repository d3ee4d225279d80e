"""`version-hint.text`: the pointer for readers that know nothing of SFN files (specification, section 6)."""

from __future__ import annotations

import re

from sfn.pointer.location import canonical
from sfn.words import Table

_SUFFIX = ".metadata.json"
_HADOOP = re.compile(r"v(\d+)")

_PATH = "/metadata/version-hint.text"
_WITHDRAWN = b"sfn-withdrawn-"


def key(location: str) -> str:
    """Where the hint of a canonical table location lies."""
    return f"{location}{_PATH}"


def location_of(key: str) -> str | None:
    """Return the table location of a hint's key; None if the key is another file's."""
    return key.removesuffix(_PATH) if key.endswith(_PATH) else None


def stem(pointer: str) -> str | None:
    """What a hint says to name a metadata file: its name without the suffix, just the digits of `v<digits>`.

    Returns:
        None where no such text exists (another suffix, as `….metadata.json.gz`, or the suffix twice).
    """
    name = pointer.rsplit("/", 1)[-1]
    text = name.removesuffix(_SUFFIX)
    # A text with the suffix would be taken for a whole name, and so for another file's.
    if text in {"", name} or text.endswith(_SUFFIX):
        return None
    match = _HADOOP.fullmatch(text)
    return match[1] if match else text


def is_numbered(text: str) -> bool:
    """Whether a hint may be one of a table that is nothing but a folder (Hadoop's), whose writers keep it."""
    return text.isdecimal()


def content(table: Table) -> bytes | None:
    """The hint's bytes for a table, without a newline; None where its metadata does not lie directly in `metadata/`."""
    text = stem(table.metadata_location)
    folder = canonical(table.metadata_location).rsplit("/", 1)[0]
    if text is None or folder != f"{canonical(table.location)}/metadata":
        return None
    return text.encode()


def withdrawn(nonce: str) -> bytes:
    """A hint that names nothing: every reader refuses it.

    It stands where a hint must not speak any more and can't be deleted safely, and for a moment before a hint is made:
    a hint's own content can repeat, this one does not, so a writer that slept can't mistake the one for the other.
    """
    return _WITHDRAWN + nonce.encode()


def is_withdrawn(body: bytes) -> bool:
    """Whether a hint names nothing."""
    return not body or body.startswith(_WITHDRAWN)
