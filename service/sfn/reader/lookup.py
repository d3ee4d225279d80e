"""Finding a table's leading document: by name, by uuid, or as the only one that lies in a directory."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final, TypeAlias

from sfn.domain.identifiers import normal_uuid
from sfn.errors import (
    Ambiguous,
    Dropped,
    MalformedDocument,
    NameTaken,
    NotFound,
    NotPermitted,
    TooManyFiles,
    TooManyHops,
    Unreadable,
    Unsafe,
)
from sfn.reader.files import FileReader
from sfn.reader.metadata import AllowedLocations
from sfn.sfnfile import document
from sfn.sfnfile.document import Document, Link
from sfn.sfnfile.naming import (
    EXTENSION,
    HEAD,
    IDENTIFIER,
    MAIN_BRANCH,
    ORDINAL,
    UUID,
    FileLayout,
    FileOwner,
    Placement,
    folder_below_root,
    owner_prefix,
)

# ── documents: One SFN document after another

MAX_HOPS: Final = 8
"""How many `moved_to` are followed."""

TableIdentity: TypeAlias = tuple[str | tuple[str, ...], str]
"""A table's uuid, or its identifier where it has none, with its catalog's id."""


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A document.

    Attributes:
        key: its canonical URL.
        doc: what it says.
        via: URLs of the documents that forwarded to it, in order.
        previous_documents: what these say.
    """

    key: str
    doc: Document
    via: tuple[str, ...] = ()
    previous_documents: tuple[Document, ...] = ()

    @property
    def identity(self) -> TableIdentity:
        """Which table it speaks of."""
        return self.doc.guid or (*self.doc.namespace, self.doc.name), self.doc.catalog_id

    @property
    def folder(self) -> str:
        """Where it lies, with a trailing slash."""
        return self.key.rpartition("/")[0] + "/"


async def read_document(files: FileReader, key: str) -> FoundDocument | None:
    """The document at a key; None where there is no file.

    Raises:
        Malformed: the file is none.
        UnknownVersion: it is one of another version.
    """
    body = await files.read(key, document.MAX_DOCUMENT_BYTES + 1)
    if body is None:
        return None
    try:
        return FoundDocument(key, document.parse(body))
    except MalformedDocument as error:
        raise type(error)(key, expected=error.expected, found=error.found, remedy=error.remedy) from error


async def follow_links(files: FileReader, allowed_locations: AllowedLocations, start: FoundDocument) -> FoundDocument:
    """Where `moved_to` leads: a live document of the same table, or else the last one on the way to nowhere.

    Raises:
        TooManyHops: it leads further than `MAX_HOPS`, or in a circle.
        Unsafe: it leads where nobody is followed to.
        Malformed: to a file that is none.
    """
    at = start
    for _ in range(MAX_HOPS + 1):
        link = at.doc.moved_to
        if at.doc.is_live or link is None:
            return at
        following = await read_document(files, allowed_locations.check_link(link.sfn_file_path, at.key))
        if following is None or not _is_successor(following.doc, link, at.doc):
            return at
        if following.key in (*at.via, at.key):
            raise TooManyHops(start.key, expected="a `moved_to` that leads to an end", found="a circle")
        at = replace(following, via=(*at.via, at.key), previous_documents=(*at.previous_documents, at.doc))
    raise TooManyHops(start.key, expected=f"at most {MAX_HOPS} `moved_to`", found="more, or a circle")


def _is_successor(doc: Document, link: Link, before: Document) -> bool:
    """Whether a document that was forwarded to speaks of the same table; one without a uuid is known by its name."""
    if before.guid is not None:
        return doc.guid == before.guid
    is_named = (doc.namespace, doc.name) == (link.namespace, link.name)
    return doc.guid is None and is_named and doc.catalog_id == before.catalog_id


def describe_end(doc: Document) -> str:
    """What a document says of a table that is not there any more."""
    at = document.format_time(doc.written_at)
    if doc.moved_to is None:
        return f"that {identifier_text(doc)} was dropped, as the catalog said at {at}"
    return f"that {identifier_text(doc)} left for {link_text(doc.moved_to)} at {at}, and no live table is there"


def identifier_text(doc: Document) -> str:
    """The identifier that a document has, for people."""
    return ".".join((*doc.namespace, doc.name))


def link_text(link: Link | None) -> str:
    """The identifier that a link has, for people."""
    return ".".join((*link.namespace, link.name)) if link is not None else "gone"


# ── wanted: Which table a reader wants


