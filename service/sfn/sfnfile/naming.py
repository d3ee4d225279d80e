"""What SFN files are called: each naming is one frozen row (specification, section 3).

A file's name is an owner, `_`, a part and the extension. The owner says whose it is, by identifier or by table uuid;
the part says which of the owner's files it is: a ref, `head`, or the Ordinal of one commit. No ref spells either of the
last two, so a name alone tells what a file is for.
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

# ── naming: What SFN files are called

EXTENSION: Final = ".ver"
MAIN_BRANCH: Final = "main"
"""The branch that every table has."""
HEAD: Final = "head"
"""The part of the file that names the newest of a table's commits, where each has a file."""

_ESCAPED = re.compile(rb"[^A-Za-z0-9_-]")
_ORDINAL = re.compile(r"\d{8}T\d{6}(?:\d{3})?", re.ASCII)
_ESCAPE_BEGUN = re.compile(r"%[0-9A-F]?$")
_MAX_NAME = 200
_CUT_LENGTH = 100
_MAX_REF = 100
_REF_CUT_LENGTH = 60


@dataclass(frozen=True, slots=True)
class FileOwner:
    """What a file name may tell of a table.

    Attributes:
        namespace: levels, outermost first; may be empty.
        name: the table's own name.
        guid: its uuid; None where it has none, or where it is not known.
    """

    namespace: tuple[str, ...]
    name: str
    guid: str | None = None


@dataclass(frozen=True, slots=True)
class Naming:
    """One way to call files.

    Attributes:
        setting: what the settings call it.
        owner_part: of a table, and whether `_` inside its parts is `%5F`: how its files' names begin; None where the
            table has nothing to be called by.
        main_part: the part of the file that is written first and orders all others: `MAIN_BRANCH` or `HEAD`.
        has_branch_files: each branch that is published has a file.
        has_commit_files: each commit has a file.
        is_by_uuid: tables that had one identifier after another have files beside each other, and a table keeps its
            files when it is renamed.
    """

    setting: str
    owner_part: Callable[[FileOwner, bool], str | None]
    main_part: str
    has_branch_files: bool
    has_commit_files: bool
    is_by_uuid: bool

    def file_names(self, file_owner: FileOwner, ref: str | None = None) -> tuple[str, ...]:
        """The name of a table's leading file, or of a branch's: the plain one and, where it differs, the strict one.

        Empty for a table that this naming can't name: one without a uuid that is to be called by it.
        """
        both = [(self.owner_part(file_owner, strict), self._part(ref, strict=strict)) for strict in (False, True)]
        return tuple(dict.fromkeys(_joined(owner, part) for owner, part in both if owner is not None))

    def commit_file_names(self, file_owner: FileOwner, ordinal: int) -> tuple[str, ...]:
        """As `names`, of the file of one commit.

        Args:
            ordinal: Unix milliseconds.
        """
        owners = dict.fromkeys(self.owner_part(file_owner, strict) for strict in (False, True))
        return tuple(_joined(owner, render_ordinal(ordinal)) for owner in owners if owner is not None)

    def prefixes(self, file_owner: FileOwner) -> tuple[str, ...]:
        """How the names of all files of an identifier begin; "" where its tables may have had any uuid."""
        if self.is_by_uuid:
            return ("",)
        owners = [self.owner_part(file_owner, strict) for strict in (False, True)]
        # Of a longer one so much is left at least, whatever the part behind it.
        return tuple(dict.fromkeys(_uncut_prefix(owner) for owner in owners if owner is not None))

    def _part(self, ref: str | None, *, strict: bool) -> str:
        return self.main_part if ref is None else _ref(ref, strict=strict)


def _by_identifier(file_owner: FileOwner, strict: bool) -> str:  # noqa: FBT001 - a row's function
    levels = (
        [".".join(_encoded(level, strict=strict) for level in file_owner.namespace)] if file_owner.namespace else []
    )
    return "_".join([*levels, _encoded(file_owner.name, strict=strict)])


def _by_uuid(file_owner: FileOwner, _strict: bool) -> str | None:  # noqa: FBT001 - a row's function
    return _encoded(file_owner.guid, strict=True) if file_owner.guid else None


IDENTIFIER: Final = Naming(
    "identifier", _by_identifier, MAIN_BRANCH, has_branch_files=True, has_commit_files=False, is_by_uuid=False
)
ORDINAL: Final = Naming(
    "ordinal", _by_identifier, HEAD, has_branch_files=False, has_commit_files=True, is_by_uuid=False
)
UUID: Final = Naming("uuid", _by_uuid, MAIN_BRANCH, has_branch_files=True, has_commit_files=False, is_by_uuid=True)

NAMINGS: Final[Mapping[str, Naming]] = MappingProxyType({row.setting: row for row in (IDENTIFIER, ORDINAL, UUID)})


@lru_cache(8192)
def commit_ordinal(file_name: str) -> int | None:
    """The Ordinal of the commit that a file is for, in Unix milliseconds; None for every other file."""
    part = file_name.removesuffix(EXTENSION).rpartition("_")[2]
    if part == file_name or not _ORDINAL.fullmatch(part):
        return None
    try:
        return parse_ordinal(part)
    except ValueError:
        return None


