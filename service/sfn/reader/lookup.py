"""Search for a table's leading SFN document: by name, by uuid, or as the only one in a directory."""

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
    NotRelative,
    TooManyFiles,
    TooManyHops,
    Unreadable,
    Unsafe,
)
from sfn.reader.files import FileReader
from sfn.reader.metadata import AllowedLocations
from sfn.sfnfile import document
from sfn.sfnfile.document import Document, Link
from sfn.sfnfile.locations import store_prefix
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

MAX_HOPS: Final = 8
"""The maximum number of `moved_to` links that are followed."""

TableIdentity: TypeAlias = tuple[str | tuple[str, ...], str]
"""A table's uuid, or its identifier if it has none; with its catalog's id."""


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """An SFN document at its place.

    Attributes:
        key: its canonical URL.
        doc: its contents.
        via: URLs of the documents that forwarded to it, in order.
        previous_documents: the contents of these documents.
    """

    key: str
    doc: Document
    via: tuple[str, ...] = ()
    previous_documents: tuple[Document, ...] = ()

    @property
    def identity(self) -> TableIdentity:
        """The table that the document describes."""
        return self.doc.guid or (*self.doc.namespace, self.doc.name), self.doc.catalog_id

    @property
    def folder(self) -> str:
        """The document's folder, with a trailing slash."""
        return self.key.rpartition("/")[0] + "/"


async def read_document(files: FileReader, key: str) -> FoundDocument | None:
    """Return the document at a key; None if there is no file.

    Raises:
        MalformedDocument: the file is no SFN document.
        UnknownFormatVersion: the document has an unknown format version.
    """
    body = await files.read(key, document.MAX_DOCUMENT_BYTES + 1)
    if body is None:
        return None
    try:
        return FoundDocument(key, document.parse(body))
    except MalformedDocument as error:
        raise type(error)(key, expected=error.expected, found=error.found, remedy=error.remedy) from error


async def follow_links(files: FileReader, allowed_locations: AllowedLocations, start: FoundDocument) -> FoundDocument:
    """Follow `moved_to` to a live document of the same table, or to the last document that exists.

    Raises:
        TooManyHops: there are more than `MAX_HOPS` links, or they form a circle.
        Unsafe: a link leads to a place that is not allowed.
        MalformedDocument: a link leads to a file that is no SFN document.
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
    """Return whether a link's target describes the same table; a table without a uuid is identified by its name."""
    if before.guid is not None:
        return doc.guid == before.guid
    is_named = (doc.namespace, doc.name) == (link.namespace, link.name)
    return doc.guid is None and is_named and doc.catalog_id == before.catalog_id


def describe_end(doc: Document) -> str:
    """Return a sentence about the table of a tombstone, for error messages."""
    at = document.format_time(doc.written_at)
    if doc.moved_to is None:
        return f"that {identifier_text(doc)} was dropped, as the catalog said at {at}"
    return f"that {identifier_text(doc)} left for {link_text(doc.moved_to)} at {at}, and no live table is there"


def identifier_text(doc: Document) -> str:
    """Return the identifier of a document's table as text."""
    return ".".join((*doc.namespace, doc.name))


def link_text(link: Link | None) -> str:
    """Return the identifier of a link's target as text."""
    return ".".join((*link.namespace, link.name)) if link is not None else "gone"


