"""The commits of a table, oldest first, as far as its files tell of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from sfn.errors import CommitNotFound, Malformed, TooManyFiles
from sfn.pointer.document import LAST_ORDINAL, CommitEntry, Document, DocumentState, render_ordinal
from sfn.pointer.location import canonical
from sfn.pointer.naming import EXTENSION, HEAD, ORDINAL, FileOwner, commit_ordinal, owner_prefix
from sfn.reader.documents import Found, ended, named, read
from sfn.reader.files import Files
from sfn.reader.lookup import READ, listed
from sfn.reader.metadata import Metadata, checked_times


class Source(StrEnum):
    """What tells of a commit."""

    COMMIT = "commit file"
    LEADING = "leading file"
    LOG = "metadata-log"


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit.

    Attributes:
        ordinal: Unix milliseconds: when the table was changed, and never lower than the commit's before it; of the
            metadata-log as its writers noted it.
        metadata_location: its metadata file, which may have been deleted since.
        snapshot_id: the head of branch `main` after it; None where the table was empty, or where only the metadata file
            tells.
        gap: commits right before it that nothing tells of.
        written_at: when the catalog was heard of it; None where its own metadata alone tells of it.
        state: what was said of the table.
        source: what tells of it. The metadata-log has earlier metadata files as far back as the table keeps them.
    """

    ordinal: int
    metadata_location: str
    snapshot_id: int | None
    gap: int
    written_at: datetime | None
    state: DocumentState
    source: Source

    @property
    def at(self) -> datetime:
        """The ordinal as a moment."""
        return datetime.fromtimestamp(self.ordinal / 1000, UTC)


@dataclass(frozen=True, slots=True)
class Then:
    """What was current at some time.

    Attributes:
        found: the document; where there is none of its own, the leading one with the commit's values.
        lost: commits between it and the next known one that nothing tells of: any of them may have been current.
        is_latest: it is what the leading document says now.
    """

    found: Found
    lost: int = 0
    is_latest: bool = True


def has_commits(leading: Found) -> bool:
    """Whether each commit of the table has a file."""
    return leading.key.endswith(f"_{HEAD}{EXTENSION}")


class Commits:
    """The files of single commits beside a head, and what the head itself tells of.

    Args:
        files: how to read.
        leading: the head; on the way to it there may be heads of former names, whose commits are this table's too.
    """

    def __init__(self, files: Files, leading: Found) -> None:
        self._files, self._leading = files, leading
        self._between = {commit.ordinal: commit for commit in leading.doc.between}

    async def entries(self, limit: int) -> list[Entry]:
        """The newest commits, in order.

        Raises:
            Malformed: a file of one is none: what it said is not known.
            TooManyFiles: there are more than a reader looks at.
        """
        head = self._leading.doc
        keys = await self._keys()
        told: dict[int, Entry] = {}
        for looked_at, ordinal in enumerate(sorted({*keys, *self._between}, reverse=True)):
            if len(told) >= limit:
                break
            self._check_extent(looked_at - limit)
            if (found := await self._commit(ordinal, keys)) is not None:
                told[ordinal] = entry(found, Source.LEADING if found.key == self._leading.key else Source.COMMIT)
        if head.ordinal not in told or not head.is_live:
            told[head.ordinal] = entry(self._leading, Source.LEADING)
        return [told[ordinal] for ordinal in sorted(told)][-limit:]

    async def as_of(self, ordinal: int) -> Then:
        """What was current at a time.

        Raises:
            CommitNotFound: that was before the first known commit, or between the last one and the drop.
            Malformed, TooManyFiles: as of `entries`.
        """
        head = self._leading
        if head.doc.is_live and head.doc.ordinal <= ordinal:
            return Then(head)
        keys = await self._keys()
        known = sorted({*keys, *self._between})
        found = await self._first((number for number in reversed(known) if number <= ordinal), keys)
        following = await self._first((number for number in known if number > ordinal), keys) or head
        if found is not None and found.doc.ordinal < ordinal and following == head and not head.doc.is_live:
            raise CommitNotFound(
                head.key,
                expected=f"to know whether {named(head.doc)} was still there at {render_ordinal(ordinal)}",
                found=f"its last commit, of {render_ordinal(found.doc.ordinal)}, and {ended(head.doc)}",
                remedy="name the time of a commit: `sfn history` lists them",
            )
        if found is not None:
            return Then(found, following.doc.gap, is_latest=False)
        raise CommitNotFound(
            head.folder,
            expected=f"a commit of {named(head.doc)} at or before {render_ordinal(ordinal)}",
            found=f"none; the first that is known is {render_ordinal(following.doc.ordinal)}",
            remedy="older ones were removed: see `keep` and `keep_for` of the catalog's settings",
        )

    async def _first(self, ordinals: Iterator[int], keys: Mapping[int, list[str]]) -> Found | None:
        """The first of these commits that is this table's."""
        for looked_at, ordinal in enumerate(ordinals):
            self._check_extent(looked_at)
            if (one := await self._commit(ordinal, keys)) is not None:
                return one
        return None

    def _check_extent(self, looked_at: int) -> None:
        """Refuse to look through ever more files of commits that are other tables'."""
        if looked_at >= READ:
            where, found = self._leading.folder, "more that are other tables'"
            remedy = "move out of the folder what is not ours"
            raise TooManyFiles(where, expected=f"at most {READ:,} files of commits", found=found, remedy=remedy)

    async def _commit(self, ordinal: int, keys: Mapping[int, list[str]]) -> Found | None:
        """The document of a commit, or what the head tells of it; None where it is another table's, or gone.

        Raises:
            Malformed: a file is none, or is of another commit than its name says.
        """
        for key in keys.get(ordinal, ()):
            found = await read(self._files, key)
            if found is None or found.identity != self._leading.identity:
                continue
            if found.doc.ordinal != ordinal:
                raise Malformed(key, expected="the Ordinal of its name", found=render_ordinal(found.doc.ordinal))
            return found
        commit = self._between.get(ordinal)
        return None if commit is None else replace(self._leading, doc=_built(commit, self._leading.doc))

    async def _keys(self) -> Mapping[int, list[str]]:
        """The files that may be of the table's commits, by their ordinals."""
        heads = zip((*self._leading.via, self._leading.key), (*self._leading.former, self._leading.doc), strict=True)
        owners = {
            (key.rpartition("/")[0] + "/", owner_prefix(name))
            for key, doc in heads
            for name in ORDINAL.commit_file_names(FileOwner(doc.namespace, doc.name), doc.ordinal)
        }
        keys: dict[int, list[str]] = {}
        for folder in sorted({folder for folder, _ in owners}):
            for key in await listed(self._files, folder):
                name = key.removeprefix(folder)
                ordinal = commit_ordinal(name)
                if ordinal is not None and (folder, owner_prefix(name)) in owners:
                    keys.setdefault(ordinal, []).append(key)
        return keys


