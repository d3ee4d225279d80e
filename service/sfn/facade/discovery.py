"""Table sources that scan folders for SFN files, and cache the result."""

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

Tables: TypeAlias = Mapping[Namespace, Mapping[str, TablePlace]]

FIRST_SCAN_TIMEOUT: Final = 30.0
"""Seconds for which a request waits for the first scan."""
_MAX_RIVALS: Final = 5
"""Maximum number of other directories in an error message."""

_log = structlog.stdlib.get_logger(__name__)


class TableCollector:
    """Tables by namespace and name, with one place each; further places with the same name become rivals."""

    def __init__(self) -> None:
        self.tables: defaultdict[Namespace, dict[str, TablePlace]] = defaultdict(dict)

    def add(self, namespace: Namespace, name: str, place: TablePlace) -> None:
        """Add a place, and its rivals."""
        first = self.tables[namespace].setdefault(name, place)
        seen = {first.question.directory, *first.rivals}
        others = [one for one in (place.question.directory, *place.rivals) if one not in seen]
        if others:
            self.tables[namespace][name] = replace(first, rivals=(*first.rivals, *others)[:_MAX_RIVALS])


class ScanResult:
    """The cached result of a scan. One scan runs at a time, and continues if the request that started it ends.

    Args:
        scan: scans for tables.
        retry_after: seconds after which a failed scan is repeated.
        timeout: seconds for which a request waits for a scan if there is an earlier result. After a scan that took
            longer, the next one waits for as long as it took, so that large folders are not scanned without a pause.

    Attributes:
        tables: tables of the last successful scan.
        refusal: error of the last scan; also of one that reached its limit.
        version: number of successful scans.
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
        """True after the first scan ended, with or without success."""
        return self._ended_at is not None

    async def refresh(self, age: float) -> None:
        """Wait for a scan unless the last one is recent enough, at most until the timeout.

        Args:
            age: maximum age of the last scan in seconds.
        """
        if not self._is_due(age):
            return
        if self._task is None:
            # A task of its own, because the request that starts the scan may end first while others still wait.
            self._task = asyncio.create_task(self._scan_once())  # noqa: TID251 - it ends by itself, and is held here
        await asyncio.wait({self._task}, timeout=self._timeout if self.version else FIRST_SCAN_TIMEOUT)

    def require_listing(self) -> None:
        """Check that a scan has succeeded.

        Raises:
            SfnError: no scan has succeeded yet.
        """
        if self.version:
            return
        if self.refusal is not None:
            # The same error is raised for many requests, and each would add its traceback.
            raise self.refusal.with_traceback(None)
        expected, found = f"a list of tables within {FIRST_SCAN_TIMEOUT:g} s", "a scan that is still running"
        remedy = "try again, or name the table by its directory"
        raise Unreachable("tables", expected=expected, found=found, remedy=remedy)

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
            # The tables found so far exist. Others may be in the rest of the folders.
            self._replace(found, refusal)
        except SfnError as refusal:
            # Keep the earlier result: most tables are still there.
            self.refusal = refusal
        except Exception as error:  # noqa: BLE001 - it is logged, and raised for each request
            _log.exception("scan failed")
            self.refusal = error
        finally:
            self._ended_at = anyio.current_time()
            self._took, self._task = self._ended_at - begun_at, None

    def _replace(self, found: TableCollector, refusal: Exception | None) -> None:
        self.tables, self.refusal = dict(found.tables), refusal
        self.version += 1


LISTING_TIMEOUT: Final = 5.0
"""Seconds for which a request waits for a new scan if there is an earlier result."""


class ScannedTables:
    """A `TableSource` of scanned tables.

    Places of tables are cached: they change seldom, and SFN files lead to the new place. The current metadata file of a
    table is never cached here.

    Args:
        scans: scans, each of a part of the tables; a slow or failed scan does not affect the others.
        max_age: maximum age in seconds of the scans for a listing.
        missing_max_age: maximum age in seconds of the scans for a table that is unknown or not there any more.
        timeout: seconds for which a request waits for a new scan.
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
            # Clients request a metadata table as a table in a namespace with the name of its table. If that table is
            # known, the answer is certain, even if the scans are incomplete.
            if self._get(namespace[:-1], "".join(namespace[-1:])) is None:
                self._check_complete()
        elif known.rivals:
            raise Ambiguous(
                ".".join((*namespace, name)),
                expected="one directory with an SFN file of this name",
                found=", ".join(sorted((known.question.directory, *known.rivals))),
                remedy="name the table by its directory, or move the copy elsewhere",
            )
        return known

    async def wait_until_listed(self) -> Exception | None:
        """Wait until every scan has ended once, without a time limit.

        Returns:
            The error if all scans failed, else None.
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
        """Check that all scans are complete, so that a table that was not found does not exist.

        Raises:
            Exception: error of an incomplete scan.
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


