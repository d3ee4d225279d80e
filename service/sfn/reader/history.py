"""The commits of a table, oldest first, as far as its files record them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from sfn.errors import CommitNotFound, MalformedDocument, TooManyFiles
from sfn.reader.files import FileReader
from sfn.reader.lookup import MAX_READ, FoundDocument, describe_end, identifier_text, list_keys, read_document
from sfn.reader.metadata import PartialMetadata, check_log_times
from sfn.sfnfile.document import LAST_ORDINAL, CommitEntry, Document, DocumentState, render_ordinal
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import EXTENSION, HEAD, ORDINAL, FileOwner, commit_ordinal, owner_prefix


class CommitSource(StrEnum):
    """The kind of file that records a commit."""

    COMMIT = "commit file"
    LEADING = "leading file"
    LOG = "metadata-log"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One commit.

    Attributes:
        ordinal: the time of the change in Unix milliseconds, never lower than that of the commit before; for the
            metadata-log, the writers' own times.
        metadata_location: its metadata file, which may have been deleted since.
        snapshot_id: the head of branch `main` after it; None if the table was empty, or if only the metadata file
            contains it.
        gap: the number of unrecorded commits right before it.
        written_at: the time of the catalog's answer about it; None if only the table's own metadata records it.
        state: the table's state after it.
        source: the file that records it. The metadata-log goes back as far as the table keeps earlier metadata files.
    """

    ordinal: int
    metadata_location: str
    snapshot_id: int | None
    gap: int
    written_at: datetime | None
    state: DocumentState
    source: CommitSource

    @property
    def at(self) -> datetime:
        """The ordinal as a datetime."""
        return datetime.fromtimestamp(self.ordinal / 1000, UTC)


@dataclass(frozen=True, slots=True)
class DocumentVersion:
    """The document that was current at some time.

    Attributes:
        found: the document; if the commit has none of its own, the leading one with the commit's values.
        missing_commits: the number of unrecorded commits between it and the next known one: any of them may have been
            current.
        is_latest: whether it is what the leading document says now.
    """

    found: FoundDocument
    missing_commits: int = 0
    is_latest: bool = True


def has_commit_files(leading: FoundDocument) -> bool:
    """Return whether each commit of the table has a file."""
    return leading.key.endswith(f"_{HEAD}{EXTENSION}")


class CommitFiles:
    """The files of single commits beside a head, and the commits that the head itself records.

    Args:
        files: the files to search.
        leading: the head. Heads of former names may have forwarded to it; their commits are this table's, too.
    """

    def __init__(self, files: FileReader, leading: FoundDocument) -> None:
        self._files, self._leading = files, leading
        self._between = {commit.ordinal: commit for commit in leading.doc.between}

    async def entries(self, limit: int) -> list[HistoryEntry]:
        """Return the newest commits, in order.

        Raises:
            MalformedDocument: a commit file is no SFN document.
            TooManyFiles: there are more files than a reader opens.
        """
        head = self._leading.doc
        keys = await self._keys()
        entries: dict[int, HistoryEntry] = {}
        for number_checked, ordinal in enumerate(sorted({*keys, *self._between}, reverse=True)):
            if len(entries) >= limit:
                break
            self._check_limit(number_checked - limit)
            if (found := await self._find_commit(ordinal, keys)) is not None:
                entries[ordinal] = to_history_entry(
                    found, CommitSource.LEADING if found.key == self._leading.key else CommitSource.COMMIT
                )
        if head.ordinal not in entries or not head.is_live:
            entries[head.ordinal] = to_history_entry(self._leading, CommitSource.LEADING)
        return [entries[ordinal] for ordinal in sorted(entries)][-limit:]

    async def version_at(self, ordinal: int) -> DocumentVersion:
        """Return the document that was current at a time.

        Raises:
            CommitNotFound: the time was before the first known commit, or between the last one and the drop.
            MalformedDocument, TooManyFiles: as for `entries`.
        """
        head = self._leading
        if head.doc.is_live and head.doc.ordinal <= ordinal:
            return DocumentVersion(head)
        keys = await self._keys()
        known = sorted({*keys, *self._between})
        found = await self._first_of_table((number for number in reversed(known) if number <= ordinal), keys)
        following = await self._first_of_table((number for number in known if number > ordinal), keys) or head
        if found is not None and found.doc.ordinal < ordinal and following == head and not head.doc.is_live:
            raise CommitNotFound(
                head.key,
                expected=f"to know whether {identifier_text(head.doc)} was still there at {render_ordinal(ordinal)}",
                found=f"its last commit, of {render_ordinal(found.doc.ordinal)}, and {describe_end(head.doc)}",
                remedy="name the time of a commit: `sfn history` lists them",
            )
        if found is not None:
            return DocumentVersion(found, following.doc.gap, is_latest=False)
        raise CommitNotFound(
            head.folder,
            expected=f"a commit of {identifier_text(head.doc)} at or before {render_ordinal(ordinal)}",
            found=f"none; the first that is known is {render_ordinal(following.doc.ordinal)}",
            remedy="older ones were removed: see `keep` and `keep_for` of the catalog's settings",
        )

    async def _first_of_table(self, ordinals: Iterator[int], keys: Mapping[int, list[str]]) -> FoundDocument | None:
        """Return the first of these commits that belongs to this table."""
        for number_checked, ordinal in enumerate(ordinals):
            self._check_limit(number_checked)
            if (one := await self._find_commit(ordinal, keys)) is not None:
                return one
        return None

    def _check_limit(self, number_checked: int) -> None:
        """Refuse to open any number of commit files of other tables."""
        if number_checked >= MAX_READ:
            where, found = self._leading.folder, "more that are other tables'"
            remedy = "move other files out of the folder"
            raise TooManyFiles(where, expected=f"at most {MAX_READ:,} files of commits", found=found, remedy=remedy)

    async def _find_commit(self, ordinal: int, keys: Mapping[int, list[str]]) -> FoundDocument | None:
        """Return the document of a commit, or the head's record of it; None if it is another table's, or gone.

        Raises:
            MalformedDocument: a file is no SFN document, or is of another commit than its name says.
        """
        for key in keys.get(ordinal, ()):
            found = await read_document(self._files, key)
            if found is None or found.identity != self._leading.identity:
                continue
            if found.doc.ordinal != ordinal:
                raise MalformedDocument(
                    key, expected="the Ordinal of its name", found=render_ordinal(found.doc.ordinal)
                )
            return found
        commit = self._between.get(ordinal)
        return None if commit is None else replace(self._leading, doc=_document_of_commit(commit, self._leading.doc))

    async def _keys(self) -> Mapping[int, list[str]]:
        """Return the files that may be of the table's commits, by their ordinals."""
        heads = zip(
            (*self._leading.via, self._leading.key), (*self._leading.previous_documents, self._leading.doc), strict=True
        )
        owners = {
            (key.rpartition("/")[0] + "/", owner_prefix(name))
            for key, doc in heads
            for name in ORDINAL.commit_file_names(FileOwner(doc.namespace, doc.name), doc.ordinal)
        }
        keys: dict[int, list[str]] = {}
        for folder in sorted({folder for folder, _ in owners}):
            for key in await list_keys(self._files, folder):
                name = key.removeprefix(folder)
                ordinal = commit_ordinal(name)
                if ordinal is not None and (folder, owner_prefix(name)) in owners:
                    keys.setdefault(ordinal, []).append(key)
        return keys


