"""How a reader finds a table's current metadata file (specification, section 5). It never guesses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from sfn.clock import Clock, SystemClock
from sfn.errors import CommitNotFound, Stale, WrongTable
from sfn.pointer.document import Document, render_ordinal
from sfn.pointer.naming import MAIN_BRANCH
from sfn.reader import metadata, relative
from sfn.reader.boundary import Bounded
from sfn.reader.branches import Branch
from sfn.reader.documents import Found
from sfn.reader.files import Counted, Files, Requests
from sfn.reader.lookup import How, Lookup
from sfn.reader.metadata import Metadata
from sfn.reader.opening import Opening
from sfn.reader.timeline import Commits, Entry, Log, Then, has_commits
from sfn.reader.trust import Trust
from sfn.reader.wanted import Wanted

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
        allowed: canonical prefixes below which files may lead, beside the directory; see `Trust`.
    """

    directory: str
    table: tuple[str, ...] | None = None
    uuid: str | None = None
    ref: str = MAIN_BRANCH
    as_of: int | None = None
    relative: bool = False
    allowed: tuple[str, ...] = ()

    @property
    def trust(self) -> Trust:
        """Where files may lead."""
        return Trust(self.directory, self.allowed)

    @property
    def wanted(self) -> Wanted:
        """Which table."""
        return Wanted(self.table, self.uuid)


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
        how: what the table was found by.
        via: URLs of the documents that forwarded to it.
        lost: with `as_of`, the commits right after this one that nothing tells of: any may have been current then.
        requests: what the store was asked for all this.
        age: how long ago the catalog said so.
        trust: where the files that it names may lie.
    """

    metadata_location: str
    document: Document
    sfn_file: str
    ref: str
    snapshot_id: int | None
    how: How
    via: tuple[str, ...]
    lost: int
    requests: Requests
    age: timedelta = field(compare=False)
    trust: Trust = field(repr=False, compare=False)
    opening: Opening = field(default_factory=Opening, repr=False, compare=False)

    @property
    def written_at(self) -> datetime:
        """When the catalog's answer arrived that this rests on."""
        return self.document.written_at

    @property
    def files(self) -> Bounded:
        """What its metadata names, opened as the table was."""
        return Bounded(self.opening.storage(), self.trust)

    def table(self, properties: Mapping[str, str] | None = None) -> StaticTable:
        """The table as PyIceberg reads it, pinned to the branch or tag.

        Args:
            properties: how PyIceberg opens its files (`s3.endpoint` and so on); without them they are opened as those
                beside them were. See `sfn.reader.table.pinned`.
        """
        from sfn.reader.table import pinned

        return pinned(self, properties)


async def answer(files: Files, question: Question, opening: Opening, clock: Clock = _CLOCK) -> Resolved:
    """The metadata file that a reader asks for.

    Args:
        files: how to read.
        opening: what they were opened with.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
    """
    search = _Search(Counted(files), question, clock.now())
    try:
        return await search.run(opening)
    except Stale:
        # It may have been replaced while it was read.
        return await search.run(opening)


@dataclass(frozen=True, slots=True)
class Pointer:
    """Which metadata file is a table's, before anybody looked into it.

    Attributes:
        key: its canonical URL.
        then: the document that says so.
    """

    key: str
    then: Then


async def pointer(files: Files, question: Question, clock: Clock = _CLOCK) -> Pointer:
    """The metadata file that a reader asks for, unopened: of a branch or tag without a file of its own the table's.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
    """
    return await _Search(Counted(files), question, clock.now()).pointer()


async def history(files: Files, question: Question, limit: int, clock: Clock = _CLOCK) -> list[Entry]:
    """The newest commits of a table, in order: of its files of single commits, else of its metadata-log.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
    """
    search = _Search(Counted(files), question, clock.now())
    try:
        return await search.timeline(limit)
    except Stale:
        return await search.timeline(limit)


class _Search:
    """One search for an answer."""

    def __init__(self, files: Counted, question: Question, now: datetime) -> None:
        self._files, self._question, self._now = files, question, now
        self._trust = question.trust

    async def pointer(self) -> Pointer:
        """Where its metadata file lies."""
        then, _ = await self._found()
        return Pointer(self._place(then.found)[1], then)

    async def run(self, opening: Opening) -> Resolved:
        """The answer."""
        then, how = await self._found()
        return await self._opened(then, how, opening)

    async def _found(self) -> tuple[Then, How]:
        """The document, and what it was found by."""
        question, wanted = self._question, self._question.wanted
        lookup = Lookup(self._files, self._trust, wanted)
        if question.as_of is not None:
            return await self._then(lookup, question.as_of)
        if question.ref == MAIN_BRANCH:
            found, how = await lookup.leading()
            return Then(found), how
        branch = Branch(self._files, self._trust, question.ref)
        if (named := await branch.by_name(wanted)) is not None:
            return Then(named), How.NAME
        leading, how = await lookup.leading()
        return Then(await branch.beside(leading) or leading), how

    async def timeline(self, limit: int) -> list[Entry]:
        """The commits."""
        lookup = Lookup(self._files, self._trust, self._question.wanted)
        leading, _ = await lookup.leading(even_dropped=True)
        if has_commits(leading):
            return await Commits(self._files, leading).entries(limit)
        if not leading.doc.is_live:
            raise lookup.refusal()
        return (await self._log(leading)).entries(limit)

    async def _then(self, lookup: Lookup, ordinal: int) -> tuple[Then, How]:
        leading, how = await lookup.leading(even_dropped=True)
        if not leading.doc.is_live and not (has_commits(leading) and ordinal < _milliseconds(leading.doc.written_at)):
            raise lookup.refusal()
        if has_commits(leading):
            return await Commits(self._files, leading).as_of(ordinal), how
        return (await self._log(leading)).as_of(ordinal), how

    async def _log(self, leading: Found) -> Log:
        _, key = self._place(leading)
        return Log(leading, await self._contents(key, leading), key)

    def _place(self, found: Found) -> tuple[str, str]:
        """Where the metadata file of a document lies, and its canonical URL."""
        location = relative.location(found) if self._question.relative else found.doc.metadata_file_path
        return location, self._trust.place(location, found.key)

    async def _contents(self, key: str, found: Found) -> Metadata:
        contents = await metadata.contents(self._files, key)
        if contents is None:
            raise metadata.gone(key, found.doc, found.key, self._now)
        metadata.compare(key, contents.table_uuid, found.doc, found.key)
        return contents

    async def _opened(self, then: Then, how: How, opening: Opening) -> Resolved:
        """What is found, once its metadata file was looked into."""
        found, ref = then.found, self._question.ref
        location, key = self._place(found)
        snapshot = found.doc.snapshot_id
        try:
            if ref == found.doc.ref:
                await metadata.check(self._files, key, found.doc, found.key, self._now)
            else:
                snapshot = (await self._contents(key, found)).head(ref, key)
        except Stale as stale:
            if then.is_latest or isinstance(stale, WrongTable):
                raise
            raise _expired(key, then) from None
        age = self._now - found.doc.written_at
        return Resolved(
            location,
            found.doc,
            found.key,
            ref,
            snapshot,
            how,
            found.via,
            then.lost,
            self._files.requests,
            age,
            self._trust,
            opening,
        )


def _expired(key: str, then: Then) -> CommitNotFound:
    return CommitNotFound(
        key,
        expected=f"the metadata file that was current at {render_ordinal(then.found.doc.ordinal)}",
        found="that it was deleted since",
        remedy="keep them longer: `write.metadata.previous-versions-max` of the table, and whatever else deletes them",
    )


def _milliseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(milliseconds=1)