@dataclass(frozen=True, slots=True)
class TableSelector:
    """The choice of a table in a directory.

    Attributes:
        table: namespace levels and name; None if the directory's only table is meant.
        uuid: its `table-uuid`; None likewise.
    """

    table: tuple[str, ...] | None = None
    uuid: str | None = None

    @property
    def file_owner(self) -> FileOwner | None:
        """The owner that its file names are made of; None if only the directory is known."""
        if self.table is None:
            return None if self.uuid is None else FileOwner((), "", normal_uuid(self.uuid))
        return FileOwner(self.table[:-1], self.table[-1], normal_uuid(self.uuid))

    @property
    def is_any(self) -> bool:
        """True if neither a name nor a uuid is given, so the directory must hold only one table."""
        return self.table is None and self.uuid is None

    def matches(self, doc: Document) -> bool:
        """Return whether a document describes the selected table."""
        is_named = self.table is None or (*doc.namespace, doc.name) == self.table
        return is_named and (self.uuid is None or doc.guid == normal_uuid(self.uuid))

    @property
    def text(self) -> str:
        """The selection as text, for messages."""
        name = "the table" if self.table is None else ".".join(self.table)
        return name if self.uuid is None else f"{name} with the uuid {self.uuid}"

    def check_name(self, start: FoundDocument, last: FoundDocument) -> None:
        """Refuse a name that another table has now.

        Every document of that name on the way is checked: after a change of settings, one file of a name may lead to
        another.

        Args:
            start: the document that was found by the name.
            last: the document that `start` led to.

        Raises:
            NameTaken: another table has the name.
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
                    remedy=f"name the table you mean: {now}, or read {doc.name_now.sfn_file_path}",
                )


class BranchLookup:
    """A search for the document of one branch or tag.

    Args:
        files: the files to search.
        allowed_locations: the directory, and the places that documents may lead to.
        ref: the name of the branch or tag; not `main`, which has the leading document.
    """

    def __init__(self, files: FileReader, allowed_locations: AllowedLocations, ref: str) -> None:
        self._files, self._allowed_locations, self._ref = files, allowed_locations, ref
        self._checked_keys: set[str] = set()

    async def find_by_name(self, selector: TableSelector) -> FoundDocument | None:
        """Return the live document in its usual place, if the table's name is known."""
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
        """Return the live document in the folder of the table's leading document."""
        for key in _branch_keys(leading, self._ref):
            found = await self._document_at(key)
            if found is not None and found.identity == leading.identity and self._matches(found):
                return found
        return None

    def _matches(self, found: FoundDocument) -> bool:
        return found.doc.is_live and found.doc.ref == self._ref

    async def _document_at(self, key: str) -> FoundDocument | None:
        """Return the document at a key that was not checked yet; an unreadable one may be another table's."""
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


_MAX_NAMED: Final = 10


