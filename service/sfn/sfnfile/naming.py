"""The names of SFN files and their folders; each naming is one frozen value (specification, section 3).

A file's name is an owner, `_`, a part and the extension. The owner is the table, by identifier or by uuid. The part is
a ref, `head`, or the Ordinal of one commit. No ref is encoded as either of the last two, so the name alone shows the
purpose of a file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from sfn.sfnfile.document import parse_ordinal, render_ordinal
from sfn.sfnfile.locations import canonical

EXTENSION: Final = ".ver"
MAIN_BRANCH: Final = "main"
"""The branch that every table has."""
HEAD: Final = "head"
"""The part of the file that names the newest commit, if each commit has a file."""

_ESCAPED = re.compile(rb"[^A-Za-z0-9_-]")
_ORDINAL = re.compile(r"\d{8}T\d{6}(?:\d{3})?", re.ASCII)
_ESCAPE_BEGUN = re.compile(r"%[0-9A-F]?$")
_MAX_NAME = 200
_CUT_LENGTH = 100
_MAX_REF = 100
_REF_CUT_LENGTH = 60


@dataclass(frozen=True, slots=True)
class FileOwner:
    """The table that a file name refers to.

    Attributes:
        namespace: the namespace levels, outermost first; may be empty.
        name: the table's own name.
        guid: the table's uuid; None if it has none or it is not known.
    """

    namespace: tuple[str, ...]
    name: str
    guid: str | None = None


@dataclass(frozen=True, slots=True)
class Naming:
    """One way to name files.

    Attributes:
        setting: the value in the settings.
        owner_part: the function that returns the owner in file names of a table; its second argument encodes `_` inside
            parts as `%5F` (the strict name). None if the naming does not apply to the table.
        main_part: the part of the file that is written first and orders all others: `MAIN_BRANCH` or `HEAD`.
        has_branch_files: each published branch has a file.
        has_commit_files: each commit has a file.
        is_by_uuid: consecutive tables of one identifier have separate files, and a table keeps its files through a
            rename.
    """

    setting: str
    owner_part: Callable[[FileOwner, bool], str | None]
    main_part: str
    has_branch_files: bool
    has_commit_files: bool
    is_by_uuid: bool

    def file_names(self, file_owner: FileOwner, ref: str | None = None) -> tuple[str, ...]:
        """Return the names of a table's main file, or of a branch file: the plain name and, if it differs, the strict
        one.

        Empty for a table that cannot be named this way: one without a uuid, with naming by uuid.
        """
        both = [(self.owner_part(file_owner, strict), self._part(ref, strict=strict)) for strict in (False, True)]
        return tuple(dict.fromkeys(_joined(owner, part) for owner, part in both if owner is not None))

    def commit_file_names(self, file_owner: FileOwner, ordinal: int) -> tuple[str, ...]:
        """Return the names of the file of one commit, as in `file_names`.

        Args:
            ordinal: Unix milliseconds.
        """
        owners = dict.fromkeys(self.owner_part(file_owner, strict) for strict in (False, True))
        return tuple(_joined(owner, render_ordinal(ordinal)) for owner in owners if owner is not None)

    def prefixes(self, file_owner: FileOwner) -> tuple[str, ...]:
        """Return the beginnings of all file names of an identifier; "" if its tables may have had any uuid."""
        if self.is_by_uuid:
            return ("",)
        owners = [self.owner_part(file_owner, strict) for strict in (False, True)]
        # At least this much of a longer owner remains, whatever part follows.
        return tuple(dict.fromkeys(_uncut_prefix(owner) for owner in owners if owner is not None))

    def _part(self, ref: str | None, *, strict: bool) -> str:
        return self.main_part if ref is None else _ref(ref, strict=strict)


def _by_identifier(file_owner: FileOwner, strict: bool) -> str:  # noqa: FBT001 - an `owner_part`
    levels = (
        [".".join(_encoded(level, strict=strict) for level in file_owner.namespace)] if file_owner.namespace else []
    )
    return "_".join([*levels, _encoded(file_owner.name, strict=strict)])


def _by_uuid(file_owner: FileOwner, _strict: bool) -> str | None:  # noqa: FBT001 - an `owner_part`
    return _encoded(file_owner.guid, strict=True) if file_owner.guid else None


IDENTIFIER: Final = Naming(
    "identifier", _by_identifier, MAIN_BRANCH, has_branch_files=True, has_commit_files=False, is_by_uuid=False
)
ORDINAL: Final = Naming(
    "ordinal", _by_identifier, HEAD, has_branch_files=False, has_commit_files=True, is_by_uuid=False
)
UUID: Final = Naming("uuid", _by_uuid, MAIN_BRANCH, has_branch_files=True, has_commit_files=False, is_by_uuid=True)

NAMINGS: Final[Mapping[str, Naming]] = MappingProxyType({one.setting: one for one in (IDENTIFIER, ORDINAL, UUID)})


@lru_cache(8192)
def commit_ordinal(file_name: str) -> int | None:
    """Return the Ordinal in the name of a commit's file, in Unix milliseconds; None for every other file."""
    part = file_name.removesuffix(EXTENSION).rpartition("_")[2]
    if part == file_name or not _ORDINAL.fullmatch(part):
        return None
    try:
        return parse_ordinal(part)
    except ValueError:
        return None


def owner_prefix(file_name: str) -> str:
    """Return the common beginning of the names of all files with the same owner in the same spelling."""
    return file_name.rpartition("_")[0]


def dotted_name(namespace: Sequence[str], name: str) -> str:
    """Return the identifier as one unambiguous text: encoded levels and name, joined by dots."""
    return ".".join(_encoded(part, strict=False) for part in (*namespace, name))


