"""Find a table's current metadata file, or its history, from its directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from sfn.clock import Clock, SystemClock
from sfn.errors import CommitNotFound, Stale, WrongTable
from sfn.reader import metadata
from sfn.reader.files import CountingFiles, FileReader, FileSystemOptions, RequestCounts
from sfn.reader.history import CommitFiles, DocumentVersion, HistoryEntry, MetadataLog, has_commit_files
from sfn.reader.lookup import BranchLookup, FoundBy, FoundDocument, Lookup, TableSelector, relative_location
from sfn.reader.metadata import AllowedLocations, PartialMetadata
from sfn.reader.table import AllowedFiles
from sfn.sfnfile.document import Document, render_ordinal
from sfn.sfnfile.naming import MAIN_BRANCH

if TYPE_CHECKING:
    from pyiceberg.table import StaticTable

_CLOCK: Final = SystemClock()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Question:
    """The arguments of a search.

    Attributes:
        directory: canonical URL of the table's directory.
        table: namespace levels and name; None if the directory holds one table only, or the uuid selects it.
        uuid: the table's uuid.
        ref: a branch or tag.
        as_of: a time, in Unix milliseconds; None for now.
        relative: take the metadata file from its place relative to the SFN file, as in a copy of the bucket.
        allowed: canonical prefixes below which files may lead, besides the directory; see `AllowedLocations`.
    """

    directory: str
    table: tuple[str, ...] | None = None
    uuid: str | None = None
    ref: str = MAIN_BRANCH
    as_of: int | None = None
    relative: bool = False
    allowed: tuple[str, ...] = ()

    @property
    def allowed_locations(self) -> AllowedLocations:
        """The places that documents and metadata may lead to."""
        return AllowedLocations(self.directory, self.allowed)

    @property
    def selector(self) -> TableSelector:
        """The table to find."""
        return TableSelector(self.table, self.uuid)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The place of a table's metadata file, and how it was found.

    Attributes:
        metadata_location: the metadata file, as the catalog gave it; with `relative`, its place relative to the
            document.
        document: the SFN document that names the metadata file; with `as_of`, if the commit has no file, the leading
            document with the commit's values.
        sfn_file: the URL of that document.
        ref: the requested branch or tag.
        snapshot_id: its head; None if the table is empty, or if only the metadata file contains it.
        found_by: the way in which the table was found.
        via: URLs of the documents that forwarded to it.
        missing_commits: with `as_of`, the number of unrecorded commits right after this one: any of them may have been
            current at that time.
        requests: the number of requests to the store.
        age: the time since the catalog gave this answer.
        allowed_locations: the places where the files that the metadata names may lie.
        file_system_options: the options that the directory was opened with.
    """

    metadata_location: str
    document: Document
    sfn_file: str
    ref: str
    snapshot_id: int | None
    found_by: FoundBy
    via: tuple[str, ...]
    missing_commits: int
    requests: RequestCounts
    age: timedelta = field(compare=False)
    allowed_locations: AllowedLocations = field(repr=False, compare=False)
    file_system_options: FileSystemOptions = field(default_factory=FileSystemOptions, repr=False, compare=False)

    @property
    def written_at(self) -> datetime:
        """The arrival time of the catalog's answer."""
        return self.document.written_at

    @property
    def files(self) -> AllowedFiles:
        """Access to the files that the metadata names, with the options of this directory."""
        return AllowedFiles(self.file_system_options.open_file_system(), self.allowed_locations)

    def table(self, properties: Mapping[str, str] | None = None) -> StaticTable:
        """Return the table for PyIceberg, pinned to the branch or tag.

        Args:
            properties: PyIceberg's properties for opening files (`s3.endpoint` and so on); by default the files are
                opened as the directory was. See `sfn.reader.table.open_static_table`.
        """
        from sfn.reader.table import open_static_table

        return open_static_table(self, properties)


async def resolve_question(
    files: FileReader, question: Question, options: FileSystemOptions, clock: Clock = _CLOCK
) -> Resolved:
    """Find the metadata file that a question asks for.

    Args:
        files: the files to search.
        options: the options that `files` were opened with.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
    """
    search = _Resolver(CountingFiles(files), question, clock.now())
    try:
        return await search.run(options)
    except Stale:
        # The metadata file may have been replaced during the search.
        return await search.run(options)


@dataclass(frozen=True, slots=True)
class MetadataPointer:
    """The place of a table's metadata file, before the file was opened.

    Attributes:
        key: its canonical URL.
        version: the document that names it.
    """

    key: str
    version: DocumentVersion


async def resolve_pointer(files: FileReader, question: Question, clock: Clock = _CLOCK) -> MetadataPointer:
    """Find the metadata file, without opening it; for a branch or tag without an SFN file, that of the table.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
    """
    return await _Resolver(CountingFiles(files), question, clock.now()).pointer()