def disambiguate(where: str, found: Sequence[FoundDocument]) -> FoundDocument:
    """Return the newest document, if all documents describe one table.

    Documents count as one table if they have the same uuid, or the same identifier in one catalog: if files are named
    by uuid, a table that was dropped and recreated lies beside its successor for a moment.

    Args:
        where: the folder, for the message.
        found: the live documents, at least one.

    Raises:
        Ambiguous: they describe several tables.
    """
    tables = _newest(found, lambda one: one.identity)
    named_alike = _newest(tables, lambda one: (one.doc.namespace, one.doc.name, one.doc.catalog_id))
    if len(named_alike) == 1:
        return named_alike[0]
    names = sorted(_labels(named_alike))
    more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
    raise Ambiguous(
        where,
        expected="one table, or its name or uuid",
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
    """Return the sort key of a document: its time, then the shortest way to it."""
    return found.doc.as_of, -len(found.via)


def _labels(found: Sequence[FoundDocument]) -> list[str]:
    """Return the tables' names, with uuid and catalog if two names are equal."""
    names = [identifier_text(one.doc) for one in found]
    if len(set(names)) == len(names):
        return names
    return [f"{identifier_text(one.doc)} ({one.doc.guid or 'no uuid'}, catalog {one.doc.catalog_id})" for one in found]


MAX_LISTED: Final = 100_000
"""The maximum number of file names that are listed per folder."""
MAX_READ: Final = 1_000
"""The maximum number of documents that are read per folder."""
MAX_OPENED: Final = 2 * MAX_READ
"""The maximum number of documents that one search opens, including the documents that links lead to."""

_LEADS: Final = tuple(f"_{part}{EXTENSION}" for part in (MAIN_BRANCH, HEAD))


class FoundBy(StrEnum):
    """The way in which a table was found."""

    NAME = "name"
    UUID = "uuid"
    LISTING = "listing"


@dataclass(frozen=True, slots=True)
class _EndedTable:
    """A table that was dropped, or that moved to a place without a live document.

    Attributes:
        start: its document in one of the directory's folders.
        last: the document that `start` led to.
        found_by: the way in which `start` was found.
    """

    start: FoundDocument
    last: FoundDocument
    found_by: FoundBy


class Lookup:
    """One search through a directory's folders.

    Args:
        files: the files to search.
        allowed_locations: the directory, and the places that documents may lead to.
        selector: the table to find.
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
        """Return the table's live document of branch `main`, or its head, after following links.

        Args:
            even_dropped: return the last document of a dropped table, if nothing else prevents it.

        Raises:
            Unreadable: see `sfn.errors` for its kinds.
        """
        for layout in self._layouts():
            if (found := await self._find_by_key(layout)) is not None:
                named, found_by = found
                return self._newest(named), found_by
            if (listed := await self._find_by_listing(layout.folder)) is not None:
                return self._newest(listed), FoundBy.LISTING
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
        """Return the table's newest document: one in another folder may have led to the table's new place."""
        same = [one for one in self._moved_away if one.identity == found.identity]
        return max([found, *same], key=lambda one: one.doc.as_of)

    def _layouts(self) -> Iterator[FileLayout]:
        directory, table = self._allowed_locations.directory, self._selector.table
        yield FileLayout(directory)
        yield FileLayout(directory, placement=Placement.ALONGSIDE)
        if table is not None:
            yield FileLayout(folder_below_root(directory, table[:-1], table[-1]), placement=Placement.ROOT)
        yield FileLayout(directory, placement=Placement.ROOT)

    async def _find_by_key(self, layout: FileLayout) -> tuple[FoundDocument, FoundBy] | None:
        folder = layout.folder
        for name, found_by in _candidate_names(self._selector.table, self._selector.uuid):
            key = folder + name
            self._checked_keys.add(key)
            try:
                start = await read_document(self._files, key)
            except (MalformedDocument, NotPermitted) as error:
                # The document may be another table's: two tables can share the first name, and then this table has the
                # second. Also, a store that refuses listings does not distinguish a missing file from a forbidden one.
                self._broken.append((folder, error))
                continue
            if start is not None and (found := await self._find_named(start, found_by)) is not None:
                return found, found_by
        return None

    async def _find_named(self, start: FoundDocument, found_by: FoundBy) -> FoundDocument | None:
        """Follow a document to a live one; if another table took the name, the search continues."""
        try:
            return await self._follow_to_live(start, found_by)
        except NameTaken as error:
            self._name_taken_error = self._name_taken_error or error
            return None

    async def _find_by_listing(self, folder: str) -> FoundDocument | None:
        """Return the table that lies in a folder, and remember the tables that moved away from it."""
        here: set[TableIdentity] = set()
        live: list[FoundDocument] = []
        for key in await self._leading_keys(folder):
            try:
                start = await read_document(self._files, key)
            except MalformedDocument as error:
                # A broken file counts only if no valid document is found.
                self._broken.append((folder, error))
                continue
            try:
                found = await self._find_named(start, FoundBy.LISTING) if start is not None else None
            except (MalformedDocument, NotPermitted, Unsafe) as error:
                # The document belongs to a table that left this folder.
                self._broken.append((folder, error))
                continue
            if found is not None:
                live.append(found)
                if found.folder == folder:
                    here.add(found.identity)
        # Check every document, not only the newest: `moved_to` may lead back here by another spelling of this folder.
        listed = [found for found in live if found.identity in here]
        self._moved_away += [found for found in live if found.identity not in here]
        return disambiguate(folder, listed) if listed else None

    async def _leading_keys(self, folder: str) -> list[str]:
        """Return the keys of the files that may be leading documents."""
        self._folders.append(folder)
        try:
            keys = await list_keys(self._files, folder)
        except NotPermitted as error:
            if self._selector.is_any:
                raise
            self._broken.append((folder, error))
            return []
        except TooManyFiles as error:
            # The folder may be the table's own, full of data files. Documents found in other folders still count.
            self._overfull_error.append(error)
            return []
        leading = [key for key in keys if key.endswith(_LEADS) and key not in self._checked_keys]
        if self._selector.table is not None:
            # Files that are called by the name were read before. A uuid contains no underscore.
            leading = [key for key in leading if "_" not in owner_prefix(key.removeprefix(folder))]
        if len(leading) > MAX_READ:
            raise self._too_many(folder, f"at most {MAX_READ:,} SFN files", f"{len(leading):,}")
        return leading

    async def _follow_to_live(self, start: FoundDocument, found_by: FoundBy) -> FoundDocument | None:
        """Return the live document that a document leads to, if it describes the selected table."""
        doc = start.doc
        if not self._selector.matches(doc) or doc.ref != MAIN_BRANCH:
            return None
        last = start if doc.is_live else await follow_links(self._files, self._allowed_locations, start)
        self._opened += 1 + len(last.via)
        if self._opened > MAX_OPENED:
            raise self._too_many(start.folder, f"at most {MAX_OPENED:,} linked documents", "more")
        self._selector.check_name(start, last)
        if last.doc.is_live:
            return last
        self._ended.append(_EndedTable(start, last, found_by))
        return None

    def _too_many(self, folder: str, expected: str, found: str) -> TooManyFiles:
        remedy = "name the table" if self._selector.is_any else "move other files out of the folder"
        return TooManyFiles(folder, expected=expected, found=found, remedy=remedy)

    def lookup_error(self) -> Unreadable:
        """Return the reason why no live table was found."""
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
        """Return whether a broken file in a folder may hide a live table that precedes a dropped one."""
        folders = [layout.folder for layout in self._layouts()]
        return self._selector.is_any or folders.index(folder) < folders.index(last.start.folder)


async def list_keys(files: FileReader, folder: str) -> list[str]:
    """Return the keys of all files of a folder.

    Raises:
        TooManyFiles: there are more than `MAX_LISTED`.
    """
    keys = await files.list(folder, MAX_LISTED + 1)
    if len(keys) > MAX_LISTED:
        remedy = "move other files out of the folder"
        raise TooManyFiles(
            folder, expected=f"at most {MAX_LISTED:,} files", found=f"{len(keys):,} or more", remedy=remedy
        )
    return keys


@lru_cache(4096)
def _candidate_names(table: tuple[str, ...] | None, uuid: str | None) -> Sequence[tuple[str, FoundBy]]:
    """Return the possible names of the table's leading file, in the order of the search."""
    owner = TableSelector(table, uuid).file_owner
    if owner is None:
        return ()
    by_name = (IDENTIFIER, ORDINAL) if table is not None else ()
    names = [(name, FoundBy.NAME) for naming in by_name for name in naming.file_names(owner)]
    return (*names, *((name, FoundBy.UUID) for name in UUID.file_names(owner)))


def relative_location(found: FoundDocument) -> str:
    """Return the metadata file's location relative to a document's own place.

    Raises:
        NotRelative: the document has no relative path.
        Unsafe: the path leads out of the store.
    """
    original = found.doc.metadata_file_relative
    if original is None:
        remedy = "resolve it without `relative`"
        raise NotRelative(found.key, expected="`metadata_file_relative`", found="none", remedy=remedy)
    store = store_prefix(found.key)
    path = found.folder.removeprefix(store).split("/")[1:-1]
    for segment in original.split("/"):
        if segment != "..":
            path.append(segment)
        elif path:
            path.pop()
        else:
            raise Unsafe(found.key, expected="a `metadata_file_relative` within the store", found=original)
    return "/".join((store, *path))