MAX_DEPTH: Final = 12
"""Maximum number of folders between a root and a table."""
MAX_VISITED: Final = 200_000
"""Maximum number of folders and SFN files that one scan opens."""
MAX_WARNINGS: Final = 100
"""Maximum number of warnings of one scan."""

_SFN_FOLDER: Final = "_sfn"
_METADATA: Final = "metadata"
_SFN_SUFFIXES: Final = tuple(f"_{part}{EXTENSION}" for part in (MAIN_BRANCH, HEAD))


def folder_scans(trees: Mapping[str, FileTree]) -> list[Scan]:
    """Return a scan of all folders for each root.

    Args:
        trees: files, by canonical location of the root.
    """
    return [_FolderScan(root, trees) for root in trees]


class _FolderScan:
    """A `Scan` of one root. A warning is not repeated by the next scan."""

    def __init__(self, root: str, trees: Mapping[str, FileTree]) -> None:
        self._root, self._trees = root, trees
        self._warned: frozenset[str] = frozenset()

    async def __call__(self) -> AsyncIterator[tuple[Namespace, str, TablePlace]]:
        tree = self._trees[self._root]
        walk = _FolderWalk(self._root, tree, self._warned)
        async for directory, doc in walk.tables():
            # A table below a root inside this root belongs to the inner root.
            if longest_prefix(directory, self._trees) == self._root:
                question = Question(directory, (*doc.namespace, doc.name), allowed=(self._root,))
                yield doc.namespace, doc.name, TablePlace(tree, question)
        self._warned = frozenset(walk.hidden)
        if walk.is_cut:
            remedy = "start the facade with the subfolders that hold the tables"
            raise TooManyFiles(
                self._root, expected=f"at most {MAX_VISITED:,} folders and SFN files", found="more", remedy=remedy
            )


class _FolderWalk:
    """One breadth-first walk below one root.

    A file or folder that cannot be read is skipped with a warning. A store that does not answer ends the walk, because
    any table might be missing.

    Attributes:
        hidden: URLs that were skipped.
        is_cut: True if the walk reached its limit.
    """

    def __init__(self, root: str, tree: FileTree, warned_before: frozenset[str]) -> None:
        self._root, self._tree, self._warned_before = root, tree, warned_before
        self._left = MAX_VISITED
        self.hidden: set[str] = set()
        self.is_cut = False

    async def tables(self) -> AsyncIterator[tuple[str, Document]]:
        """Yield the directories of tables, each with the live SFN document of a table there."""
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
                # A link leads to a folder that the walk visits anyway, or back to one that it visited.
                links = frozenset(found.links)
                names = sorted(name for name in found.folders if name[0] not in "._" and name not in links)
                # Queue no more folders than the walk may still visit.
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
                self._warn("file skipped", folder + name, refusal)
                continue
            if start is not None and start.doc.is_live and start.doc.ref == MAIN_BRANCH:
                yield start.doc

    async def _entries(self, prefix: str) -> FolderEntries | None:
        """Return the entries of a folder; None if the folder is skipped."""
        if not self._may_visit():
            return None
        try:
            return await self._tree.entries(prefix)
        except Unreachable:
            raise
        except Unreadable as refusal:
            self._warn("folder skipped", prefix, refusal)
            return None

    def _may_visit(self) -> bool:
        self._left -= 1
        self.is_cut |= self._left < 0
        return self._left >= 0

    def _warn(self, event: str, where: str, error: Unreadable) -> None:
        if len(self.hidden) >= MAX_WARNINGS:
            return
        self.hidden.add(where)
        if where not in self._warned_before:
            _log.warning(event, where=where, error=str(error))


def _places(directory: str, found: FolderEntries, inside: FolderEntries) -> list[str]:
    """Return the folders that may hold SFN files of a directory.

    Args:
        directory: URL of the directory.
        found: entries of the directory.
        inside: entries of its folder `metadata`.
    """
    places = [f"{directory}/{_METADATA}/{_SFN_FOLDER}/"] if _SFN_FOLDER in inside.folders else []
    if _SFN_FOLDER in found.folders:
        places.append(f"{directory}/{_SFN_FOLDER}/")
    if any(name.endswith(EXTENSION) for name in found.files):
        places.append(f"{directory}/")
    return places


def _is_tables(inside: FolderEntries) -> bool:
    """Return True for the directory of a table, with only data below; False for a namespace with a child `metadata`.

    Args:
        inside: entries of the folder `metadata`.
    """
    return _SFN_FOLDER in inside.folders or any(name.endswith(".metadata.json") for name in inside.files)