async def read_history(files: FileReader, question: Question, limit: int, clock: Clock = _CLOCK) -> list[HistoryEntry]:
    """Return the newest commits of a table, in order: from its commit files, or else from its metadata-log.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
    """
    search = _Resolver(CountingFiles(files), question, clock.now())
    try:
        return await search.history(limit)
    except Stale:
        return await search.history(limit)


class _Resolver:
    """One run of a search."""

    def __init__(self, files: CountingFiles, question: Question, now: datetime) -> None:
        self._files, self._question, self._now = files, question, now
        self._allowed_locations = question.allowed_locations

    async def pointer(self) -> MetadataPointer:
        """Return the place of the metadata file."""
        then, _ = await self._find()
        return MetadataPointer(self._metadata_location(then.found)[1], then)

    async def run(self, options: FileSystemOptions) -> Resolved:
        """Return the checked answer."""
        then, found_by = await self._find()
        return await self._to_resolved(then, found_by, options)

    async def _find(self) -> tuple[DocumentVersion, FoundBy]:
        """Return the document, and the way in which it was found."""
        question, selector = self._question, self._question.selector
        lookup = Lookup(self._files, self._allowed_locations, selector)
        if question.as_of is not None:
            return await self._version_at(lookup, question.as_of)
        if question.ref == MAIN_BRANCH:
            found, found_by = await lookup.find_leading()
            return DocumentVersion(found), found_by
        branch = BranchLookup(self._files, self._allowed_locations, question.ref)
        if (named := await branch.find_by_name(selector)) is not None:
            return DocumentVersion(named), FoundBy.NAME
        leading, found_by = await lookup.find_leading()
        return DocumentVersion(await branch.find_sibling(leading) or leading), found_by

    async def history(self, limit: int) -> list[HistoryEntry]:
        """Return the newest commits."""
        lookup = Lookup(self._files, self._allowed_locations, self._question.selector)
        leading, _ = await lookup.find_leading(even_dropped=True)
        if has_commit_files(leading):
            return await CommitFiles(self._files, leading).entries(limit)
        if not leading.doc.is_live:
            raise lookup.lookup_error()
        return (await self._metadata_log(leading)).entries(limit)

    async def _version_at(self, lookup: Lookup, ordinal: int) -> tuple[DocumentVersion, FoundBy]:
        leading, found_by = await lookup.find_leading(even_dropped=True)
        if not leading.doc.is_live and not (
            has_commit_files(leading) and ordinal < _to_milliseconds(leading.doc.written_at)
        ):
            raise lookup.lookup_error()
        if has_commit_files(leading):
            return await CommitFiles(self._files, leading).version_at(ordinal), found_by
        return (await self._metadata_log(leading)).version_at(ordinal), found_by

    async def _metadata_log(self, leading: FoundDocument) -> MetadataLog:
        _, key = self._metadata_location(leading)
        return MetadataLog(leading, await self._read_metadata(key, leading), key)

    def _metadata_location(self, found: FoundDocument) -> tuple[str, str]:
        """Return the location of a document's metadata file, and its canonical URL."""
        location = relative_location(found) if self._question.relative else found.doc.metadata_file_path
        return location, self._allowed_locations.check_location(location, found.key)

    async def _read_metadata(self, key: str, found: FoundDocument) -> PartialMetadata:
        contents = await metadata.read_metadata(self._files, key)
        if contents is None:
            raise metadata.metadata_gone_error(key, found.doc, found.key, self._now)
        metadata.check_table_uuid(key, contents.table_uuid, found.doc, found.key)
        return contents

    async def _to_resolved(self, then: DocumentVersion, found_by: FoundBy, options: FileSystemOptions) -> Resolved:
        """Check the metadata file of a document, and build the answer."""
        found, ref = then.found, self._question.ref
        location, key = self._metadata_location(found)
        snapshot = found.doc.snapshot_id
        try:
            if ref == found.doc.ref:
                await metadata.check_metadata(self._files, key, found.doc, found.key, self._now)
            else:
                snapshot = (await self._read_metadata(key, found)).head(ref, key)
        except Stale as stale:
            if then.is_latest or isinstance(stale, WrongTable):
                raise
            raise _commit_expired_error(key, then) from None
        age = self._now - found.doc.written_at
        return Resolved(
            location,
            found.doc,
            found.key,
            ref,
            snapshot,
            found_by,
            found.via,
            then.missing_commits,
            self._files.requests,
            age,
            self._allowed_locations,
            options,
        )


def _commit_expired_error(key: str, then: DocumentVersion) -> CommitNotFound:
    return CommitNotFound(
        key,
        expected=f"the metadata file that was current at {render_ordinal(then.found.doc.ordinal)}",
        found="that it was deleted since",
        remedy="keep them longer: `write.metadata.previous-versions-max` of the table, and any job that deletes them",
    )


def _to_milliseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(milliseconds=1)
