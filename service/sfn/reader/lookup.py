"""Finding a table's leading document: by name, by uuid, or as the only one that lies in a directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from sfn.errors import Dropped, MalformedDocument, NameTaken, NotFound, NotPermitted, TooManyFiles, Unreadable, Unsafe
from sfn.reader.choice import disambiguate
from sfn.reader.documents import FoundDocument, TableIdentity, describe_end, follow_links, read_document
from sfn.reader.files import FileReader
from sfn.reader.trust import AllowedLocations
from sfn.reader.wanted import TableSelector
from sfn.sfnfile.naming import (
    EXTENSION,
    HEAD,
    IDENTIFIER,
    MAIN_BRANCH,
    ORDINAL,
    UUID,
    FileLayout,
    Placement,
    folder_below_root,
    owner_prefix,
)

MAX_LISTED: Final = 100_000
"""Files of a folder of which the names are looked at."""
MAX_READ: Final = 1_000
"""Documents of a folder that are read."""
MAX_OPENED: Final = 2 * MAX_READ
"""Documents that one search opens, with those that they lead to."""

_LEADS: Final = tuple(f"_{part}{EXTENSION}" for part in (MAIN_BRANCH, HEAD))


class FoundBy(StrEnum):
    """What a table was found by."""

    NAME = "name"
    UUID = "uuid"
    LISTING = "listing"


@dataclass(frozen=True, slots=True)
class _EndedTable:
    """A table that is not there any more.

    Attributes:
        start: its document in one of the directory's folders.
        last: where that one led.
        found_by: what it was found by.
    """

    start: FoundDocument
    last: FoundDocument
    found_by: FoundBy


class Lookup:
    """One search through a directory's folders.

    Args:
        files: how to read.
        trust: the directory, and where documents may lead.
        wanted: which table.
    """

    def __init__(self, files: FileReader, allowed_locations: AllowedLocations, selector: TableSelector) -> None:
        self._files, self._allowed_locations, self._selector = files, allowed_locations, selector
        self._folders: list[str] = []
        self._checked_keys: set[str] = set()
        self._ended: list[_EndedTable] = []
        self._broken: list[tuple[str, Unreadable]] = []
        self._overfull_error: list[Unreadable] = []
        self._opened = 0
        self._moved_away: list[FoundDocument] = []
        self._name_taken_error: NameTaken | None = None

    async def find_leading(self, *, even_dropped: bool = False) -> tuple[FoundDocument, FoundBy]:
        """The table's live document of branch `main`, or its head, after following.

        Args:
            even_dropped: of a table that was dropped its last document, where nothing else stands in the way.

        Raises:
            Unreadable: see `sfn.errors` for its kinds.
        """
        for site in self._sites():
            if (found := await self._find_by_key(site)) is not None:
                one, how = found
                return self._newest(one), how
            if (lying := await self._find_by_listing(site.folder)) is not None:
                return self._newest(lying), FoundBy.LISTING
        if self._name_taken_error is not None:
            raise self._name_taken_error
        if self._moved_away:
            return disambiguate(self._allowed_locations.directory, self._moved_away), FoundBy.LISTING
        refusal = self.lookup_error()
        if even_dropped and isinstance(refusal, Dropped):
            last = disambiguate(self._allowed_locations.directory, [one.last for one in self._ended])
            return last, next(one.found_by for one in self._ended if one.last == last)
        raise refusal

    def _newest(self, found: FoundDocument) -> FoundDocument:
        """The same table's newest document: another folder's may have led on to where the table went since."""
        same = [one for one in self._moved_away if one.identity == found.identity]
        return max([found, *same], key=lambda one: one.doc.as_of)

    def _sites(self) -> Iterator[FileLayout]:
        directory, table = self._allowed_locations.directory, self._selector.table
        yield FileLayout(directory)
        yield FileLayout(directory, placement=Placement.ALONGSIDE)
        if table is not None:
            yield FileLayout(folder_below_root(directory, table[:-1], table[-1]), placement=Placement.ROOT)
        yield FileLayout(directory, placement=Placement.ROOT)

    async def _find_by_key(self, site: FileLayout) -> tuple[FoundDocument, FoundBy] | None:
        folder = site.folder
        for name, how in _candidate_names(self._selector.table, self._selector.uuid):
            key = folder + name
            self._checked_keys.add(key)
            try:
                start = await read_document(self._files, key)
            except (MalformedDocument, NotPermitted) as error:
                # It may be another table's: two can share the first name, and then ours has the second. And a store
                # that does not let us list does not tell what is missing from what is forbidden.
                self._broken.append((folder, error))
                continue
            if start is not None and (found := await self._find_named(start, how)) is not None:
                return found, how
        return None

    async def _find_named(self, start: FoundDocument, how: FoundBy) -> FoundDocument | None:
        """As `_live`, but what took the name may lie in the directory too, in a file that is called otherwise."""
        try:
            return await self._follow_to_live(start, how)
        except NameTaken as error:
            self._name_taken_error = self._name_taken_error or error
            return None

    async def _find_by_listing(self, folder: str) -> FoundDocument | None:
        """The table that lies in a folder; those that left it are remembered."""
        here: set[TableIdentity] = set()
        live: list[FoundDocument] = []
        for key in await self._leading_keys(folder):
            try:
                start = await read_document(self._files, key)
            except MalformedDocument as error:
                # What is no document does not hide one that is: only where none is it counts.
                self._broken.append((folder, error))
                continue
            try:
                found = await self._find_named(start, FoundBy.LISTING) if start is not None else None
            except (MalformedDocument, NotPermitted, Unsafe) as error:
                # It led there from a table that is not here any more.
                self._broken.append((folder, error))
                continue
            if found is not None:
                live.append(found)
                if found.folder == folder:
                    here.add(found.identity)
        # Of every file, not of the best: `moved_to` may lead to the same one by another spelling of this folder.
        lying = [found for found in live if found.identity in here]
        self._moved_away += [found for found in live if found.identity not in here]
        return disambiguate(folder, lying) if lying else None

    async def _leading_keys(self, folder: str) -> list[str]:
        """The keys of the files that may be a leading one."""
        self._folders.append(folder)
        try:
            keys = await list_keys(self._files, folder)
        except NotPermitted as error:
            if self._selector.is_any:
                raise
            self._broken.append((folder, error))
            return []
        except TooManyFiles as error:
            # It may be a table's own directory, full of its data: that hides nothing of what was found elsewhere.
            self._overfull_error.append(error)
            return []
        leading = [key for key in keys if key.endswith(_LEADS) and key not in self._checked_keys]
        if self._selector.table is not None:
            # Files that are called by the name have been looked for; in a uuid there is no underscore.
            leading = [key for key in leading if "_" not in owner_prefix(key.removeprefix(folder))]
        if len(leading) > MAX_READ:
            raise self._too_many(folder, f"at most {MAX_READ:,} SFN files", f"{len(leading):,}")
        return leading

    async def _follow_to_live(self, start: FoundDocument, how: FoundBy) -> FoundDocument | None:
        """Where a document leads, if it is about the table and the table is live."""
        doc = start.doc
        if not self._selector.matches(doc) or doc.ref != MAIN_BRANCH:
            return None
        last = start if doc.is_live else await follow_links(self._files, self._allowed_locations, start)
        self._opened += 1 + len(last.via)
        if self._opened > MAX_OPENED:
            raise self._too_many(start.folder, f"at most {MAX_OPENED:,} documents on the way", "more")
        self._selector.check_name(start, last)
        if last.doc.is_live:
            return last
        self._ended.append(_EndedTable(start, last, how))
        return None

    def _too_many(self, folder: str, expected: str, found: str) -> TooManyFiles:
        remedy = "name the table" if self._selector.is_any else "move out of the folder what is not ours"
        return TooManyFiles(folder, expected=expected, found=found, remedy=remedy)

    def lookup_error(self) -> Unreadable:
        """Why there is no live table, once all was looked at."""
        last = max(self._ended, key=lambda one: one.start.doc.as_of, default=None)
        hidden = [error for folder, error in self._broken if last is None or self._may_hide(folder, last)]
        if last is not None and not hidden:
            others = ", nor is the table of any other file there live" if len(self._ended) > 1 else ""
            where = last.start.folder if self._selector.is_any else last.start.key
            return Dropped(where, expected="a live table", found=f"{describe_end(last.start.doc)}{others}")
        if hidden or self._overfull_error:
            return [*hidden, *self._overfull_error][0]
        where, remedy = " or ".join(self._folders), "check the directory and the identifier"
        if self._selector.is_any:
            return NotFound(where, expected="an SFN file", found="none", remedy="check the directory")
        return NotFound(where, expected=f"the SFN file of {self._selector.text}", found="none", remedy=remedy)

    def _may_hide(self, folder: str, last: _EndedTable) -> bool:
        """Whether what is broken in a folder may be the live table, whatever was left of one in another folder."""
        folders = [site.folder for site in self._sites()]
        return self._selector.is_any or folders.index(folder) < folders.index(last.start.folder)


async def list_keys(files: FileReader, folder: str) -> list[str]:
    """The keys of all files of a folder.

    Raises:
        TooManyFiles: there are more than `LISTING_LIFETIME`.
    """
    keys = await files.list(folder, MAX_LISTED + 1)
    if len(keys) > MAX_LISTED:
        remedy = "move out of the folder what is not ours"
        raise TooManyFiles(
            folder, expected=f"at most {MAX_LISTED:,} files", found=f"{len(keys):,} or more", remedy=remedy
        )
    return keys


@lru_cache(4096)
def _candidate_names(table: tuple[str, ...] | None, uuid: str | None) -> Sequence[tuple[str, FoundBy]]:
    """What the table's leading file may be called, in the order in which it is looked for."""
    owner = TableSelector(table, uuid).file_owner
    if owner is None:
        return ()
    by_name = (IDENTIFIER, ORDINAL) if table is not None else ()
    names = [(name, FoundBy.NAME) for naming in by_name for name in naming.file_names(owner)]
    return (*names, *((name, FoundBy.UUID) for name in UUID.file_names(owner)))
