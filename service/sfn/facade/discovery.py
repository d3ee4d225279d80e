"""Which tables there are: looked through now and then, remembered in between."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import anyio
import structlog

from sfn.errors import Ambiguous, SfnError, TooManyFiles, Unreachable, Unreadable
from sfn.facade import FileTree, Namespace, Scan, TablePlace
from sfn.reader.files import FolderEntries
from sfn.reader.lookup import read_document
from sfn.reader.resolve import Question
from sfn.sfnfile.document import Document
from sfn.sfnfile.locations import longest_prefix
from sfn.sfnfile.naming import EXTENSION, HEAD, MAIN_BRANCH

# ── listing: The tables of one scan

Tables: TypeAlias = Mapping[Namespace, Mapping[str, TablePlace]]

FIRST_SCAN_TIMEOUT: Final = 30.0
"""Seconds that somebody waits for the first look."""
_MAX_RIVALS: Final = 5
"""Directories that are named beside the first."""

_log = structlog.stdlib.get_logger(__name__)


class TableCollector:
    """Tables by namespace and name, one place each; the others of its name are its rivals."""

    def __init__(self) -> None:
        self.tables: defaultdict[Namespace, dict[str, TablePlace]] = defaultdict(dict)

    def add(self, namespace: Namespace, name: str, place: TablePlace) -> None:
        """One more table, with its rivals."""
        first = self.tables[namespace].setdefault(name, place)
        seen = {first.question.directory, *first.rivals}
        others = [one for one in (place.question.directory, *place.rivals) if one not in seen]
        if others:
            self.tables[namespace][name] = replace(first, rivals=(*first.rivals, *others)[:_MAX_RIVALS])


class ScanResult:
    """What a scan found. One look at a time, which goes on whoever stops waiting for it.

    Args:
        scan: looks through the tables.
        retry_after: seconds after which a look that failed is tried again.
        timeout: seconds that somebody waits for a look where another one was had before. After one that took longer
            nobody looks for as long as it took: what is large is not looked through without a pause.

    Attributes:
        tables: as they were found last.
        refusal: why the last look failed, or did not come to its end.
        version: how often they were found.
    """

    def __init__(self, scan: Scan, retry_after: float, timeout: float) -> None:
        self._scan, self._retry_after, self._timeout = scan, retry_after, timeout
        self.tables: Tables = {}
        self.refusal: Exception | None = None
        self.version = 0
        self._ended_at: float | None = None
        self._took = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def has_completed(self) -> bool:
        """A look has ended, however it did."""
        return self._ended_at is not None

    async def refresh(self, age: float) -> None:
        """Return once the last look ended no longer ago than so many seconds, or nobody waits any more."""
        if not self._is_due(age):
            return
        if self._task is None:
            # Who asked first may be gone before it ends, and the others have their answer of it all the same.
            self._task = asyncio.create_task(self._scan_once())  # noqa: TID251 - it ends by itself, and is held here
        await asyncio.wait({self._task}, timeout=self._timeout if self.version else FIRST_SCAN_TIMEOUT)

    def require_listing(self) -> None:
        """See that there was a look.

        Raises:
            SfnError: none has been had yet.
        """
        if self.version:
            return
        if self.refusal is not None:
            # It is raised for many, and each adds where it came by.
            raise self.refusal.with_traceback(None)
        found, remedy = "a look that goes on", "try again, or call the table by its directory"
        raise Unreachable("tables", expected=f"them within {FIRST_SCAN_TIMEOUT:g} s", found=found, remedy=remedy)

    def _is_due(self, age: float) -> bool:
        if self._ended_at is None:
            return True
        least = age if self.refusal is None else min(age, self._retry_after)
        rest = self._took if self._took > self._timeout else 0.0
        return anyio.current_time() - self._ended_at >= max(least, rest)

    async def _scan_once(self) -> None:
        begun_at, found = anyio.current_time(), TableCollector()
        try:
            async for row in self._scan():
                found.add(*row)
            self._replace(found, None)
        except TooManyFiles as refusal:
            # What it came to is there; what is missing may be anywhere.
            self._replace(found, refusal)
        except SfnError as refusal:
            # What was known before is still worth a look.
            self.refusal = refusal
        except Exception as error:  # noqa: BLE001 - it is logged, and whoever asks is told
            _log.exception("tables not listed")
            self.refusal = error
        finally:
            self._ended_at = anyio.current_time()
            self._took, self._task = self._ended_at - begun_at, None

    def _replace(self, found: TableCollector, refusal: Exception | None) -> None:
        self.tables, self.refusal = dict(found.tables), refusal
        self.version += 1


# ── index: Which tables there are

LISTING_TIMEOUT: Final = 5.0
"""Seconds that somebody waits for a new listing where an old one is there."""


class ScannedTables:
    """Implements `Shelf`. Where a table lies changes seldom, and files lead on when it does: what a table's current
    metadata file is, is never remembered here.

    Args:
        scans: each looks through some of the tables; one that fails or takes long holds up no other.
        max_age: seconds for which a listing is as good as a new one.
        missing_max_age: seconds after which a table that is not known, or not there any more, is looked for by a new
            listing.
        timeout: seconds that somebody waits for that one.
    """

    def __init__(
        self, scans: Sequence[Scan], max_age: float, missing_max_age: float, timeout: float = LISTING_TIMEOUT
    ) -> None:
        self._listings = [ScanResult(scan, missing_max_age, timeout) for scan in scans]
        self._max_age, self._missing_max_age = max_age, missing_max_age
        self._tables: Tables = {}
        self._merged: tuple[int, ...] = ()

    async def tables(self) -> Tables:
        await self._refresh(self._max_age)
        for one in self._listings:
            one.require_listing()
        return self._all_tables()

    async def find(self, namespace: Namespace, name: str, *, refresh: bool = False) -> TablePlace | None:
        known = None if refresh else self._get(namespace, name)
        if known is None or known.rivals:
            await self._refresh(self._missing_max_age)
            known = self._get(namespace, name)
        if known is None:
            # Clients ask for a metadata table as for a table in a namespace that is called like its own: who has that
            # one is told so, whatever else nobody can tell.
            if self._get(namespace[:-1], "".join(namespace[-1:])) is None:
                self._check_complete()
        elif known.rivals:
            raise Ambiguous(
                ".".join((*namespace, name)),
                expected="one directory whose SFN file has this name",
                found=", ".join(sorted((known.question.directory, *known.rivals))),
                remedy="call the table by its directory, or move the copy elsewhere",
            )
        return known

    async def wait_until_listed(self) -> Exception | None:
        """Wait until all was looked through, however long it takes at first.

        Returns:
            Why nothing could be listed; None where something was.
        """
        await self._refresh(self._max_age)
        while not all(one.has_completed for one in self._listings):
            await self._refresh(self._max_age)
        refusals = [one.refusal for one in self._listings if not one.version]
        return refusals[0] if refusals and len(refusals) == len(self._listings) else None

    async def _refresh(self, age: float) -> None:
        async with anyio.create_task_group() as tasks:
            for one in self._listings:
                tasks.start_soon(one.refresh, age)

    def _check_complete(self) -> None:
        """See that what was not found is not there.

        Raises:
            Exception: nobody can tell.
        """
        for one in self._listings:
            one.require_listing()
            if one.refusal is not None:
                raise one.refusal.with_traceback(None)

    def _get(self, namespace: Namespace, name: str) -> TablePlace | None:
        return self._all_tables().get(namespace, {}).get(name)

    def _all_tables(self) -> Tables:
        if len(self._listings) == 1:
            return self._listings[0].tables
        versions = tuple(one.version for one in self._listings)
        if versions != self._merged:
            self._tables, self._merged = _merged(one.tables for one in self._listings), versions
        return self._tables


def _merged(listings: Iterable[Tables]) -> Tables:
    found = TableCollector()
    for tables in listings:
        for namespace, names in tables.items():
            for name, place in names.items():
                found.add(namespace, name, place)
    return dict(found.tables)


# ── walk: The tables that lie below some folders

MAX_DEPTH: Final = 12
"""Folders between a root and a table."""
MAX_VISITED: Final = 200_000
"""Folders and SFN files that one walk looks into."""
MAX_WARNINGS: Final = 100
"""Warnings of one walk."""

_SFN_FOLDER: Final = "_sfn"
_METADATA: Final = "metadata"
_SFN_SUFFIXES: Final = tuple(f"_{part}{EXTENSION}" for part in (MAIN_BRANCH, HEAD))


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
