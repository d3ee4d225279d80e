"""`version-hint.text`: the pointer for readers that know nothing of SFN files (specification, section 6)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from sfn.domain.identifiers import Table
from sfn.sfnfile.locations import canonical

# ── hintfile: `version-hint

_SUFFIX = ".metadata.json"
_PATH = "/metadata/version-hint.text"
_WITHDRAWN = b"sfn-withdrawn-"

_COUNTER = re.compile(r"v(0|[1-9][0-9]*)")
"""`v3`, as Hadoop tables call their metadata. Not `v03`: a reader of numbers takes it for `v3`."""
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Characters that no reader trims, decodes or encodes on the way to a file."""
_DIGITS = re.compile(r"v(\d+)")


def key_of(location: str) -> str:
    """Where the hint of a canonical table location lies."""
    return f"{location}{_PATH}"


def location_of(key: str) -> str | None:
    """Return the table location of a hint's key; None if the key is another file's."""
    return key.removesuffix(_PATH) if key.endswith(_PATH) else None


def text_for(pointer: str) -> str | None:
    """The text of a hint that names a metadata file: just the digits of `v<digits>`, else the name without the suffix.

    Returns:
        None if some reader opens another file for every possible text (see `rival` for names that depend on what else
        lies there): another suffix, as `….metadata.json.gz`, or the suffix twice; a number, which readers take for
        `v<number>`; characters that readers do not pass on as they are; the text of a withdrawn hint.
    """
    text = _base_name(pointer)
    if text is None or _PLAIN.fullmatch(text) is None or _is_number(text) or is_cleared(text.encode()):
        return None
    counter = _COUNTER.fullmatch(text)
    return counter[1] if counter else text


def shadowing_file(table: Table) -> str | None:
    """The file that DuckDB opens instead of a table's metadata file if that file exists; None if there is none.

    DuckDB tries `v<hint>.metadata.json` before `<hint>.metadata.json`. Only a hint of digits means the former.
    """
    text = text_for(table.metadata_location)
    if text is None or is_numbered(text):
        return None
    return f"{canonical(table.location)}/metadata/v{text}{_SUFFIX}"


def known_texts(pointer: str) -> tuple[str, ...]:
    """Every text that a version of this service writes, or once wrote, to name a metadata file."""
    text = _base_name(pointer)
    if text is None:
        return ()
    digits = _DIGITS.fullmatch(text)
    # Earlier versions took `v03` for a counter, and any other name as it is.
    former = digits[1] if digits else text
    return tuple(dict.fromkeys(one for one in (text_for(pointer), former) if one is not None))


def is_numbered(text: str) -> bool:
    """Whether a hint may be one of a table that is nothing but a folder (Hadoop's), whose writers keep it."""
    return text.isdecimal()


def _base_name(pointer: str) -> str | None:
    """A metadata file's name without its suffix; None if the name has another suffix, or the suffix twice."""
    name = pointer.rsplit("/", 1)[-1]
    text = name.removesuffix(_SUFFIX)
    # A text with the suffix would be taken for a whole name, and so for another file's.
    return None if text in {"", name} or text.endswith(_SUFFIX) else text


def _is_number(text: str) -> bool:
    """Whether a reader may take a text for a number: `3`, `1e3`, `3.5`, `1_000`."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def content(table: Table) -> bytes | None:
    """The hint's bytes for a table, without a newline; None where its metadata does not lie directly in `metadata/`."""
    text = text_for(table.metadata_location)
    folder = canonical(table.metadata_location).rsplit("/", 1)[0]
    if text is None or folder != f"{canonical(table.location)}/metadata":
        return None
    return text.encode()


def cleared_content(nonce: str) -> bytes:
    """A hint that names nothing: every reader refuses it.

    It stands where a hint must not speak any more and can't be deleted safely, and for a moment before a hint is made:
    a hint's own content can repeat, this one does not, so a writer that slept can't mistake the one for the other.
    """
    return _WITHDRAWN + nonce.encode()


def is_cleared(body: bytes) -> bool:
    """Whether a hint names nothing."""
    return not body or body.startswith(_WITHDRAWN)


# ── retention: How long a superseded metadata file stays where commits delete the older ones

SHORT_LIFETIME: Final = timedelta(hours=1)
"""A table whose metadata files live shorter goes before others: so long takes a backlog of 100,000 tables, at thirty a
second, after a catalog or store was away."""
_MIN_COMMITS: Final = 10
"""Commits from which it is told how often others come: fewer may be those that made the table."""


def metadata_lifetime(table: Table) -> timedelta | None:
    """From when a metadata file is superseded until a commit deletes it, if commits come as often as they last did.

    Each of the newest `versions_kept` is still there. The times are the writers', and their clocks may differ: what
    makes no sense tells nothing.

    Returns:
        None where none is deleted, or the log tells too little.
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
    """Whether a pointer to its metadata is soon one to nothing, and must not wait behind a backlog."""
    lives = metadata_lifetime(table)
    return lives is not None and lives < SHORT_LIFETIME