@dataclass(frozen=True, slots=True)
class TableSelector:
    """Which table.

    Attributes:
        table: namespace levels and name; None where any will do that is the only one.
        uuid: its `table-uuid`; None likewise.
    """

    table: tuple[str, ...] | None = None
    uuid: str | None = None

    @property
    def file_owner(self) -> FileOwner | None:
        """What its files may be called by; None where only its directory is known."""
        if self.table is None:
            return None if self.uuid is None else FileOwner((), "", normal_uuid(self.uuid))
        return FileOwner(self.table[:-1], self.table[-1], normal_uuid(self.uuid))

    @property
    def is_any(self) -> bool:
        """Whether the table is to be the only one."""
        return self.table is None and self.uuid is None

    def matches(self, doc: Document) -> bool:
        """Whether a document speaks of it."""
        is_named = self.table is None or (*doc.namespace, doc.name) == self.table
        return is_named and (self.uuid is None or doc.guid == normal_uuid(self.uuid))

    @property
    def text(self) -> str:
        """It, for people."""
        name = "the table" if self.table is None else ".".join(self.table)
        return name if self.uuid is None else f"{name} with the uuid {self.uuid}"

    def check_name(self, start: FoundDocument, last: FoundDocument) -> None:
        """Refuse a name that another table has now.

        Every document of that name on the way is checked: after a change of settings, one file of a name may lead to
        another.

        Args:
            start: the document that was found by it.
            last: where that one led.

        Raises:
            NameTaken: another has.
        """
        if self.table is None or self.matches(last.doc):
            return
        for doc in reversed((start.doc, *last.previous_documents)):
            if doc.name_now is not None and (*doc.namespace, doc.name) == self.table:
                now = identifier_text(last.doc) if last.doc.is_live else link_text(doc.moved_to)
                raise NameTaken(
                    start.key,
                    expected=f"the table that was called {identifier_text(doc)} here",
                    found=f"that it is now {now}, and that another table is {identifier_text(doc)}",
                    remedy=f"name the one you mean: {now}, or read {doc.name_now.sfn_file_path}",
                )


# ── branches: The files of single branches


class BranchLookup:
    """One branch or tag, looked for.

    Args:
        files: how to read.
        trust: the directory, and where documents may lead.
        ref: its name; not `main`, whose document leads.
    """

    def __init__(self, files: FileReader, allowed_locations: AllowedLocations, ref: str) -> None:
        self._files, self._allowed_locations, self._ref = files, allowed_locations, ref
        self._checked_keys: set[str] = set()

    async def find_by_name(self, selector: TableSelector) -> FoundDocument | None:
        """Its live document, where the table's name is known and the file lies where most do."""
        if selector.table is None or selector.file_owner is None:
            return None
        for key in FileLayout(self._allowed_locations.directory).keys(selector.file_owner, self._ref):
            found = await self._document_at(key)
            if found is not None and selector.matches(found.doc):
                last = await follow_links(self._files, self._allowed_locations, found)
                selector.check_name(found, last)
                if self._matches(last):
                    return last
        return None

    async def find_sibling(self, leading: FoundDocument) -> FoundDocument | None:
        """Its live document, beside the leading one of its table."""
        for key in _branch_keys(leading, self._ref):
            found = await self._document_at(key)
            if found is not None and found.identity == leading.identity and self._matches(found):
                return found
        return None

    def _matches(self, found: FoundDocument) -> bool:
        return found.doc.is_live and found.doc.ref == self._ref

    async def _document_at(self, key: str) -> FoundDocument | None:
        """The document at a key that has not been looked at yet; what can't be read may be another table's."""
        if key in self._checked_keys:
            return None
        self._checked_keys.add(key)
        try:
            return await read_document(self._files, key)
        except (MalformedDocument, NotPermitted):
            return None


def _branch_keys(leading: FoundDocument, ref: str) -> Sequence[str]:
    owner = FileOwner(leading.doc.namespace, leading.doc.name, leading.doc.guid)
    for naming in (IDENTIFIER, UUID):
        if leading.key.removeprefix(leading.folder) in naming.file_names(owner):
            return [leading.folder + name for name in naming.file_names(owner, ref)]
    return []


# ── choice: Which of several live documents is the one that a reader was asked for

_MAX_NAMED: Final = 10


def disambiguate(where: str, found: Sequence[FoundDocument]) -> FoundDocument:
    """The one table of which all these documents speak.

    Of one table the newest answer of its catalog counts. So does it of one identifier in one catalog: a table that was
    dropped and made anew lies beside its successor for a moment where files are called by uuid.

    Args:
        where: the folder, for the message.
        found: one live document at least.

    Raises:
        Ambiguous: they speak of several.
    """
    tables = _newest(found, lambda one: one.identity)
    named_alike = _newest(tables, lambda one: (one.doc.namespace, one.doc.name, one.doc.catalog_id))
    if len(named_alike) == 1:
        return named_alike[0]
    names = sorted(_labels(named_alike))
    more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
    raise Ambiguous(
        where,
        expected="one table, or to be told which",
        found=", ".join(names[:_MAX_NAMED]) + more,
        remedy="name the table, or give its uuid",
    )


def _newest(found: Sequence[FoundDocument], key: Callable[[FoundDocument], Hashable]) -> list[FoundDocument]:
    best: dict[Hashable, FoundDocument] = {}
    for one in found:
        if key(one) not in best or _rank(one) > _rank(best[key(one)]):
            best[key(one)] = one
    return list(best.values())


def _rank(found: FoundDocument) -> tuple[datetime, int]:
    """By which the greatest counts: the newest, and of those that led to it the shortest way."""
    return found.doc.as_of, -len(found.via)


def _labels(found: Sequence[FoundDocument]) -> list[str]:
    """Their names, and what else tells them apart where they have one name."""
    names = [identifier_text(one.doc) for one in found]
    if len(set(names)) == len(names):
        return names
    return [f"{identifier_text(one.doc)} ({one.doc.guid or 'no uuid'}, catalog {one.doc.catalog_id})" for one in found]


# ── lookup: Finding a table's leading document

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
