"""The tables that lie below some folders, found by walking through them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final

import structlog

from sfn.errors import TooManyFiles, Unreadable
from sfn.facade import Namespace, Place, Scan, Tree
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
            question = Question(directory, (*doc.namespace, doc.name), allowed=(root,))
            yield doc.namespace, doc.name, Place(tree, question)


class _Walk:
    """One walk below one root."""

    def __init__(self, root: str, tree: Tree) -> None:
        self._root, self._tree = root, tree
        self._looked_into = 0

    async def tables(self) -> AsyncIterator[tuple[str, Document]]:
        """The directories of tables, each with the live document of one that lies there."""
        left = [(self._root, 0)]
        while left:
            directory, depth = left.pop()
            try:
                found = await self._entries(f"{directory}/")
                folders = await self._folders(directory, found)
            except TooManyFiles:
                raise
            except Unreadable as refusal:
                # One folder that nobody may read hides no other.
                _log.warning("folder not looked into", folder=directory, error=str(refusal))
                continue
            if folders is None and depth < DEEPEST:
                left += [(f"{directory}/{name}", depth + 1) for name in found.folders if name[0] not in "._"]
            for folder in folders or ():
                async for doc in self._documents(folder):
                    yield directory, doc

    async def _folders(self, directory: str, found: Entries) -> list[str] | None:
        """Where a table's SFN files may be; None for no table's directory, below which there may be some."""
        places = [f"{directory}/{_OURS}/"] if _OURS in found.folders else []
        is_tables = bool(places)
        if any(name.endswith(EXTENSION) for name in found.files):
            places.append(f"{directory}/")
        if _METADATA in found.folders:
            inside = await self._entries(f"{directory}/{_METADATA}/")
            # A namespace may be called so, too.
            is_tables |= any(name.endswith(".metadata.json") for name in inside.files)
            if _OURS in inside.folders:
                places.insert(0, f"{directory}/{_METADATA}/{_OURS}/")
        return places if places or is_tables else None

    async def _documents(self, folder: str) -> AsyncIterator[Document]:
        for name in sorted((await self._entries(folder)).files):
            if not name.endswith(_LEADS):
                continue
            try:
                start = await read(self._tree, folder + name)
            except Unreadable as refusal:
                _log.warning("file not shown", file=folder + name, error=str(refusal))
                continue
            if start is not None and start.doc.live and start.doc.ref == MAIN:
                yield start.doc

    async def _entries(self, prefix: str) -> Entries:
        self._looked_into += 1
        if self._looked_into > MOST:
            remedy = "name the folders below that hold the tables"
            raise TooManyFiles(self._root, expected=f"at most {MOST:,} folders", found="more", remedy=remedy)
        return await self._tree.entries(prefix)
