from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from sfn.clock import Clock, SystemClock
from sfn.errors import CommitNotFound, NotRelative, Stale, Unsafe, WrongTable
from sfn.reader import metadata
from sfn.reader.files import CountingFiles, FileReader, FileSystemOptions, RequestCounts
from sfn.reader.history import CommitFiles, DocumentVersion, HistoryEntry, MetadataLog, has_commit_files
from sfn.reader.lookup import BranchLookup, FoundBy, FoundDocument, Lookup, TableSelector
from sfn.reader.metadata import AllowedLocations, PartialMetadata
from sfn.reader.table import AllowedFiles
from sfn.sfnfile.document import Document, render_ordinal
from sfn.sfnfile.locations import store_prefix
from sfn.sfnfile.naming import MAIN_BRANCH

# ── relative: Where a metadata file lies relative to the SFN file


def relative_location(found: FoundDocument) -> str:
    """The metadata file's location beside a document.

    Raises:
        NotRelative: the document does not tell.
        Unsafe: it leads out of the store.
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


# ── resolve: How a reader finds a table's current metadata file

if TYPE_CHECKING:
    from pyiceberg.table import StaticTable

_CLOCK: Final = SystemClock()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Question:
    """What a reader wants to know.

    Attributes:
        directory: canonical URL of the table's directory.
        table: namespace levels and name; None where the directory holds one table only, or the uuid says which.
        uuid: the table's uuid.
        ref: a branch or tag.
        as_of: a time, in Unix milliseconds; None for now.
        relative: take the metadata file where it lies relative to the SFN file, as in a copy of the bucket.
        allowed: canonical prefixes below which files may lead, beside the directory; see `AllowedLocations`.
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
        """Where files may lead."""
        return AllowedLocations(self.directory, self.allowed)

    @property
    def selector(self) -> TableSelector:
        """Which table."""
        return TableSelector(self.table, self.uuid)


@dataclass(frozen=True, slots=True)
class Resolved:
    """Where a table's metadata file is.

    Attributes:
        metadata_location: the metadata file, as the catalog gave it; with `relative` where it lies beside the document.
        document: the SFN document that says so; with `as_of`, where the commit has no file, the leading one with what
            is known of the commit in its place.
        sfn_file: the URL of that document.
        ref: the branch or tag that was asked for.
        snapshot_id: its head; None where the table is empty, or where only the metadata file tells.
        found_by: what the table was found by.
        via: URLs of the documents that forwarded to it.
        missing_commits: with `as_of`, the commits right after this one that nothing tells of: any may have been
            current then.
        requests: what the store was asked for all this.
        age: how long ago the catalog said so.
        allowed_locations: where the files that it names may lie.
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
        """When the catalog's answer arrived that this rests on."""
        return self.document.written_at

    @property
    def files(self) -> AllowedFiles:
        """What its metadata names, opened as the table was."""
        return AllowedFiles(self.file_system_options.open_file_system(), self.allowed_locations)

    def table(self, properties: Mapping[str, str] | None = None) -> StaticTable:
        """The table as PyIceberg reads it, pinned to the branch or tag.

        Args:
            properties: how PyIceberg opens its files (`s3.endpoint` and so on); without them they are opened as those
                beside them were. See `sfn.reader.table.open_static_table`.
        """
        from sfn.reader.table import open_static_table

        return open_static_table(self, properties)


async def resolve_question(
    files: FileReader, question: Question, options: FileSystemOptions, clock: Clock = _CLOCK
) -> Resolved:
    """The metadata file that a reader asks for.

    Args:
        files: how to read.
        options: what they were opened with.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
    """
    search = _Resolver(CountingFiles(files), question, clock.now())
    try:
        return await search.run(options)
    except Stale:
        # It may have been replaced while it was read.
        return await search.run(options)


@dataclass(frozen=True, slots=True)
class MetadataPointer:
    """Which metadata file is a table's, before anybody looked into it.

    Attributes:
        key: its canonical URL.
        version: the document that says so.
    """

    key: str
    version: DocumentVersion


async def resolve_pointer(files: FileReader, question: Question, clock: Clock = _CLOCK) -> MetadataPointer:
    """The metadata file that a reader asks for, unopened: of a branch or tag without a file of its own the table's.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
    """
    return await _Resolver(CountingFiles(files), question, clock.now()).pointer()