def table_folders(namespace: Sequence[str], name: str) -> str:
    """Return the folders of a table below a root: its namespace, if it has one, and its name."""
    levels = [".".join(_encoded(level, strict=False) for level in namespace)] if namespace else []
    return "/".join(_shortened(part) for part in [*levels, _encoded(name, strict=False)])


@lru_cache(4096)
def _encoded(text: str, *, strict: bool) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    encoded = _ESCAPED.sub(lambda byte: b"%%%02X" % ord(byte[0]), raw).decode("ascii")
    return encoded.replace("_", "%5F") if strict else encoded


def _ref(ref: str, *, strict: bool) -> str:
    """Return a ref as a part; one that would read as a head or a commit gets one more encoded character."""
    encoded = _encoded(ref, strict=strict)
    if len(encoded) > _MAX_REF:
        return _cut(encoded, _REF_CUT_LENGTH)
    start, separator, last = encoded.rpartition("_")
    if last == HEAD or _ORDINAL.fullmatch(last):
        return f"{start}{separator}%{ord(last[0]):02X}{last[1:]}"
    return encoded


def _joined(owner: str, part: str) -> str:
    whole = f"{owner}_{part}"
    if len(whole) > _MAX_NAME:
        # A plain ref may contain `_`. Then the text before the last one counts as the owner.
        owner, _, part = whole.rpartition("_")
        whole = f"{_cut(owner, _CUT_LENGTH)}_{part}"
    return whole + EXTENSION


def _uncut_prefix(owner: str) -> str:
    return f"{owner}_" if len(owner) < _CUT_LENGTH else _ESCAPE_BEGUN.sub("", owner[:_CUT_LENGTH])


def _shortened(folder: str) -> str:
    return folder if len(folder) <= _MAX_NAME else _cut(folder, _CUT_LENGTH)


def _cut(text: str, most: int) -> str:
    digest = hashlib.sha256(text.encode("ascii")).hexdigest()[:32]
    start = _ESCAPE_BEGUN.sub("", text[:most])
    return f"{start}~{digest}"


_SEPARATOR: Final = "#"
"""The separator after the location in an encoded layout; no writable location contains it."""


class Placement(StrEnum):
    """The folder of the files, in a table's directory or below a root."""

    INSIDE = "inside"
    ALONGSIDE = "alongside"
    ROOT = "root"


PLACEMENT_FOLDERS: Final = {Placement.INSIDE: "/metadata/_sfn/", Placement.ALONGSIDE: "/_sfn/", Placement.ROOT: "/"}
"""Folders below a layout's location; the leading underscore keeps Spark's orphan cleaner away."""

_TABLE_FOLDERS: Final = frozenset({"metadata", "_sfn"})
_MAX_DEPTH: Final = 3


@dataclass(frozen=True, slots=True)
class FileLayout:
    """A place where files of a table may lie, and how they are named there.

    A layout is stored as long as a file may be there, even after the settings have changed.

    Attributes:
        location: the canonical location of the table; with `Placement.ROOT`, of its folder below the root.
        naming: the naming of the files.
        placement: the folder of the files.
    """

    location: str
    naming: Naming = IDENTIFIER
    placement: Placement = Placement.INSIDE

    @classmethod
    def parse(cls, text: str) -> FileLayout:
        """Return the layout of an encoded text, see `encoded`."""
        location, _, rest = text.partition(_SEPARATOR)
        word, _, placement = rest.partition(",")
        # An earlier version may have stored another spelling of the location.
        return cls(canonical(location), NAMINGS[word or IDENTIFIER.setting], Placement(placement or Placement.INSIDE))

    @property
    def encoded(self) -> str:
        """The stored form: the location alone if naming and placement are the defaults."""
        if (self.naming, self.placement) == (IDENTIFIER, Placement.INSIDE):
            return self.location
        return f"{self.location}{_SEPARATOR}{self.naming.setting},{self.placement}"

    @property
    def folder(self) -> str:
        """The folder of the files, with a trailing slash."""
        return self.location + PLACEMENT_FOLDERS[self.placement]

    @property
    def has_version_hint(self) -> bool:
        """True if a version hint belongs there: not below a root, because the table's own directory is not touched."""
        return self.placement is not Placement.ROOT

    def keys(self, file_owner: FileOwner, ref: str | None = None) -> tuple[str, ...]:
        """Return the keys of a table's main file, or of a branch file: the plain key and, if it differs, the strict
        one.
        """
        return _keys(self, file_owner, ref)


@lru_cache(4_096)
def _keys(layout: FileLayout, file_owner: FileOwner, ref: str | None) -> tuple[str, ...]:
    # A publish computes the same keys again after each query.
    return tuple(layout.folder + name for name in layout.naming.file_names(file_owner, ref))


def depth_below_table(key: str) -> int:
    """Return how many of the last parts of a file's key lie below the table's location: its name and our folders.

    For a file in any other folder the table's location is unknown, and only the name counts.
    """
    names = key.rsplit("/", 3)[1:]
    if len(names) == _MAX_DEPTH and f"/{names[0]}/{names[1]}/" == PLACEMENT_FOLDERS[Placement.INSIDE]:
        return _MAX_DEPTH
    return 2 if len(names) > 1 and names[-2] in _TABLE_FOLDERS else 1


def layout_location(text: str) -> str:
    """Return the location of an encoded layout."""
    return text.partition(_SEPARATOR)[0]


def encoded_range(location: str) -> tuple[str, str]:
    """Return the bounds of all encoded layouts of a location, except for the plain location itself."""
    return location + _SEPARATOR, location + chr(ord(_SEPARATOR) + 1)


def folder_below_root(root: str, namespace: Sequence[str], name: str) -> str:
    """Return the folder of a table below a canonical root, without a trailing slash."""
    return f"{root}/{table_folders(namespace, name)}"