class Log:
    """The earlier metadata files that a metadata file remembers, and itself.

    Args:
        leading: the document that names it.
        metadata: what stands in it.
        where: the metadata file.

    Raises:
        MalformedMetadata: the metadata-log is none.
    """

    def __init__(self, leading: Found, metadata: Metadata, where: str) -> None:
        self._leading, self._where = leading, where
        logged = [(logged.timestamp_ms, logged.metadata_file) for logged in metadata.logged(where)]
        last = leading.doc.ordinal if metadata.last_updated_ms is None else metadata.last_updated_ms
        self._files = [*logged, (last, leading.doc.metadata_file_path)]

    def entries(self, limit: int) -> list[Entry]:
        """The newest, in order.

        A time that can't be one, as writers in microseconds leave it, becomes the nearest Ordinal that there is.
        """
        earlier = [
            Entry(_clamped(at), file, None, gap=0, written_at=None, state=DocumentState.CURRENT, source=Source.LOG)
            for at, file in self._files[:-1]
        ]
        return [*earlier, entry(self._leading, Source.LEADING)][-limit:]

    def as_of(self, ordinal: int) -> Then:
        """What was current at a time.

        Raises:
            CommitNotFound: that was before the first that is remembered, or these times do not tell: they are not in
                order, as where a writer's clock ran backwards, or can't be times.
        """
        checked_times(self._files, "metadata-log", self._where)
        is_earlier = [at <= ordinal for at, _ in self._files]
        number = sum(is_earlier)
        if number == len(is_earlier):
            return Then(self._leading)
        if number and all(is_earlier[:number]):
            earlier = replace(self._leading, doc=_earlier(self._leading.doc, *self._files[number - 1]))
            return Then(earlier, is_latest=False)
        raise CommitNotFound(
            self._leading.doc.metadata_file_path,
            expected=f"in its metadata-log what was current at {render_ordinal(ordinal)}",
            found="times that are not in order" if number else f"nothing before {render_ordinal(self._files[0][0])}",
            remedy="a timeline of every commit is what `naming = ordinal` is for",
        )


def entry(found: Found, source: Source) -> Entry:
    """What a document says of its commit."""
    doc = found.doc
    return Entry(doc.ordinal, doc.metadata_file_path, doc.snapshot_id, doc.gap, doc.written_at, doc.state, source)


def _clamped(milliseconds: int) -> int:
    return min(max(milliseconds, 0), LAST_ORDINAL)


def _earlier(doc: Document, ordinal: int, file: str) -> Document:
    return replace(
        doc,
        ordinal=ordinal,
        metadata_file_path=file,
        metadata_file_relative=_beside(doc, file),
        snapshot_id=None,
        gap=0,
        between=(),
    )


def _beside(doc: Document, file: str) -> str | None:
    """Where a metadata file lies relative to a document, if that is in the same folder as the document's own."""
    folder, _, name = canonical(file).rpartition("/")
    own, _, _ = canonical(doc.metadata_file_path).rpartition("/")
    if doc.metadata_file_relative is None or folder != own:
        return None
    way, slash, _ = doc.metadata_file_relative.rpartition("/")
    return f"{way}{slash}{name}"


def _built(commit: CommitEntry, head: Document) -> Document:
    return replace(
        _earlier(head, commit.ordinal, commit.metadata_file_path), gap=commit.gap, state=DocumentState.CURRENT
    )