def owner_prefix(file_name: str) -> str:
    """How the names of all files begin that have the same owner, in the same spelling."""
    return file_name.rpartition("_")[0]


def dotted_name(namespace: Sequence[str], name: str) -> str:
    """The identifier as one unambiguous text: encoded levels and name, joined by dots."""
    return ".".join(_encoded(part, strict=False) for part in (*namespace, name))


def table_folders(namespace: Sequence[str], name: str) -> str:
    """The folders of a table below a root of their own: its namespace, if it has one, and its name."""
    levels = [".".join(_encoded(level, strict=False) for level in namespace)] if namespace else []
    return "/".join(_shortened(part) for part in [*levels, _encoded(name, strict=False)])


@lru_cache(4096)
def _encoded(text: str, *, strict: bool) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    encoded = _ESCAPED.sub(lambda byte: b"%%%02X" % ord(byte[0]), raw).decode("ascii")
    return encoded.replace("_", "%5F") if strict else encoded


def _ref(ref: str, *, strict: bool) -> str:
    """A ref as a part; what would be taken for a head's or a commit's has a character encoded that needs it not."""
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
        # A plain ref may hold a `_`: what is before the last one is the owner then.
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


# ── site: Where SFN files lie

_SEPARATOR: Final = "#"
"""Parts a location from the rest of a site's text: no location that files are written to has it."""


class Placement(StrEnum):
    """In which folder of a table's, or of a root's, its files lie."""

    INSIDE = "inside"
    ALONGSIDE = "alongside"
    ROOT = "root"


PLACEMENT_FOLDERS: Final = {Placement.INSIDE: "/metadata/_sfn/", Placement.ALONGSIDE: "/_sfn/", Placement.ROOT: "/"}
"""Below a site's location; a leading underscore keeps Spark's orphan cleanup away."""

_TABLE_FOLDERS: Final = frozenset({"metadata", "_sfn"})
_MAX_DEPTH: Final = 3


@dataclass(frozen=True, slots=True)
class FileLayout:
    """A place where files of a table may lie, and what they are called there.

    It is remembered for as long as a file may be there, whatever the settings say by then.

    Attributes:
        location: canonical location of the table; with `Placement.ROOT` of its own folder below the root.
        naming: what its files are called.
        placement: which folder it is.
    """

    location: str
    naming: Naming = IDENTIFIER
    placement: Placement = Placement.INSIDE

    @classmethod
    def parse(cls, text: str) -> FileLayout:
        """The site that a text stands for, see `text`."""
        location, _, rest = text.partition(_SEPARATOR)
        word, _, placement = rest.partition(",")
        # An earlier version may have taken another spelling for a place of its own.
        return cls(canonical(location), NAMINGS[word or IDENTIFIER.setting], Placement(placement or Placement.INSIDE))

    @property
    def encoded(self) -> str:
        """As it is remembered: the location alone where all else is as it is by default."""
        if (self.naming, self.placement) == (IDENTIFIER, Placement.INSIDE):
            return self.location
        return f"{self.location}{_SEPARATOR}{self.naming.setting},{self.placement}"

    @property
    def folder(self) -> str:
        """Where the files lie, with a trailing slash."""
        return self.location + PLACEMENT_FOLDERS[self.placement]

    @property
    def has_version_hint(self) -> bool:
        """Whether a version hint belongs there: not where the table's own directory is none of our business."""
        return self.placement is not Placement.ROOT

    def keys(self, file_owner: FileOwner, ref: str | None = None) -> tuple[str, ...]:
        """Where a table's leading file is, or a branch's: the plain key and, where it differs, the strict one."""
        return _keys(self, file_owner, ref)


@lru_cache(4_096)
def _keys(layout: FileLayout, file_owner: FileOwner, ref: str | None) -> tuple[str, ...]:
    # A publish asks for the same ones with everything that it learns.
    return tuple(layout.folder + name for name in layout.naming.file_names(file_owner, ref))


def depth_below_table(key: str) -> int:
    """How many of the last names of a file's key lie below the table's location: its own, and those of our folders.

    Of a file in any other folder nothing tells where the table's location is, and only its own name counts.
    """
    names = key.rsplit("/", 3)[1:]
    if len(names) == _MAX_DEPTH and f"/{names[0]}/{names[1]}/" == PLACEMENT_FOLDERS[Placement.INSIDE]:
        return _MAX_DEPTH
    return 2 if len(names) > 1 and names[-2] in _TABLE_FOLDERS else 1


def layout_location(text: str) -> str:
    """The location of a site's text."""
    return text.partition(_SEPARATOR)[0]


def encoded_range(location: str) -> tuple[str, str]:
    """The texts of a location's sites, but the one that is the location itself, lie between these two."""
    return location + _SEPARATOR, location + chr(ord(_SEPARATOR) + 1)


def folder_below_root(root: str, namespace: Sequence[str], name: str) -> str:
    """The folder of a table below a canonical root, without a trailing slash."""
    return f"{root}/{table_folders(namespace, name)}"
