"""`version-hint.text`: the pointer for readers that do not know SFN files (specification, section 6)."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache
from typing import Final

from sfn.domain.identifiers import Table
from sfn.sfnfile.locations import canonical

_SUFFIX = ".metadata.json"
_PATH = "/metadata/version-hint.text"
_WITHDRAWN = b"sfn-withdrawn-"

_COUNTER = re.compile(r"v(0|[1-9][0-9]*)")
"""`v3`, as Hadoop tables name their metadata. Not `v03`: a reader of numbers would open `v3`."""
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Characters that no reader trims, decodes or encodes on the way to a file."""
_DIGITS = re.compile(r"v(\d+)")


def key_of(location: str) -> str:
    """Return the key of the version hint at a canonical table location."""
    return f"{location}{_PATH}"


def location_of(key: str) -> str | None:
    """Return the table location of a hint's key; None for the key of another file."""
    return key.removesuffix(_PATH) if key.endswith(_PATH) else None


@lru_cache(1024)
def text_for(pointer: str) -> str | None:
    """Return the text of a hint that names a metadata file.

    The text is the digits of `v<digits>`, else the file name without the suffix.

    Returns:
        None if some reader would open another file for every possible text (see `shadowing_file` for names that depend
        on other files): another suffix, as `….metadata.json.gz`, or the suffix twice; a number, which readers take for
        `v<number>`; characters that readers change; the text of a cleared hint.
    """
    text = _base_name(pointer)
    if text is None or _PLAIN.fullmatch(text) is None or _is_number(text) or is_cleared(text.encode()):
        return None
    counter = _COUNTER.fullmatch(text)
    return counter[1] if counter else text


def shadowing_file(table: Table) -> str | None:
    """Return the file that DuckDB would open instead of a table's metadata file if that file exists; None without one.

    DuckDB tries `v<hint>.metadata.json` before `<hint>.metadata.json`. Only a hint of digits means the former.
    """
    text = text_for(table.metadata_location)
    if text is None or is_numbered(text):
        return None
    return f"{canonical(table.location)}/metadata/v{text}{_SUFFIX}"


def known_texts(pointer: str) -> tuple[str, ...]:
    """Return all texts that any version of this service writes or wrote to name a metadata file."""
    text = _base_name(pointer)
    if text is None:
        return ()
    digits = _DIGITS.fullmatch(text)
    # Earlier versions took `v03` for a counter, and used any other name unchanged.
    former = digits[1] if digits else text
    return tuple(dict.fromkeys(one for one in (text_for(pointer), former) if one is not None))


def is_numbered(text: str) -> bool:
    """Return whether a hint may belong to a Hadoop table (a table without a catalog), with writers that update it."""
    return text.isdecimal()


def _base_name(pointer: str) -> str | None:
    """Return a metadata file's name without its suffix; None if the name has another suffix, or the suffix twice."""
    name = pointer.rsplit("/", 1)[-1]
    text = name.removesuffix(_SUFFIX)
    # Readers would take a text with the suffix for a complete file name, and open another file.
    return None if text in {"", name} or text.endswith(_SUFFIX) else text


def _is_number(text: str) -> bool:
    """Return whether a reader may parse a text as a number: `3`, `1e3`, `3.5`, `1_000`."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def content(table: Table) -> bytes | None:
    """Return the hint's bytes for a table, without a newline; None if its metadata is not directly in `metadata/`."""
    text = text_for(table.metadata_location)
    folder = canonical(table.metadata_location).rsplit("/", 1)[0]
    if text is None or folder != f"{canonical(table.location)}/metadata":
        return None
    return text.encode()


def cleared_content(nonce: str) -> bytes:
    """Return the content of a cleared hint, which every reader refuses.

    It replaces a hint that is outdated and cannot be deleted safely, and it precedes each new hint for a moment. A
    hint's own content can repeat, this content cannot, so a writer that slept cannot confuse the two.
    """
    return _WITHDRAWN + nonce.encode()


def is_cleared(body: bytes) -> bool:
    """Return whether a hint names nothing."""
    return not body or body.startswith(_WITHDRAWN)


SHORT_LIFETIME: Final = timedelta(hours=1)
"""Tables with metadata files that live shorter than this go first.

A backlog of 100,000 tables takes about an hour at thirty tables per second, after a catalog or a store was away.
"""
_MIN_COMMITS: Final = 10
"""Fewest commits from which a commit rate is derived; fewer may be those that created the table."""


def metadata_lifetime(table: Table) -> timedelta | None:
    """Return the time from when a metadata file is replaced until a commit deletes it, at the last commit rate.

    Each of the newest `previous_versions_max` files still exists. The times come from writers with different clocks, so
    implausible times are ignored.

    Returns:
        None if no file is deleted, or if the log does not have enough entries.
    """
    max_versions, log = table.previous_versions_max, table.log_times
    commits = min(len(log), max_versions or 0)
    if max_versions is None or commits < min(max_versions, _MIN_COMMITS):
        return None
    began, ended = log[-commits], table.last_updated_ms
    if not 0 < began < ended:
        return None
    return timedelta(milliseconds=ended - began) * (max_versions / commits)


def is_short_lived(table: Table) -> bool:
    """Return whether a table's metadata files are deleted so soon that its publish must not wait behind a backlog."""
    lives = metadata_lifetime(table)
    return lives is not None and lives < SHORT_LIFETIME
