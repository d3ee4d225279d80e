"""Where SFN files lie (specification, section 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from sfn.pointer import naming
from sfn.pointer.location import canonical
from sfn.pointer.naming import IDENTIFIER, NAMINGS, FileOwner, Naming

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
    return f"{root}/{naming.table_folders(namespace, name)}"
