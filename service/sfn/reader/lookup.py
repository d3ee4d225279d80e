"""Finding a table's leading document: by name, by uuid, or as the only one that lies in a directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from sfn.errors import Dropped, Malformed, NameTaken, NotFound, NotPermitted, TooManyFiles, Unreadable, Unsafe
from sfn.pointer.naming import EXTENSION, HEAD, IDENTIFIER, MAIN_BRANCH, ORDINAL, UUID, owner_prefix
from sfn.pointer.site import FileLayout, Placement, folder_below_root
from sfn.reader.choice import only
from sfn.reader.documents import Found, Identity, ended, followed, read
from sfn.reader.files import Files
from sfn.reader.trust import Trust
from sfn.reader.wanted import Wanted

LISTED: Final = 100_000
"""Files of a folder of which the names are looked at."""
READ: Final = 1_000
"""Documents of a folder that are read."""
MOST_OPENED: Final = 2 * READ
"""Documents that one search opens, with those that they lead to."""

_LEADS: Final = tuple(f"_{part}{EXTENSION}" for part in (MAIN_BRANCH, HEAD))


class How(StrEnum):
    """What a table was found by."""

    NAME = "name"
    UUID = "uuid"
    LISTING = "listing"


@dataclass(frozen=True, slots=True)
class _Ended:
    """A table that is not there any more.

    Attributes:
        start: its document in one of the directory's folders.
        last: where that one led.
        how: what it was found by.
    """

    start: Found
    last: Found
    how: How


class Lookup:
    """One search through a directory's folders.

    Args:
        files: how to read.
        trust: the directory, and where documents may lead.
        wanted: which table.
    """

    def __init__(self, files: Files, trust: Trust, wanted: Wanted) -> None:
        self._files, self._trust, self._wanted = files, trust, wanted
        self._folders: list[str] = []
        self._looked_at: set[str] = set()
        self._ended: list[_Ended] = []
        self._broken: list[tuple[str, Unreadable]] = []
        self._crowded: list[Unreadable] = []
        self._opened = 0
        self._left: list[Found] = []
        self._taken: NameTaken | None = None

    async def leading(self, *, even_dropped: bool = False) -> tuple[Found, How]:
        """The table's live document of branch `main`, or its head, after following.

        Args:
            even_dropped: of a table that was dropped its last document, where nothing else stands in the way.

        Raises:
            Unreadable: see `sfn.errors` for its kinds.
        """
        for site in self._sites():
            if (found := await self._by_key(site)) is not None:
                one, how = found
                return self._newest(one), how
            if (lying := await self._by_listing(site.folder)) is not None:
                return self._newest(lying), How.LISTING
        if self._taken is not None:
            raise self._taken
        if self._left:
            return only(self._trust.directory, self._left), How.LISTING
        refusal = self.refusal()
        if even_dropped and isinstance(refusal, Dropped):
            last = only(self._trust.directory, [one.last for one in self._ended])
            return last, next(one.how for one in self._ended if one.last == last)
        raise refusal

    def _newest(self, found: Found) -> Found:
        """The same table's newest document: another folder's may have led on to where the table went since."""
        same = [one for one in self._left if one.identity == found.identity]
        return max([found, *same], key=lambda one: one.doc.as_of)

    def _sites(self) -> Iterator[FileLayout]:
        directory, table = self._trust.directory, self._wanted.table
        yield FileLayout(directory)
        yield FileLayout(directory, placement=Placement.ALONGSIDE)
        if table is not None:
            yield FileLayout(folder_below_root(directory, table[:-1], table[-1]), placement=Placement.ROOT)
        yield FileLayout(directory, placement=Placement.ROOT)

    async def _by_key(self, site: FileLayout) -> tuple[Found, How] | None:
        folder = site.folder
        for name, how in _names(self._wanted.table, self._wanted.uuid):
            key = folder + name
            self._looked_at.add(key)
            try:
                start = await read(self._files, key)
            except (Malformed, NotPermitted) as error:
                # It may be another table's: two can share the first name, and then ours has the second. And a store
                # that does not let us list does not tell what is missing from what is forbidden.
                self._broken.append((folder, error))
                continue
            if start is not None and (found := await self._named(start, how)) is not None:
                return found, how
        return None

    async def _named(self, start: Found, how: How) -> Found | None:
        """As `_live`, but what took the name may lie in the directory too, in a file that is called otherwise."""
        try:
            return await self._live(start, how)
        except NameTaken as error:
            self._taken = self._taken or error
            return None

    async def _by_listing(self, folder: str) -> Found | None:
        """The table that lies in a folder; those that left it are remembered."""
        here: set[Identity] = set()
        live: list[Found] = []
        for key in await self._leading(folder):
            try:
                start = await read(self._files, key)
            except Malformed as error:
                # What is no document does not hide one that is: only where none is it counts.
                self._broken.append((folder, error))
                continue
            try:
                found = await self._named(start, How.LISTING) if start is not None else None
            except (Malformed, NotPermitted, Unsafe) as error:
                # It led there from a table that is not here any more.
                self._broken.append((folder, error))
                continue
            if found is not None:
                live.append(found)
                if found.folder == folder:
                    here.add(found.identity)
        # Of every file, not of the best: `moved_to` may lead to the same one by another spelling of this folder.
        lying = [found for found in live if found.identity in here]
        self._left += [found for found in live if found.identity not in here]
        return only(folder, lying) if lying else None

    async def _leading(self, folder: str) -> list[str]:
        """The keys of the files that may be a leading one."""
        self._folders.append(folder)
        try:
            keys = await listed(self._files, folder)
        except NotPermitted as error:
            if self._wanted.is_any:
                raise
            self._broken.append((folder, error))
            return []
        except TooManyFiles as error:
            # It may be a table's own directory, full of its data: that hides nothing of what was found elsewhere.
            self._crowded.append(error)
            return []
        leading = [key for key in keys if key.endswith(_LEADS) and key not in self._looked_at]
        if self._wanted.table is not None:
            # Files that are called by the name have been looked for; in a uuid there is no underscore.
            leading = [key for key in leading if "_" not in owner_prefix(key.removeprefix(folder))]
        if len(leading) > READ:
            raise self._too_many(folder, f"at most {READ:,} SFN files", f"{len(leading):,}")
        return leading

    async def _live(self, start: Found, how: How) -> Found | None:
        """Where a document leads, if it is about the table and the table is live."""
        doc = start.doc
        if not self._wanted.is_meant_by(doc) or doc.ref != MAIN_BRANCH:
            return None
        last = start if doc.is_live else await followed(self._files, self._trust, start)
        self._opened += 1 + len(last.via)
        if self._opened > MOST_OPENED:
            raise self._too_many(start.folder, f"at most {MOST_OPENED:,} documents on the way", "more")
        self._wanted.check(start, last)
        if last.doc.is_live:
            return last
        self._ended.append(_Ended(start, last, how))
        return None

    def _too_many(self, folder: str, expected: str, found: str) -> TooManyFiles:
        remedy = "name the table" if self._wanted.is_any else "move out of the folder what is not ours"
        return TooManyFiles(folder, expected=expected, found=found, remedy=remedy)

    def refusal(self) -> Unreadable:
        """Why there is no live table, once all was looked at."""
        last = max(self._ended, key=lambda one: one.start.doc.as_of, default=None)
        hidden = [error for folder, error in self._broken if last is None or self._may_hide(folder, last)]
        if last is not None and not hidden:
            others = ", nor is the table of any other file there live" if len(self._ended) > 1 else ""
            where = last.start.folder if self._wanted.is_any else last.start.key
            return Dropped(where, expected="a live table", found=f"{ended(last.start.doc)}{others}")
        if hidden or self._crowded:
            return [*hidden, *self._crowded][0]
        where, remedy = " or ".join(self._folders), "check the directory and the identifier"
        if self._wanted.is_any:
            return NotFound(where, expected="an SFN file", found="none", remedy="check the directory")
        return NotFound(where, expected=f"the SFN file of {self._wanted.text}", found="none", remedy=remedy)

    def _may_hide(self, folder: str, last: _Ended) -> bool:
        """Whether what is broken in a folder may be the live table, whatever was left of one in another folder."""
        folders = [site.folder for site in self._sites()]
        return self._wanted.is_any or folders.index(folder) < folders.index(last.start.folder)


async def listed(files: Files, folder: str) -> list[str]:
    """The keys of all files of a folder.

    Raises:
        TooManyFiles: there are more than `LISTING_LIFETIME`.
    """
    keys = await files.list(folder, LISTED + 1)
    if len(keys) > LISTED:
        remedy = "move out of the folder what is not ours"
        raise TooManyFiles(folder, expected=f"at most {LISTED:,} files", found=f"{len(keys):,} or more", remedy=remedy)
    return keys


@lru_cache(4096)
def _names(table: tuple[str, ...] | None, uuid: str | None) -> Sequence[tuple[str, How]]:
    """What the table's leading file may be called, in the order in which it is looked for."""
    whose = Wanted(table, uuid).whose
    if whose is None:
        return ()
    by_name = (IDENTIFIER, ORDINAL) if table is not None else ()
    names = [(name, How.NAME) for naming in by_name for name in naming.file_names(whose)]
    return (*names, *((name, How.UUID) for name in UUID.file_names(whose)))
