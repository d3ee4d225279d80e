"""Finding a table's leading document: by name, by uuid, or as the only one that lies in a directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from sfn.errors import Dropped, Malformed, NameTaken, NotFound, NotPermitted, TooManyFiles, Unreachable, Unreadable
from sfn.pointer.document import Document
from sfn.pointer.naming import EXTENSION, HEAD, IDENTIFIER, MAIN, ORDINAL, UUID, Whose, owner_of
from sfn.pointer.site import Placement, Site, below_root
from sfn.reader.choice import only
from sfn.reader.documents import Found, Identity, called, ended, followed, named, read
from sfn.reader.files import Files
from sfn.reader.trust import Trust

LISTED: Final = 100_000
"""Files of a folder of which the names are looked at."""
READ: Final = 1_000
"""Documents of a folder that are read."""

_LEADS: Final = tuple(f"_{part}{EXTENSION}" for part in (MAIN, HEAD))


class How(StrEnum):
    """What a table was found by."""

    NAME = "name"
    UUID = "uuid"
    LISTING = "listing"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which table.

    Attributes:
        table: namespace levels and name; None where any will do that is the only one.
        uuid: its `table-uuid`; None likewise.
    """

    table: tuple[str, ...] | None = None
    uuid: str | None = None

    @property
    def whose(self) -> Whose | None:
        """What its files may be called by; None where only its directory is known."""
        if self.table is None:
            return None if self.uuid is None else Whose((), "", self.uuid)
        return Whose(self.table[:-1], self.table[-1], self.uuid)

    @property
    def is_any(self) -> bool:
        """Whether the table is to be the only one."""
        return self.table is None and self.uuid is None

    def is_meant_by(self, doc: Document) -> bool:
        """Whether a document speaks of it."""
        is_named = self.table is None or (*doc.namespace, doc.name) == self.table
        return is_named and (self.uuid is None or (doc.guid or "").lower() == self.uuid.lower())

    @property
    def text(self) -> str:
        """It, for people."""
        name = "the table" if self.table is None else ".".join(self.table)
        return name if self.uuid is None else f"{name} with the uuid {self.uuid}"


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
        self._ended: list[tuple[Found, Found]] = []
        self._broken: list[Unreadable] = []
        self._crowded: list[Unreadable] = []
        self._left: list[Found] = []

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
        if self._left:
            return only(self._trust.directory, self._left), How.LISTING
        refusal = self.refusal()
        if even_dropped and isinstance(refusal, Dropped):
            return max((last for _, last in self._ended), key=lambda last: last.doc.as_of), How.LISTING
        raise refusal

    def _newest(self, found: Found) -> Found:
        """The same table's newest document: another folder's may have led on to where the table went since."""
        same = [one for one in self._left if one.identity == found.identity]
        return max([found, *same], key=lambda one: one.doc.as_of)

    def _sites(self) -> Iterator[Site]:
        directory, table = self._trust.directory, self._wanted.table
        yield Site(directory)
        yield Site(directory, placement=Placement.ALONGSIDE)
        if table is not None:
            yield Site(below_root(directory, table[:-1], table[-1]), placement=Placement.ROOT)
        yield Site(directory, placement=Placement.ROOT)

    async def _by_key(self, site: Site) -> tuple[Found, How] | None:
        folder = site.folder
        for name, how in _names(self._wanted.table, self._wanted.uuid):
            key = folder + name
            self._looked_at.add(key)
            try:
                start = await read(self._files, key)
            except (Malformed, NotPermitted) as error:
                # It may be another table's: two can share the first name, and then ours has the second. And a store
                # that does not let us list does not tell what is missing from what is forbidden.
                self._broken.append(error)
                continue
            if start is not None and (found := await self._live(start)) is not None:
                return found, how
        return None

    async def _by_listing(self, folder: str) -> Found | None:
        """The table that lies in a folder; those that left it are remembered."""
        here: set[Identity] = set()
        live: list[Found] = []
        taken: NameTaken | None = None
        for key in await self._leading(folder):
            try:
                start = await read(self._files, key)
                found = await self._live(start) if start is not None else None
            except NameTaken as error:
                # The table that took the name may lie here too, in a file that is called by its own uuid.
                taken = taken or error
                continue
            except Unreadable as error:
                # One file that nobody can read does not hide a table that can be: only where none is it counts.
                self._broken.append(error)
                if sum(isinstance(one, Unreachable) for one in self._broken) > 1:
                    raise
                continue
            if found is not None:
                live.append(found)
                if found.folder == folder:
                    here.add(found.identity)
        # Of every file, not of the best: `moved_to` may lead to the same one by another spelling of this folder.
        lying = [found for found in live if found.identity in here]
        self._left += [found for found in live if found.identity not in here]
        if taken is not None and not lying:
            raise taken
        return only(folder, lying) if lying else None

    async def _leading(self, folder: str) -> list[str]:
        """The keys of the files that may be a leading one."""
        self._folders.append(folder)
        try:
            keys = await listed(self._files, folder)
        except NotPermitted as error:
            if self._wanted.is_any:
                raise
            self._broken.append(error)
            return []
        except TooManyFiles as error:
            # It may be a table's own directory, full of its data: that hides nothing of what was found elsewhere.
            self._crowded.append(error)
            return []
        leading = [key for key in keys if key.endswith(_LEADS) and key not in self._looked_at]
        if self._wanted.table is not None:
            # Files that are called by the name have been looked for; in a uuid there is no underscore.
            leading = [key for key in leading if "_" not in owner_of(key.removeprefix(folder))]
        if len(leading) > READ:
            raise _too_many(folder, f"at most {READ:,} SFN files", f"{len(leading):,}")
        return leading

    async def _live(self, start: Found) -> Found | None:
        """Where a document leads, if it is about the table and the table is live."""
        doc = start.doc
        if not self._wanted.is_meant_by(doc) or doc.ref != MAIN:
            return None
        last = start if doc.live else await followed(self._files, self._trust, start)
        if self._wanted.table is not None and doc.name_now is not None and not self._wanted.is_meant_by(last.doc):
            now = named(last.doc) if last.doc.live else called(doc.moved_to)
            raise NameTaken(
                start.key,
                expected=f"the table that was called {named(doc)} here",
                found=f"that it is now {now}, and that another table is {named(doc)}",
                remedy=f"name the one you mean: {now}, or read {doc.name_now.sfn_file_path}",
            )
        if last.doc.live:
            return last
        self._ended.append((start, last))
        return None

    def refusal(self) -> Unreadable:
        """Why there is no live table, once all was looked at."""
        if self._ended and (not self._wanted.is_any or not self._broken):
            start, _ = max(self._ended, key=lambda both: both[0].doc.as_of)
            others = ", nor is the table of any other file there live" if len(self._ended) > 1 else ""
            where = start.folder if self._wanted.is_any else start.key
            return Dropped(where, expected="a live table", found=f"{ended(start.doc)}{others}")
        if self._broken or self._crowded:
            return [*self._broken, *self._crowded][0]
        where, remedy = " or ".join(self._folders), "check the directory and the identifier"
        if self._wanted.is_any:
            return NotFound(where, expected="an SFN file", found="none", remedy="check the directory")
        return NotFound(where, expected=f"the SFN file of {self._wanted.text}", found="none", remedy=remedy)


async def listed(files: Files, folder: str) -> list[str]:
    """The keys of all files of a folder.

    Raises:
        TooManyFiles: there are more than `LISTED`.
    """
    keys = await files.list(folder, LISTED + 1)
    if len(keys) > LISTED:
        raise _too_many(folder, f"at most {LISTED:,} files", f"{len(keys):,} or more")
    return keys


@lru_cache(4096)
def _names(table: tuple[str, ...] | None, uuid: str | None) -> Sequence[tuple[str, How]]:
    """What the table's leading file may be called, in the order in which it is looked for."""
    whose = Wanted(table, uuid).whose
    if whose is None:
        return ()
    by_name = (IDENTIFIER, ORDINAL) if table is not None else ()
    names = [(name, How.NAME) for naming in by_name for name in naming.names(whose)]
    return (*names, *((name, How.UUID) for name in UUID.names(whose)))


def _too_many(folder: str, expected: str, found: str) -> TooManyFiles:
    return TooManyFiles(folder, expected=expected, found=found, remedy="name the table: then nothing is listed")
