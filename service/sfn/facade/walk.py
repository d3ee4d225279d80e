"""The tables that lie below some folders, found by walking through them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final

import structlog

from sfn.errors import TooManyFiles, Unreachable, Unreadable
from sfn.facade import Namespace, Place, Scan, Tree
from sfn.facade.roster import root_of
from sfn.pointer.document import Document
from sfn.pointer.naming import EXTENSION, HEAD, MAIN
from sfn.reader.documents import read
from sfn.reader.files import Entries
from sfn.reader.resolve import Question

DEEPEST: Final = 12
"""Folders between a root and a table."""
MOST: Final = 200_000
"""Folders that one walk looks into."""

_OURS: Final = "_sfn"
_METADATA: Final = "metadata"
_LEADS: Final = tuple(f"_{part}{EXTENSION}" for part in (MAIN, HEAD))

_log = structlog.stdlib.get_logger(__name__)


def walked(trees: Mapping[str, Tree]) -> Scan:
    """Looks through all folders.

    Args:
        trees: by the canonical location of each root.
    """
    return partial(_walked, trees)


async def _walked(trees: Mapping[str, Tree]) -> AsyncIterator[tuple[Namespace, str, Place]]:
    for root, tree in trees.items():
        async for directory, doc in _Walk(root, tree).tables():
            # What lies below a root inside of this one is that root's.
            if root_of(directory, trees) == root:
                question = Question(directory, (*doc.namespace, doc.name), allowed=(root,))
                yield doc.namespace, doc.name, Place(tree, question)


class _Walk:
    """One walk below one root. What can't be read hides no other table; what does not answer may hide any."""

    def __init__(self, root: str, tree: Tree) -> None:
        self._root, self._tree = root, tree
        self._looked_into = 0

    async def tables(self) -> AsyncIterator[tuple[str, Document]]:
        """The directories of tables, each with the live document of one that lies there."""
        left = [(self._root, 0)]
        while left:
            directory, depth = left.pop()
            found = await self._entries(f"{directory}/")
            if found is None:
                continue
            inside = await self._entries(f"{directory}/{_METADATA}/") if _METADATA in found.folders else Entries()
            if inside is None:
                continue
            for folder in _places(directory, found, inside):
                async for doc in self._documents(folder):
                    yield directory, doc
            if depth < DEEPEST and not _is_tables(inside):
                # A link leads to where the walk comes anyway, or back to where it was.
                names = [name for name in found.folders if name[0] not in "._" and name not in found.links]
                left += [(f"{directory}/{name}", depth + 1) for name in names]

    async def _documents(self, folder: str) -> AsyncIterator[Document]:
        found = await self._entries(folder)
        for name in sorted(found.files if found is not None else ()):
            if not name.endswith(_LEADS):
                continue
            try:
                start = await read(self._tree, folder + name)
            except Unreachable:
                raise
            except Unreadable as refusal:
                _log.warning("file not shown", file=folder + name, error=str(refusal))
                continue
            if start is not None and start.doc.live and start.doc.ref == MAIN:
                yield start.doc

    async def _entries(self, prefix: str) -> Entries | None:
        """What lies in a folder; None for one that nobody is shown."""
        self._looked_into += 1
        if self._looked_into > MOST:
            remedy = "name the folders below that hold the tables"
            raise TooManyFiles(self._root, expected=f"at most {MOST:,} folders", found="more", remedy=remedy)
        try:
            return await self._tree.entries(prefix)
        except Unreachable:
            raise
        except Unreadable as refusal:
            _log.warning("folder not looked into", folder=prefix, error=str(refusal))
            return None


def _places(directory: str, found: Entries, inside: Entries) -> list[str]:
    """Where SFN files may be.

    Args:
        inside: what is in its `metadata`.
    """
    places = [f"{directory}/{_METADATA}/{_OURS}/"] if _OURS in inside.folders else []
    if _OURS in found.folders:
        places.append(f"{directory}/{_OURS}/")
    if any(name.endswith(EXTENSION) for name in found.files):
        places.append(f"{directory}/")
    return places


def _is_tables(inside: Entries) -> bool:
    """Whether a directory is a table's own: what is below is data. A namespace may be called `metadata`, too."""
    return _OURS in inside.folders or any(name.endswith(".metadata.json") for name in inside.files)