async def read_history(files: FileReader, question: Question, limit: int, clock: Clock = _CLOCK) -> list[HistoryEntry]:
    """The newest commits of a table, in order: of its files of single commits, else of its metadata-log.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
    """
    search = _Resolver(CountingFiles(files), question, clock.now())
    try:
        return await search.history(limit)
    except Stale:
        return await search.history(limit)


class _Resolver:
    """One search for an answer."""

    def __init__(self, files: CountingFiles, question: Question, now: datetime) -> None:
        self._files, self._question, self._now = files, question, now
        self._trust = question.allowed_locations

    async def pointer(self) -> MetadataPointer:
        """Where its metadata file lies."""
        then, _ = await self._find()
        return MetadataPointer(self._metadata_location(then.found)[1], then)

    async def run(self, options: FileSystemOptions) -> Resolved:
        """The answer."""
        then, how = await self._find()
        return await self._to_resolved(then, how, options)

    async def _find(self) -> tuple[DocumentVersion, FoundBy]:
        """The document, and what it was found by."""
        question, wanted = self._question, self._question.selector
        lookup = Lookup(self._files, self._trust, wanted)
        if question.as_of is not None:
            return await self._version_at(lookup, question.as_of)
        if question.ref == MAIN_BRANCH:
            found, how = await lookup.find_leading()
            return DocumentVersion(found), how
        branch = BranchLookup(self._files, self._trust, question.ref)
        if (named := await branch.find_by_name(wanted)) is not None:
            return DocumentVersion(named), FoundBy.NAME
        leading, how = await lookup.find_leading()
        return DocumentVersion(await branch.find_sibling(leading) or leading), how

    async def history(self, limit: int) -> list[HistoryEntry]:
        """The commits."""
        lookup = Lookup(self._files, self._trust, self._question.selector)
        leading, _ = await lookup.find_leading(even_dropped=True)
        if has_commit_files(leading):
            return await CommitFiles(self._files, leading).entries(limit)
        if not leading.doc.is_live:
            raise lookup.lookup_error()
        return (await self._metadata_log(leading)).entries(limit)

    async def _version_at(self, lookup: Lookup, ordinal: int) -> tuple[DocumentVersion, FoundBy]:
        leading, how = await lookup.find_leading(even_dropped=True)
        if not leading.doc.is_live and not (
            has_commit_files(leading) and ordinal < _to_milliseconds(leading.doc.written_at)
        ):
            raise lookup.lookup_error()
        if has_commit_files(leading):
            return await CommitFiles(self._files, leading).version_at(ordinal), how
        return (await self._metadata_log(leading)).version_at(ordinal), how

    async def _metadata_log(self, leading: FoundDocument) -> MetadataLog:
        _, key = self._metadata_location(leading)
        return MetadataLog(leading, await self._read_metadata(key, leading), key)

    def _metadata_location(self, found: FoundDocument) -> tuple[str, str]:
        """Where the metadata file of a document lies, and its canonical URL."""
        location = relative_location(found) if self._question.relative else found.doc.metadata_file_path
        return location, self._trust.check_location(location, found.key)

    async def _read_metadata(self, key: str, found: FoundDocument) -> PartialMetadata:
        contents = await metadata.read_metadata(self._files, key)
        if contents is None:
            raise metadata.metadata_gone_error(key, found.doc, found.key, self._now)
        metadata.check_table_uuid(key, contents.table_uuid, found.doc, found.key)
        return contents

    async def _to_resolved(self, then: DocumentVersion, how: FoundBy, options: FileSystemOptions) -> Resolved:
        """What is found, once its metadata file was looked into."""
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
            how,
            found.via,
            then.missing_commits,
            self._files.requests,
            age,
            self._trust,
            options,
        )


def _commit_expired_error(key: str, then: DocumentVersion) -> CommitNotFound:
    return CommitNotFound(
        key,
        expected=f"the metadata file that was current at {render_ordinal(then.found.doc.ordinal)}",
        found="that it was deleted since",
        remedy="keep them longer: `write.metadata.previous-versions-max` of the table, and whatever else deletes them",
    )


def _to_milliseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(milliseconds=1)
