"""The tables that lie below some folders, found by walking through them."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Final

import structlog

from sfn.errors import TooManyFiles, Unreachable, Unreadable
from sfn.facade import FileTree, Namespace, Scan, TablePlace
from sfn.reader.documents import read_document
from sfn.reader.files import FolderEntries
from sfn.reader.resolve import Question
from sfn.sfnfile.document import Document
from sfn.sfnfile.locations import longest_prefix
from sfn.sfnfile.naming import EXTENSION, HEAD, MAIN_BRANCH

MAX_DEPTH: Final = 12
"""Folders between a root and a table."""
MAX_VISITED: Final = 200_000
"""Folders and SFN files that one walk looks into."""
MAX_WARNINGS: Final = 100
"""Warnings of one walk."""

_SFN_FOLDER: Final = "_sfn"
_METADATA: Final = "metadata"
_SFN_SUFFIXES: Final = tuple(f"_{part}{EXTENSION}" for part in (MAIN_BRANCH, HEAD))

_log = structlog.stdlib.get_logger(__name__)


def folder_scans(trees: Mapping[str, FileTree]) -> list[Scan]:
    """A look through all folders of each root.

    Args:
        trees: by the canonical location of each root.
    """
    return [_FolderScan(root, trees) for root in trees]


class _FolderScan:
    """Implements `Scan`. What one walk told of the next one does not tell again."""

    def __init__(self, root: str, trees: Mapping[str, FileTree]) -> None:
        self._root, self._trees = root, trees
        self._warned: frozenset[str] = frozenset()

    async def __call__(self) -> AsyncIterator[tuple[Namespace, str, TablePlace]]:
        tree = self._trees[self._root]
        walk = _FolderWalk(self._root, tree, self._warned)
        async for directory, doc in walk.tables():
            # What lies below a root inside of this one is that root's.
            if longest_prefix(directory, self._trees) == self._root:
                question = Question(directory, (*doc.namespace, doc.name), allowed=(self._root,))
                yield doc.namespace, doc.name, TablePlace(tree, question)
        self._warned = frozenset(walk.hidden)
        if walk.is_cut:
            remedy = "have the facade started with the folders below that hold the tables"
            raise TooManyFiles(
                self._root, expected=f"at most {MAX_VISITED:,} folders and SFN files", found="more", remedy=remedy
            )


class _FolderWalk:
    """One walk below one root, from the top down. What can't be read hides no other table; what does not answer may
    hide any.

    Attributes:
        hidden: what it told that nobody looked into.
        is_cut: it came to its bound.
    """

    def __init__(self, root: str, tree: FileTree, warned_before: frozenset[str]) -> None:
        self._root, self._tree, self._warned_before = root, tree, warned_before
        self._left = MAX_VISITED
        self.hidden: set[str] = set()
        self.is_cut = False

    async def tables(self) -> AsyncIterator[tuple[str, Document]]:
        """The directories of tables, each with the live document of one that lies there."""
        folders = deque([(self._root, 0)])
        while folders:
            directory, depth = folders.popleft()
            found = await self._entries(f"{directory}/")
            if found is None:
                continue
            inside = await self._entries(f"{directory}/{_METADATA}/") if _METADATA in found.folders else FolderEntries()
            if inside is None:
                continue
            for folder in _places(directory, found, inside):
                async for doc in self._documents(folder):
                    yield directory, doc
            if depth < MAX_DEPTH and not _is_tables(inside):
                # A link leads to where the walk comes anyway, or back to where it was.
                links = frozenset(found.links)
                names = sorted(name for name in found.folders if name[0] not in "._" and name not in links)
                # More of them would never have their turn.
                room = self._left - len(folders)
                self.is_cut |= len(names) > room
                folders.extend((f"{directory}/{name}", depth + 1) for name in names[: max(room, 0)])

    async def _documents(self, folder: str) -> AsyncIterator[Document]:
        found = await self._entries(folder)
        for name in sorted(found.files if found is not None else ()):
            if not name.endswith(_SFN_SUFFIXES) or not self._may_visit():
                continue
            try:
                start = await read_document(self._tree, folder + name)
            except Unreachable:
                raise
            except Unreadable as refusal:
                self._warn("file not shown", folder + name, refusal)
                continue
            if start is not None and start.doc.is_live and start.doc.ref == MAIN_BRANCH:
                yield start.doc

    async def _entries(self, prefix: str) -> FolderEntries | None:
        """What lies in a folder; None for one that nobody is shown."""
        if not self._may_visit():
            return None
        try:
            return await self._tree.entries(prefix)
        except Unreachable:
            raise
        except Unreadable as refusal:
            self._warn("folder not looked into", prefix, refusal)
            return None

    def _may_visit(self) -> bool:
        self._left -= 1
        self.is_cut |= self._left < 0
        return self._left >= 0

    def _warn(self, what: str, where: str, why: Unreadable) -> None:
        if len(self.hidden) >= MAX_WARNINGS:
            return
        self.hidden.add(where)
        if where not in self._warned_before:
            _log.warning(what, where=where, error=str(why))


def _places(directory: str, found: FolderEntries, inside: FolderEntries) -> list[str]:
    """Where SFN files may be.

    Args:
        inside: what is in its `metadata`.
    """
    places = [f"{directory}/{_METADATA}/{_SFN_FOLDER}/"] if _SFN_FOLDER in inside.folders else []
    if _SFN_FOLDER in found.folders:
        places.append(f"{directory}/{_SFN_FOLDER}/")
    if any(name.endswith(EXTENSION) for name in found.files):
        places.append(f"{directory}/")
    return places


def _is_tables(inside: FolderEntries) -> bool:
    """Whether a directory is a table's own: what is below is data. A namespace may be called `metadata`, too."""
    return _SFN_FOLDER in inside.folders or any(name.endswith(".metadata.json") for name in inside.files)