class MetadataLog:
    """A metadata file and the earlier ones in its metadata-log.

    Args:
        leading: the document that names the metadata file.
        metadata: the contents of the metadata file.
        where: its location.

    Raises:
        MalformedMetadata: the metadata-log is not valid.
    """

    def __init__(self, leading: FoundDocument, metadata: PartialMetadata, where: str) -> None:
        self._leading, self._where = leading, where
        logged = [(logged.timestamp_ms, logged.metadata_file) for logged in metadata.metadata_log_entries(where)]
        last = leading.doc.ordinal if metadata.last_updated_ms is None else metadata.last_updated_ms
        self._files = [*logged, (last, leading.doc.metadata_file_path)]

    def entries(self, limit: int) -> list[HistoryEntry]:
        """Return the newest commits, in order.

        A time outside of the range of Ordinals, as writers in microseconds leave it, becomes the nearest Ordinal.
        """
        earlier = [
            HistoryEntry(
                _clamped(at), file, None, gap=0, written_at=None, state=DocumentState.CURRENT, source=CommitSource.LOG
            )
            for at, file in self._files[:-1]
        ]
        return [*earlier, to_history_entry(self._leading, CommitSource.LEADING)][-limit:]

    def version_at(self, ordinal: int) -> DocumentVersion:
        """Return the document that was current at a time.

        Raises:
            CommitNotFound: the time is before the first logged one, or the logged times are not in order, for example
                because a writer's clock ran backwards.
            MalformedMetadata: a logged time can't be a time.
        """
        check_log_times(self._files, "metadata-log", self._where)
        is_earlier = [at <= ordinal for at, _ in self._files]
        number = sum(is_earlier)
        if number == len(is_earlier):
            return DocumentVersion(self._leading)
        if number and all(is_earlier[:number]):
            earlier = replace(self._leading, doc=_document_of_earlier_file(self._leading.doc, *self._files[number - 1]))
            return DocumentVersion(earlier, is_latest=False)
        raise CommitNotFound(
            self._leading.doc.metadata_file_path,
            expected=f"in its metadata-log what was current at {render_ordinal(ordinal)}",
            found="times that are not in order" if number else f"nothing before {render_ordinal(self._files[0][0])}",
            remedy="for a timeline of every commit, set `naming = ordinal`",
        )


def to_history_entry(found: FoundDocument, source: CommitSource) -> HistoryEntry:
    """Return the commit that a document records."""
    doc = found.doc
    return HistoryEntry(
        doc.ordinal, doc.metadata_file_path, doc.snapshot_id, doc.gap, doc.written_at, doc.state, source
    )


def _clamped(milliseconds: int) -> int:
    return min(max(milliseconds, 0), LAST_ORDINAL)


def _document_of_earlier_file(doc: Document, ordinal: int, file: str) -> Document:
    return replace(
        doc,
        ordinal=ordinal,
        metadata_file_path=file,
        metadata_file_relative=_sibling_location(doc, file),
        snapshot_id=None,
        gap=0,
        between=(),
    )


def _sibling_location(doc: Document, file: str) -> str | None:
    """Return a metadata file's location relative to a document, if it is in the folder of the document's own."""
    folder, _, name = canonical(file).rpartition("/")
    own, _, _ = canonical(doc.metadata_file_path).rpartition("/")
    if doc.metadata_file_relative is None or folder != own:
        return None
    way, slash, _ = doc.metadata_file_relative.rpartition("/")
    return f"{way}{slash}{name}"


def _document_of_commit(commit: CommitEntry, head: Document) -> Document:
    return replace(
        _document_of_earlier_file(head, commit.ordinal, commit.metadata_file_path),
        gap=commit.gap,
        state=DocumentState.CURRENT,
    )
