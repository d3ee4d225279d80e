"""The ports of the facade: a read-only Iceberg REST catalog that is answered from SFN files.

app          requests and answers                       routes    which question a request is (pure)
exchange     an answer's way to its client              process   what a facade alone tells of itself
loading      a table's answer, and its tag              served    what is served of a metadata file (pure)
index        which tables there are                     listing   what one scan found of them
roster       tables that the service published          walk      tables that lie below folders
directories  tables that are called by their directory  refusals  what clients are told of errors
trees        files below one root                       beneath   those of this machine, and none outside of it
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from sfn.reader.files import FileReader, FolderEntries
from sfn.reader.resolve import MetadataPointer, Question

Namespace: TypeAlias = tuple[str, ...]


class FileTree(FileReader, Protocol):
    """The files below one root, and none else: a key outside of it is refused before anything is opened. For walks."""

    async def entries(self, prefix: str) -> FolderEntries:
        """What lies directly below a prefix that ends in `/`; nothing where there is no such folder.

        Raises:
            NotPermitted, Unreachable: the answer can't be had.
        """
        ...


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where a table is looked up.

    Attributes:
        tree: the files below one root of the allow-list, and none else. The table's SFN file, its metadata file and
            the location in that lie there.
        question: what the reader of SFN files is asked; leads nowhere outside of that root.
        pinned: the answer, where it was given before and is to stay.
        rivals: other directories whose SFN files have the same name for their table.
    """

    tree: FileReader
    question: Question
    pinned: MetadataPointer | None = None
    rivals: tuple[str, ...] = ()


class TableSource(Protocol):
    """Which tables a catalog has."""

    async def tables(self) -> Mapping[Namespace, Mapping[str, TablePlace]]:
        """All of them, by namespace and name.

        Raises:
            Unreadable, Trouble: they can't be listed.
        """
        ...

    async def find(self, namespace: Namespace, name: str, *, refresh: bool = False) -> TablePlace | None:
        """One of them; None where there is none.

        Args:
            refresh: it is not any more where it was known to lie.

        Raises:
            Ambiguous: several directories have a table of that name.
            Unreadable, Trouble: nobody can tell.
        """
        ...


Scan: TypeAlias = Callable[[], AsyncIterator[tuple[Namespace, str, TablePlace]]]
"""Looks through tables anew. Raises `TooManyFiles` once it came to its bound: what it found until then counts."""
