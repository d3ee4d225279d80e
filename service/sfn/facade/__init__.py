"""The facade: a read-only Iceberg REST catalog that is answered from SFN files.

Start reading with `app.Facade`, the ASGI application. It gets the tables of a catalog from a `TableSource`, and answers
requests for single tables with a `tables.TableLoader`.

    app             requests and responses; probes of a standalone facade
    routes          parsing of requests, pagination, and responses to errors (pure)
    tables          answers requests for one table; finds the tables that this service has published
    discovery       table sources that scan folders for SFN files
    metadata_files  files below one root; nothing outside of the root is ever opened

`TablePlace`, `TableSource` and `FileTree` are defined here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from sfn.reader.files import FileReader, FolderEntries
from sfn.reader.resolve import MetadataPointer, Question

Namespace: TypeAlias = tuple[str, ...]


class FileTree(FileReader, Protocol):
    """The files below one root, for scans. A key outside of the root is refused before anything is opened."""

    async def entries(self, prefix: str) -> FolderEntries:
        """Return the entries of a folder; none if the folder does not exist.

        Args:
            prefix: canonical URL of the folder, with a `/` at the end.

        Raises:
            NotPermitted, Unreachable: the folder cannot be listed.
        """
        ...


@dataclass(frozen=True, slots=True)
class TablePlace:
    """The place where a table is read.

    Attributes:
        tree: files below one allowed root, which must hold the table's SFN file, its metadata file and its location.
        question: question for the reader of SFN files; it allows no place outside of that root.
        pinned: fixed answer; None to resolve the table at each request.
        rivals: other directories with an SFN file of the same table name.
    """

    tree: FileReader
    question: Question
    pinned: MetadataPointer | None = None
    rivals: tuple[str, ...] = ()


class TableSource(Protocol):
    """The tables of a catalog of the facade."""

    async def tables(self) -> Mapping[Namespace, Mapping[str, TablePlace]]:
        """Return all tables, by namespace and name.

        Raises:
            Unreadable, ExternalError: the tables cannot be listed.
        """
        ...

    async def find(self, namespace: Namespace, name: str, *, refresh: bool = False) -> TablePlace | None:
        """Return the place of a table; None if the table does not exist.

        Args:
            namespace, name: name of the table.
            refresh: do not use a cached place, because the table is not there any more.

        Raises:
            Ambiguous: several directories have a table of that name.
            Unreadable, ExternalError: the answer is not known.
        """
        ...


Scan: TypeAlias = Callable[[], AsyncIterator[tuple[Namespace, str, TablePlace]]]
"""Scans for tables. Raises `TooManyFiles` when the scan reaches its limit; the tables found until then are valid."""
